"""The answer of a sink to the question where a record is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemark.model.receipt import ObjectKind


class RecordStatus(StrEnum):
    """The fate of an offset, in one sink or in all: in all sinks it is the first of these that is true in one."""

    HELD = "held"  # the sink has a row or a dead letter
    MISSING = "missing"  # published, but not in the sink
    UNREAD = "unread"  # published, but the sink could not be read
    REPLACED = "replaced"  # the table has a newer row of its key
    NO_RECORD = "no record"  # published; the source has no record that a reader can see at this offset
    UNPUBLISHED = "unpublished"
    LOST = "lost"
    NOT_PLANNED = "not planned"
    BEFORE_ANCHOR = "before the anchor"


@dataclass(frozen=True)
class Located:
    """The data that one sink has of an offset; ``place`` is a path or a table, ``key`` the key of a table's row."""

    sink: str
    attempt: int | None
    standing: RecordStatus
    message: str
    kind: ObjectKind | None = None
    place: str | None = None
    key: dict[str, Any] | None = None
