"""How the checks of ``tidemark doctor`` are run: each within its time, none hiding another."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidemark.errors import TidemarkError
from tidemark.findings import Finding, failed

TIMEOUT_S = 15.0  # above what a broker (10 s) and a database (5 s) are given to answer


@dataclass(frozen=True)
class Check:
    """A function that yields findings, and the seconds it may take."""

    name: str
    run: Callable[[], Iterable[Finding]]
    timeout: float = TIMEOUT_S


def examine(checks: Iterable[Check], begin: Callable[[Check], None]) -> Iterator[Finding]:
    """Every finding of every check; one that raises or hangs is a finding too. ``begin`` hears of each beforehand."""
    for check in checks:
        begin(check)
        yield from _examine(check)


def _examine(check: Check) -> list[Finding]:
    found: list[Finding] = []
    worker = threading.Thread(target=_run, args=(check, found), name=f"check {check.name}", daemon=True)
    worker.start()
    worker.join(check.timeout)
    if worker.is_alive():
        late = failed(
            check.name,
            f"no answer within {check.timeout:.0f} s",
            "something on the way to it drops packets, or it is overloaded; try again from this machine by hand",
        )
        return [*found, late]
    return found


def _run(check: Check, found: list[Finding]) -> None:
    try:
        for one in check.run():
            found.append(one)  # noqa: PERF402 -- what was found before an error counts
    except TidemarkError as error:
        found.append(failed(check.name, error.what, error.next_step))
    except Exception as error:
        found.append(failed(check.name, f"the check itself failed ({type(error).__name__})", "report this defect"))
