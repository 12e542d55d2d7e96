"""Values of structs, lists and maps keep what is null when they get the type that a table has."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.providers.lake_tables.nested import conformed, conformed_table, is_list

NARROW = pa.struct([("b", pa.int32()), ("gone", pa.string())])
WIDE = pa.struct([("a", pa.string()), ("b", pa.int64())])
KINDS = [
    (NARROW, WIDE),
    (pa.list_(NARROW), pa.list_(pa.field("element", WIDE))),
    (pa.list_(pa.list_(NARROW)), pa.list_(pa.field("element", pa.list_(pa.field("element", WIDE))))),
    (pa.map_(pa.string(), NARROW), pa.map_(pa.string(), WIDE)),
    (pa.map_(pa.string(), pa.list_(NARROW)), pa.map_(pa.string(), pa.list_(WIDE))),
    (pa.struct([("l", pa.list_(NARROW))]), pa.struct([("l", pa.list_(WIDE)), ("more", pa.list_(WIDE))])),
    (pa.large_list(NARROW), pa.list_(WIDE)),
    (pa.list_(NARROW), pa.large_list(WIDE)),
    (pa.list_(pa.list_(NARROW)), pa.large_list(pa.large_list(WIDE))),
]


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        inner: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_map(kind):
        inner = st.dictionaries(st.sampled_from("xyz"), values(kind.item_type), max_size=2).map(lambda d: [*d.items()])
    elif is_list(kind):
        inner = st.lists(values(kind.value_type), max_size=3)
    else:
        inner = st.integers(-9, 9) if pa.types.is_integer(kind) else st.text(max_size=2)
    return st.none() | inner


def by_names(value: Any, kind: pa.DataType) -> Any:
    """What a reader expects: fields by their names, and null stays null."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: by_names(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, by_names(item, kind.item_type)) for key, item in value]
    return [by_names(item, kind.value_type) for item in value] if is_list(kind) else value


@pytest.mark.thorough
@given(data=st.data(), kinds=st.sampled_from(KINDS))
def test_fields_go_by_their_names_and_what_is_null_stays_null(data: st.DataObject, kinds: Any) -> None:
    actual, wanted = kinds
    rows = data.draw(st.lists(values(actual), max_size=6))
    column = pa.array(rows, actual)
    first = data.draw(st.integers(0, len(rows)))
    expected = [by_names(row, wanted) for row in rows]
    made = conformed(column, wanted)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (wanted, expected)
    part = conformed(column.slice(first, 2), wanted)
    part.validate(full=True)
    assert part.to_pylist() == expected[first : first + 2]
    chosen = column.take(pa.array([*range(len(rows))][::-1], pa.int64()))
    assert conformed(pa.chunked_array([chosen, column.slice(first)], actual), wanted).to_pylist() == [
        *expected[::-1],
        *expected[first:],
    ]


def test_a_table_gets_the_columns_that_are_named() -> None:
    rows = pa.table({"n": pa.array([1, None], pa.int32()), "l": pa.array([None, []], pa.list_(NARROW)), "x": [1, 2]})
    columns = pa.schema([("l", pa.list_(WIDE)), ("n", pa.int64())])
    assert conformed_table(rows, columns).to_pylist() == [{"l": None, "n": 1}, {"l": [], "n": None}]
    assert conformed_table(rows.slice(0, 0), columns).schema == columns


def test_a_null_in_a_column_that_may_not_be_null_is_named() -> None:
    rows = pa.table({"n": pa.array([1, None], pa.int32())})
    with pytest.raises(pa.ArrowInvalid, match="column n of the table may not be null, and a row has no value for it"):
        conformed_table(rows, pa.schema([pa.field("n", pa.int64(), nullable=False)]))


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.decimal128(38, 10),
        pa.date32(), pa.timestamp("us", "UTC"), pa.list_(pa.field("element", pa.int8(), nullable=False)),
        pa.map_(pa.string(), pa.int8()), pa.struct([pa.field("z", pa.large_binary(), nullable=False)]),
    ],
)  # fmt: skip
def test_a_struct_that_is_null_may_have_a_field_that_is_never_null(kind: pa.DataType, tmp_path: Path) -> None:
    strict = pa.schema([("s", pa.list_(pa.field("element", pa.struct([pa.field("a", kind, nullable=False)]))))])
    given = pa.list_(pa.struct([("a", kind)]))
    stored = conformed_table(pa.table({"s": pa.array([None, [None], [], [None, None]], given)}), strict)
    pq.write_table(stored, tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").cast(strict).column("s").to_pylist() == [
        None,
        [None],
        [],
        [None] * 2,
    ]
    with pytest.raises(pa.ArrowInvalid, match="field a of the table may not be null, and a row has no value for it"):
        conformed_table(pa.table({"s": pa.array([[None, {"a": None}]], given)}), strict)


def test_a_value_that_does_not_fit_is_an_error() -> None:
    rows = pa.array([[{"n": 2**40}]], pa.list_(pa.struct([("n", pa.int64())])))
    with pytest.raises(pa.ArrowInvalid):
        conformed(rows, pa.list_(pa.struct([("n", pa.int32())])))
    assert json.dumps(conformed(rows, pa.list_(pa.struct([("n", pa.float64())]))).to_pylist()) == json.dumps(
        [[{"n": float(2**40)}]]
    )
