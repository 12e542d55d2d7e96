"""What a function of DataFrames made comes to the pass beside its record, wherever a batch of Spark ends."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.model.order import TransformOrder
from tidemark.processing.beside import IS_MADE, records_with_made
from tidemark.transforms.base import MADE
from tidemark.transforms.sequence import Transforms
from tidemark.transforms.spark.transform import SparkTransform

SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        (MADE, pa.struct([("n", pa.int64())])), (IS_MADE, pa.bool_()),
    ]
)  # fmt: skip
TRANSFORM = SparkTransform("shop:enriched", {}, None)
Line = tuple[str | None, int, int, bool]


def record(offset: int, partition: int = 0) -> Line:
    return "t", partition, offset, False


def made(offset: int | None, partition: int = 0) -> Line:
    return (None if offset is None else "t"), partition, offset or 0, True


def batches(lines: list[Line], *cuts: int) -> list[pa.RecordBatch]:
    rows = [
        {
            "topic": topic, "partition": partition, "offset": offset, MADE: {"n": offset} if is_made else None,
            IS_MADE: is_made,
        }
        for topic, partition, offset, is_made in lines
    ]  # fmt: skip
    return [pa.RecordBatch.from_pylist(rows[a:b], schema=SCHEMA) for a, b in pairwise([0, *cuts, len(rows)])]


def test_each_record_has_its_row_or_null_wherever_batches_end() -> None:
    lines = [record(0), made(0), record(1), record(2), made(2), record(0, 1), record(2, 1), made(2, 1), record(9, 1)]
    for first in range(len(lines) + 1):
        for second in range(first, len(lines) + 1):
            together = list(records_with_made(batches(lines, first, second), TRANSFORM))
            rows: list[Any] = [row for batch in together for row in batch.to_pylist()]
            assert all(batch.schema.names == ["topic", "partition", "offset", MADE] for batch in together)
            assert [(row["partition"], row["offset"], row[MADE] and row[MADE]["n"]) for row in rows] == [
                (0, 0, 0), (0, 1, None), (0, 2, 2), (1, 0, None), (1, 2, 2), (1, 9, None),
            ]  # fmt: skip


def test_nothing_is_nothing() -> None:
    assert list(records_with_made([], TRANSFORM)) == []
    assert list(records_with_made(batches([]), TRANSFORM)) == []


REFUSED = {
    "twice": ([record(0), made(0), made(0), record(1)], "two rows back for one place", 0),
    "not read": ([record(0), made(0), made(1), record(2)], "at a place that was not read", 1),
    "the first": ([made(0), record(1)], "at a place that was not read", 0),
    "other partition": ([record(4), made(4, 1)], "at a place that was not read", 4),
    "null": ([made(None), record(0)], "without its place: _topic is null", 0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_is_no_records_own_is_refused_with_its_place_wherever_batches_end(case: str) -> None:
    lines, cause, offset = REFUSED[case]
    for cut in range(len(lines) + 1):
        with pytest.raises(WorkFailed, match=f"^shop:enriched gave .*{cause}") as failed:
            list(records_with_made(batches(lines, cut), TRANSFORM))
        assert failed.value.context["offset"] == offset


def order(kind: str, **more: bool) -> TransformOrder:
    options: dict[str, dict[str, Any]] = {
        "spark": {"function": "shop:enriched", "code": {}, "columns": None},
        "dedupe": {"keys": ["n"], "keep": "first", "within_us": None},
        "explode": {"column": "tags", "keep_empty": False},
    }
    return TransformOrder(kind, options[kind], **more)


DEDUPE = order("dedupe", whole_partitions=True)
EXPLODE = order("explode", fans_out=True)


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        ((order("spark"), order("spark")), r"transform\[1\]\.spark: there can be only one spark"),
        ((order("spark"), DEDUPE), r"transform\[1\]\.dedupe: it must get the rows before spark changes them"),
        ((EXPLODE, order("spark")), r"transform\[1\]\.spark: spark must stand before explode"),
    ],
)
def test_the_order_of_transforms_that_would_break_the_evidence_is_refused(
    orders: tuple[TransformOrder, ...], problem: str
) -> None:
    given = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
    with pytest.raises(ConfigurationError, match=problem):
        Transforms(orders, given)
    assert Transforms([DEDUPE, order("spark"), EXPLODE], given).schema.field("tags").type == pa.string()


@pytest.mark.parametrize(
    ("column", "kind", "problem"),
    [
        ("at", pa.time64("us"), "column at is time64.* which Spark does not have"),
        ("at", pa.list_(pa.uint64()), "column at is list.* which Spark does not have"),
        ("N", pa.int64(), "Spark cannot tell columns n and N apart"),
    ],
)
def test_columns_that_a_dataframe_cannot_have_are_refused_before_spark_starts(
    column: str, kind: pa.DataType, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        SparkTransform("shop:enriched", {}, None).schema(pa.schema([("n", pa.int64()), (column, kind)]))
