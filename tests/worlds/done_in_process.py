"""Runs orders of pipeline files without Kafka and Spark, for a Python with Tidemark installed and without a checkout.

python done_in_process.py FILE..

Each output line is JSON: the result of one file's pipeline for its records.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tidemark.connections.lookup import from_environment
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.record_schema import INPUT
from tidemark.pipeline.loader import load
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.registry import open_sink

AT_MS = 1_767_225_600_000


def json_values() -> list[bytes]:
    rows = [{"order_id": number % 3, "customer": "a", "country": "de", "price": 9.5, "quantity": number,
             "ordered_at": "2026-01-01T00:00:00Z"} for number in range(5)]  # fmt: skip
    return [json.dumps(row).encode() for row in rows]


def avro_values(folder: Path) -> list[bytes]:
    schema = fastavro.parse_schema(json.loads((folder / "prices.avsc").read_text()))
    values = []
    for number in range(5):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"id": number, "name": f"n{number}"})
        values.append(out.getvalue())
    return values


def protobuf_values(folder: Path) -> list[bytes]:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString((folder / "flight.desc").read_bytes()).file:
        pool.Add(file)
    flight = GetMessageClass(pool.FindMessageTypeByName("travel.Flight"))
    values = []
    for number in range(5):
        message: Any = flight(flight=number)
        message.scheduled.FromMilliseconds(AT_MS)
        values.append(message.SerializeToString())
    return values


def done(pipeline: Pipeline, values: list[bytes]) -> dict[str, Any]:
    """What the one task of its first manifest reports."""
    place = TopicPartition(pipeline.source.topics[0], "id", 0)
    sinks = [open_sink(pipeline.name, settings, from_environment) for settings in pipeline.sinks]
    order = Order(
        pipeline_name=pipeline.name, manifest_id=1, attempt=1, ranges=(Range(place, 0, len(values)),),
        source=SourceOrder("kafka", {}), decode=pipeline.decode.record_order(),
        event_time=pipeline.event_time.order(), on_error=pipeline.on_error.value, transforms=pipeline.transforms(),
        sinks=tuple(SinkOrder(settings.name, settings.kind, {**settings.order(), **sink.staging.order(1, 1)})
                    for settings, sink in zip(pipeline.sinks, sinks, strict=True)),
    )  # fmt: skip
    rows = [
        {"value": value, "topic": place.topic, "partition": 0, "offset": offset, "timestamp": AT_MS * 1000}
        for offset, value in enumerate(values)
    ]
    return BatchProcessor(order).process("00000-0", [pa.RecordBatch.from_pylist(rows, schema=INPUT)])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pipeline = load(name)
        folder = Path(name).parent
        values = {"avro": avro_values, "protobuf": protobuf_values}.get(pipeline.decode.format, lambda _: json_values())
        report = done(pipeline, values(folder))
        [counted] = report["partitions"]
        counts = {key: counted[key] for key in ("decoded", "dead_lettered", "filtered", "deduplicated")}
        rows = sum(part["rows"] for part in report["parts"])
        print(json.dumps({"pipeline": pipeline.name, **counts, "rows": rows}))
