"""Measures how fast each kind of sink is: one process stages records from memory, and publishes them, up to the
mark.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pyarrow as pa

from bench.planning import NAME, MemorySource
from bench.records import PARTITIONS, SCHEMA, messages
from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.lifecycle.attempt import order_of
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.expected import work_of
from tidemark.lifecycle.in_target import record_of
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.model.receipt import receipt_of_tasks
from tidemark.model.record_schema import HEADERS
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.registry import open_sink

BATCH = 20_000
TABLE = {"connection": "warehouse", "auto_create": True}
VALUES = {"events": "count", "pieces": "sum(quantity)", "least": "min(amount)", "greatest": "max(amount)"}
BY_KIND = {"group_by": ["kind", "country"], "window": "1h", "values": VALUES}  # 2,400 keys
BY_KIND_ALONE = {  # DynamoDB keeps no floating point
    **BY_KIND, "group_by": ["kind"], "values": {"events": "count", "pieces": "sum(quantity)", "least": "min(quantity)"},
}  # fmt: skip
BY_USER = {"group_by": ["user"], "values": VALUES}  # at most 262,144

SINKS: dict[str, dict[str, Any]] = {
    "files by event hour": {"files": {"root": "lake", "layout": "raw/{stream}/%Y-%m-%d/%H", "compression": "zstd"}},
    "a PostgreSQL table, a new key in each message": {
        "postgres": {**TABLE, "table": "latest", "key": ["id"], "order_by": "at"}
    },
    "a topic, with four headers in one transaction": {"topic": {"topic": "bench", "key": ["user"]}},
    "an Iceberg table by event hour": {
        "iceberg": {**TABLE, "table": "bench.events", "warehouse": "warehouse", "partition_by": ["hour(_event_time)"]}
    },
    "a Delta table": {"delta": {"location": "table", "auto_create": True}},
    "totals by kind, country and hour": {"totals": {**TABLE, "table": "by_kind", "aggregate": BY_KIND}},
    "totals by kind and hour in DynamoDB (an emulator)": {
        "totals": {
            **TABLE,
            "table": "by_kind",
            "aggregate": BY_KIND_ALONE,
            "served_in": {"dynamodb": {"connection": "dynamodb", "table": "by_kind", "auto_create": True}},
        }
    },
    "totals by user": {"totals": {**TABLE, "table": "by_user", "aggregate": BY_USER}},
}


def measure(broker: Broker, postgres: Postgres, folder: Path, count: int) -> list[dict[str, Any]]:
    """Stage ``count`` messages for each of ``SINKS`` in this process, and publish them."""
    read = list(batches(count))
    with DynamoDB(folder, STATE) as dynamodb, mock.patch.dict(os.environ, AIRFLOW_CONN_DYNAMODB=dynamodb.connection()):
        return [
            {"sink": name, "messages": count, **_alone(entry, broker, postgres, folder, read)}
            for name, entry in SINKS.items()
        ]


def _alone(
    entry: dict[str, Any], broker: Broker, postgres: Postgres, folder: Path, read: Sequence[pa.RecordBatch]
) -> dict[str, float]:
    """Measure one sink, with a folder and a database of its own."""
    place = Path(tempfile.mkdtemp(prefix="sink-", dir=folder))
    with postgres.temporary_database("sinks") as dsn, mock.patch.dict(os.environ, AIRFLOW_CONN_WAREHOUSE=dsn):
        migrate(dsn)
        with ManifestDatabase(dsn, "bench") as database:
            timed = _once(_pipeline(entry, broker, place), database, read)
    shutil.rmtree(place)
    return timed


def _pipeline(entry: dict[str, Any], broker: Broker, folder: Path) -> Pipeline:
    """Return a pipeline with an entry of ``sinks``. A topic gets a new name, and is created."""
    [(kind, keys)] = entry.items()
    if kind == "topic":
        keys = {**keys, "bootstrap_servers": broker.bootstrap_servers, "topic": f"{keys['topic']}-{uuid4().hex[:8]}"}
        broker.create_topic(keys["topic"], PARTITIONS)
    pipeline = {
        "pipeline": NAME,
        "source": {"kafka": {"bootstrap_servers": MemorySource.address, "topics": [NAME]}},
        "decode": {"format": "json", "schema": SCHEMA},
        "event_time": {"field": "at"},
        "sinks": [{kind: keys}],
    }
    return Pipeline.model_validate(pipeline, context=LoadContext(folder, folder))


def _once(pipeline: Pipeline, database: ManifestDatabase, read: Sequence[pa.RecordBatch]) -> dict[str, float]:
    [settings] = pipeline.sinks
    sink = open_sink(NAME, settings, from_environment)
    source = MemorySource(pipeline, PARTITIONS, sum(batch.num_rows for batch in read) // PARTITIONS)
    context = Context(pipeline, database, source, (sink,))
    [manifest] = database.manifests.find(ids=plan(context, Tick("first", RunKind.MANUAL, None)).manifests)
    decode, transforms = pipeline.decode.record_order(), pipeline.transforms()
    sink.output.prepare(work_of(database, manifest.id, 1, decode, transforms))
    order = order_of(context, manifest, 1)
    began = time.monotonic()
    receipt = receipt_of_tasks(order, [BatchProcessor(order).process("00000-0", read)])
    staged = time.monotonic()
    record = record_of(sink, receipt, manifest.ranges, database.id())
    sink.output.put(receipt, record, agree, agree)
    return {"stage": staged - began, "publish": time.monotonic() - staged}


def agree(visible: int | None = None) -> None:
    """Do nothing, as the fence of an attempt that no other overtakes, and as a mark without a database."""


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first ``count`` messages as Spark hands them over."""
    rows: list[tuple[Any, ...]] = []
    for number, message in enumerate(messages(count)):
        rows.append((message.key, message.value, NAME, message.partition, number // PARTITIONS, message.stamp_ms))
        if len(rows) == BATCH or number == count - 1:
            key, value, topic, partition, offset, stamp = zip(*rows, strict=True)
            yield pa.record_batch(
                {
                    "key": pa.array(key, pa.binary()), "value": pa.array(value, pa.binary()), "topic": pa.array(topic),
                    "partition": pa.array(partition, pa.int32()), "offset": pa.array(offset, pa.int64()),
                    "timestamp": pa.array([at * 1000 for at in stamp], pa.timestamp("us", "UTC")),
                    "headers": pa.nulls(len(rows), HEADERS),
                }
            )  # fmt: skip
            rows = []
