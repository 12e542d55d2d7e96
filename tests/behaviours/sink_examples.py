"""One sink of every kind, ready to stage and put: what the behaviour suite over sinks needs of each."""

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from sandbox.services.azurite import Container
from sandbox.services.s3 import Bucket
from tests.sink_faces import prepare
from tests.worlds.azure_world import Blobs
from tests.worlds.s3_world import Prefix, delta_options
from tests.worlds.topic_world import committed, delete_records, headers
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced
from tidemark.lifecycle.ownership import claim
from tidemark.model.manifest import RangeKind, RunKind
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.record_schema import HEADERS
from tidemark.paths import ObjectName
from tidemark.processing.processor import BatchProcessor
from tidemark.providers.delta.settings import Settings as DeltaSettings
from tidemark.providers.iceberg.settings import Settings as IcebergSettings
from tidemark.providers.postgres.settings import Settings as PostgresSettings
from tidemark.providers.postgres.totals.settings import Settings as TotalsSettings
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.settings import Settings as TopicSettings
from tidemark.sinks.base import Sink
from tidemark.sinks.files.settings import Settings as FilesSettings
from tidemark.sinks.registry import open_sink
from tidemark.sinks.settings import SinkSettings
from tidemark_toy.settings import Settings as ToySettings

AT = TopicPartition("orders", "topic-id", 0)
RANGES = (Range(AT, 10, 40),)
CONNECTION = "warehouse"


@dataclass
class Example(ABC):
    """A sink with a manifest database in which manifests 1 and 2 are planned.

    ``warehouse`` is its connection as ``AIRFLOW_CONN_..`` has it.
    """

    folder: Path
    database: ManifestDatabase
    warehouse: str
    pipeline: str = "demo"

    def __post_init__(self) -> None:
        self.config = self.settings()
        self.sink = self.open()

    @abstractmethod
    def settings(self) -> SinkSettings: ...

    @abstractmethod
    def seen(self) -> dict[int, tuple[int, str | None]]:
        """What a reader of this kind sees: manifest and ``also`` of each offset."""

    @abstractmethod
    def dead(self) -> set[int]:
        """The offsets of the dead letters that are kept."""

    @abstractmethod
    def lose_a_row(self) -> None:
        """Somebody removes published output by hand."""

    def open(self) -> Sink:
        """The sink as another process would open it."""
        sink = open_sink(self.pipeline, self.config, from_environment)
        claim(sink, self.database.id())
        return sink

    def stage(self, attempt: int, *, manifest: int = 1, also: str = "") -> Receipt:
        """Thirty records over three hours, every tenth undecodable, by the code that runs in Spark tasks."""
        decode = {"format": "json", "schema": "n BIGINT NOT NULL, also STRING"}
        prepare(self.sink, manifest, attempt, decode, self.database)
        options = {**self.config.order(), **self.sink.staging.order(manifest, attempt)}
        order = Order(
            pipeline_name=self.pipeline, manifest_id=manifest, attempt=attempt, ranges=RANGES,
            source=SourceOrder("kafka", {}), decode=decode, event_time={"on_invalid": "fail"}, on_error="dead_letter",
            sinks=(SinkOrder(self.config.name, self.config.kind, options),),
        )  # fmt: skip
        return receipt_of_tasks(order, [BatchProcessor(order).process("00000-0", [records(also)])])


class LakeExample(Example):
    """Files, wherever they lie: ``keys`` and ``content`` are a reader's own way to them."""

    @abstractmethod
    def keys(self, below: str) -> list[str]:
        """Every key that begins so, relative to the root, sorted."""

    @abstractmethod
    def content(self, key: str) -> bytes: ...

    @abstractmethod
    def remove(self, key: str) -> None: ...

    def seen(self) -> dict[int, tuple[int, str | None]]:
        rows = self._recorded("data")
        assert len({row["_offset"] for row in rows}) == len(rows), "nothing twice"
        return {row["_offset"]: (row["_manifest_id"], row["also"]) for row in rows}

    def dead(self) -> set[int]:
        return {row["_offset"] for row in self._recorded("dead_letter")}

    def _recorded(self, kind: str) -> list[dict[str, Any]]:
        """Rows as a reader without a database finds them: by the highest record of each manifest."""
        newest = {key.rpartition("/")[2].split(".")[0]: key for key in self.keys(f"_manifests/{self.pipeline}/")}
        objects = [part for key in newest.values() for part in json.loads(self.content(key))["objects"]]
        return [row for part in objects if part["kind"] == kind for row in self.rows(part["path"])]

    def rows(self, key: str) -> list[dict[str, Any]]:
        table: pa.Table = pq.read_table(BytesIO(self.content(key)))
        return table.to_pylist()

    def lose_a_row(self) -> None:
        self.remove(self.keys("raw/")[0])


class FilesExample(LakeExample):
    def settings(self) -> SinkSettings:
        return FilesSettings.model_validate({"root": "lake"}, context=LoadContext(self.folder, self.folder))

    def keys(self, below: str) -> list[str]:
        keys = (str(path.relative_to(self.lake)) for path in self.lake.rglob("*") if path.is_file())
        return sorted(key for key in keys if key.startswith(below))

    def content(self, key: str) -> bytes:
        return (self.lake / key).read_bytes()

    def remove(self, key: str) -> None:
        (self.lake / key).unlink()

    @property
    def lake(self) -> Path:
        return self.folder / "lake"


@dataclass
class S3Example(LakeExample):
    """A lake in a folder of ``bucket``, which ``warehouse`` is the connection to."""

    bucket: Bucket = field(kw_only=True)

    def settings(self) -> SinkSettings:
        self.lake = self.bucket.below(f"{self.folder.name}/lake")
        return FilesSettings.model_validate({"root": self.lake.root, "connection": CONNECTION})

    def keys(self, below: str) -> list[str]:
        return self._below.keys(below)

    def content(self, key: str) -> bytes:
        return self._below.content(key)

    def remove(self, key: str) -> None:
        self._below.remove(key)

    @cached_property
    def _below(self) -> Prefix:
        return Prefix(self.lake)


@dataclass
class AzureExample(LakeExample):
    """A lake in a folder of ``container``, which ``warehouse`` is the connection to."""

    container: Container = field(kw_only=True)

    def settings(self) -> SinkSettings:
        self.lake = self.container.below(f"{self.folder.name}/lake")
        return FilesSettings.model_validate({"root": self.lake.root, "connection": CONNECTION})

    def keys(self, below: str) -> list[str]:
        return Blobs(self.lake).keys(below)

    def content(self, key: str) -> bytes:
        return Blobs(self.lake).content(key)

    def remove(self, key: str) -> None:
        Blobs(self.lake).remove(key)


class PostgresExample(Example):
    """A table with a row per offset, so that nothing replaces anything but a replay."""

    def settings(self) -> SinkSettings:
        return PostgresSettings.model_validate(
            {"connection": CONNECTION, "table": "orders", "key": ["_topic", "_partition", "_offset", "_log_generation"],
             "auto_create": True}
        )  # fmt: skip

    def seen(self) -> dict[int, tuple[int, str | None]]:
        rows = self._query("SELECT _offset, _manifest_id, also FROM public.orders WHERE NOT _is_deleted")
        return {row["_offset"]: (row["_manifest_id"], row["also"]) for row in rows}

    def dead(self) -> set[int]:
        rows = self._query("SELECT _offset FROM tidemark_target.dead_letter WHERE target = 'public.orders'")
        return {row["_offset"] for row in rows}

    def lose_a_row(self) -> None:
        self._query("DELETE FROM public.orders WHERE _offset = 11 RETURNING _offset")

    def _query(self, statement: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.warehouse, row_factory=dict_row) as connection:
            return connection.execute(statement).fetchall()  # type: ignore[arg-type]


class TotalsExample(PostgresExample):
    """Totals with a key per offset (``n``), so that a reader sees each record."""

    def settings(self) -> SinkSettings:
        values = {"records": "count", "also": "min(also)", "greatest": "max(also)", "n_sum": "sum(n)"}
        aggregate = {"group_by": ["n"], "window": "1h", "values": values}
        return TotalsSettings.model_validate(
            {"connection": CONNECTION, "table": "orders", "auto_create": True, "aggregate": aggregate}
        )

    def seen(self) -> dict[int, tuple[int, str | None]]:
        rows = self._query(
            "SELECT n, _manifest_id, t.also, t.greatest, t.records, t.n_sum FROM public.orders t "
            "JOIN public.orders_contributions c USING (n, window_start)"
        )
        assert {(row["records"], row["n_sum"] - row["n"], row["also"] == row["greatest"]) for row in rows} <= {
            (1, 0, True)
        }
        return {row["n"]: (row["_manifest_id"], row["also"]) for row in rows}

    def lose_a_row(self) -> None:
        self._query("DELETE FROM public.orders WHERE n = 11 RETURNING n")


class DynamoExample(TotalsExample):
    """The same totals, which readers find in DynamoDB."""

    def settings(self) -> SinkSettings:
        self.items_table = f"orders{uuid4().hex[:12]}"
        served = {"connection": "dynamodb", "table": self.items_table, "auto_create": True}
        return TotalsSettings.model_validate({**super().settings().model_dump(), "served_in": {"dynamodb": served}})

    def seen(self) -> dict[int, tuple[int, str | None]]:
        manifests = {
            row["n"]: row["_manifest_id"] for row in self._query("SELECT n, _manifest_id FROM orders_contributions")
        }
        seen = {}
        for total in self._items():
            assert (total["_rows"]["N"], total["records"]["N"], total["n_sum"]) == ("1", "1", total["n"])
            assert total["also"] == total["greatest"]
            seen[int(total["n"]["N"])] = (manifests[int(total["n"]["N"])], total["also"]["S"])
        return seen

    def lose_a_row(self) -> None:
        [key] = [item["_key"] for item in self._items() if item["n"]["N"] == "11"]
        self._client.delete_item(TableName=self.items_table, Key={"_key": key})

    def _items(self) -> list[dict[str, Any]]:
        try:
            pages = list(self._client.get_paginator("scan").paginate(TableName=self.items_table))
        except self._client.exceptions.ResourceNotFoundException:
            return []
        return [item for page in pages for item in page["Items"] if item.get("_rows", {"N": "0"})["N"] != "0"]

    @cached_property
    def _client(self) -> Any:
        keys = json.loads(os.environ["AIRFLOW_CONN_DYNAMODB"])
        session: Any = boto3.Session(aws_access_key_id=keys["login"], aws_secret_access_key=keys["password"])
        return session.client("dynamodb", endpoint_url=keys["extra"]["endpoint_url"], region_name="us-east-1")


class TopicExample(Example):
    """A topic, in the cluster that ``warehouse`` is the connection to."""

    def settings(self) -> SinkSettings:
        self.topic = f"out{uuid4().hex[:12]}"
        self.servers: str = json.loads(self.warehouse)["extra"]["bootstrap.servers"]
        TopicCluster(self.servers, {}).create_topic(self.topic, 2, {"retention.ms": "-1"})
        return TopicSettings.model_validate(
            {"connection": CONNECTION, "topic": self.topic}, context=LoadContext(self.folder, self.folder)
        )

    def seen(self) -> dict[int, tuple[int, str | None]]:
        messages = committed(self.servers, self.topic)
        seen = {
            int(headers(message)["tidemark.offset"]): (
                int(headers(message)["tidemark.manifest"]), json.loads(message.value() or b"{}")["also"],
            )
            for message in messages
        }  # fmt: skip
        assert len(seen) == len(messages), "nothing twice"
        return seen

    def dead(self) -> set[int]:
        return {
            int(headers(message)["tidemark.offset"])
            for message in committed(self.servers, f"{self.topic}-dead-letters")
        }

    def lose_a_row(self) -> None:
        delete_records(self.servers, self.topic)


class IcebergExample(Example):
    """A table in a SQL catalog; a reader goes by the catalog."""

    def settings(self) -> SinkSettings:
        return IcebergSettings.model_validate(
            {"connection": CONNECTION, "table": "sales.orders", "warehouse": "warehouse", "auto_create": True,
             "partition_by": ["hour(_event_time)", "bucket(4, _offset)"]},
            context=LoadContext(self.folder, self.folder),
        )  # fmt: skip

    def table(self) -> Table | None:
        parts = conninfo_to_dict(self.warehouse)
        place = f"{parts['user']}:{parts.get('password', '')}@{parts['host']}:{parts['port']}/{parts['dbname']}"
        catalog = SqlCatalog("tidemark", uri=f"postgresql+psycopg://{place}")
        try:
            return catalog.load_table("sales.orders") if catalog.table_exists("sales.orders") else None
        finally:
            catalog.engine.dispose()

    def seen(self) -> dict[int, tuple[int, str | None]]:
        table = self.table()
        rows = table.scan().to_arrow().to_pylist() if table else []
        assert len({row["_offset"] for row in rows}) == len(rows), "nothing twice"
        return {row["_offset"]: (row["_manifest_id"], row["also"]) for row in rows}

    def dead(self) -> set[int]:
        return {letter["_offset"] for path in self._dead_letters() for letter in pq.read_table(path).to_pylist()}

    def _dead_letters(self) -> list[Path]:
        return dead_letter_files(self.sink, self.folder / "warehouse" / "sales" / "orders")

    def lose_a_row(self) -> None:
        table = self.table()
        assert table is not None
        table.delete("_offset = 11")
        table.catalog.engine.dispose()  # type: ignore[attr-defined]


class CurrentIcebergExample(IcebergExample):
    """A table with a row per offset, so that nothing replaces anything but a replay."""

    def settings(self) -> SinkSettings:
        return IcebergSettings.model_validate(
            {"connection": CONNECTION, "table": "sales.orders", "warehouse": "warehouse", "auto_create": True,
             "key": ["_topic", "_topic_partition", "_offset", "_log_generation"], "order_by": "n",
             "partition_by": ["bucket(4, _offset)"]},
            context=LoadContext(self.folder, self.folder),
        )  # fmt: skip

    def seen(self) -> dict[int, tuple[int, str | None]]:
        assert not any(row["_is_deleted"] for row in self.rows())
        return super().seen()

    def rows(self) -> list[dict[str, Any]]:
        table = self.table()
        rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist() if table else []
        return rows


class DeltaExample(Example):
    """A Delta table; a reader goes by its log."""

    def settings(self) -> SinkSettings:
        return DeltaSettings.model_validate(
            {"location": "delta", "auto_create": True}, context=LoadContext(self.folder, self.folder)
        )

    @property
    def root(self) -> str:
        return str(self.folder / "delta")

    @property
    def options(self) -> dict[str, str]:
        return {}

    def table(self) -> DeltaTable:
        return DeltaTable(self.root, storage_options=self.options)

    def seen(self) -> dict[int, tuple[int, str | None]]:
        there = DeltaTable.is_deltatable(self.root, self.options)
        rows = self.table().to_pyarrow_table().to_pylist() if there else []
        assert len({row["_offset"] for row in rows}) == len(rows), "nothing twice"
        return {row["_offset"]: (row["_manifest_id"], row["also"]) for row in rows}

    def dead(self) -> set[int]:
        files = dead_letter_files(self.sink, self.folder / "delta")
        return {letter["_offset"] for file in files for letter in pq.read_table(file, partitioning=None).to_pylist()}

    def lose_a_row(self) -> None:
        self.table().delete("_offset = 11")


class CurrentDeltaExample(DeltaExample):
    """A table of current rows with a key per offset, so that nothing replaces anything but a replay."""

    def settings(self) -> SinkSettings:
        key = ["_topic", "_topic_partition", "_offset", "_log_generation"]
        return DeltaSettings.model_validate(
            {"location": "delta", "auto_create": True, "key": key, "buckets": 4},
            context=LoadContext(self.folder, self.folder),
        )


@dataclass
class DeltaInBucketExample(DeltaExample):
    """The same in a folder of ``bucket``, which ``warehouse`` is the connection to."""

    bucket: Bucket = field(kw_only=True)

    def settings(self) -> SinkSettings:
        self.place = self.bucket.below(f"{self.folder.name}/delta")
        return DeltaSettings.model_validate(
            {"location": self.place.root, "connection": CONNECTION, "auto_create": True}
        )

    @property
    def root(self) -> str:
        return self.place.root

    @property
    def options(self) -> dict[str, str]:
        return delta_options(self.bucket)

    def dead(self) -> set[int]:
        below = Prefix(self.place)
        records = [json.loads(below.content(str(name))) for name in self.sink.ledger.records()]
        paths = [part["path"] for record in records for part in record["objects"] if part["kind"] == "dead_letter"]
        files = [BytesIO(below.content(path)) for path in paths]
        return {letter["_offset"] for file in files for letter in pq.read_table(file).to_pylist()}


class ToyExample(FilesExample):
    """JSON lines, which know their manifest by the name of their file only."""

    def settings(self) -> SinkSettings:
        return ToySettings.model_validate({"folder": "lake"}, context=LoadContext(self.folder, self.folder))

    def rows(self, key: str) -> list[dict[str, Any]]:
        name = ObjectName.parse(key)
        assert name is not None
        lines = map(json.loads, self.content(key).splitlines())
        return [
            {"_offset": line["offset"], "_manifest_id": name.manifest_id, "also": line.get("data", {}).get("also")}
            for line in lines
        ]

    def lose_a_row(self) -> None:
        file = self.lake / self.keys("rows/")[0]
        file.write_bytes(file.read_bytes().partition(b"\n")[2])


def dead_letter_files(sink: Sink, location: Path) -> list[Path]:
    """By the record of each attempt that the sink shows, as a reader without a database takes them."""
    names = [location / str(name) for name in sink.ledger.records()]
    objects = [part for name in names for part in json.loads(name.read_text())["objects"]]
    return [location / part["path"] for part in objects if part["kind"] == "dead_letter"]


def agree() -> None:
    """The fence of an attempt that nobody has overtaken, and a mark that is not looked at."""


class Overtaken:
    """A fence that says no from its ``after``-th question on."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Fenced("a newer attempt is at work")


def plan_two_manifests(database: ManifestDatabase) -> None:
    """Manifests 1 and 2 of pipeline demo, on one partition of one topic."""
    with database.transaction():
        database.pipelines.remember("demo", {})
        [chain] = database.chains.insert("demo", [AT]).values()
        run = database.runs.insert("demo", "one", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[])
        first, second = database.manifests.insert(run, "demo", 2)
        assert (first, second) == (1, 2)
        database.ranges.insert(RangeKind.ANCHOR, [(chain, None, 10, None)])
        database.ranges.insert(RangeKind.DATA, [(chain, 10, 40, first), (chain, 40, 70, second)])


def records(also: str) -> pa.RecordBatch:
    """What Spark's Kafka source would hand over for the offsets of ``RANGES``."""
    offsets = range(RANGES[0].start, RANGES[0].end)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * len(offsets)),
            "value": pa.array([value(at, also) for at in offsets], pa.binary()),
            "topic": pa.array([AT.topic] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([noon + timedelta(minutes=4 * at) for at in offsets], pa.timestamp("us", "UTC")),
            "headers": pa.array([None] * len(offsets), HEADERS),
        }
    )


def value(offset: int, also: str) -> bytes:
    return b"{" if offset % 10 == 0 else b'{"n": %d, "also": "%s"}' % (offset, also.encode())
