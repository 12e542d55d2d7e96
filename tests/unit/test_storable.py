"""Each sink's declaration, each type, extreme values, and each position: which rows the pass finds not storable."""

import json
import math
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidemark.decoders.base import BadRecord
from tidemark.model.storable import RowCheck, Storable, storable_from
from tidemark.processing.storable import rows_not_storable, stamps

LAKE, POSTGRES = Storable(), Storable("PostgreSQL", nul=False)
US = pa.timestamp("us", "UTC")
FLOATS = (pa.float32(), pa.float64())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(year: int, *more: int) -> int:
    return (datetime(year, *(more or (1, 1)), tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


LAST = micros(9999, 12, 31, 23, 59, 59, 999_999)
FAR, LONG, NUL = "outside the years 1 to 9999", "more digits than its type", "character NUL"

# type, value, the reason at the top level and in a nested position of PostgreSQL, and the reason in a lake
VALUES: list[tuple[pa.DataType, Any, str, str, str]] = [
    (pa.string(), "", "", "", ""),
    (pa.string(), "\U0010ffff", "", "", ""),
    (pa.string(), "123456789012345\ud7ff and more", "", "", ""),
    (pa.string(), "a\0b", NUL, NUL, ""),
    *[(pa.float64(), value, "", "", "") for value in (0.0, -0.0, 1e308, -1e308, 5e-324)],
    *[(kind, value, "", "", "") for kind in FLOATS for value in (math.nan, math.inf, -math.inf)],
    *[(pa.int64(), value, "", "", "") for value in (-(2**63), 2**63 - 1)],
    *[(US, micros(year), "", "", "") for year in (1, 1582, 1899, 1969, 9999)],
    (US, LAST, "", "", ""),
    *[(US, value, FAR, FAR, FAR) for value in (LAST + 1, micros(1) - 1, 2**63 - 1, -(2**63 - 1))],
    (pa.timestamp("us"), LAST + 1, FAR, FAR, FAR),
    (pa.date32(), LAST // 86_400_000_000, "", "", ""),
    *[(pa.date32(), value, FAR, FAR, FAR) for value in (2**31 - 1, -(2**31), LAST // 86_400_000_000 + 1)],
    *[(pa.decimal128(38, 0), Decimal(sign * (10**38 - 1)), "", "", "") for sign in (1, -1)],
    (pa.decimal128(38, 10), Decimal("-9999999999999999999999999999.9999999999"), "", "", ""),
    (pa.bool_(), True, "", "", ""),
    (pa.binary(), b"\0", "", "", ""),
]
POSITIONS = {
    "top": lambda value: value,
    "list": lambda value: pa.ListArray.from_arrays([0, len(value)], value),
    "struct": lambda value: pa.StructArray.from_arrays([value], ["x"]),
    "map": lambda value: pa.MapArray.from_arrays([0, len(value)], pa.array(["k"] * len(value)), value),
    "list of structs": lambda value: POSITIONS["list"](POSITIONS["struct"](value)),
}


def reasons(column: pa.Array, *limits: Storable) -> dict[int, str]:
    rows = pa.RecordBatch.from_arrays([column], names=["c"])
    return {bad.index: bad.reason for bad in rows_not_storable(rows, limits)}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(("kind", "value", "top", "nested", "lake"), VALUES, ids=lambda value: str(value)[:30])
def test_a_value_is_stored_or_has_a_reason(kind, value, top, nested, lake, position):
    column = POSITIONS[position](pa.array([value], kind))
    for limits, expected in ((POSTGRES,), top if position == "top" else nested), ((LAKE,), lake):
        got = reasons(column, *limits)
        assert set(got) == ({0} if expected else set())
        assert all(text.startswith("field c: ") and expected in text for text in got.values())


@pytest.mark.parametrize("limits", [(POSTGRES, LAKE), (LAKE, POSTGRES)])
def test_a_value_that_one_sink_cannot_store_is_found_for_all(limits):
    assert list(reasons(pa.array(["a", "b\0", None]), *limits)) == [1]


@pytest.mark.parametrize("high", [-1, 0x4B3B4CA85A86C47A, 0x7FFFFFFFFFFFFFFF, -(2**63)])
def test_raw_bits_beyond_38_digits_are_found(high):
    """As DuckDB gives a HUGEINT to Arrow."""
    raw = pa.py_buffer((1).to_bytes(8, "little") + high.to_bytes(8, "little", signed=True))
    column = pa.Array.from_buffers(pa.decimal128(38, 0), 1, [None, raw])
    is_long = abs((high << 64) + 1) > 10**38 - 1
    assert set(reasons(column)) == ({0} if is_long else set())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, []], pa.list_(pa.float64())),
        pa.array([None, {"x": None}, {}], pa.struct([("x", US)])),
        pa.array([[None], [{"x": None}]], pa.list_(pa.struct([("x", pa.string())]))),
        pa.array([None, []], pa.map_(pa.string(), pa.decimal128(38, 0))),
        pa.array([], US),
        pa.array([None], pa.null()),
    ],
)
def test_nulls_and_empty_values_are_stored(column):
    assert reasons(column, POSTGRES) == {}


def test_a_slice_is_looked_at_where_it_begins():
    assert list(reasons(pa.array(["\0", "a", "\0"]).slice(1), POSTGRES)) == [1]
    digits = pa.array([Decimal(1), Decimal(2), None], pa.decimal128(38, 0))
    assert reasons(digits.slice(1), POSTGRES) == {}


def test_a_check_that_a_kind_brings_gives_the_reason_for_a_row(monkeypatch):
    def bad_rows(rows: pa.RecordBatch, most: int) -> list[BadRecord]:
        return [BadRecord(at, f"more than {most}") for at, value in enumerate(rows["c"].to_pylist()) if value > most]

    monkeypatch.setitem(sys.modules, "a_provider", SimpleNamespace(bad_rows=bad_rows))
    limits = Storable(checks=(RowCheck("a_provider", {"most": 2}), RowCheck("a_provider", {"most": 1})))
    assert reasons(pa.array([1, 2, 3]), limits) == {1: "more than 1", 2: "more than 2"}
    assert storable_from(json.loads(json.dumps(asdict(limits)))) == limits


KEYED = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("a", 1), ("b", 1)], [("a", 1), ("a", 2)], None, []], KEYED),
        pa.array([[[]], [[], [("a", 1), ("b", 3), ("a", 1)]], None], pa.list_(KEYED)),
        pa.array([[("m", [("a", 1)]), ("n", [("a", 1)])], [("m", [("a", 1), ("a", 1)])]], pa.map_(pa.string(), KEYED)),
        pa.array([{"x": [("\0", 1)]}, {"x": [("", 1), ("", 1)]}], pa.struct([("x", KEYED)])),
    ],
)
def test_a_map_with_a_key_twice_is_stored_nowhere(column):
    given = reasons(column, LAKE)
    assert list(given) == [1]
    assert "a key twice" in given[1]


def test_nul_in_a_key_of_a_map_is_found():
    assert list(reasons(pa.array([[("a", 1)], [("a\0", 1)]], KEYED), POSTGRES)) == [1]


def test_timestamps_outside_the_years_are_null_and_so_is_none():
    given = pa.array([micros(2024), LAST + 1, None, -1_000, -2_000, 0], US)
    assert stamps(given).is_valid().to_pylist() == [True, False, False, False, True, True]
