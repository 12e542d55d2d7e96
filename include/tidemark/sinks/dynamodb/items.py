"""Items of DynamoDB: totals and contributions as plain attributes, which any client reads.

A total has the columns of its key, its values, ``_rows`` and ``_revision``; a contribution has ``_manifest_id``,
``_attempt`` and ``_token`` too. ``_key``, the partition key of both, is the values of the key as a JSON array, where a
number has one text, whatever its type: the shortest, or with the decimals that the table began with. A value that is
null has no attribute. Times are text, in UTC: text of one width, so that it sorts as time does.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal
from hashlib import blake2b, sha256
from itertools import product
from typing import Any, assert_never

import pyarrow as pa

from tidemark.sinks.aggregates.value_columns import ROWS, WINDOW, Function, ValueColumn

KEY, MANIFEST, ATTEMPT, TOKEN, REVISION = "_key", "_manifest_id", "_attempt", "_token", "_revision"
LONGEST_KEY = 2_048  # bytes of a partition key
DIGITS = 38  # of a number in DynamoDB
_HASH = "sha256:"
_TRIES = 300_000  # hashes, which take a second together
EXACT = Context(prec=200)  # of sums; Python rounds to 28 digits by itself

Attribute = dict[str, Any]
Item = dict[str, Attribute]


class TooManyDigits(Exception):
    """A total would have a number of more digits than DynamoDB keeps."""

    def __init__(self, column: str) -> None:
        super().__init__(f"{column} of a total would have more than the {DIGITS} digits that DynamoDB keeps")


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

    def refuse_too_many_digits(self, value_columns: Sequence[ValueColumn]) -> None:
        """Raise ``TooManyDigits`` for a value of a total."""
        for column, value in zip(value_columns, self.values, strict=True):
            if isinstance(value, Decimal) and len(EXACT.normalize(value).as_tuple().digits) > DIGITS:
                raise TooManyDigits(column.name)

    def checksum(self) -> int:
        """A number that changes with key and values; those of a manifest are added up modulo 2^64."""
        values = [None if value is None else _text(value) for value in self.values]
        content = json.dumps([self.key, self.rows, values]).encode()
        return int.from_bytes(blake2b(content, digest_size=8).digest())


def group_of_row(
    row: Mapping[str, Any], key: Sequence[str], value_columns: Sequence[ValueColumn], decimals: Mapping[str, int]
) -> KeyGroup:
    """From a row of staged groups; ``decimals`` as for ``key_text``."""
    columns = {name: _shortest(attribute(plain(row[name], whole_seconds=name == WINDOW))) for name in key}
    values = tuple(plain(row[column.name]) for column in value_columns)
    return KeyGroup(key_text(columns, decimals), columns, row[ROWS], values)


def group_of_item(item: Item, key: Sequence[str], value_columns: Sequence[ValueColumn]) -> KeyGroup:
    """From a total or a contribution as it is stored; what somebody took out of it by hand is missing."""
    columns = {name: _shortest(item[name]) for name in key if name in item}
    values = tuple(value_of(item[column.name]) if column.name in item else None for column in value_columns)
    rows = int(value_of(item[ROWS])) if ROWS in item else 0
    return KeyGroup(value_of(item[KEY]), columns, rows, values)


def kind_of(data_type: pa.DataType) -> str:
    """What a column of a key is: types with one kind have the same text for what is equal."""
    if pa.types.is_integer(data_type) or pa.types.is_decimal(data_type):
        return "a number"
    if pa.types.is_timestamp(data_type):
        return "a time" if data_type.tz else "a time without zone"
    kinds = {pa.string(): "text", pa.binary(): "bytes", pa.bool_(): "true or false", pa.date32(): "a date"}
    return kinds.get(data_type, str(data_type))


def is_of_kind(stored: Attribute | None, kind: str) -> bool:
    """Whether a column that is stored can be of a kind."""
    if stored is None:
        return False
    [(letter, value)] = stored.items()
    forms = {"a time": r"[\d:.T-]+Z", "a time without zone": r"[\d:.T-]+", "a date": r"[\d-]+"}
    letters = {"a number": "N", "bytes": "B", "true or false": "BOOL"}
    return letter == letters.get(kind, "S") and (kind not in forms or re.fullmatch(forms[kind], value) is not None)


def combined(groups: Iterable[KeyGroup], value_columns: Sequence[ValueColumn]) -> KeyGroup | None:
    """The groups of one key together; None of none."""
    together: KeyGroup | None = None
    for group in groups:
        together = combine_groups(together, group, value_columns)
    return together


def combine_groups(first: KeyGroup | None, second: KeyGroup, value_columns: Sequence[ValueColumn]) -> KeyGroup:
    """Two groups of one key together, or the second one alone."""
    if first is None:
        return second
    values = tuple(
        _combine_values(column.function, mine, others)
        for column, mine, others in zip(value_columns, first.values, second.values, strict=True)
    )
    return KeyGroup(first.key, first.columns, first.rows + second.rows, values)


def _combine_values(function: Function, mine: Any, other: Any) -> Any:
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


def key_text(columns: Item, decimals: Mapping[str, int]) -> str:
    """The key of an item: numbers in their shortest text, all else in quotes. One that is too long is a hash.

    ``decimals`` are the least digits after the point that a column has: those of its first keys, where a version wrote
    them that had numbers as their type wrote them.
    """
    return _join_parts([_key_part(column, decimals.get(name, 0)) for name, column in columns.items()])


def _join_parts(parts: Iterable[str]) -> str:
    text = f"[{', '.join(parts)}]"
    return text if len(text.encode()) <= LONGEST_KEY else f"{_HASH}{sha256(text.encode()).hexdigest()}"


def decimals_of(key: str, columns: Item) -> dict[str, int] | None:
    """The digits after the point of each number in a key that is stored, where ``columns`` have their shortest text.

    Of a key that is a hash, those with which the columns have this hash: of so many digits as can be tried, None when
    no digits fit.
    """
    names = [name for name, column in columns.items() if "N" in column]
    if not key.startswith(_HASH):
        parts = dict(zip(columns, json.loads(key, parse_int=Decimal, parse_float=Decimal), strict=True))
        return {name: len(f"{parts[name]:f}".partition(".")[2]) for name in names}
    most = min(DIGITS, int(_TRIES ** (1 / max(1, len(names)))) - 1)
    parts_of = [
        [_key_part(column, digits) for digits in range(most, -1, -1)] if "N" in column else [_key_part(column, 0)]
        for column in columns.values()
    ]
    for tried in product(*map(range, map(len, parts_of))):  # the most digits first: others may have the same text
        if _join_parts(parts[place] for parts, place in zip(parts_of, tried, strict=True)) == key:
            places = dict(zip(columns, tried, strict=True))
            return {name: most - places[name] for name in names}
    return None


def _key_part(column: Attribute, decimals: int) -> str:
    [(kind, value)] = column.items()
    if kind == "N":
        integer, _, digits = _shortest(column)["N"].partition(".")
        digits = digits.ljust(decimals, "0")
        return f"{integer}.{digits}" if digits else integer
    return json.dumps(b64encode(value).decode() if kind == "B" else value, ensure_ascii=False)


def _shortest(column: Attribute) -> Attribute:
    """A number in its shortest text, which equal numbers share; all else as it is."""
    [(kind, value)] = column.items()
    return {"N": _text(EXACT.add(Decimal(value), Decimal()))} if kind == "N" else column


def _text(value: Any) -> str:
    return f"{EXACT.normalize(value):f}" if isinstance(value, Decimal) else str(value)
