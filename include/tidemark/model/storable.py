"""The limits of the values that a sink can store. Sinks declare them, an order carries them to Spark, and the pass over
the records checks them.

Standard library only: pipeline files are checked without Arrow.
"""

from dataclasses import dataclass
from typing import Any, Final

YEAR_1: Final = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z, in microseconds since 1970
YEAR_10000: Final = 253_402_300_800_000_000  # exclusive


@dataclass(frozen=True)
class RowCheck:
    """A check of rows that a kind of sink brings: a module, which executors import, and the options of its function
    ``bad_rows``, as values for JSON.

    ``bad_rows(rows, **options)`` returns a ``BadRecord`` for each row that the sink cannot store, ascending.
    """

    module: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Storable:
    """The limits of a sink beyond those of every sink, which are: times in the years 1 to 9999, decimals of at most 38
    digits, maps with each key once.

    ``sink``: the name of the sink in a reason, such as "PostgreSQL". ``nul``: text may contain the character NUL.
    """

    sink: str = "Tidemark"
    nul: bool = True
    checks: tuple[RowCheck, ...] = ()


def storable_from(content: dict[str, Any]) -> Storable:
    """Return the limits from the JSON values of an order."""
    return Storable(**{**content, "checks": tuple(RowCheck(**check) for check in content["checks"])})
