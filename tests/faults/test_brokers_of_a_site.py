"""Brokers as in real networks: at addresses that only others can reach, and partitions whose brokers are all down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.processes import free_port, wait_until
from tests.worlds.world import World
from tidemark.errors import Unavailable
from tidemark.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.thorough

MakeWorld = Callable[..., World]
JARS = STATE / "jars" / "kafka"


class Advertised(Broker):
    """A broker that advertises another address than the one on which it listens."""

    address: str | None = None

    def _properties(self) -> dict[str, object]:
        properties = super()._properties()
        return (
            properties if self.address is None else properties | {"advertised.listeners": f"PLAINTEXT://{self.address}"}
        )


class Second(Broker):
    """A broker without its own controller, in the cluster of another."""

    def __init__(self, state: Path, first: Broker) -> None:
        super().__init__(state, JARS)
        self._first = first

    def _properties(self) -> dict[str, object]:
        return super()._properties() | {
            "process.roles": "broker",
            "node.id": 2,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": self._first._properties()["controller.quorum.voters"],
        }

    def _cluster_id(self) -> str:
        lines = (self._first.state / "data" / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """In place of the session's: this one is told other addresses."""
    with Advertised(tmp_path_factory.mktemp("advertised"), JARS) as server:
        yield server


@contextmanager
def advertised(broker: Broker, address: str) -> Iterator[None]:
    assert isinstance(broker, Advertised)
    broker.address = address
    broker.kill()
    try:
        broker.restart()
        yield
    finally:
        broker.address = None
        broker.kill()
        broker.restart()


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["127.0.0.1", "kafka-0.internal.invalid"], ids=["a closed port", "an unknown name"])
def test_an_address_that_only_others_reach_is_told_as_advertised(world: World, broker: Broker, host: str) -> None:
    world.produce(20)
    address = f"{host}:{free_port()}"
    with advertised(broker, address):
        failed = world.here("run", "demo")
        told = f"Kafka answers at {broker.bootstrap_servers}, but advertises its broker 1 at {address}"
        assert (failed.exit_code, told in failed.stderr) == (1, True), failed.stderr
        assert "advertised.listeners" in failed.stderr
        assert told in world.here("doctor", "demo").stdout
    world.ok("run", "demo")  # in this process, where a client knew the other address
    world.assert_complete()


def test_a_topic_of_another_cluster_is_told_as_that_and_one_that_is_made_again_as_made_again(
    world: World, tmp_path: Path
) -> None:
    world.produce(20)
    world.ok("run", "demo")
    first = world.broker
    with Broker(tmp_path, JARS) as world.broker:
        world.create_topic()
        world.write_pipeline()
        world.produce(20)  # newer than what is published
        refused = world.here("plan", "demo").stderr
        assert f"topic {world.topic} is of another cluster, " in refused
        accept = ("accept", "topic", "demo", "--topic", world.topic, "--why", "we have moved")
        world.ok(*accept)
        world.ok("run", "demo")
        assert len(world.exact()) == 20, "the offsets of both are the same"
        assert set(world.exact().values()) == {2}
        world.broker.delete_topic(world.topic)
        world.create_topic()
        refused = world.here("plan", "demo").stderr
        assert f"topic {world.topic} was recreated: its id was " in refused
    world.broker = first


def test_a_partition_without_a_leader_is_named_and_never_taken_for_an_empty_one(
    world: World, broker: Broker, tmp_path: Path
) -> None:
    """The last test of this module: a client that is kept may call the second broker the controller for a while."""
    with Second(tmp_path, broker) as second:
        topic = f"{world.topic}-of-two"
        placed = NewTopic(topic, num_partitions=2, replica_assignment=[[1], [2]])
        admin = broker.admin()
        admin.create_topics([placed])[topic].result(30)
        world.topic = topic
        world.write_pipeline()
        world.produce(20)
        world.ok("run", "demo")
        cluster = KafkaCluster(broker.bootstrap_servers, {})
        places, _ = cluster.partitions([topic])
        assert [bounds.log_end for bounds in cluster.bounds(places).values()] == [10, 10]
        second.kill()
        wait_until(lambda: admin.list_topics(topic).topics[topic].partitions[1].leader == -1, "the end", timeout=30)
        told = f"partition {topic}-1 has no leader: none of the brokers that hold its replicas, by id 2"
        with pytest.raises(Unavailable, match=told):
            cluster.bounds(places)  # this client still knows a leader, which does not answer
        failed = world.here("run", "demo")
        assert (failed.exit_code, told in failed.stderr) == (1, True), failed.stderr
        assert len(world.manifests()) == 1
        second.restart()
        world.produce(20)
        world.ok("run", "demo")
        world.assert_complete()
