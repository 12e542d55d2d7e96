"""What a check says, and how checks are run: each within its time, none hiding another, none telling a secret."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tidemark.errors import TidemarkError

TIMEOUT_S = 15.0  # above what a broker (10 s) and a database (5 s) are given to answer
CLOCK_S = 5.0  # a clock that differs by more is worth a word: cuts are times


class Verdict(StrEnum):
    """How a check ended; only ``failed`` will keep a pipeline from working."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``next_step`` is empty when there is nothing to do."""

    check: str
    verdict: Verdict
    said: str
    next_step: str = ""


def ok(check: str, said: str) -> Finding:
    return Finding(check, Verdict.OK, said)


def warning(check: str, said: str, next_step: str) -> Finding:
    return Finding(check, Verdict.WARNING, said, next_step)


def failed(check: str, said: str, next_step: str) -> Finding:
    return Finding(check, Verdict.FAILED, said, next_step)


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


def clock(check: str, whose: str, ahead: float) -> Finding:
    """How far a clock is ahead of this machine's, in seconds; negative: behind."""
    if abs(ahead) <= CLOCK_S:
        return ok(check, f"the clock of {whose} and ours agree within {abs(ahead):.1f} s")
    way = "ahead of" if ahead > 0 else "behind"
    return warning(
        check,
        f"the clock of {whose} is {abs(ahead):,.0f} s {way} this machine's",
        "let both machines keep time by NTP: a cut is a time, and completeness of an hour is judged by it",
    )
