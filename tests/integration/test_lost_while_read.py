"""What a person is told when reading fails: the cause at the source, if there is one, whoever did the reading."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import TopicPartition

from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World
from tidemark.errors import DataLost, TidemarkError, TopicChanged, UndecodableRecord, WorkFailed
from tidemark.lifecycle.attempt import Stage, process
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.spark.failures import failure_of
from tidemark.spark.orders import FAILURE, read_receipt, write_order
from tidemark.storage.local import LocalStore

MakeWorld = Callable[..., World]
OUT_OF_RANGE = WorkFailed("Spark failed: OffsetOutOfRangeException: Fetch position is out of range")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One manifest of twenty records in two partitions, planned."""
    world = make_world()
    world.produce(20)
    world.ok("plan", "demo")
    return world


def submitted(world: World, meanwhile: Callable[[], object], failure: TidemarkError | None) -> Stage:
    """What Airflow does: an order for spark-submit, which leaves a failure, or nothing at all, beside it."""

    def stage(order: Order) -> Receipt:
        folder = write_order(order, LocalStore(str(world.folder)))
        meanwhile()
        if failure is not None:
            folder.put(FAILURE, json.dumps(failure_of(failure)).encode())
        return read_receipt(folder, order)

    return stage


def delete(world: World, before: int) -> None:
    world.administer("delete_records", [TopicPartition(world.topic, 0, before)])


def recreate(world: World) -> None:
    world.broker.delete_topic(world.topic)
    world.create_topic()


def do(world: World, stage: Stage) -> None:
    context = world.context()
    [manifest] = context.database.manifests.find("demo")
    process(context, manifest.id, stage)


@pytest.mark.parametrize("failure", [OUT_OF_RANGE, None], ids=["a failure file", "no receipt"])
def test_offsets_that_retention_took_meanwhile_are_named_with_the_way_out(
    world: World, failure: TidemarkError | None
) -> None:
    with pytest.raises(DataLost) as lost:
        do(world, submitted(world, partial(delete, world, 3), failure))
    assert lost.value.what == f"retention took offsets [0, 3) of {world.topic}-0 before they were read"
    assert "tidemark accept loss demo --why TEXT" in lost.value.next_step
    [manifest] = world.json("manifests", "demo")
    assert manifest["state"] == "failed"
    assert manifest["reason"].startswith(lost.value.what)


def test_a_topic_that_was_made_again_meanwhile_is_named(world: World) -> None:
    with pytest.raises(TopicChanged, match=f"topic {world.topic} was recreated"):
        do(world, submitted(world, partial(recreate, world), OUT_OF_RANGE))


def test_another_failure_stays_as_it_is(world: World) -> None:
    failure = UndecodableRecord("a record cannot be used", next_step="mend the producer")
    with pytest.raises(UndecodableRecord, match="a record cannot be used"):
        do(world, submitted(world, lambda: None, failure))


def test_what_was_read_whole_before_it_went_is_published(world: World) -> None:
    """Retention is asked about only when reading failed."""

    def stage(order: Order) -> Receipt:
        receipt = arrow_stage(order)
        delete(world, 3)
        return receipt

    do(world, stage)
    assert world.exact() == world.everything()
