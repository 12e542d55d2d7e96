"""What a check of ``tidemark doctor`` says. No secret stands in it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

GIB = 1 << 30
CLOCK_S = 5.0  # a clock that differs by more is worth a word: cuts are times


class Severity(StrEnum):
    """How a check ended; only ``failed`` will keep a pipeline from working."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``next_step`` is empty when there is nothing to do."""

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
    """How far a clock is ahead of this machine's, in seconds; negative: behind."""
    if abs(ahead) <= CLOCK_S:
        return ok(check, f"the clock of {whose} and ours agree within {abs(ahead):.1f} s")
    way = "ahead of" if ahead > 0 else "behind"
    return warning(
        check,
        f"the clock of {whose} is {abs(ahead):,.0f} s {way} this machine's",
        "let both machines keep time by NTP: a cut is a time, and completeness of an hour is judged by it",
    )


def room(check: str, folder: Path) -> Iterator[Finding]:
    """Free space on the disk of a folder, which need not exist yet."""
    there = existing(folder)
    free = shutil.disk_usage(there).free
    said = f"{free / GIB:.1f} GiB free at {there}"
    if free < GIB:
        yield warning(check, said, "make room: staging holds the output of every attempt at work")
    else:
        yield ok(check, said)


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
