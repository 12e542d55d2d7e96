"""Measures how long `plan` takes with many partitions and a long history, without Kafka's answers.

The database is a real PostgreSQL. SQL fills its history as planning and publishing would, with a record in the lake for
each manifest. The source answers from memory, which takes a few milliseconds.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from sandbox.services.postgres import Postgres
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.database.statements import QUERIES
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.dataset import Dataset
from tidemark.model.digest import record_digest
from tidemark.model.manifest import RunKind
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, Record
from tidemark.paths import RecordName
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.base import Sink
from tidemark.sinks.registry import open_sink
from tidemark.sources.base import Source

NAME = "bench"
RANGE_RECORDS = 1_000
NEW_RECORDS = 10
REPEATS = 3
SHAPES = ((10, 0), (10, 1_000_000), (10_000, 0), (10_000, 1_000_000))  # partitions, ranges of history
HISTORY = Path(__file__).with_name("history.sql")


class MemorySource(Source):
    """One topic whose partitions all end at ``end``; all its records are empty."""

    title = "memory"
    address = "memory:9092"

    def __init__(self, pipeline: Pipeline, partitions: int, end: int) -> None:
        super().__init__(pipeline.name, pipeline.source)
        self.places = [TopicPartition(NAME, "topic-1", partition) for partition in range(partitions)]
        self.end = end

    def dataset(self, topic: str) -> Dataset:
        return Dataset(self.address, topic)

    def topics(self) -> list[str]:
        return [NAME]

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        del topics
        return list(self.places), []

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {place: Bounds(0, self.end, self.end) for place in places}

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        return dict.fromkeys(places, (self.end, when))

    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        return dict.fromkeys(bounds, 0)

    def records(self, covered: Range) -> Iterator[Record]:
        topic, partition = covered.at.topic, covered.at.partition
        for offset in range(covered.start, covered.end):
            yield Record(topic, partition, offset, 0, None, None, None, leader_epoch=0)

    def order(self) -> dict[str, Any]:
        return {}


def measure(postgres: Postgres, partitions: int, ranges: int) -> dict[str, Any]:
    """Return the median time of ``REPEATS`` plans, each with new records, and how PostgreSQL read the ranges."""
    with postgres.temporary_database("plan") as dsn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as lake:
        migrate(dsn)
        chosen = pipeline(lake)
        [settings] = chosen.sinks
        sink = open_sink(NAME, settings, from_environment)
        per_chain = ranges // partitions
        source = MemorySource(chosen, partitions, 0)
        with ManifestDatabase(dsn, "bench") as database:
            plan(Context(chosen, database, source, (sink,)), Tick("first", RunKind.MANUAL, None))
        if ranges:
            write_records(Path(lake), fill(dsn, partitions, per_chain))
        source.end = per_chain * RANGE_RECORDS
        scanned = _scans(dsn)
        seconds = [_one_plan(chosen, dsn, source, sink, number) for number in range(REPEATS)]
        return {
            "partitions": partitions,
            "ranges": ranges,
            "manifests": per_chain,
            "seconds": statistics.median(seconds),
            "all_seconds": seconds,
            "whole_table_reads_of_ranges": _scans(dsn) - scanned,
            "nodes": _nodes(dsn, partitions, source.end),
        }


def _one_plan(pipeline: Pipeline, dsn: str, source: MemorySource, sink: Sink, number: int) -> float:
    source.end += NEW_RECORDS
    with ManifestDatabase(dsn, "bench") as database:
        began = time.monotonic()
        context = Context(pipeline, database, source, (sink,))
        planned = plan(context, Tick(f"plan {number}", RunKind.MANUAL, datetime.now(UTC)))
        took = time.monotonic() - began
    assert len(planned.manifests) == 1, "every plan has new records"
    return took


def file(lake: str) -> dict[str, Any]:
    """Return the pipeline file."""
    return {
        "pipeline": NAME,
        "source": {"kafka": {"bootstrap_servers": "memory:9092", "topics": [NAME]}},
        "decode": {"format": "raw"},
        "sinks": [{"files": {"root": lake, "layout": "raw/{stream}/%Y/%m/%d/%H"}}],
    }


def pipeline(lake: str) -> Pipeline:
    return Pipeline.model_validate(file(lake))


def fill(dsn: str, partitions: int, manifests: int) -> list[int]:
    """Insert done manifests, each with a range of every chain. Return their ids, newest first."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tidemark") as connection:
        connection.execute("SELECT set_config('bench.manifests', %s, false)", [str(manifests)])
        connection.execute("SELECT set_config('bench.records', %s, false)", [str(RANGE_RECORDS)])
        connection.execute("SELECT set_config('bench.digest', %s, false)", [record_digest(None, None)])
        connection.execute(HISTORY.read_bytes())
        connection.execute("VACUUM ANALYZE")
        counted = connection.execute("SELECT count(*) FROM manifest_range WHERE kind = 'data'").fetchone()
        assert counted == (manifests * partitions,)
        return [row[0] for row in connection.execute("SELECT id FROM manifest ORDER BY id DESC")]


def write_records(lake: Path, ids: Sequence[int]) -> None:
    """Write the records of manifests into a lake: empty files, because ``plan`` reads only their names."""
    for manifest_id in ids:
        path = lake / str(RecordName(NAME, manifest_id, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _scans(dsn: str) -> int:
    """Return the number of sequential scans of the table of ranges, by sessions that have ended."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'manifest_range'").fetchone()
    return int(row[0]) if row else 0


def _nodes(dsn: str, partitions: int, end: int) -> dict[str, list[str]]:
    """Return how PostgreSQL plans to read ``manifest_range``, for each query of planning that uses it."""
    values: dict[str, dict[str, Any]] = {
        "chains": {"pipeline_name": NAME},
        "covering_manifests": {"chains": list(range(1, partitions + 1)), "ends": [end] * partitions},
        "last_published": {"chains": list(range(1, partitions + 1)), "ends": [end] * partitions},
    }
    nodes = {}
    with psycopg.connect(dsn, options="-c search_path=tidemark") as connection:
        for name, parameters in values.items():
            cursor = psycopg.ClientCursor(connection)
            cursor.execute(b"EXPLAIN (FORMAT JSON) " + QUERIES[name].encode(), parameters)
            row = cursor.fetchone()
            assert row is not None
            nodes[name] = sorted(set(_scan_nodes(row[0][0]["Plan"])))
    return nodes


def _scan_nodes(node: dict[str, Any]) -> list[str]:
    within = [node, *node.get("Plans", [])]  # the index of a bitmap scan is in a child node
    index = next((plan["Index Name"] for plan in within if "Index Name" in plan), "no index")
    own = [f"{node['Node Type']} ({index})"]
    below = [scan for child in node.get("Plans", []) for scan in _scan_nodes(child)]
    return (own if node.get("Relation Name") == "manifest_range" else []) + below
