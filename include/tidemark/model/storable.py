"""The values that a sink can store, as data that an order carries. Sinks declare them, and the pass checks them.

Standard library only: pipeline files are checked without Arrow.
"""

from dataclasses import dataclass
from typing import Any, Final

YEAR_1: Final = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z, in microseconds since 1970
YEAR_10000: Final = 253_402_300_800_000_000  # exclusive


@dataclass(frozen=True)
class KeyLimit:
    """The most bytes that a key may have in a sink: the text of a JSON array of these columns."""

    sink: str
    columns: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class MessageLimit:
    """The most bytes that the message of a row may have after compression.

    ``key``: the columns that make the key, none for the record's own. ``value``: the column that is the value, None for
    a JSON object of all columns. ``keyed``: a message must have a key.
    """

    topic: str
    key: tuple[str, ...]
    value: str | None
    compression: str
    bytes: int
    keyed: bool


@dataclass(frozen=True)
class Storable:
    """Limits beside those that every sink has: times of the years 1 to 9999, decimals of at most 38 digits, maps with
    each key once.

    ``sink``: the words for the sink in a reason, such as "PostgreSQL". ``nul``: text may hold the character NUL.
    ``key``: how long the key of a row may be. ``message``: how long its message may be.
    """

    sink: str = "Tidemark"
    nul: bool = True
    key: KeyLimit | None = None
    message: MessageLimit | None = None


def storable_from(content: dict[str, Any]) -> Storable:
    """Return the declaration that an order has as values for JSON."""
    key, message = content["key"], content["message"]
    key_limit = None if key is None else KeyLimit(**{**key, "columns": tuple(key["columns"])})
    message_limit = None if message is None else MessageLimit(**{**message, "key": tuple(message["key"])})
    return Storable(**{**content, "key": key_limit, "message": message_limit})
