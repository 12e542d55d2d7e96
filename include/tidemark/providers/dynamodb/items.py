"""Items of DynamoDB: totals as plain attributes, which any client can read.

An item has the columns of the key, the values, ``_rows`` and ``_revision``. ``_key``, the partition key, is the values
of the key as a JSON array: numbers in their shortest text, everything else in quotes. A value that is null has no
attribute. Times are text in UTC, of one width, so that text sorts as time does. An item with ``_rows`` 0 has a key
without records. It stays, so that an older revision that arrives late does not bring the records back.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any, Final

from tidemark.providers.postgres.aggregates.value_columns import ROWS, WINDOW
from tidemark.providers.postgres.totals.copies import Total

KEY, REVISION, OWNER = "_key", "_revision", "owner"
LONGEST_ITEM: Final = 400 * 1024  # bytes, names of attributes included
DIGITS: Final = 38  # most digits of a number
_EXACT: Final = Context(prec=200)  # enough for sums; Python's default rounds to 28 digits

Attribute = dict[str, Any]
Item = dict[str, Attribute]


def item_of(total: Total) -> Item:
    """Return the item of a total."""
    values = {name: _attribute(name, value) for name, value in total.values.items() if value is not None}
    columns = {name: _attribute(name, value) for name, value in total.key.items()}
    return {KEY: {"S": key_text(total)}, **columns, **values, **counted(total.rows, total.revision)}


def counted(rows: int, revision: int) -> Item:
    """Return the attributes that every item has beside its key."""
    return {ROWS: {"N": str(rows)}, REVISION: {"N": str(revision)}}


def key_text(total: Total) -> str:
    return f"[{', '.join(_key_part(_attribute(name, value)) for name, value in total.key.items())}]"


def _key_part(attribute: Attribute) -> str:
    [(letter, value)] = attribute.items()
    if letter == "N":
        return str(value)
    return json.dumps(b64encode(value).decode() if letter == "B" else value, ensure_ascii=False)


def _attribute(name: str, value: Any) -> Attribute:
    match value:
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": f"{_EXACT.normalize(Decimal(value)):f}"}
        case bytes():
            return {"B": value}
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo else value  # PostgreSQL returns times in its session's zone
            text = utc.isoformat(timespec="seconds" if name == WINDOW else "microseconds")
            return {"S": text.replace("+00:00", "Z")}
        case date():
            return {"S": value.isoformat()}
        case _:
            return {"S": str(value)}


def has_many_digits(value: Any) -> bool:
    """Return whether a value is a number with more digits than DynamoDB keeps."""
    return isinstance(value, Decimal) and len(_EXACT.normalize(value).as_tuple().digits) > DIGITS


def size_of(item: Item) -> int:
    """Return an upper bound of the bytes that DynamoDB counts for an item. It stores two digits of a number in a
    byte."""
    return sum(len(name.encode()) + _size_of(attribute) for name, attribute in item.items())


def _size_of(attribute: Attribute) -> int:
    [(_, value)] = attribute.items()
    return len(value) if isinstance(value, bytes) else len(str(value).encode())


def rows_of(item: Mapping[str, Attribute]) -> int:
    """Return the number of records of an item; 0 if somebody has removed the attribute."""
    return int(_number(item.get(ROWS)))


def revision_of(item: Mapping[str, Attribute]) -> int:
    return int(_number(item.get(REVISION)))


def _number(attribute: Attribute | None) -> Decimal:
    return Decimal((attribute or {}).get("N", 0))


def digest_of(item: Mapping[str, Attribute]) -> bytes:
    """Return a digest of everything in an item except its revision: two totals with the same digest are equal."""
    content = sorted((name, _comparable(attribute)) for name, attribute in item.items() if name != REVISION)
    return blake2b(repr(content).encode(), digest_size=16).digest()


def _comparable(attribute: Attribute) -> tuple[str, Any]:
    """Return an attribute in a form to compare, because DynamoDB may return a number in another text."""
    [(letter, value)] = attribute.items()
    return letter, str(_EXACT.normalize(Decimal(value))) if letter == "N" else value
