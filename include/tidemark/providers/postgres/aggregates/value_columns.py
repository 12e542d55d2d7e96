"""The value columns of a table of totals: counted, added up, or the least or greatest of their values.

Executors use it too, so it imports the standard library only.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

WINDOW = "window_start"  # the column of a window's first moment, UTC
ROWS = "_rows"  # the column with the number of records
WORDS = r"^count$|^(count|sum|min|max|average)\(([^()]+)\)$"


class Function(StrEnum):
    COUNT = "count"  # of records, or of those where a column is not null
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class ValueColumn:
    """A column of totals beside the key; ``source`` is the column of the rows that it is made of, None when records are
    counted."""

    name: str
    function: Function
    source: str | None

    def as_dict(self) -> dict[str, Any]:
        """As values for JSON."""
        return {"column": self.name, "function": self.function, "source": self.source}


def value_columns(values: Mapping[str, str]) -> Iterator[ValueColumn]:
    """The columns of values such as ``sum(price)``; an average is kept as its sum and its count."""
    for name, text in values.items():
        match = re.match(WORDS, text)
        assert match is not None, "settings are checked before"
        if match[1] == "average":
            yield ValueColumn(f"{name}_sum", Function.SUM, match[2])
            yield ValueColumn(f"{name}_count", Function.COUNT, match[2])
        else:
            yield ValueColumn(name, Function(match[1] or "count"), match[2])


def value_columns_from(raw: Iterable[Mapping[str, Any]]) -> list[ValueColumn]:
    """The columns as JSON holds them."""
    return [ValueColumn(column["column"], Function(column["function"]), column["source"]) for column in raw]
