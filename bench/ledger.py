"""Measures the cost of a long history: how many blocks PostgreSQL touches for each operation of users and runs.

The same pipeline is filled twice by SQL, as planning and publishing would have left it, once with ten times as much.
Each statement is explained when it runs (``EXPLAIN (ANALYZE, BUFFERS)``, rolled back), with its own values and before
its own effect. Blocks of 8 KiB, from the disk or not, do not depend on other load on the machine. A statement is flat
if it touches as many with the long history.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import yaml

from bench import pages, planning
from bench.planning import NAME, NEW_RECORDS, RANGE_RECORDS, MemorySource
from sandbox.services.postgres import Postgres
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.database.statements import QUERIES, NamedStatements
from tidemark.environment import set_variables
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.close import close
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.older import older_unfinished
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import unfinished
from tidemark.lifecycle.work import Progress
from tidemark.model.event_hours import HourSelection
from tidemark.model.manifest import COUNTED, ManifestSelection, ManifestState, RunKind
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.operations.audit import audit_between, compared
from tidemark.operations.complete import completeness
from tidemark.operations.fill import fill
from tidemark.operations.hours import hours
from tidemark.operations.lag import lag
from tidemark.operations.lags import Answer
from tidemark.operations.locate import locate
from tidemark.operations.status import status
from tidemark.operations.timeline import timeline
from tidemark.pipeline.deployed import Deployed
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.registry import open_sink
from tidemark.views.lanes import lane_views
from tidemark.views.manifests import manifest_history_view, manifest_views
from tidemark.views.open_metrics import measured
from tidemark.views.pipelines import pipeline_view

PARTITIONS = 10
RANGES = 1_000_000  # ranges of the long history; the short one has a tenth
FEWER = 10
GROWS = 2.0  # a statement with so many times the blocks, and at least MANY more, is not flat
MANY = 100
NOT_EXPLAINED = ("set_actor", "lock_attempt", "unlock_attempt")  # session locks would be taken twice

# The second sink has the same output as the first; one manifest in a hundred was replayed, with equal rows.
SECOND_SINK = """
SET session_replication_role = replica;
INSERT INTO attempt (manifest_id, attempt, state, fingerprint, actor, sinks, started_at, ended_at)
SELECT id, 2, 'unchanged', 'bench', 'bench', '{files,second}', now(), now() FROM manifest WHERE id % 100 = 0;
UPDATE manifest SET attempt = 2 WHERE id % 100 = 0;
INSERT INTO publication (manifest_id, sink, attempt, settled, digest, counts)
SELECT manifest_id, 'second', attempt, settled, digest, counts FROM publication;
UPDATE publication SET settled = 2 WHERE manifest_id % 100 = 0;
UPDATE attempt SET receipt = receipt || '{"sinks": ["files", "second"]}' WHERE receipt IS NOT NULL;
SET session_replication_role = DEFAULT;
"""


@dataclass
class Cost:
    """The blocks of each statement of one operation."""

    statements: int = 0
    blocks: dict[str, int] = field(default_factory=dict)
    whole_tables: set[str] = field(default_factory=set)  # statements that read all of a table, with its name

    @property
    def sum(self) -> int:
        return sum(self.blocks.values())


class Explained:
    """Explains each statement before it runs."""

    def __init__(self) -> None:
        self.cost = Cost()

    @contextmanager
    def of(self) -> Iterator[Cost]:
        self.cost = Cost()
        yield self.cost

    def rows(self, database: NamedStatements, name: str, **values: object) -> Any:
        self.cost.statements += 1
        if name not in NOT_EXPLAINED:
            self._explain(database, name, values)
        return ROWS(database, name, **values)

    def _explain(self, database: NamedStatements, name: str, values: dict[str, object]) -> None:
        with database.session.transaction(force_rollback=True):
            cursor = database.session.execute(
                b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + QUERIES[name].encode(), values
            )
            row = cursor.fetchone()
        assert row is not None
        [explained] = row["QUERY PLAN"]
        node = explained["Plan"]
        blocks = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
        self.cost.blocks[name] = self.cost.blocks.get(name, 0) + blocks
        self.cost.whole_tables |= {f"{name} reads all of {table}" for table in _whole_tables(node)}


ROWS = NamedStatements.rows


def _whole_tables(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan" and node["Actual Rows"] * node["Actual Loops"] > MANY:
        yield node["Relation Name"]
    for child in node.get("Plans", []):
        yield from _whole_tables(child)


def measure(postgres: Postgres, ranges: int = RANGES, partitions: int = PARTITIONS) -> dict[str, Any]:
    """Measure the operations with a tenth of the history, and with all of it."""
    few, many = (_verbs(postgres, number // partitions, partitions) for number in (ranges // FEWER, ranges))
    verbs = [_compared(name, few[name], many[name]) for name in many]
    return {"ranges": ranges, "fewer": ranges // FEWER, "partitions": partitions, "verbs": verbs}


def _compared(name: str, few: Cost, many: Cost) -> dict[str, Any]:
    growing = {
        statement: [few.blocks.get(statement, 0), blocks]
        for statement, blocks in many.blocks.items()
        if blocks > GROWS * few.blocks.get(statement, 0) + MANY
    }
    return {
        "verb": name, "statements": many.statements, "blocks": [few.sum, many.sum],
        "growing": growing, "whole_tables": sorted(many.whole_tables),
    }  # fmt: skip


def _file(folder: str) -> dict[str, Any]:
    """Return the pipeline file. It has two sinks, because a replay may have reached only one of them."""
    first = planning.file(f"{folder}/lake")
    layout = first["sinks"][0]["files"]["layout"]
    second = {"name": "second", "root": f"{folder}/second", "layout": layout}
    return {**first, "sinks": [*first["sinks"], {"files": second}]}


def _verbs(postgres: Postgres, manifests: int, partitions: int) -> dict[str, Cost]:
    with postgres.temporary_database("ledger") as dsn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        pipeline = Pipeline.model_validate(_file(folder))
        _fill(pipeline, dsn, Path(folder), manifests, partitions)
        variables = {
            "TIDEMARK_DB": dsn, "TIDEMARK_HOME": folder, "TIDEMARK_PIPELINES": f"{folder}/pipelines",
            "AIRFLOW_HOME": f"{folder}/airflow", "AIRFLOW__API__SECRET_KEY": "of the measurement",
        }  # fmt: skip
        explained = Explained()

        def rows(database: NamedStatements, name: str, **values: object) -> Any:
            return explained.rows(database, name, **values)

        with set_variables(variables), mock.patch.object(NamedStatements, "rows", rows):
            costs = _of_runs(explained, pipeline, dsn, manifests, partitions)
            return costs | _of_page(explained, manifests, partitions)


def _fill(pipeline: Pipeline, dsn: str, folder: Path, manifests: int, partitions: int) -> None:
    migrate(dsn)
    with ManifestDatabase(dsn, "bench") as database:
        context = _context(pipeline, database, MemorySource(pipeline, partitions, 0))
        plan(context, Tick("first", RunKind.MANUAL, None))
    newest_first = planning.fill(dsn, partitions, manifests)
    for lake in ("lake", "second"):
        planning.write_records(
            folder / lake, sorted(newest_first)
        )  # a manifest without a record would be repaired first
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / f"{NAME}.yaml").write_text(yaml.safe_dump(_file(str(folder))))
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tidemark") as connection:
        for statements in (pages.RUNS, SECOND_SINK):
            connection.execute(statements.encode())
        connection.execute("SELECT count_done()")  # no trigger has counted these rows
        connection.execute("VACUUM ANALYZE")


def _context(pipeline: Pipeline, database: ManifestDatabase, source: MemorySource) -> Context:
    sinks = tuple(open_sink(NAME, settings, from_environment) for settings in pipeline.sinks)
    return Context(pipeline, database, source, sinks)


def _of_runs(explained: Explained, pipeline: Pipeline, dsn: str, manifests: int, partitions: int) -> dict[str, Cost]:
    """Measure what a run does, and what commands ask."""
    costs: dict[str, Cost] = {}
    source = MemorySource(pipeline, partitions, manifests * RANGE_RECORDS + NEW_RECORDS)
    with ManifestDatabase(dsn, "bench") as database:
        context = _context(pipeline, database, source)
        with explained.of() as costs["plan"]:
            planned = plan(context, Tick("now", RunKind.MANUAL, datetime.now(UTC)))
            older_unfinished(context, planned.manifests)
        [manifest_id] = planned.manifests
        middle = manifest_id - manifests // 2
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        long_ago = datetime.now(UTC) - timedelta(hours=manifests // 2)
        day_long_ago = ManifestSelection(since=long_ago - timedelta(days=1), until=long_ago)
        with explained.of() as costs["process"]:
            process(context, manifest_id, _stage)
        with explained.of() as costs["close"]:
            close(context, "now")
        asked: dict[str, Callable[[], object]] = {
            "retry, with nothing to do": lambda: (Publisher(context).sweep(), unfinished(context)),
            "manifests, the newest": lambda: _listed(database, ManifestSelection()),
            "manifests, by state": lambda: _listed(database, ManifestSelection(ManifestState.FAILED)),
            "manifests, by time": lambda: _listed(database, ManifestSelection(since=hour_ago)),
            "manifests, of a day long ago": lambda: _listed(database, day_long_ago),
            "manifests, up to a day long ago": lambda: _listed(database, ManifestSelection(until=long_ago)),
            "manifests, by topic": lambda: _listed(database, ManifestSelection(topic=NAME)),
            "manifests, by partition": lambda: _listed(database, ManifestSelection(topic=NAME, partition=1)),
            "manifests, that a sink lacks": lambda: _listed(database, ManifestSelection(lacks="second")),
            "show": lambda: manifest_history_view(database, database.manifests.get(middle)),
            "show --compare": lambda: compared(context, database.manifests.get(middle)),
            "replay": lambda: process(context, manifest_id, _stage, replay=True),
            "fill, with nothing to do": lambda: fill(context, "second", "", _stage, Progress(), dry_run=True),
            "audit of the newest hour": lambda: audit_between(context, ManifestSelection(since=hour_ago)),
            "lag": lambda: lag(context),
            "status": lambda: status(database, NAME, Deployed(pipeline)),
            "complete": lambda: completeness(context, datetime.now(UTC)),
            "hours, the newest": lambda: hours(database, NAME, timedelta(), HourSelection(limit=1000)),
            "where": lambda: locate(
                database,
                NAME,
                5 % partitions,
                manifests * RANGE_RECORDS // 2,
                lambda _: "the measurement opens no sink",
            ),
            "history": lambda: database.decisions.of_pipeline(NAME),
            "timeline": lambda: timeline(database, NAME, datetime.now(UTC)),
            "what DAGs were told": lambda: database.hours.tellers(NAME),
            "lanes": lambda: lane_views(database, NAME),
            "metrics": lambda: measured(
                database, pipeline_view(database, status(database, NAME, Deployed(pipeline)), Answer(None)), None
            ),
        }
        for name, ask in asked.items():
            with explained.of() as costs[name]:
                ask()
    return costs


def _listed(database: ManifestDatabase, selection: ManifestSelection) -> None:
    """Read a page of ``tidemark manifests``, with the counts below it."""
    page = database.manifests.page(NAME, selection, limit=50)
    manifest_views(database, page)
    if page and database.manifests.count(NAME, selection, most=1, after=page[-1].id):
        database.manifests.count(NAME, selection, most=COUNTED + 1)


def _of_page(explained: Explained, manifests: int, partitions: int) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    with pages.client(manifests * RANGE_RECORDS, partitions) as client:
        for name, address in pages.views(manifests, manifests).items():
            with explained.of():
                client.get("/")  # fill what the page caches for some seconds
            with explained.of() as costs[f"page: {name}"]:
                answer = client.get(address)
            assert answer.status_code == 200, (address, answer.text)
    return costs


def _stage(order: Order) -> Receipt:
    processor = BatchProcessor(order)
    reports = [processor.process(f"{task:05d}-0", [_batch(covered)]) for task, covered in enumerate(order.read)]
    return receipt_of_tasks(order, reports)


def _batch(covered: Range) -> pa.RecordBatch:
    rows = [
        {"topic": NAME, "partition": covered.at.partition, "offset": offset, "timestamp": 0}
        for offset in range(covered.start, covered.end)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def main(ranges: int) -> None:
    """Print the figures as JSON, measured with a database of their own: ``python -m bench.ledger RANGES``."""
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        Postgres(Path(folder)) as postgres,
        redirect_stdout(sys.stderr),  # so that Airflow's log lines go there
    ):
        figures = measure(postgres, ranges)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]))
