"""The limits of the values that a sink can store. Sinks declare them, an order carries them to Spark, and the pass over
the records checks them.

Standard library only: pipeline files are checked without Arrow.
"""

from dataclasses import dataclass
from typing import Any, Final

YEAR_1: Final = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z, in microseconds since 1970
YEAR_10000: Final = 253_402_300_800_000_000  # exclusive


@dataclass(frozen=True)
class KeyLimit:
    """The most bytes of a key in a sink; the key is the text of a JSON array of these columns."""

    sink: str
    columns: tuple[str, ...]
    bytes: int


NO_LIMIT: Final = 2**31  # bytes; no message is that large


@dataclass(frozen=True)
class ValueForm:
    """The form of the values of messages: the module with ``values_of(schema)`` that the sink's writer uses, and the
    schema as JSON."""

    module: str
    schema: str


@dataclass(frozen=True)
class MessageLimit:
    """The most bytes of the message of a row, after compression.

    ``key``: the columns that make the key; empty for the record's own key. ``value``: the column that is the value;
    None for all columns, as ``values`` writes them or else as a JSON object. ``keyed``: a message must have a key.
    """

    topic: str
    key: tuple[str, ...]
    value: str | None
    compression: str
    bytes: int = NO_LIMIT
    keyed: bool = False
    values: ValueForm | None = None


@dataclass(frozen=True)
class RequiredColumns:
    """The columns and nested fields of a sink's table that must not be null. ``lines.element.sku`` is a field of the
    structs in the list ``lines``."""

    sink: str
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Storable:
    """The limits of a sink beyond those of every sink, which are: times in the years 1 to 9999, decimals of at most 38
    digits, maps with each key once.

    ``sink``: the name of the sink in a reason, such as "PostgreSQL". ``nul``: text may contain the character NUL.
    ``key`` and ``message``: the longest key and message of a row. ``required``: what must not be null.
    """

    sink: str = "Tidemark"
    nul: bool = True
    key: KeyLimit | None = None
    message: MessageLimit | None = None
    required: RequiredColumns | None = None


def storable_from(content: dict[str, Any]) -> Storable:
    """Return the limits from the JSON values of an order."""
    key, message, required = content["key"], content["message"], content["required"]
    key_limit = None if key is None else KeyLimit(**{**key, "columns": tuple(key["columns"])})
    message_limit = None if message is None else _message_from(message)
    never_null = None if required is None else RequiredColumns(required["sink"], tuple(map(tuple, required["paths"])))
    return Storable(**{**content, "key": key_limit, "message": message_limit, "required": never_null})


def _message_from(content: dict[str, Any]) -> MessageLimit:
    values = content["values"]
    made = None if values is None else ValueForm(**values)
    return MessageLimit(**{**content, "key": tuple(content["key"]), "values": made})
