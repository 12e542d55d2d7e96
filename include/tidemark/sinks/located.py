"""The place of a record, as a sink finds it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemark.model.receipt import ObjectKind


class RecordStatus(StrEnum):
    """The status of an offset in one sink or in all. The status in all sinks is the first of these that is true in any
    sink."""

    HELD = "held"  # the sink has a row or a dead letter
    MISSING = "missing"  # published, but not in the sink
    UNREAD = "unread"  # published, but the sink could not be read
    REPLACED = "replaced"  # the table has a newer row of its key
    NO_RECORD = "no record"  # published; at this offset the source has no record that a reader can see
    UNPUBLISHED = "unpublished"
    LOST = "lost"
    NOT_PLANNED = "not planned"
    BEFORE_ANCHOR = "before the anchor"


@dataclass(frozen=True)
class Located:
    """The data of one sink for an offset; ``place`` is a path or a table, ``key`` the key of a table's row."""

    sink: str
    attempt: int | None
    standing: RecordStatus
    message: str
    kind: ObjectKind | None = None
    place: str | None = None
    key: dict[str, Any] | None = None
