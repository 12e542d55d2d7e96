"""How fast totals are staged and published: few keys and many, from decoded records to the mark."""

import os
import time
from typing import Any
from unittest import mock
from uuid import uuid4

from bench.records import PARTITIONS, SCHEMA
from bench.topic import agree, batches
from sandbox.services.postgres import Postgres
from tidemark.connections import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.offsets import Range, TopicPartition
from tidemark.order import Order, SinkOrder, SourceOrder
from tidemark.processing.processor import BatchProcessor
from tidemark.receipt import receipt_of_tasks
from tidemark.sinks.postgres.totals.settings import Settings
from tidemark.sinks.registry import open_sink

GROUPS = {"few": ["kind", "country"], "many": ["user"]}
VALUES = {"events": "count", "pieces": "sum(quantity)", "least": "min(amount)", "greatest": "max(amount)"}


def measure(postgres: Postgres, count: int) -> list[dict[str, Any]]:
    """Stage ``count`` messages by each of ``GROUPS`` in this process, then publish them in one transaction each."""
    figures = []
    with postgres.temporary_database("totals") as dsn, mock.patch.dict(os.environ, AIRFLOW_CONN_WAREHOUSE=dsn):
        migrate(dsn)
        with ManifestDatabase(dsn, "bench") as database:
            for keys, group_by in GROUPS.items():
                figures.append({"keys": keys, "messages": count, **_once(database, group_by, keys, count)})
    return figures


def _once(database: ManifestDatabase, group_by: list[str], name: str, count: int) -> dict[str, Any]:
    aggregate = {"group_by": group_by, "window": "1h" if name == "few" else None, "values": VALUES}
    table = {"name": name, "connection": "warehouse", "table": f"totals_{name}", "auto_create": True}
    table = {"name": name, "connection": "warehouse", "table": f"totals_{name}", "auto_create": True}
    settings = Settings.model_validate({**table, "aggregate": aggregate})
    sink = open_sink("bench", settings, from_environment)
    database_id = str(uuid4())
    sink.claim(database_id)
    decode = {"format": "json", "schema": SCHEMA}
    ranges = tuple(Range(TopicPartition("events", "id", at), 0, count // PARTITIONS) for at in range(PARTITIONS))
    options = {**settings.order(), **sink.order(1, 1)}
    order = Order(
        "bench", 1, 1, ranges, SourceOrder("kafka", {}), decode, {"field": "at", "on_invalid": "fail"}, "fail",
        (SinkOrder(name, settings.kind, options),),
    )  # fmt: skip
    sink.prepare(1, 1, decode, (), database)
    began = time.monotonic()
    receipt = receipt_of_tasks(order, [BatchProcessor(order).process("0", batches(count))])
    staged = time.monotonic()
    sink.put(receipt, ranges, database_id, agree, agree)
    return {"stage": staged - began, "publish": time.monotonic() - staged}
