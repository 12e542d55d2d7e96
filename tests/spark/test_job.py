"""Spark itself: it reads exactly the ranges of an order, and makes of them what the tests without Spark make."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from sandbox.services.processes import wait_until
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_stopped, wake
from tidemark.errors import DataLost, UndecodableRecord, WorkFailed
from tidemark.lifecycle.attempt import order_of, process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import PublishedObject, Receipt
from tidemark.sources.spark import open_reader
from tidemark.spark import job

# PySpark 4.0 leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")

MakeWorld = Callable[..., World]
NOT_KILLED_YET = 120  # seconds a command with Spark may take on a busy machine


def orders(world: World) -> list[Order]:
    """What Spark would be told of every manifest of a new plan; no attempt is started."""
    context = world.context()
    planned = plan(context, Tick("one", RunKind.MANUAL, None))
    return [order_of(context, manifest, 1) for manifest in context.database.manifests.find(ids=planned.manifests)]


def elsewhere(order: Order, root: Path) -> Order:
    """The same order for another lake: staging of the two must not meet."""
    return replace(
        order, sinks=tuple(replace(sink, options={**sink.options, "root": str(root)}) for sink in order.sinks)
    )


def without_names(objects: tuple[PublishedObject, ...]) -> list[PublishedObject]:
    """Objects without what depends on the reader: the task in a staged name, and bytes, which follow batch sizes."""
    return [replace(object_, staged="", bytes=0) for object_ in objects]


def assert_same_receipt(first: Receipt, other: Receipt) -> None:
    assert first.digest("files") == other.digest("files")
    assert first.partitions == other.partitions
    assert first.hours == other.hours
    assert without_names(first.objects) == without_names(other.objects)


def mixed(world: World) -> None:
    """All that a topic can hold: good and undecodable records, nulls, headers, committed and aborted transactions."""
    world.produce(60, bad_every=7)
    world.send(b"\xff\x00", b"", None, key=b"k\x00", headers=[("a", b"1"), ("a", None), ("b", b"")])
    world.transact('{"n": 1, "at": "2024-03-01T00:00:00Z"}', "{", commit=True)
    world.transact('{"n": 2, "at": "2024-03-01T00:00:00Z"}', "{", commit=False, partition=1)
    world.produce(30)
    world.transact('{"n": 3, "at": "2024-03-01T00:00:00Z"}', commit=False, partition=2)


@pytest.mark.parametrize("decode", ["json", "raw"])
def test_spark_makes_of_an_order_what_the_tests_without_spark_make_of_it(
    session: SparkSession, make_world: MakeWorld, tmp_path: Path, decode: str
) -> None:
    raw = {"decode": {"format": "raw"}, "event_time": {}} if decode == "raw" else {}
    world = make_world(partitions=3, settings={"kafka": {"gaps": "transactions", "slice": {"max_records": 50}}, **raw})
    mixed(world)
    made = orders(world)
    assert len(made) == 3
    for order in made:
        receipt = job.stage(session, order)
        assert_same_receipt(receipt, arrow_stage(elsewhere(order, tmp_path / "other")))
        for object_ in receipt.objects:
            assert (world.lake / object_.staged).stat().st_size == object_.bytes


@pytest.mark.parametrize(
    "parallelism", ["7 tasks for 3 partitions", "2 tasks for 3 partitions", "1 task for 3 partitions"]
)
def test_how_spark_splits_the_work_changes_neither_rows_nor_counts(
    session: SparkSession, make_world: MakeWorld, tmp_path: Path, parallelism: str
) -> None:
    world = make_world(partitions=3, settings={"kafka": {"gaps": "transactions", "slice": {"max_records": 1000}}})
    mixed(world)
    [order] = [replace(order, task_records=1) for order in orders(world)]
    plain = job.stage(session, order)
    split: Any = session
    shared = order
    if parallelism.startswith("7"):
        split = SimpleNamespace(
            read=session.read.option("minPartitions", "7"), conf=session.conf, sparkContext=session.sparkContext
        )
    elif parallelism.startswith("2"):
        shared = replace(order, task_records=max(covered.span for covered in order.ranges))
        assert sorted(len(task) for task in shared.tasks) == [1, 2]
    else:
        shared = replace(order, task_records=1_000_000)
    other = job.stage(split, elsewhere(shared, tmp_path / "other"))
    tasks = {object_.staged.rpartition("/")[2].split("-")[0] for object_ in other.objects}
    # A task of aborted records has no file.
    assert len(tasks) > 3 if parallelism.startswith("7") else len(tasks) == int(parallelism[0])
    assert other.partitions == plain.partitions
    assert other.hours == plain.hours
    assert other.digest("files") == plain.digest("files")


def test_exactly_the_offsets_of_the_order_are_read(session: SparkSession, make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(100)
    order = orders(world)[1]
    rows = open_reader(order).read(session).select("topic", "partition", "offset").collect()
    world.produce(50)  # what comes after the plan is of no concern to it
    assert sorted(rows) == [
        (covered.at.topic, covered.at.partition, offset)
        for covered in order.ranges
        for offset in range(covered.start, covered.end)
    ]


def test_a_manifest_is_done_by_spark_and_again_without_a_change(session: SparkSession, make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(60, bad_every=9)
    context = world.context()
    for manifest in plan(context, Tick("one", RunKind.MANUAL, None)).manifests:
        assert process(context, manifest, partial(job.stage, session)).ending is Ending.PUBLISHED
        assert process(context, manifest, arrow_stage, replay=True).ending is Ending.UNCHANGED
        assert process(context, manifest, partial(job.stage, session), replay=True).ending is Ending.UNCHANGED
    world.assert_complete()


def test_an_undecodable_record_is_named_when_the_pipeline_says_fail(
    session: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(partitions=1, settings={"on_error": "fail"})
    world.produce(5)
    world.send("{not json")
    [order] = orders(world)
    with pytest.raises(UndecodableRecord) as failed:
        job.stage(session, order)
    context = failed.value.context
    assert (context["topic"], context["partition"], context["offset"]) == (world.topic, "0", "5")
    assert not list(world.lake.rglob("*.parquet"))


# what Spark 4.0's batch source does and the rest relies on


def test_offsets_that_are_gone_fail_the_job_at_once_and_are_named(session: SparkSession, make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(20)
    [order] = orders(world)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 5)])
    started = time.monotonic()
    with pytest.raises(WorkFailed, match="Spark failed: ") as failed:
        job.stage(session, order)
    assert time.monotonic() - started < 60
    assert world.topic in failed.value.what
    assert "out of range" in failed.value.what
    assert "\n" not in failed.value.what


def test_offsets_that_go_while_spark_starts_are_named_as_a_plan_names_them(
    session: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(partitions=2)
    world.produce(20)
    context = world.context()
    [manifest] = plan(context, Tick("one", RunKind.MANUAL, None)).manifests

    def too_late(order: Order) -> Receipt:
        world.administer("delete_records", [TopicPartition(world.topic, 1, 4)])
        return job.stage(session, order)

    with pytest.raises(DataLost) as lost:
        process(context, manifest, too_late)
    assert lost.value.what == f"retention took offsets [0, 4) of {world.topic}-1 before they were read"
    assert "tidemark accept loss demo --why TEXT" in lost.value.next_step
    assert isinstance(lost.value.__cause__, WorkFailed)
    after = context.database.manifests.get(manifest)
    assert (after.state, after.reason) == (ManifestState.FAILED, str(lost.value))
    world.ok("accept", "loss", "demo", "--why", "a test")
    assert process(context, manifest, partial(job.stage, session)).counts.read == 16


def test_a_range_that_ends_in_aborted_records_is_read_promptly(session: SparkSession, make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.produce(3)
    world.transact("a", "b", "c", commit=False)
    [order] = orders(world)
    assert (order.ranges[0].start, order.ranges[0].end) == (0, 7)
    started = time.monotonic()
    assert [row.offset for row in open_reader(order).read(session).select("offset").collect()] == [0, 1, 2]
    assert time.monotonic() - started < 60, "the poll time-out is 120 s"


def test_headers_are_null_when_there_are_none_and_values_keep_null_apart_from_empty(
    session: SparkSession, make_world: MakeWorld
) -> None:
    world = make_world(partitions=1, settings={"decode": {"format": "raw"}, "event_time": {}})
    world.send("none")
    world.send("empty", headers=[])
    world.send("some", headers=[("a", b"1"), ("a", None), ("b", b"")])
    [order] = orders(world)
    [object_] = job.stage(session, order).objects
    rows = pq.read_table(world.lake / object_.staged, partitioning=None).sort_by("_offset")["headers"].to_pylist()
    assert [headers and [(each["key"], each["value"]) for each in headers] for headers in rows] == [
        None, None, [("a", b"1"), ("a", None), ("b", b"")],
    ]  # fmt: skip


# the command line with Spark, killed


def processes_of(world: World) -> list[int]:
    """Living processes that were started for this world: they all inherit its TIDEMARK_HOME."""
    mark = f"TIDEMARK_HOME={world.folder}\0".encode()
    pids = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():  # empty for a zombie
                pids.append(int(environment.parent.name))
        except OSError:
            continue
    return pids


def tidemark(world: World, *words: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    process = world.start(*words, "--master", "local[2]", failpoint=failpoint, spark=True)
    out, err = process.communicate(timeout=NOT_KILLED_YET)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def one_manifest(
    request: pytest.FixtureRequest, make_world: MakeWorld, make_table_world: Callable[..., TableWorld]
) -> World:
    """A lake or a table, and for it one manifest of four tasks, two at a time."""
    make = make_world if request.param == "lake" else make_table_world
    world: World = make(partitions=4, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(200, bad_every=9)
    return world


def over_both_sinks_at_every_point(*quick: str) -> pytest.MarkDecorator:
    """Each sink with each failpoint that Spark's own process reaches; in `make test` the ``quick`` ones of the lake."""
    cells = [
        pytest.param(sink, point, marks=() if point in quick and sink == "lake" else pytest.mark.exhaustive)
        for sink in ("lake", "table")
        for point in ("read.before", "stage.mid", "stage.done")
    ]
    return pytest.mark.parametrize(("one_manifest", "point"), cells, indirect=["one_manifest"])


def has_staged(world: World) -> bool:
    """Whether some task has staged a file, or committed rows."""
    if not isinstance(world, TableWorld):
        return any(world.lake.rglob("_staging/**/[!.]*.parquet"))
    staging = "SELECT oid::regclass AS name FROM pg_class WHERE starts_with(relname, 'staging') AND relkind = 'r'"
    return any(world.query(f"SELECT 1 FROM {table['name']} LIMIT 1") for table in world.query(staging))


def published(world: World) -> dict[int, int | None]:
    """The attempt that readers see, by manifest."""
    return {manifest["id"]: manifest["published_attempt"] for manifest in world.json("manifests", "demo")}


@over_both_sinks_at_every_point("stage.mid")
def test_killed_with_spark_at_work_nothing_is_left_running_and_a_retry_ends_right(
    one_manifest: World, point: str
) -> None:
    world = one_manifest
    killed = tidemark(world, "run", "demo", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert has_staged(world) == point.startswith("stage")
    assert published(world) == {1: None}
    world.assert_whole()
    wait_until(lambda: not processes_of(world), "no process of it is left", timeout=30)
    if point == "stage.mid":
        done = tidemark(world, "retry", "demo")
        assert done.returncode == 0, done.stderr
    else:
        world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


@over_both_sinks_at_every_point()
def test_stopped_with_spark_at_work_and_woken_late_it_finds_itself_fenced_and_changes_nothing(
    one_manifest: World, point: str
) -> None:
    world = one_manifest
    paused = world.start("run", "demo", "--master", "local[2]", failpoint=f"{point}:stop", spark=True)
    wait_stopped(paused, timeout=NOT_KILLED_YET)
    world.ok("replay", "demo", "--manifest", "1", "--take-over")
    world.assert_readers_complete()
    assert published(world) == {1: 2}
    woken = wake(paused)
    assert woken.returncode == 0, woken.stderr
    assert f"manifest 1 attempt 1 {Ending.SUPERSEDED}" in woken.stderr
    assert "Traceback" not in woken.stderr
    attempts = world.json("show", "1")["attempts"]
    assert [(attempt["attempt"], attempt["state"]) for attempt in attempts] == [(1, "fenced"), (2, "published")]
    assert published(world) == {1: 2}
    world.assert_readers_complete()
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_run_of_several_slices_uses_one_session_and_leaves_no_process(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(100, bad_every=9)
    done = tidemark(world, "run", "demo")
    assert done.returncode == 0, done.stderr
    assert os.getpid() not in processes_of(world)
    wait_until(lambda: not processes_of(world), "no process of it is left", timeout=30)
    assert [manifest["state"] for manifest in world.manifests()] == ["done"] * 3
    world.assert_complete()
