"""Kafka itself dies, freezes or loses data: on a broker that only this module uses, kept on disk as in production."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import TopicPartition

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from tests.faults.kafka_proxy import KafkaProxy
from tests.worlds.cut_log import cut, segment
from tests.worlds.table_world import TableWorld
from tests.worlds.topic_world import TopicWorld
from tests.worlds.world import Command, World, wait_stopped, wake
from tidemark.kafka.cluster import KafkaCluster

Make = Callable[..., World]
MakeBoth = Callable[..., TableWorld]
KEY = ("--run-key", "one")
ONE_TASK = ("--master", "local[1]")  # one task after the other, so that the last ones have read nothing at stage.mid

pytestmark = pytest.mark.thorough


class Fenced(KafkaProxy):
    """A broker that lists no broker, not even itself, once its controller has not heard of it for too long."""

    is_lost, struck = False, 0

    def _readdressed(self, answer: bytes) -> bytes:
        itself = b"\x02" + (1).to_bytes(4) + b"\x0a127.0.0.1" + self._target.to_bytes(4) + b"\0\0"
        if not self.is_lost or itself not in answer:
            return super()._readdressed(answer)
        self.struck += 1
        content = answer[4:].replace(itself, b"\x01")  # a list without entries
        return len(content).to_bytes(4) + content


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """In place of the session's: this one may die."""
    with Broker(tmp_path_factory.mktemp("mortal"), STATE / "jars" / "kafka") as server:
        yield server


@pytest.fixture
def make_both(make_table_world: MakeBoth) -> MakeBoth:
    """A lake and a table fed by the same tasks of Spark."""
    return partial(make_table_world, has_lake=True)


def test_killed_between_plan_and_read_the_same_ranges_are_read_when_it_is_back(world: World, broker: Broker) -> None:
    world.produce(60)
    world.ok("plan", "demo", *KEY)
    ranges = world.chain()
    broker.kill()
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1
    assert "Kafka does not answer within 10 s" in failed.stderr
    broker.restart()
    world.produce(20)
    world.ok("retry", "demo")
    assert world.chain() == ranges
    assert sum(world.exact().values()) == 60
    world.ok("run", "demo")
    world.assert_complete()


def test_a_broker_that_lists_no_broker_still_says_the_id_of_its_cluster(world: World, broker: Broker) -> None:
    """librdkafka aborts the process at such an answer to ``describe_cluster``."""
    world.produce(1)  # with a topic, an answer without brokers is one
    with Fenced(broker.port) as fenced:
        cluster = KafkaCluster(fenced.bootstrap_servers, {})
        cluster_id = cluster.cluster_id()
        fenced.is_lost = True
        assert cluster.cluster_id() == cluster_id
        assert fenced.struck


@pytest.mark.exhaustive
def test_frozen_when_asked_for_a_plan_nothing_is_planned(world: World, broker: Broker) -> None:
    world.produce(30)
    broker.stop_signal()
    try:
        refused = world.here("plan", "demo", *KEY)
    finally:
        broker.wake()
    assert refused.exit_code == 1
    assert "Kafka does not answer within 10 s" in refused.stderr
    assert world.chain() == []
    world.finish()


@pytest.mark.exhaustive
def test_R14_frozen_for_seconds_while_spark_reads_it_is_waited_for(make_both: MakeBoth, broker: Broker) -> None:
    world = make_both(partitions=4, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(200, bad_every=9)
    process = world.start("run", "demo", *KEY, *ONE_TASK, failpoint="stage.mid:stop", spark=True)
    wait_stopped(process)
    broker.stop_signal()
    try:
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(8)
        assert process.poll() is None, "it ended while the broker said nothing"
        world.assert_nothing_is_seen()
    finally:
        broker.cont_signal()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    world.assert_complete()


def go_on_while_it_is_dead(process: Command, broker: Broker) -> tuple[str, str]:
    """Wake a process that stands still, with a broker that was killed and answers again after 3 s; what it printed.

    The broker starts before the process wakes, and stands still: on a busy machine it takes longer to start than a
    request waits.
    """
    broker.kill()
    broker.restart()
    broker.stop_signal()
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(3)
    broker.cont_signal()
    out, err = process.communicate(timeout=150)
    return out, err


@pytest.mark.exhaustive
def test_R14_killed_while_spark_reads_and_back_again(make_both: MakeBoth, broker: Broker) -> None:
    world = make_both(partitions=4, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(200, bad_every=9)
    process = world.start("run", "demo", *KEY, *ONE_TASK, failpoint="stage.mid:stop", spark=True)
    wait_stopped(process)
    out, err = go_on_while_it_is_dead(process, broker)
    assert process.returncode == 0, f"clients find it again: {out}{err}"
    world.assert_complete()


@pytest.mark.exhaustive
def test_R14_killed_before_spark_reads_and_not_back_the_error_says_who_is_silent_and_what_to_do(
    world: World, broker: Broker
) -> None:
    world.produce(30)
    process = world.start("run", "demo", *KEY, *ONE_TASK, failpoint="read.before:stop", spark=True)
    wait_stopped(process)
    broker.kill()
    try:
        ended = wake(process)
    finally:
        broker.restart()
    assert ended.returncode == 1
    assert "Kafka does not answer Spark: org.apache.kafka.common.errors.TimeoutException" in ended.stderr
    assert "[error=unavailable " in ended.stderr
    assert f" bootstrap_servers={broker.bootstrap_servers}" in ended.stderr
    assert "next:  nothing is published; check that the broker runs" in ended.stderr
    assert "then: tidemark retry demo\n" in ended.stderr
    assert not world.exact()
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", ["publish.mid", "publish.before_record"])
def test_K8_killed_inside_the_transaction_of_a_topic_the_next_attempt_sends_all_of_it_once(
    make_topic_world: Callable[..., TopicWorld], broker: Broker, point: str
) -> None:
    """Stopped before the marker is sent, and before the commit."""
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60, bad_every=9)
    process = world.start("run", "demo", *KEY, failpoint=f"{point}:stop")
    wait_stopped(process)
    out, err = go_on_while_it_is_dead(process, broker)
    assert process.returncode in (0, 1)
    assert "Traceback" not in out + err
    world.finish()


@pytest.mark.exhaustive
def test_R11_records_deleted_while_spark_reads_fail_the_attempt_and_a_person_gives_them_up(make_both: MakeBoth) -> None:
    # One range is a task: a task of all ranges would have read them before it hands over its first batch.
    slices = {"kafka": {"slice": {"max_records": 1000}}, "spark": {"records_per_task": 20}}
    world = make_both(partitions=8, settings=slices)
    world.produce(160)
    process = world.start("run", "demo", *KEY, *ONE_TASK, failpoint="stage.mid:stop", spark=True)
    wait_stopped(process)
    # Of all: which partition the first task has read is for Spark to say.
    world.administer("delete_records", [TopicPartition(world.topic, at, 15) for at in range(8)])
    ended = wake(process)
    assert ended.returncode == 1
    assert f"retention took offsets [0, 15) of {world.topic}-" in ended.stderr
    assert "tidemark accept loss demo --why TEXT" in ended.stderr
    assert "Traceback" not in ended.stderr
    world.assert_nothing_is_seen()
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert f"retention took offsets [0, 15) of {world.topic}-" in refused.stderr
    world.ok("accept", "loss", "demo", "--why", "deleted while it was read")
    world.ok("retry", "demo")
    gone = Counter((world.topic, at, offset) for at in range(8) for offset in range(15))
    assert world.exact() == world.everything() - gone
    world.assert_whole()
    assert world.ok("audit", "demo", "--deep") == ""


def test_R13_a_topic_recreated_while_it_is_read_publishes_nothing(world: World, broker: Broker) -> None:
    world.produce(30)
    process = world.start("run", "demo", *KEY, failpoint="stage.done:stop")
    wait_stopped(process)
    broker.delete_topic(world.topic)
    world.create_topic()
    world.produce(90)
    ended = wake(process)
    assert ended.returncode == 1
    assert f"topic {world.topic} was recreated, or is of another cluster: planned on id" in ended.stderr
    assert (world.exact(), world.listing(), world.recorded()) == ({}, {}, {})
    assert not (world.lake / "_staging").exists()
    assert world.manifests()[0]["state"] == "failed"


@pytest.mark.exhaustive
def test_R13_a_topic_recreated_while_spark_reads_it_publishes_nothing(make_both: MakeBoth, broker: Broker) -> None:
    world = make_both(partitions=8, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(160)
    process = world.start("run", "demo", *KEY, *ONE_TASK, failpoint="stage.mid:stop", spark=True)
    wait_stopped(process)
    broker.delete_topic(world.topic)
    world.create_topic()
    world.produce(400)
    ended = wake(process)
    assert ended.returncode == 1
    assert f"topic {world.topic} was recreated, or is of another cluster: planned on id" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
    world.assert_nothing_is_seen()
    assert world.recorded() == {}
    assert world.manifests()[0]["state"] == "failed"


def test_P10_a_log_that_really_lost_its_tail_is_refused_until_a_person_accepts_it(
    make_world: Make, broker: Broker
) -> None:
    world = make_world(partitions=1)
    world.produce(30)
    before = segment(world).stat().st_size
    world.produce(20)
    world.ok("run", "demo")
    old = world.exact()
    broker.kill()
    cut(segment(world), before)
    broker.start()
    refusal = refused(world)
    assert f"{world.topic}-0 was truncated: it ends at 30, the chain at 50" in refusal
    world.produce(40)  # now it is longer than the chain, and looks well
    assert "planning was refused before" in refused(world)
    replay = world.here("replay", "demo", "--manifest", "2")
    assert replay.exit_code == 1
    assert "the log that it was planned on ended at 30; its offsets above that hold other records now" in replay.stderr
    assert f"tidemark accept truncation demo --topic {world.topic} --partition 0 --why TEXT" in replay.stderr
    world.assert_whole()
    accept = (
        "accept",
        "truncation",
        "demo",
        "--topic",
        world.topic,
        "--partition",
        "0",
        "--why",
        "the disk was restored",
    )
    assert "log generation 1 ends at 50, the next starts at 30" in world.ok(*accept, "--dry-run")
    refused(world)
    assert "the next starts at 30, and its offsets [30, 35) are lost" in world.ok(*accept, "--from", "35")
    world.ok("run", "demo")
    assert world.exact() == old + Counter((world.topic, 0, offset) for offset in range(35, 70))
    assert world.ok("audit", "demo", "--deep") == ""


def test_P10_a_log_cut_where_a_transaction_was_aborted_is_read_from_there_on(make_world: Make, broker: Broker) -> None:
    """The last record that is published stands; behind it a reader saw none, and sees some now."""
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.produce(30)
    size = segment(world, 0).stat().st_size
    world.transact("nobody", "reads", "them", commit=False)
    world.ok("run", "demo")
    world.ok("run", "demo")  # it is no other log
    old = world.exact()
    broker.kill()
    cut(segment(world, 0), size)
    broker.start()
    world.produce(10)
    refusal = refused(world)
    assert "from offset 30 on it holds other records than those that are published" in refusal
    assert f"tidemark accept truncation demo --topic {world.topic} --partition 0 --why TEXT" in refusal
    accept = ("accept", "truncation", "demo", "--topic", world.topic, "--partition", "0", "--why", "a disk")
    assert "log generation 1 ends at 34, the next starts at 30\n" in world.ok(*accept)
    world.ok("run", "demo")
    assert world.exact() == old + Counter((world.topic, 0, offset) for offset in range(30, 40))
    assert world.ok("audit", "demo", "--deep") == ""


def test_P10_a_log_cut_from_50_to_30_that_has_grown_before_anybody_looks_is_read_from_30_on(
    make_world: Make, broker: Broker
) -> None:
    world = make_world(
        partitions=4,  # cut and noticed at 40; cut and past 50 again; whole; empty
        topic_config={"message.timestamp.type": "LogAppendTime"},
        settings={"kafka": {"gaps": "transactions"}},
    )
    for partition in (0, 1):
        world.produce(30, partition=partition)
    sizes = {segment(world, at): segment(world, at).stat().st_size for at in (0, 1)}
    for partition in (0, 1):
        world.produce(20, partition=partition)
    world.transact("the end mark is the last offset", commit=True, partition=2)
    world.ok("run", "demo")
    old = world.exact()
    broker.kill()
    for log, size in sizes.items():
        cut(log, size)
    broker.start()
    world.produce(10, partition=0)
    world.produce(40, partition=1)
    for partition in (0, 1):
        refusal = refused(world)
        assert f"{world.topic}-{partition} was truncated" in refusal
        assert "has grown again: from offset 30 on it holds other records than those that are published" in refusal
        assert "planning was refused before" in refused(world)
        accept = (
            "accept",
            "truncation",
            "demo",
            "--topic",
            world.topic,
            "--partition",
            str(partition),
            "--why",
            "a disk",
        )
        assert "log generation 1 ends at 50, the next starts at 30\n" in world.ok(*accept)
    world.ok("run", "demo")
    again = [(0, offset) for offset in range(30, 40)] + [(1, offset) for offset in range(30, 70)]
    assert world.exact() == old + Counter((world.topic, *place) for place in again)
    assert world.ok("audit", "demo", "--deep") == ""


def test_P10_a_log_cut_after_its_pipeline_was_renamed_is_noticed_by_the_last_record_of_before(
    make_world: Make, broker: Broker
) -> None:
    world = make_world(partitions=1, topic_config={"message.timestamp.type": "LogAppendTime"})
    world.produce(30)
    size = segment(world).stat().st_size
    world.produce(20)
    world.ok("run", "demo")
    (world.pipelines / "demo.yaml").unlink()
    world.name = "orders"
    world.write_pipeline()
    world.ok("rename", "pipeline", "demo", "orders", "--why", "a better word")
    broker.kill()
    cut(segment(world), size)
    broker.start()
    world.produce(40)
    refusal = world.here("plan", "orders").stderr
    assert "has grown again: from offset 30 on it holds other records than those that are published" in refusal


def refused(world: World) -> str:
    done = world.here("plan", "demo")
    assert done.exit_code == 1
    return done.stderr
