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


NO_LIMIT: Final = 2**31  # bytes; no message has so many


@dataclass(frozen=True)
class ValueForm:
    """The form in which the values of messages are made: a module with ``values_of(schema)``, as a writer of the sink
    uses it, and the schema as JSON."""

    module: str
    schema: str


@dataclass(frozen=True)
class MessageLimit:
    """The most bytes that the message of a row may have after compression.

    ``key``: the columns that make the key, none for the record's own. ``value``: the column that is the value, None for
    all columns, as ``values`` writes them, or as a JSON object. ``keyed``: a message must have a key.
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
    """The columns that the table of a sink does not take null in, and the fields inside columns: ``lines.element.sku``
    is a field of the structs in the list ``lines``."""

    sink: str
    paths: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Storable:
    """Limits beside those that every sink has: times of the years 1 to 9999, decimals of at most 38 digits, maps with
    each key once.

    ``sink``: the words for the sink in a reason, such as "PostgreSQL". ``nul``: text may hold the character NUL.
    ``key``: how long the key of a row may be. ``message``: how long its message may be. ``required``: what may not be
    null.
    """

    sink: str = "Tidemark"
    nul: bool = True
    key: KeyLimit | None = None
    message: MessageLimit | None = None
    required: RequiredColumns | None = None


def storable_from(content: dict[str, Any]) -> Storable:
    """Return the declaration that an order has as values for JSON."""
    key, message, required = content["key"], content["message"], content["required"]
    key_limit = None if key is None else KeyLimit(**{**key, "columns": tuple(key["columns"])})
    message_limit = None if message is None else _message_from(message)
    never_null = None if required is None else RequiredColumns(required["sink"], tuple(map(tuple, required["paths"])))
    return Storable(**{**content, "key": key_limit, "message": message_limit, "required": never_null})


def _message_from(content: dict[str, Any]) -> MessageLimit:
    values = content["values"]
    made = None if values is None else ValueForm(**values)
    return MessageLimit(**{**content, "key": tuple(content["key"]), "values": made})
