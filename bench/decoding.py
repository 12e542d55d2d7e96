"""Measures the cost of each registered decoder in one process: the same records in every format, alone and in the whole
pass.

The same rows are also measured in an envelope of Debezium, without decoding keys, of which a pipeline with an envelope
has one. The pass is ``processing/processor.py`` without a sink. Figures are processor time, which other work on the
machine affects less than seconds. The decoders take turns, so that it affects all of them.
"""

import json
import statistics
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

from bench import debezium
from bench.records import SCHEMA, messages
from tidemark.decoders.registry import open_decoder
from tidemark.kinds import DECODERS
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SourceOrder
from tidemark.model.record_schema import INPUT
from tidemark.pipeline.event_time import EventTimeSettings
from tidemark.processing.processor import BatchProcessor
from tidemark.providers.protobuf.schemas.descriptors import message_descriptor
from tidemark.times.event_time import INSTANT

FORMATS = (*DECODERS, *debezium.FORMATS)
BATCH = 50_000  # as many as a task of Spark gets
FRAME = b"\0\0\0\0\7"
_REGISTRY = {"url": "http://none"}  # never asked, because all schemas are pinned
_AVRO = {
    "type": "record", "name": "Event", "fields": [
        {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": "string"}, {"name": "kind", "type": "string"}, {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"}, {"name": "quantity", "type": "int"},
        {"name": "mobile", "type": "boolean"}, {"name": "session", "type": ["null", "string"]},
        {"name": "referrer", "type": ["null", "string"]},
    ],
}  # fmt: skip
_PROTOBUF = {
    "id": "INT64", "at": "MESSAGE", "user": "STRING", "kind": "STRING", "country": "STRING", "amount": "DOUBLE",
    "quantity": "INT32", "mobile": "BOOL", "session": "STRING", "referrer": "STRING",
}  # fmt: skip
_JSON_SCHEMA = {
    "type": "object", "required": ["id", "at", "user", "kind", "country", "amount", "quantity", "mobile"],
    "properties": {
        "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}, "user": {"type": "string"},
        "kind": {"type": "string"}, "country": {"type": "string"}, "amount": {"type": "number"},
        "quantity": {"type": "integer"}, "mobile": {"type": "boolean"}, "session": {"type": ["string", "null"]},
        "referrer": {"type": ["string", "null"]},
    },
}  # fmt: skip


def measure(count: int, runs: int) -> dict[str, dict[str, float]]:
    """Return, by format, ``decoder`` and ``pass`` in microseconds per record, the median of the runs, and ``bytes`` per
    record.
    """
    values = [message.value for message in messages(count)]
    records = [_read(value) for value in values]
    configs, batches = configurations(), {}
    for kind, encode in encoders(values, records).items():
        batches[kind] = list(_batches([encode(at) for at in range(count)]))
    timings: dict[str, dict[str, list[float]]] = {kind: {"decoder": [], "pass": []} for kind in FORMATS}
    for _ in range(runs + 1):  # the first round only warms up
        for kind in FORMATS:
            timings[kind]["decoder"].append(_timed(partial(_decode, configs[kind], batches[kind])))
            timings[kind]["pass"].append(_timed(partial(_process, configs[kind], batches[kind], count)))
    return {
        kind: {
            **{name: statistics.median(seconds[1:]) / count * 1e6 for name, seconds in timings[kind].items()},
            "bytes": sum(batch.column("value").nbytes for batch in batches[kind]) / count - 4,  # without its offset
        }
        for kind in FORMATS
    }


def configurations() -> dict[str, dict[str, Any]]:
    """Return ``decode`` of an order for each format, with framed records if a format has a registry."""
    envelope = {"envelope": {"kind": "debezium"}}
    plain = {
        "avro": _registered("avro", "AVRO", json.dumps(_AVRO)),
        "json": {"format": "json", "schema": SCHEMA},
        "json_schema": _registered("json_schema", "JSON", json.dumps(_JSON_SCHEMA)),
        "protobuf": _registered("protobuf", "PROTOBUF", b64encode(_file().SerializeToString()).decode())
        | {"message": "bench.Event"},
        "raw": {"format": "raw"},
        "string": {"format": "string"},
    }
    avro = _registered("avro", "AVRO", json.dumps(debezium.avro_schema(_AVRO)))
    enveloped = {name: {**(avro if kind == "avro" else plain[kind]), **envelope}
                 for name, kind in debezium.FORMATS.items()}  # fmt: skip
    return plain | enveloped


def encoders(values: list[bytes], records: list[dict[str, Any]]) -> dict[str, Callable[[int], bytes]]:
    """Return, for each format, a function that encodes the record with a number."""
    schema = fastavro.parse_schema(_AVRO)
    content = FileDescriptorSet(file=[_copy(TIMESTAMP), _file()]).SerializeToString()
    event: Any = GetMessageClass(message_descriptor(content, "bench.Event"))

    def avro(at: int) -> bytes:
        written = BytesIO()
        fastavro.schemaless_writer(written, schema, records[at])
        return FRAME + written.getvalue()

    def protobuf(at: int) -> bytes:
        message = event(**{name: value for name, value in records[at].items() if name != "at" and value is not None})
        message.at.FromDatetime(records[at]["at"])
        data: bytes = message.SerializeToString()
        return FRAME + b"\0" + data

    def plain(at: int) -> bytes:
        return values[at]

    framed = {"avro": avro, "protobuf": protobuf, "json_schema": lambda at: FRAME + values[at]}
    enveloped = debezium.encoders(values, records, _AVRO, FRAME)
    return {**framed, "json": plain, "raw": plain, "string": plain, **enveloped}


def _registered(kind: str, of_registry: str, text: str) -> dict[str, Any]:
    schema = {"id": 7, "kind": of_registry, "text": text, "references": []}
    pinned = {"http://none: writer 7": schema}
    return {"format": kind, "reader": schema, "registry": _REGISTRY, "schemas": pinned}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="event.proto", package="bench", syntax="proto3", dependency=[TIMESTAMP.name])
    event = file.message_type.add(name="Event")
    for number, (name, kind) in enumerate(_PROTOBUF.items(), 1):
        field = event.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        if kind == "MESSAGE":
            field.type_name = ".google.protobuf.Timestamp"
    return file


def _copy(described: Any) -> FileDescriptorProto:
    copy = FileDescriptorProto()
    described.CopyToProto(copy)
    return copy


def _read(value: bytes) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(value)
    return {**record, "at": datetime.fromisoformat(record["at"])}


def _batches(values: list[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield batches as a task of Spark gets them: one partition after the other."""
    for start in range(0, len(values), BATCH):
        part = values[start : start + BATCH]
        count = len(part)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([b"u%06d" % at for at in range(count)], pa.binary()), pa.array(part, pa.binary()),
                pa.repeat("events", count), pa.repeat(pa.scalar(0, pa.int32()), count),
                pa.array(range(start, start + count), pa.int64()), pa.repeat(pa.scalar(0, INSTANT), count),
                pa.array([[]] * count, INPUT.field("headers").type),
            ], schema=INPUT,
        )  # fmt: skip


def _decode(config: dict[str, Any], batches: list[pa.RecordBatch]) -> None:
    decoder = open_decoder(config)
    bad = sum(len(decoder.decode(batch).errors) for batch in batches)
    assert bad == 0


def _process(config: dict[str, Any], batches: list[pa.RecordBatch], count: int) -> None:
    order = Order(
        pipeline_name="bench", manifest_id=1, attempt=1, ranges=(Range(TopicPartition("events", "", 0), 0, count),),
        source=SourceOrder("kafka", {}), decode=config, event_time=EventTimeSettings().order(), on_error="fail",
        sinks=(),
    )  # fmt: skip
    BatchProcessor(order).process("bench", batches, [])


def _timed(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
