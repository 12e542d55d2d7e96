"""Dead letters as they are read back from a sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.decoders.base import ErrorClass

ERROR_CLASSES = tuple(kind.value for kind in ErrorClass)
PAGE = 1_000  # dead letters in memory at a time, if they are read without keys, values and headers
PAGE_OF_VALUES = 10  # dead letters in memory at a time with these: a value may have many megabytes


@dataclass(frozen=True)
class DeadLetter:
    """A record that cannot be used; ``timestamp`` is that of the record in the source.

    ``key``, ``value`` and ``headers`` are also None if they were not asked for.
    """

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    error_class: str
    reason: str
    schemas: str | None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


PLACE_AND_REASON = ("_topic", "_partition", "_offset", "_timestamp", "_error_class", "_reason", "_schemas")
CONTENT = ("_key", "_value", "_headers")


def columns_of(*, values: bool) -> tuple[str, ...]:
    """Return the columns to read for ``dead_letter``."""
    return PLACE_AND_REASON + (CONTENT if values else ())


def dead_letter(row: Mapping[str, Any]) -> DeadLetter:
    """Return a dead letter from the columns of ``columns_of``; headers are mappings with ``key`` and ``value``."""
    headers = row.get("_headers")
    pairs = None if headers is None else tuple((header["key"], header["value"]) for header in headers)
    place = {name.removeprefix("_"): row[name] for name in PLACE_AND_REASON}
    return DeadLetter(**place, key=row.get("_key"), value=row.get("_value"), headers=pairs)
