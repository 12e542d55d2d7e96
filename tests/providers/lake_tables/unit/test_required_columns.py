"""Null where the table of a sink does not allow it."""

import pyarrow as pa
import pytest

from tidemark.providers.tables.required import bad_rows


@pytest.mark.parametrize(
    ("path", "column", "rows"),
    [
        ("c", pa.array([1, None, 2, None]), [1, 3]),
        ("c.x", pa.array([{"x": 1}, None, {"x": None}, {}], pa.struct([("x", pa.int8())])), [2, 3]),
        ("c.element", pa.array([[1], None, [], [1, None, None]], pa.list_(pa.int8())), [3]),
        ("c.value", pa.array([[("a", 1)], None, [], [("a", None), ("b", 1)]], pa.map_(pa.string(), pa.int8())), [3]),
        (
            "c.element.x",
            pa.array([None, [None, {"x": 1}], [{"x": None}]], pa.list_(pa.struct([("x", pa.int8())]))),
            [2],
        ),
        ("c.element.element", pa.array([[[1], [None]], [None]], pa.list_(pa.list_(pa.int8()))), [0]),
        ("c.x.y", pa.array([{"x": {"y": None}}, {"x": None}], pa.struct([("x", pa.struct([("y", pa.int8())]))])), [0]),
        ("c.gone", pa.array([{"x": 1}], pa.struct([("x", pa.int8())])), []),
        ("other", pa.array([None]), []),
    ],
)
def test_a_null_that_a_table_does_not_take_is_found_at_any_depth(path, column, rows):
    paths = [path.split(".")]
    reason = f"field {path}: is null, which the table of sink iceberg does not take"
    for part in (column, pa.concat_arrays([column, column]).slice(len(column))):
        bad = bad_rows(pa.RecordBatch.from_arrays([part], names=["c"]), "iceberg", paths)
        assert {each.index: each.reason for each in bad} == dict.fromkeys(rows, reason)
