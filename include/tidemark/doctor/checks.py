"""Runs the checks of ``tidemark doctor``. Each has a time limit, and an error in one does not stop the others."""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidemark.errors import TidemarkError, about
from tidemark.model.findings import Finding, failed

TIMEOUT_S = 15.0  # longer than a broker (10 s) and a database (5 s) may take to answer
UNREACHED = "the service is overloaded, or a firewall drops packets; try to connect from this machine by hand"


@dataclass(frozen=True)
class Check:
    """A function that yields findings, its time limit in seconds, the next step if that is exceeded, and the pipeline
    for the next step of an error.
    """

    name: str
    run: Callable[[], Iterable[Finding]]
    timeout: float = TIMEOUT_S
    when_late: str = UNREACHED
    pipeline_name: str | None = None


def examine(checks: Iterable[Check], begin: Callable[[Check], None]) -> Iterator[Finding]:
    """Yield every finding of every check. A check that raises or exceeds its time limit gives a finding too.

    ``begin`` is called with each check before it runs.
    """
    for check in checks:
        begin(check)
        yield from _examine(check)


def _examine(check: Check) -> list[Finding]:
    findings: list[Finding] = []
    worker = threading.Thread(target=_run, args=(check, findings), name=f"check {check.name}", daemon=True)
    worker.start()
    worker.join(check.timeout)
    if worker.is_alive():
        return [*findings, failed(check.name, f"no answer within {check.timeout:.0f} s", check.when_late)]
    return findings


def _run(check: Check, findings: list[Finding]) -> None:
    try:
        with about(pipeline=check.pipeline_name):
            for finding in check.run():
                findings.append(finding)  # noqa: PERF402 -- findings before an error count
    except TidemarkError as error:
        findings.append(failed(check.name, error.what, error.next_step))
    except OSError as error:
        findings.append(_system_error(check.name, error))
    except Exception as error:
        findings.append(failed(check.name, f"the check itself failed ({type(error).__name__})", "report this bug"))


def _system_error(name: str, error: OSError) -> Finding:
    """Return a finding for an error of a file system or a network, which is no error of Tidemark."""
    message = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        message = f"{message}: {error.filename}"
    match error.errno:
        case errno.EROFS:
            step = "mount the disk so that it can be written"
        case errno.EACCES | errno.EPERM:
            step = "give this user the right to it"
        case errno.ENOSPC | errno.EDQUOT:
            step = "free some space there"
        case _:
            step = "correct what the message names"
    return failed(name, message, f"{step}, then repeat the command")
