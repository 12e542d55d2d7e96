"""A consumer group that commits what is published, for tools that watch the lag of groups."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from sandbox.services.postgres import Postgres
from tests.worlds.world import World
from tidemark.database.migrate import migrate
from tidemark.lifecycle.progress import published_ends

MakeWorld = Callable[..., World]
GROUP = "source.kafka.progress_group"


@pytest.fixture
def group() -> str:
    return f"tidemark-{uuid4().hex[:8]}"


def committed(world: World, group: str) -> dict[int, int]:
    """Offsets by partition, as Kafka has them."""
    cluster = world.context().source.cluster  # type: ignore[attr-defined]
    places, _ = cluster.partitions([world.topic])
    state = cluster.group(group, places)
    assert not state.active
    return {place.partition: offset for place, offset in state.committed.items()}


def member(world: World, group: str) -> Consumer:
    settings = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 2})
    consumer.subscribe([world.topic])
    return consumer


def planned_in_three(make_world: MakeWorld, group: str) -> World:
    """30 records in three manifests, none of them done."""
    world = make_world(partitions=1)
    world.write_pipeline(progress_group=group, slice={"max_records": 10})
    world.produce(30)
    world.ok("plan", "demo")
    return world


def test_the_group_commits_what_is_published_and_a_reader_goes_on_there(make_world: MakeWorld, group: str) -> None:
    world = make_world(partitions=2)
    world.write_pipeline(progress_group=group)
    world.produce(30)
    world.ok("plan", "demo")
    assert committed(world, group) == {}, "planned is not published"
    world.ok("retry", "demo")
    ends = {partition: end for partition, kind, _, end in world.chain() if kind == "data"}
    assert committed(world, group) == ends
    assert sum(ends.values()) == 30
    world.produce(1, partition=1)
    reader = member(world, group)
    try:
        message = reader.poll(30)
        assert message is not None
        assert (message.partition(), message.offset()) == (1, ends[1])
    finally:
        reader.close()


def test_an_unpublished_manifest_holds_its_partition_back_and_later_ones_do_not_pass_it(
    make_world: MakeWorld, group: str
) -> None:
    world = planned_in_three(make_world, group)
    world.ok("retry", "demo", "--manifest", "2")
    assert committed(world, group) == {0: 0}
    world.ok("retry", "demo", "--manifest", "1")
    assert committed(world, group) == {0: 20}
    world.ok("retry", "demo")
    assert committed(world, group) == {0: 30}
    world.ok("replay", "demo", "--manifest", "1")
    assert committed(world, group) == {0: 30}


def test_a_group_of_another_pipeline_is_not_told_until_a_person_forgets_its_offsets(
    make_world: MakeWorld, group: str
) -> None:
    """Else its offsets would go to and fro between the two; a pipeline that was renamed goes on."""
    world = make_world(partitions=1)
    world.write_pipeline(progress_group=group)
    world.produce(30)
    world.ok("run", "demo")
    other = world.another("other").replace(str(world.lake), str(world.folder / "other"))
    (world.pipelines / "other.yaml").write_text(other)
    world.produce(10)
    ran = world.here("run", "other")
    assert ran.exit_code == 0
    assert f"consumer group {group} has offsets of tidemark pipeline demo of database " in ran.stderr
    assert f"--group {group} --delete-offsets --topic {world.topic}" in ran.stderr
    assert committed(world, group) == {0: 30}
    (world.pipelines / "demo.yaml").unlink()
    world.name = "orders"
    world.write_pipeline(progress_group=group)
    world.ok("rename", "pipeline", "demo", "orders", "--why", "a test")
    world.ok("run", "orders")
    assert committed(world, group) == {0: 40}
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap_servers})
    admin.delete_consumer_groups([group])[group].result(60)
    world.produce(10)
    assert "consumer group" not in world.here("run", "other").stderr
    assert committed(world, group) == {0: 50}


def test_a_group_of_a_pipeline_of_the_same_name_in_another_database_is_not_told(
    make_world: MakeWorld, postgres: Postgres, group: str
) -> None:
    """Such as one of a test environment that has a copy of the file."""
    world = planned_in_three(make_world, group)
    world.ok("retry", "demo", "--manifest", "1")
    assert committed(world, group) == {0: 10}
    with postgres.temporary_database("other") as dsn:
        migrate(dsn)
        elsewhere = world.another("demo").replace(str(world.lake), str(world.folder / "elsewhere"))
        (world.pipelines / "demo.yaml").write_text(elsewhere)
        own, world.dsn = world.dsn, dsn
        ran = world.here("run", "demo")
        world.dsn = own
    assert ran.exit_code == 0
    assert f"consumer group {group} has offsets of tidemark pipeline demo of database " in ran.stderr
    world.write_pipeline(progress_group=group, slice={"max_records": 10})
    assert committed(world, group) == {0: 10}


def test_what_is_unpublished_below_a_cut_holds_its_partition_back(make_world: MakeWorld, group: str) -> None:
    world = make_world(partitions=1)
    world.write_pipeline(progress_group=group, slice={"max_records": 100})
    world.produce(30)
    world.ok("plan", "demo")
    world.truncated_at(15)
    world.ok(
        "accept", "truncation", "demo", "--topic", world.topic, "--partition", "0", "--why", "the disk was restored"
    )
    world.ok("plan", "demo")
    world.ok("retry", "demo", "--manifest", "2")
    assert committed(world, group) == {0: 0}
    world.ok("retry", "demo", "--manifest", "1")
    assert committed(world, group) == {0: 30}
    world.truncated_at(20)
    assert [*published_ends(world.context()).values()] == [20], "what the log holds from there on is not published"


def test_a_group_with_members_is_named_and_told_by_the_next_run(make_world: MakeWorld, group: str) -> None:
    world = make_world(partitions=1)
    world.write_pipeline(progress_group=group)
    world.produce(10)
    reader = member(world, group)
    try:
        assert reader.poll(30) is not None
        done = world.here("run", "demo")
        assert done.exit_code == 0, done.stderr
        assert f"consumer group {group} has members, which commit for themselves" in done.stderr
        assert f"{GROUP}" in done.stderr
    finally:
        reader.close()
    world.assert_complete()
    assert committed(world, group) == {}
    world.ok("run", "demo")
    assert committed(world, group) == {0: 10}, "a run without new records tells it"


def test_a_topic_that_was_recreated_and_one_that_is_gone_are_no_hindrance(make_world: MakeWorld, group: str) -> None:
    world = make_world(partitions=1)
    world.write_pipeline(progress_group=group)
    world.produce(10)
    world.ok("run", "demo")
    world.broker.delete_topic(world.topic)
    world.create_topic()
    world.produce(4)
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "a test")
    world.ok("run", "demo")
    assert committed(world, group) == {0: 4}
