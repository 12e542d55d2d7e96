"""What a sink says of one offset."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemark.receipt import ObjectKind


class Standing(StrEnum):
    """What became of an offset, in one sink or as a whole; the first that applies to some sink stands for all."""

    HELD = "held"  # a row or a dead letter is there
    MISSING = "missing"  # published, and not where it should be
    UNREAD = "unread"  # published, but the sink could not be asked
    REPLACED = "replaced"  # a newer row of its key has taken its place in the table
    NO_RECORD = "no record"  # published; no reader of the source could see a record there
    UNPUBLISHED = "unpublished"
    LOST = "lost"
    NOT_PLANNED = "not planned"
    BEFORE_ANCHOR = "before the anchor"


@dataclass(frozen=True)
class Located:
    """What one sink holds; ``place`` is a path or a table, ``key`` names the row of a table."""

    sink: str
    attempt: int | None
    standing: Standing
    said: str
    kind: ObjectKind | None = None
    place: str | None = None
    key: dict[str, Any] | None = None
