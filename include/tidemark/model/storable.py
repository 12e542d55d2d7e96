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
class Storable:
    """Limits beside those that every sink has: times of the years 1 to 9999, decimals of at most 38 digits.

    ``sink``: the words for the sink in a reason, such as "PostgreSQL". ``nul``: text may hold the character NUL.
    ``nested_nan``: NaN and the infinities may stand inside lists, structs and maps; beside them they always may.
    ``key``: how long the key of a row may be.
    """

    sink: str = "Tidemark"
    nul: bool = True
    nested_nan: bool = True
    key: KeyLimit | None = None


def storable_from(content: dict[str, Any]) -> Storable:
    """Return the declaration that an order has as values for JSON."""
    key = content["key"]
    limit = None if key is None else KeyLimit(**{**key, "columns": tuple(key["columns"])})
    return Storable(**{**content, "key": limit})
