"""What a table lacks is found at any depth, and added behind what it has; what does not fit is named by its path."""

import pyarrow as pa
import pytest

from tidemark.errors import SinkRefused
from tidemark.providers.lake_tables.evolution import (
    extended,
    missing_fields,
    narrow_fields,
    nullable,
    refuse_misfits,
    required_paths,
)

STEPS = {"type": "change {name}", "null": "drop NOT NULL of {name}"}


def nested(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """A type at each place where one can be, with the path to it."""
    return [
        ("c", kind), ("c.x", pa.struct([("x", kind)])), ("c.element", pa.list_(kind)),
        ("c.value", pa.map_(pa.string(), kind)), ("c.element.element", pa.list_(pa.list_(kind))),
        ("c.element", pa.large_list(kind)),
        ("c.value.element.x", pa.map_(pa.string(), pa.list_(pa.struct([("x", kind)])))),
    ]  # fmt: skip


def lacking(actual: pa.DataType, needed: pa.DataType) -> list[str]:
    return [part.name for part in missing_fields(pa.schema([("c", actual)]), pa.schema([("c", needed)]))]


def test_a_field_that_is_missing_is_found_and_added_at_any_depth() -> None:
    narrow, wide = (
        pa.struct([("n", pa.int64()), ("old", pa.int8())]),
        pa.struct([("new", pa.string()), ("n", pa.int32())]),
    )
    both = pa.struct([("n", pa.int64()), ("old", pa.int8()), ("new", pa.string())])
    for (path, actual), (_, needed), (_, whole) in zip(nested(narrow), nested(wide), nested(both), strict=True):
        assert lacking(actual, needed) == [f"{path}.new"]
        assert extended(actual, needed) == whole
        assert lacking(whole, needed) == []
        refuse_misfits(pa.schema([("c", actual)]), pa.schema([("c", needed)]), str, STEPS, {})


@pytest.mark.parametrize(
    ("actual", "needed", "fits"),
    [
        (pa.int64(), pa.int8(), True), (pa.int32(), pa.int64(), False), (pa.float64(), pa.float32(), True),
        (pa.float32(), pa.float64(), False), (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), False), (pa.decimal128(12, 3), pa.decimal128(10, 2), False),
        (pa.string(), pa.int64(), False), (pa.int64(), pa.struct([("n", pa.int64())]), False),
        (pa.list_(pa.int64()), pa.int64(), False), (pa.map_(pa.string(), pa.int8()), pa.list_(pa.int8()), False),
        (pa.map_(pa.int32(), pa.int8()), pa.map_(pa.string(), pa.int8()), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False), (pa.date32(), pa.date32(), True),
    ],
)  # fmt: skip
def test_a_type_that_does_not_fit_is_named_by_its_path(actual: pa.DataType, needed: pa.DataType, fits: bool) -> None:
    for (path, of_table), (_, of_rows) in zip(nested(actual), nested(needed), strict=True):
        table, rows = pa.schema([("c", of_table)]), pa.schema([("c", of_rows)])
        if fits:
            refuse_misfits(table, rows, str, STEPS, {})
            continue
        with pytest.raises(SinkRefused, match=rf"column {path}(\.key)? of the table is .*, the rows have "):
            refuse_misfits(table, rows, str, STEPS, {})


@pytest.mark.parametrize(
    ("actual", "needed", "widened"),
    [
        (pa.int32(), pa.int64(), True), (pa.float32(), pa.float64(), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), True), (pa.decimal128(10, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False), (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), False), (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.int32(), pa.string(), False), (pa.int64(), pa.decimal128(20, 0), False),
        (pa.map_(pa.int32(), pa.int32()), pa.map_(pa.int64(), pa.int32()), False),
    ],
)  # fmt: skip
def test_a_type_that_can_be_wider_is_found_at_any_depth(
    actual: pa.DataType, needed: pa.DataType, widened: bool
) -> None:
    for (path, of_table), (_, of_rows) in zip(nested(actual), nested(needed), strict=True):
        table, rows = pa.schema([("c", of_table)]), pa.schema([("c", of_rows)])
        narrow = narrow_fields(table, rows)
        assert [(".".join(part.path), part.needed) for part in narrow] == ([(path, needed)] if widened else [])
        if widened:
            refuse_misfits(table, rows, str, STEPS, {}, widens=True)
            assert narrow_fields(rows, table) == []


def test_what_may_not_be_null_has_its_path_and_what_is_tidemarks_has_none() -> None:
    strict = pa.field("x", pa.int64(), nullable=False)
    columns = pa.schema(
        [
            pa.field("_manifest_id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False),
            pa.field("s", pa.struct([strict, pa.field("y", pa.struct([strict]), nullable=False)])),
            pa.field("l", pa.list_(pa.field("item", pa.list_(pa.field("item", pa.int8(), nullable=False))))),
            pa.field("m", pa.map_(pa.string(), pa.field("v", pa.struct([strict]), nullable=False))),
            pa.field("free", pa.int8()),
        ]
    )  # fmt: skip
    assert [".".join(path) for path in required_paths(columns)] == [
        "n", "s.x", "s.y", "s.y.x", "l.element.element", "m.value", "m.value.x"
    ]  # fmt: skip


def test_a_field_that_may_not_be_null_and_that_rows_do_not_have_is_named() -> None:
    strict = pa.struct([("n", pa.int64()), pa.field("must", pa.int64(), nullable=False)])
    for (path, of_table), (_, of_rows) in zip(nested(strict), nested(pa.struct([("n", pa.int64())])), strict=True):
        why = rf"column {path}\.must of the table is NOT NULL, but the rows have no such column"
        with pytest.raises(SinkRefused, match=why) as refused:
            refuse_misfits(pa.schema([("c", of_table)]), pa.schema([("c", of_rows)]), str, STEPS, {})
        assert refused.value.next_step == f"drop NOT NULL of {path}.must"


def test_a_field_whose_name_differs_by_case_only_is_refused_and_not_added() -> None:
    for (_, of_table), (_, of_rows) in zip(
        nested(pa.struct([("Zip", pa.string())])), nested(pa.struct([("zip", pa.string())])), strict=True
    ):
        with pytest.raises(SinkRefused, match=r"zip as the rows do: it differs from Zip by case only"):
            refuse_misfits(pa.schema([("c", of_table)]), pa.schema([("c", of_rows)]), str, STEPS, {})
    with pytest.raises(SinkRefused, match=r"a column id as the rows do: it differs from ID by case only"):
        refuse_misfits(pa.schema([("ID", pa.int64())]), pa.schema([("id", pa.int64())]), str, STEPS, {})


def test_a_new_table_lets_all_fields_be_null() -> None:
    strict = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    for (_, kind), (_, loose) in zip(nested(strict), nested(pa.struct([("n", pa.int64())])), strict=True):
        assert nullable(kind) == loose
