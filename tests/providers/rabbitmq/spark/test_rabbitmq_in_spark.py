"""Spark's tasks read streams of a real RabbitMQ by themselves; what fails there is an error of ours."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sandbox.services.rabbitmq import RabbitMQ
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.stream_world import CONN_ID, StreamWorld, address, value_of
from tests.worlds.world import World
from tidemark.connections.lookup import variable_of
from tidemark.errors import AccessDenied, DataLost, TidemarkError, Unavailable
from tidemark.lifecycle.attempt import order_of, process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.model.manifest import RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.sources.spark import open_reader
from tidemark.spark import job

# PySpark 4.0 leaves the sockets of collect() to the garbage collector.
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
]

MakeWorld = Callable[..., World]
MakePipeline = Callable[[RabbitMQ], StreamWorld]


@pytest.fixture
def make_pipeline(
    session: SparkSession, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakePipeline]:
    """Creates a pipeline over a stream; the session's Python workers find its connection in their environment."""
    made: list[StreamWorld] = []

    def make(server: RabbitMQ) -> StreamWorld:
        made.append(StreamWorld(server, make_world))
        connect(session, made[-1], monkeypatch)
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.streams.delete_stream(pipeline.name)


def connect(
    session: SparkSession, pipeline: StreamWorld, monkeypatch: pytest.MonkeyPatch, uri: str | None = None
) -> None:
    """Put a connection, that of the pipeline unless another is given, where this process and the workers look."""
    variable, uri = variable_of(CONN_ID), uri or address(pipeline.server)
    monkeypatch.setenv(variable, uri)
    monkeypatch.setitem(session.sparkContext.environment, variable, uri)


def planned(context: Context) -> int:
    [manifest] = plan(context, Tick("one", RunKind.MANUAL, None)).manifests
    return manifest


def order(context: Context, manifest: int, lake: Path | None = None) -> Order:
    """An order of the manifest, with an attempt that nothing else has; it may be for another lake."""
    made = order_of(context, context.database.manifests.get(manifest), 99)
    [sink] = made.sinks
    options = sink.options if lake is None else {**sink.options, "root": str(lake)}
    return replace(made, sinks=(replace(sink, options=options),))


def error_of(session: SparkSession, made: Order) -> TidemarkError:
    with pytest.raises(TidemarkError) as failed:
        job.stage(session, made)
    return failed.value


def test_spark_makes_of_two_streams_what_the_drivers_face_makes_in_a_task_for_each(
    session: SparkSession, rabbit: RabbitMQ, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    pipeline = make_pipeline(rabbit)
    other = f"{pipeline.name}-other"
    pipeline.streams.create_stream(other)
    pipeline.write(streams=[pipeline.name, other], slice={"max_records": 500})
    pipeline.produce(60, bad_every=7)
    pipeline.streams.store_offset(pipeline.name, "a reader", 3)  # takes an offset
    pipeline.produce(30, codec="zstd")
    pipeline.produce(20, to=other)
    context = pipeline.world.context()
    manifest = planned(context)
    expected = arrow_stage(order(context, manifest, tmp_path / "elsewhere"))

    def stage(made: Order) -> Receipt:
        assert len(made.read) == 2
        for records, tasks in ((1, 2), (made.task_records, 1)):
            split = replace(made, task_records=records)
            assert job.task_reports(session, split, open_reader(split)).rdd.getNumPartitions() == tasks
        receipt = job.stage(session, made)
        assert (receipt.digest("files"), receipt.partitions) == (expected.digest("files"), expected.partitions)
        assert receipt.hours == expected.hours
        return receipt

    outcome = process(context, manifest, stage)
    assert (outcome.ending, outcome.counts.read, outcome.counts.invisible) == (Ending.PUBLISHED, 110, 1)
    assert pipeline.world.ok("audit", "demo", "--deep") == ""
    assert sum(pipeline.world.exact().values()) == 110
    pipeline.streams.delete_stream(other)


def test_what_retention_takes_between_plan_and_read_is_named_by_the_task(
    session: SparkSession, rabbit: RabbitMQ, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(rabbit)
    pipeline.streams.delete_stream(pipeline.name)
    pipeline.streams.create_stream(pipeline.name, max_bytes=1_000_000, segment_bytes=300_000)
    pipeline.produce(20)
    context = pipeline.world.context()
    manifest = planned(context)

    def too_late(made: Order) -> Receipt:
        pipeline.streams.publish_until_dropped(pipeline.name, value_of(1).ljust(1000))
        return job.stage(session, made)

    with pytest.raises(DataLost, match=rf"retention took offsets \[0, 20\) of {pipeline.name}-0 before they were read"):
        process(context, manifest, too_late)
    assert pipeline.world.exact() == {}


def test_a_user_who_may_not_read_any_more_is_refused_in_the_task(
    session: SparkSession, rabbit: RabbitMQ, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(rabbit)
    pipeline.produce(5)
    context = pipeline.world.context()
    made = order(context, planned(context))
    rabbit.create_user("spark", "secret", read="")
    connect(session, pipeline, monkeypatch, address(rabbit, "spark", "canary-secret"))
    login = error_of(session, made)
    assert isinstance(login, AccessDenied)
    assert "wrong user or password" in login.what
    assert "canary-secret" not in str(login)
    connect(session, pipeline, monkeypatch, address(rabbit, "spark", "secret"))
    rights = error_of(session, made)
    assert isinstance(rights, AccessDenied)
    assert "read" in rights.what + rights.next_step
    connect(session, pipeline, monkeypatch)
    assert job.stage(session, made).partitions


def test_while_the_server_is_dead_the_task_says_that_it_does_not_answer(
    session: SparkSession, mortal_rabbit: RabbitMQ, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(mortal_rabbit)
    pipeline.produce(5)
    context = pipeline.world.context()
    made = order(context, planned(context))
    mortal_rabbit.kill()
    try:
        silent = error_of(session, made)
    finally:
        mortal_rabbit.restart()
    assert isinstance(silent, Unavailable)
    assert "RabbitMQ does not answer" in silent.what
    assert job.stage(session, made).partitions
