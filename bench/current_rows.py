"""Measures tables of current rows in Iceberg and Delta: a manifest that changes some keys, and Spark's `MERGE INTO`.

Each format has two tables with the same rows: one of Tidemark, one of Spark. For Tidemark, it measures the publishing
process from the end of staging to the end of the manifest. Spark merges the same staged files, in a session that stays
up.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from bench.planning import NAME, MemorySource
from bench.timed import processor_seconds
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.jars import fetch_for_tests
from sandbox.errors import SandboxFailed, WrongResult
from sandbox.services.iceberg_catalog import jdbc_options
from sandbox.services.postgres import Postgres
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.partitions import Record
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.registry import open_sink
from tidemark.times.event_time import INSTANT

ROWS, QUICK_ROWS = 5_000_000, 200_000
CHANGED = (1_000, 100_000)
WARM_UP = 10  # keys
BATCH = 50_000
SCHEMA = "id BIGINT NOT NULL, name STRING NOT NULL, amount DOUBLE NOT NULL, quantity INT NOT NULL, note STRING"
KEYED = {"key": ["id"], "auto_create": True}
SINKS: dict[str, dict[str, Any]] = {
    "iceberg": {**KEYED, "connection": "warehouse", "table": "bench.latest", "warehouse": "warehouse"},
    "delta": {**KEYED, "location": "latest"},
}
CREATE = {
    "iceberg": """
        CREATE TABLE {table} USING iceberg TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')
        AS SELECT * FROM staged""",
    "delta": "CREATE TABLE {table} USING delta AS SELECT * FROM staged",
}
MERGE = """
    MERGE INTO {table} AS standing USING staged ON standing.id = staged.id
    WHEN MATCHED AND staged._offset > standing._offset THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
COMPARED = "SELECT count(*), sum(id), sum(amount), sum(_offset) FROM {table}"


def measure(postgres: Postgres, folder: Path, rows: int, changed: Sequence[int], runs: int) -> list[dict[str, Any]]:
    """Return seconds and processor seconds of each change for both sides, which take turns.

    Raises ``WrongResult`` unless both tables of a format have the same rows in the end.
    """
    with (
        postgres.temporary_database("rows") as dsn,
        mock.patch.dict(os.environ, AIRFLOW_CONN_WAREHOUSE=dsn),
        _spark(dsn, folder) as spark,
    ):
        migrate(dsn)
        with ManifestDatabase(dsn, "bench") as database:
            tables = [CurrentRows(kind, folder, database) for kind in SINKS]
            for table in tables:
                spark.sql(CREATE[table.kind].format(table=table.peer), table.publish(range(rows))[1])
                spark.sql(MERGE.format(table=table.peer), table.publish(_spread(rows, WARM_UP))[1])
            turns = product(range(runs), tables, changed)
            figures = [_turn(spark, table, rows, count) for _, table, count in turns]
        for table in tables:
            ours, theirs = (spark.sql(COMPARED.format(table=name)) for name in (table.own, table.peer))
            if ours != theirs or ours[0][0] != rows:
                raise WrongResult(f"{ours} beside {theirs}, of {rows:,} rows", next_step=f"compare {table.own}")
    return figures


def _turn(spark: "Spark", table: "CurrentRows", rows: int, count: int) -> dict[str, Any]:
    ours, staged = table.publish(_spread(rows, count))
    clock = Clock(spark.processor)
    spark.sql(MERGE.format(table=table.peer), staged)
    theirs = clock.passed()
    for name, of in (("tidemark", ours), ("spark", theirs)):
        line = f"{table.kind} {count:,} of {rows:,}, {name}: {of['whole']:.2f} s, processor {of['cpu']:.2f} s"
        print(line, file=sys.stderr, flush=True)
    return {"format": table.kind, "rows": rows, "changed": count, "tidemark": ours, "spark": theirs}


class CurrentRows:
    """Tidemark's table of one format."""

    def __init__(self, kind: str, folder: Path, database: ManifestDatabase) -> None:
        settings = {
            "pipeline": f"rows-{kind}",
            "source": {"kafka": {"bootstrap_servers": MemorySource.address, "topics": [NAME]}},
            "decode": {"format": "json", "schema": SCHEMA},
            "sinks": [{kind: SINKS[kind]}],
        }
        self.kind = kind
        self.own = "tidemark.bench.latest" if kind == "iceberg" else f"delta.`{folder}/latest`"  # Spark's names
        self.peer = "tidemark.bench.peer" if kind == "iceberg" else f"delta.`{folder}/peer`"
        self._folder = folder
        self._pipeline = Pipeline.model_validate(settings, context=LoadContext(folder, folder))
        [sink] = self._pipeline.sinks
        self._sink = open_sink(self._pipeline.name, sink, from_environment)
        self._source = Changes(self._pipeline)
        self._database = database

    def publish(self, ids: range) -> tuple[dict[str, float], Path]:
        """Publish a new version of these rows. Return the time after they were staged, and the folder with a copy of
        the staged files.
        """
        start = self._source.append(ids)
        context = Context(self._pipeline, self._database, self._source, (self._sink,))
        [manifest_id] = plan(context, Tick(str(start), RunKind.MANUAL, None)).manifests
        copies = self._folder / f"{self._pipeline.name}-{start}"
        clocks = []

        def stage(order: Order) -> Receipt:
            receipt = receipt_of_tasks(order, [BatchProcessor(order).process("00000-0", _batches(ids, start))])
            copies.mkdir()
            for number, part in enumerate(receipt.objects):
                shutil.copy(Path(order.sinks[0].options["root"], part.staged), copies / f"{number}.parquet")
            clocks.append(Clock(time.process_time))
            return receipt

        process(context, manifest_id, stage)
        [clock] = clocks
        return clock.passed(), copies


def _spread(rows: int, count: int) -> range:
    """Return ``count`` keys, spread evenly over all."""
    return range(0, rows, rows // count)[:count]


def _batches(ids: range, start: int) -> Iterator[pa.RecordBatch]:
    """Yield a record for each of these rows; ``start`` is the offset of the first."""
    for first in range(0, len(ids), BATCH):
        part = ids[first : first + BATCH]
        count, offsets = len(part), range(start + first, start + first + len(part))
        values = [_value(number, offset) for number, offset in zip(part, offsets, strict=True)]
        yield pa.RecordBatch.from_arrays(
            [
                pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.repeat(NAME, count),
                pa.repeat(pa.scalar(0, pa.int32()), count), pa.array(offsets, pa.int64()),
                pa.repeat(pa.scalar(0, INSTANT), count), pa.nulls(count, INPUT.field("headers").type),
            ], schema=INPUT,
        )  # fmt: skip


def _value(number: int, offset: int) -> bytes:
    return b'{"id":%d,"name":"customer %d","amount":%d.25,"quantity":%d,"note":"%08x"}' % (
        number, number, offset, number % 100, number * 2_654_435_761 & 0xFFFFFFFF,
    )  # fmt: skip


class Changes(MemorySource):
    """The records of all manifests: planning and publishing compare the last record of each with the source."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline, 1, 0)
        self._ids: dict[int, range] = {}

    def append(self, ids: range) -> int:
        """Append a record for each id, and return the offset of the first."""
        start = self.end
        self._ids[start] = ids
        self.end += len(ids)
        return start

    def records(self, covered: Range) -> Iterator[Record]:
        for offset in range(covered.start, covered.end):
            start = max(start for start in self._ids if start <= offset)
            value = _value(self._ids[start][offset - start], offset)
            yield Record(NAME, 0, offset, 0, None, value, None, leader_epoch=0)


class Clock:
    """The time since it was created; ``processor`` returns the processor time so far."""

    def __init__(self, processor: Callable[[], float]) -> None:
        self._processor = processor
        self._began = time.monotonic(), processor()

    def passed(self) -> dict[str, float]:
        whole, cpu = self._began
        return {"whole": time.monotonic() - whole, "cpu": self._processor() - cpu}


class Spark:
    """A session of ``bench.peer`` with both formats."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log

    def processor(self) -> float:
        return processor_seconds(self._process.pid)

    def sql(self, statement: str, staged: Path | None = None) -> Any:
        """Return the rows of a statement, whose view ``staged`` has the files of a folder."""
        return self.send({"statement": statement, "staged": staged and str(staged)})

    def send(self, task: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SandboxFailed(f"Spark ended\n{self._log.read_text()[-3000:]}", next_step=str(self._log))
        return json.loads(answer)


@contextmanager
def _spark(dsn: str, folder: Path) -> Iterator[Spark]:
    log = folder / "peer.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "bench.peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        ) as process,
    ):  # fmt: skip
        spark = Spark(process, log)
        spark.send(_settings(dsn, folder))
        yield spark


def _settings(dsn: str, folder: Path) -> dict[str, str]:
    """Return the settings of one session with both formats."""
    catalog = {"type": "jdbc", "warehouse": f"{folder}/warehouse", **jdbc_options(dsn)}
    return {
        "spark.driver.extraClassPath": ":".join(f"{jars}/*" for jars in fetch_for_tests(STATE, *SINKS)),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.tidemark": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.tidemark.{key}": value for key, value in catalog.items()},
    }
