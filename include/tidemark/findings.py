"""What a check of ``tidemark doctor`` says. No secret stands in it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

GIB = 1 << 30
CLOCK_S = 5.0  # a clock that differs by more gets a warning: cuts are times


class Severity(StrEnum):
    """How a check ended; only ``failed`` will keep a pipeline from working."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``next_step`` is empty when there is nothing to do."""

    check: str
    severity: Severity
    said: str
    next_step: str = ""


def ok(check: str, said: str) -> Finding:
    return Finding(check, Severity.OK, said)


def warning(check: str, said: str, next_step: str) -> Finding:
    return Finding(check, Severity.WARNING, said, next_step)


def failed(check: str, said: str, next_step: str) -> Finding:
    return Finding(check, Severity.FAILED, said, next_step)


def clock(check: str, whose: str, ahead: float) -> Finding:
    """Compare a clock with this machine's; ``ahead`` in seconds, negative when it is behind."""
    if abs(ahead) <= CLOCK_S:
        return ok(check, f"the clock of {whose} and ours agree within {abs(ahead):.1f} s")
    way = "ahead of" if ahead > 0 else "behind"
    return warning(
        check,
        f"the clock of {whose} is {abs(ahead):,.0f} s {way} this machine's",
        "synchronise both machines by NTP: a cut is a time, and it decides when an hour is complete",
    )


def room(check: str, folder: Path) -> Iterator[Finding]:
    """Free space on the disk of a folder, which need not exist yet."""
    nearest = existing(folder)
    free = shutil.disk_usage(nearest).free
    said = f"{free / GIB:.1f} GiB free at {nearest}"
    if free < GIB:
        yield warning(check, said, "free some space: staging holds the output of every running attempt")
    else:
        yield ok(check, said)


def existing(folder: Path) -> Path:
    """The folder, or the nearest folder above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
