"""Records with the extreme values of each type in each position, and the records that a sink cannot store."""

import io
import math
import struct
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import fastavro

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAYS: Final = [
    date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(1969, 12, 31), date(1970, 1, 1),
    date(2024, 2, 29), date(9999, 12, 31),
]  # fmt: skip
TIMES: Final = [
    *(datetime(day.year, day.month, day.day, tzinfo=UTC) for day in DAYS),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), EPOCH - timedelta(microseconds=1),
]  # fmt: skip
TEXTS: Final = [
    "", " ", "\U0010ffff", "123456789012345\ud7ff and more", "a/b/../c", "..", "%2F", "k=v", "\x01\t\r\n", "null",
    "__HIVE_DEFAULT_PARTITION__", '"\\', "\u00e9" * 1_000, "x" * 2_000, "\ufeff\ufffe\uffff",
]  # fmt: skip
LARGEST: Final = Context(prec=50).scaleb(Decimal(10**38 - 1), -10)
VALUES: Final[dict[str, list[Any]]] = {
    "bool": [True, False],
    "int": [-(2**31), 2**31 - 1, 0, -1],
    "long": [-(2**63), 2**63 - 1, 0, -1],
    "float": [math.nan, math.inf, -math.inf, -0.0, 0.0, struct.unpack("f", b"\xff\xff\x7f\x7f")[0], 2.0**-149],
    "double": [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e308, -1e308, 5e-324, 0.1],
    "decimal": [LARGEST, LARGEST.copy_negate(), Decimal("1E-10"), Decimal(0)],
    "text": TEXTS,
    "bytes": [b"", b"\0", b"\xff\xfe", bytes(range(256))],
    "date": DAYS,
    "time": TIMES,
}
KEYED: Final = ("bool", "int", "long", "decimal", "text", "bytes", "date", "time")  # of keys and partitions: never null
POSITIONS: Final = ("top", "list", "struct", "map")
_OF_AVRO: Final[dict[str, Any]] = {
    "bool": "boolean",
    "text": "string",
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "timestamp-micros"},
}
FILLED: Final = max(map(len, VALUES.values()))
EMPTY: Final = 4  # records with nulls and empty lists and maps behind them
SURROGATE: Final = "\u0800"  # stands for U+D800, which no Python text can be encoded with
UNFIT: Final[dict[str, tuple[str, Any]]] = {  # by name: type, and the value as Avro has it
    "time_after_9999": ("time", 253_402_300_800_000_000),
    "time_before_1": ("time", -62_135_596_800_000_001),
    "largest_time": ("time", 2**63 - 1),
    "date_after_9999": ("date", 2_932_897),
    "smallest_date": ("date", -(2**31)),
    "decimal_of_39_digits": ("decimal", (10**38).to_bytes(17, "big")),
    "nul": ("text", "a\0b"),
    "surrogate": ("text", f"a{SURROGATE}b"),
}


@dataclass(frozen=True)
class Extreme:
    """A record. ``row`` is the row that sinks must have of it; None for a record that a sink cannot store."""

    value: bytes
    row: dict[str, Any] | None


def kind_of(column: str) -> str:
    """The type of the values in a column."""
    return "long" if column in ("n", "keys", "_rows") else column.partition("_")[0]


def schema(*, plain: bool = False) -> dict[str, Any]:
    """The schema of the records; ``plain``: without logical types."""
    fields: list[dict[str, Any]] = [{"name": "n", "type": "long"}]
    for kind in VALUES:
        given = _OF_AVRO.get(kind, kind)
        item = ["null", given["type"] if plain and isinstance(given, dict) else given]
        types = {
            "top": item[1] if kind in KEYED else item,
            "list": ["null", {"type": "array", "items": item}],
            "struct": ["null", {"type": "record", "name": f"{kind}_x", "fields": [{"name": "x", "type": item}]}],
            "map": ["null", {"type": "map", "values": item}],
        }
        fields += [{"name": f"{kind}_{position}", "type": types[position]} for position in POSITIONS]
    fields.append({"name": "keys", "type": {"type": "map", "values": "long"}})
    return {"type": "record", "name": "Extremes", "fields": fields}


def extremes() -> Iterator[Extreme]:
    """Every value in every position, beside nulls and empty lists, structs and maps; then what cannot be stored, one
    value in one position of each record."""
    count = FILLED + EMPTY
    for number in range(count):
        row = _row(number)
        yield Extreme(encoded(row), row)
    number = count
    for kind, value in UNFIT.values():
        for position in (*POSITIONS, "key") if kind == "text" else POSITIONS:
            row = _row(number)
            yield Extreme(encoded({**row, **_unfit(kind, position, value)}), None)
            number += 1


def _unfit(kind: str, position: str, value: Any) -> dict[str, Any]:
    if position == "key":
        return {"keys": {value: 1}}
    placed = {"top": value, "list": [None, value], "struct": {"x": value}, "map": {"k": value}}
    return {f"{kind}_{position}": placed[position]}


def _row(number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"n": number}
    nested: tuple[Any, ...]
    for kind, values in VALUES.items():
        value = values[number % len(values)]
        row[f"{kind}_top"] = value if kind in KEYED or number < FILLED else None
        if number < FILLED:
            nested = [value, None], {"x": value}, {"k": value, "": None}
        else:
            nested = [([None], {"x": None}, {"": None}), ([], None, {}), (None, {"x": value}, None)][number % 3]
        row |= {f"{kind}_{position}": inner for position, inner in zip(POSITIONS[1:], nested, strict=True)}
    row["keys"] = {TEXTS[number % len(TEXTS)]: number}
    return row


def encoded(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema(plain=True)), _raw(row))
    return out.getvalue().replace(SURROGATE.encode(), b"\xed\xa0\x80")


def _raw(value: Any) -> Any:
    """As Avro's plain types have it."""
    if isinstance(value, dict):
        return {key: _raw(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_raw(member) for member in value]
    if isinstance(value, Decimal):
        unscaled = int(Context(prec=60).scaleb(value, 10))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def canonical(value: Any) -> Any:
    """A value as text that is the same whichever reader gave it, and differs for different values, -0.0 and NaN too."""
    if isinstance(value, dict):
        return {key: canonical(member) for key, member in sorted(value.items())}
    if isinstance(value, list):
        return [canonical(member) for member in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return f"{Context(prec=60).quantize(value, Decimal('1E-10')):f}"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def of_json(kind: str, value: Any) -> Any:
    """A value of a column that was read from JSON, as the type of the column has it.

    Lines and messages have bytes in base64, PostgreSQL's jsonb has them in hexadecimal digits.
    """
    if isinstance(value, dict):
        return {key: of_json(kind, member) for key, member in value.items()}
    if isinstance(value, list):
        return [of_json(kind, member) for member in value]
    if value is None or kind in ("bool", "int", "long", "text"):
        return value
    match kind:
        case "float" | "double":
            return single(float(value)) if kind == "float" else float(value)
        case "decimal":
            return Decimal(value)
        case "bytes":
            return bytes.fromhex(value[2:]) if value.startswith("\\x") else b64decode(value)
        case "date":
            return date.fromisoformat(value)
    return datetime.fromisoformat(value)


def single(value: float) -> float:
    """The number with the precision of ``float``: its shortest text stands for it."""
    [rounded] = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def rows_of_extremes() -> list[dict[str, Any]]:
    """The rows of the records that every sink can store."""
    return [row for record in extremes() if (row := record.row) is not None]


def differences(rows: Iterable[dict[str, Any]], times: int = 1) -> dict[str, list[str]]:
    """The columns in which rows that a reader has given differ from the records, with some of the differences.

    ``times``: how often each row must be there.
    """
    expected = {row["n"]: row for row in rows_of_extremes()}
    given = list(rows)
    counts = Counter(row["n"] for row in given)
    if counts != dict.fromkeys(expected, times):
        return {"n": [f"rows {sorted(counts.items())}"]}
    different: dict[str, list[str]] = {}
    for row in given:
        for column, value in expected[row["n"]].items():
            got, wanted = canonical(row[column]), canonical(value)
            if got != wanted:
                different.setdefault(column, []).append(f"{str(got)[:80]} for {str(wanted)[:80]}")
    return different
