"""The example pipeline with logic loads, and makes of orders what its comments say."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.model.order import Order, SourceOrder
from tidemark.model.record_schema import INPUT
from tidemark.pipeline.loader import load
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.writer import StagedPart

EXAMPLE = Path(__file__).parents[2] / "include" / "pipelines" / "examples" / "orders_with_logic.yaml"


class Rows(list[dict[str, object]]):
    """A sink in memory."""

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        self += rows.to_pylist()

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        pytest.fail(str(rows.to_pylist()))

    def close(self) -> list[StagedPart]:
        return []

    def abort(self) -> None: ...


def test_orders_are_cleaned_taxed_and_there_once() -> None:
    pipeline = load(EXAMPLE, {})
    orders = [(1, " Ann ", "de", 10.0, 2), (2, "Bo", "xx", 1.05, 1), (1, "Ann", "de", 10.0, 2),
              (3, "Cy", "fr", 5.0, 0)]  # fmt: skip
    names = ("order_id", "customer", "country", "price", "quantity")
    values = [{**dict(zip(names, cells, strict=True)), "ordered_at": "2024-03-01T10:00:00Z"} for cells in orders]
    batch = pa.RecordBatch.from_pylist(
        [
            {"topic": "orders", "partition": 0, "offset": at, "value": json.dumps(value).encode(), "timestamp": 0}
            for at, value in enumerate(values)
        ],
        schema=INPUT,
    )
    order = Order(
        pipeline.name, 1, 1, (), SourceOrder("kafka", {}), pipeline.decode.order(), pipeline.event_time.order(),
        "fail", (), pipeline.transforms(),
    )  # fmt: skip
    rows = Rows()
    report = BatchProcessor(order).process("0", [batch], [rows])
    assert [(row["order_id"], row["customer"], row["country"], row["total"], row["tax"]) for row in rows] == [
        (1, "Ann", "DE", Decimal("20.00"), Decimal("3.80")), (2, "Bo", "XX", Decimal("1.05"), Decimal("0.22")),
    ]  # fmt: skip
    [count] = report["partitions"]
    assert (count["read"], count["filtered"], count["deduplicated"]) == (4, 1, 1)
