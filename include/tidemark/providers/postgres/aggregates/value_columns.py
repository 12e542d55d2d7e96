"""The value columns of a table of totals: counts, sums, minima and maxima.

Executors use it too, so it imports only the standard library.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

WINDOW = "window_start"  # the column with the first moment of the window, in UTC
ROWS = "_rows"  # the column with the number of records
WORDS = r"^count$|^(count|sum|min|max|average)\(([^()]+)\)$"


class Function(StrEnum):
    COUNT = "count"  # counts records, or only those in which a column is not null
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class ValueColumn:
    """A column of totals beside the key. ``source`` is the column of the rows from which it is computed; None counts
    records."""

    name: str
    function: Function
    source: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the column as values for JSON."""
        return {"column": self.name, "function": self.function, "source": self.source}


def value_columns(values: Mapping[str, str]) -> Iterator[ValueColumn]:
    """Yield the columns of values such as ``sum(price)``. An average is stored as its sum and its count."""
    for name, text in values.items():
        match = re.match(WORDS, text)
        assert match is not None, "settings are checked before"
        if match[1] == "average":
            yield ValueColumn(f"{name}_sum", Function.SUM, match[2])
            yield ValueColumn(f"{name}_count", Function.COUNT, match[2])
        else:
            yield ValueColumn(name, Function(match[1] or "count"), match[2])


def value_columns_from(raw: Iterable[Mapping[str, Any]]) -> list[ValueColumn]:
    """Return the columns from their JSON form."""
    return [ValueColumn(column["column"], Function(column["function"]), column["source"]) for column in raw]
