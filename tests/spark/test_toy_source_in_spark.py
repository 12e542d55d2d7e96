"""Spark reads a kind of source that is one folder and one line in the registry."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.toys import toy_source
from tests.toys.toy_source.log import ABORTED
from tests.toys.toy_source.topic import ToyTopic
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World
from tidemark.errors import DataLost
from tidemark.kinds import SOURCES
from tidemark.lifecycle.attempt import order_of, process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.model.manifest import RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.spark import job

# PySpark 4.0 leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


def test_spark_makes_of_it_what_the_drivers_face_makes(
    session: SparkSession, make_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "toy", "tests.toys.toy_source")
    cloudpickle.register_pickle_by_value(toy_source)  # Spark's workers have no tests
    topic = ToyTopic(tmp_path / "topics")
    world = make_world(settings={"source": topic.source(gaps="transactions")})
    topic.produce(30, bad_every=7)
    topic.produce(4, fate=ABORTED)
    topic.produce(10)
    context = world.context()
    [manifest] = plan(context, Tick("one", RunKind.MANUAL, None)).manifests
    order = order_of(context, context.database.manifests.get(manifest), 99)
    elsewhere = {**order.sinks[0].options, "root": str(tmp_path / "elsewhere")}
    expected = arrow_stage(replace(order, sinks=(replace(order.sinks[0], options=elsewhere),)))

    def stage(order: Order) -> Receipt:
        receipt = job.stage(session, order)
        assert (receipt.digest("files"), receipt.partitions) == (expected.digest("files"), expected.partitions)
        return receipt

    outcome = process(context, manifest, stage)
    assert (outcome.ending, outcome.counts.read, outcome.counts.invisible) == (Ending.PUBLISHED, 40, 4)
    assert world.ok("audit", "demo", "--deep") == ""

    def too_late(order: Order) -> Receipt:
        topic.logs[0].delete_before(3)
        return job.stage(session, order)

    with pytest.raises(DataLost, match=r"retention took offsets \[0, 3\) of toys-0 before they were read"):
        process(context, manifest, too_late, replay=True)
