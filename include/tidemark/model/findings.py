"""The results of the checks of ``tidemark doctor``. A finding must not contain a secret, because it is printed."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

GIB = 1 << 30
CLOCK_S = 5.0  # a larger difference of clocks is a warning: cuts are times


class Severity(StrEnum):
    """The severity of a finding; only ``failed`` stops a pipeline from working."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One result of a check; ``next_step`` is empty if there is nothing to do."""

    check: str
    severity: Severity
    message: str
    next_step: str = ""


def ok(check: str, message: str) -> Finding:
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, next_step: str) -> Finding:
    return Finding(check, Severity.WARNING, message, next_step)


def failed(check: str, message: str, next_step: str) -> Finding:
    return Finding(check, Severity.FAILED, message, next_step)


def clock(check: str, owner: str, ahead: float) -> Finding:
    """Return a finding about the clock of ``owner``, which is ``ahead`` of this machine's by so many seconds (negative:
    behind)."""
    if abs(ahead) <= CLOCK_S:
        return ok(check, f"the clock of {owner} agrees with this machine's within {abs(ahead):.1f} s")
    direction = "ahead of" if ahead > 0 else "behind"
    return warning(
        check,
        f"the clock of {owner} is {abs(ahead):,.0f} s {direction} this machine's",
        "synchronise both clocks by NTP: cuts are times",
    )


def disk_space(check: str, folder: Path) -> Iterator[Finding]:
    """Yield a finding about the free space on the disk of a folder; the folder need not exist yet."""
    place = existing(folder)
    free = shutil.disk_usage(place).free
    message = f"{free / GIB:.1f} GiB free at {place}"
    if free < GIB:
        yield warning(check, message, "free some space: staging holds the output of every running attempt")
    else:
        yield ok(check, message)


def existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
