"""Items of DynamoDB: totals and contributions as plain attributes, which any client reads.

A total has the columns of its key, its values, ``_rows`` and ``_revision``; a contribution has ``_manifest_id``,
``_attempt`` and ``_token`` too. ``_key``, the partition key of both, is the values of the key as a JSON array. A value
that is null has no attribute. Times are text, in UTC: text of one width, so that it sorts as time does.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from hashlib import blake2b, sha256
from typing import Any, assert_never

from tidemark.sinks.aggregates.value_columns import ROWS, WINDOW, Function, ValueColumn

KEY, MANIFEST, ATTEMPT, TOKEN, REVISION = "_key", "_manifest_id", "_attempt", "_token", "_revision"
LONGEST_KEY = 2_048  # bytes of a partition key
DIGITS = 38  # of a number in DynamoDB
EXACT = Context(prec=200)  # of sums; Python rounds to 28 digits by itself

Attribute = dict[str, Any]
Item = dict[str, Attribute]


@dataclass(frozen=True)
class KeyGroup:
    """The values of the records of one key; ``columns`` are the attributes of its key, ``values`` go with the value
    columns."""

    key: str
    columns: Item
    rows: int
    values: tuple[Any, ...]

    def attributes(self, value_columns: Sequence[ValueColumn]) -> Item:
        """All but the keys of the table."""
        pairs = zip(value_columns, self.values, strict=True)
        values = {column.name: attribute(value) for column, value in pairs if value is not None}
        return {**self.columns, ROWS: attribute(self.rows), **values}

    def too_many_digits(self, value_columns: Sequence[ValueColumn]) -> str | None:
        """The column of a value that has more digits than DynamoDB keeps."""
        for column, value in zip(value_columns, self.values, strict=True):
            if isinstance(value, Decimal) and len(EXACT.normalize(value).as_tuple().digits) > DIGITS:
                return column.name
        return None

    def checksum(self) -> int:
        """A number that changes with key and values; those of a manifest are added up modulo 2^64."""
        values = [None if value is None else _text(value) for value in self.values]
        content = json.dumps([self.key, self.rows, values]).encode()
        return int.from_bytes(blake2b(content, digest_size=8).digest())


def group_of_row(row: Mapping[str, Any], key: Sequence[str], value_columns: Sequence[ValueColumn]) -> KeyGroup:
    """From a row of staged groups."""
    columns = {name: attribute(plain(row[name], whole_seconds=name == WINDOW)) for name in key}
    values = tuple(plain(row[column.name]) for column in value_columns)
    return KeyGroup(key_text(columns[name] for name in key), columns, row[ROWS], values)


def group_of_item(item: Item, key: Sequence[str], value_columns: Sequence[ValueColumn]) -> KeyGroup:
    """From a total or a contribution as it is stored; what somebody took out of it by hand is missing."""
    columns = {name: item[name] for name in key if name in item}
    values = tuple(value_of(item[column.name]) if column.name in item else None for column in value_columns)
    rows = int(value_of(item[ROWS])) if ROWS in item else 0
    return KeyGroup(value_of(item[KEY]), columns, rows, values)


def combined(groups: Iterable[KeyGroup], value_columns: Sequence[ValueColumn]) -> KeyGroup | None:
    """The groups of one key together; None of none."""
    together: KeyGroup | None = None
    for group in groups:
        together = group if together is None else of_both(together, group, value_columns)
    return together


def of_both(first: KeyGroup, second: KeyGroup, value_columns: Sequence[ValueColumn]) -> KeyGroup:
    """Two groups of one key together."""
    values = tuple(
        _of_two(column.function, mine, others)
        for column, mine, others in zip(value_columns, first.values, second.values, strict=True)
    )
    return KeyGroup(first.key, first.columns, first.rows + second.rows, values)


def _of_two(function: Function, mine: Any, other: Any) -> Any:
    if mine is None or other is None:
        return other if mine is None else mine
    match function:
        case Function.COUNT | Function.SUM:
            return EXACT.add(mine, other)
        case Function.MIN:
            return min(mine, other)
        case Function.MAX:
            return max(mine, other)
        case _:
            assert_never(function)


def plain(value: Any, *, whole_seconds: bool = False) -> Any:
    """A value of Arrow as a number, a text, a truth value or bytes."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="seconds" if whole_seconds else "microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


def attribute(value: Any) -> Attribute:
    match value:
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": f"{value:f}" if isinstance(value, Decimal) else str(value)}
        case bytes():
            return {"B": value}
        case _:
            return {"S": value}


def value_of(stored: Attribute) -> Any:
    [(kind, value)] = stored.items()
    return Decimal(value) if kind == "N" else value


def key_text(columns: Iterable[Attribute]) -> str:
    """The key of an item: numbers as they are, all else in quotes. One that is too long is a hash."""
    texts = [_key_part(column) for column in columns]
    text = f"[{', '.join(texts)}]"
    return text if len(text.encode()) <= LONGEST_KEY else f"sha256:{sha256(text.encode()).hexdigest()}"


def _key_part(column: Attribute) -> str:
    [(kind, value)] = column.items()
    if kind == "N":
        return str(value)
    return json.dumps(b64encode(value).decode() if kind == "B" else value, ensure_ascii=False)


def _text(value: Any) -> str:
    return f"{EXACT.normalize(value):f}" if isinstance(value, Decimal) else str(value)
