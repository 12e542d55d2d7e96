"""What a reader of committed messages sees of a topic: right after a kill, when an attempt wakes, and when answers get
lost."""

import json
import os
import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Consumer, KafkaError

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.faults.documented_kills import killed_and_done_again, table
from tests.faults.kafka_proxy import INIT_PRODUCER_ID, PRODUCE, Armed, Fault, KafkaProxy
from tests.worlds.new_topics import new_topic
from tests.worlds.topic_world import TopicWorld, committed
from tests.worlds.world import wait_ended, wait_stopped, wake
from tidemark.errors import SinkRefused, Unavailable
from tidemark.failpoints import FAILPOINTS
from tidemark.kafka import cluster
from tidemark.providers.topic import markers, transaction
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.sink import TopicLedger

Make = Callable[..., TopicWorld]
SEEN = table("### A table")
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}


def cases(points: Iterable[str], always: str) -> list[object]:
    """The points, all but one of them in `make test-faults` only."""
    return [pytest.param(point, marks=() if point == always else pytest.mark.exhaustive) for point in points]


@pytest.mark.parametrize("point", cases(FAILPOINTS, "publish.before_record"))
def test_killed_for_the_first_time_a_reader_of_committed_messages_sees_what_the_table_says(
    make_topic_world: Make, point: str
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    seen, published = killed_and_done_again(world, point, world.seen, world.everything)
    assert seen == SEEN[point][0]
    assert published == (2 if SEEN[point][2].startswith("attempt 2 does") else 1)


@pytest.mark.parametrize(
    "point",
    cases(["publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark"], "publish.before_record"),
)
def test_an_attempt_that_wakes_after_another_one_adds_nothing(make_topic_world: Make, point: str) -> None:
    """Also when its code made other rows: then the messages are those of whoever committed first."""
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60)
    paused = world.start("run", "demo", failpoint=f"{point}:stop")
    wait_stopped(paused)
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    run_key = world.manifests()[0]["run_key"]
    world.ok("replay", "demo", "--run-key", run_key, "--take-over")
    committed_first = point == "publish.before_mark"
    before = sorted(message.value() or b"" for message in world.sent())
    woken = wake(paused)
    assert "Traceback" not in woken.stderr
    assert sorted(message.value() or b"" for message in world.sent()) == before
    assert all((b'"name"' in value) == committed_first for value in before)
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_topic_that_is_created_again_inside_the_first_transaction_is_not_marked_published(
    make_topic_world: Make, broker: Broker
) -> None:
    """Kafka answers the commit well, and the messages are gone."""
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.mid:stop")
    wait_stopped(paused)
    broker.delete_topic(world.out)
    broker.create_topic(world.out, 3, {"retention.ms": "-1"})
    woken = wake(paused)
    assert woken.returncode == 1
    assert f"topic {world.out}, or its topic of markers, was created again while the manifest was sent" in woken.stderr
    assert "tidemark fill demo NAME --why TEXT" in woken.stderr
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1, "its marker is there"
    assert "is another one than this database has published to" in refused.stderr
    assert world.manifests()[0]["state"] == "failed"
    world.assert_nothing_is_seen()


def test_a_topic_that_is_created_again_after_the_commit_and_before_the_mark_is_refused(
    make_topic_world: Make, broker: Broker
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60)
    world.tidemark("run", "demo", failpoint="publish.before_mark:kill9")
    broker.delete_topic(world.out)
    broker.create_topic(world.out, 3, {"retention.ms": "-1"})
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "is another one than this database has published to" in refused.stderr
    assert world.published_spans("topic") == {}


def test_an_older_producer_that_wakes_does_not_stop_the_newest_attempt(make_topic_world: Make, broker: Broker) -> None:
    """It fences the newest attempt's producer, which asks the database, and begins again."""
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    other = broker.producer(transactional_id=f"tidemark-{world.out}-1")
    other.init_transactions(30)
    woken = wake(paused)
    assert woken.returncode == 0, woken.stderr
    world.assert_complete()


@pytest.mark.parametrize("added", [False, True], ids=["as it was", "with more partitions"])
def test_K6_a_marker_that_a_transaction_of_somebody_else_hides_is_waited_for(
    make_topic_world: Make, broker: Broker, monkeypatch: pytest.MonkeyPatch, added: bool
) -> None:
    """The attempt has committed and died before its mark; without the marker the next one would send all again."""
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60)
    topic, key = f"{world.out}-markers", json.dumps(["marker", world.out, 1]).encode()
    paused = world.start("run", "demo", failpoint="publish.mid:stop")
    wait_stopped(paused)
    other = broker.producer(transactional_id=f"other-{world.out}")
    other.init_transactions(30)
    other.begin_transaction()
    stored: list[bool] = []
    other.produce(
        topic, b"in the way", b"other", partition=zlib.crc32(key) % 8,
        on_delivery=lambda error, _: stored.append(error is None),
    )  # fmt: skip
    assert other.flush(30) == 0
    assert stored == [True]
    os.killpg(paused.pid, signal.SIGCONT)
    wait_until(lambda: world.seen() == world.everything(), "the commit", timeout=30)
    os.killpg(paused.pid, signal.SIGKILL)
    wait_ended(paused)
    if added:
        more = next(number for number in range(9, 99) if zlib.crc32(key) % number != zlib.crc32(key) % 8)
        world.broker.add_partitions(topic, more)
    with monkeypatch.context() as patched:
        patched.setattr(markers, "WAIT_S", 1.0)
        refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert f"an open transaction hides markers in {topic}-{zlib.crc32(key) % 8}" in refused.stderr
    assert "tidemark retry demo" in refused.stderr
    other.abort_transaction(30)
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_transaction_that_takes_longer_than_it_may_is_refused_and_nothing_of_it_is_seen(broker: Broker) -> None:
    topic = new_topic(broker, 1)
    with transaction.Transaction(TopicCluster(broker.bootstrap_servers, {}), f"slow-{topic}", 5.0, {}) as slow:
        slow.fence()
        slow.begin()
        slow.send(topic, None, b"early", [])
        slow.flush()
        time.sleep(5.1)
        with pytest.raises(SinkRefused, match="the transaction did not end within its 5 s"):
            slow.check()
    # Until the broker has ended the transaction, the end for a reader of committed messages is before it.
    wait_until(lambda: broker.log_end(topic, 0) > 0, "the transaction is aborted", timeout=30)
    assert committed(broker.bootstrap_servers, topic) == []


def test_a_transaction_that_is_fenced_while_its_messages_are_sent_is_begun_again(broker: Broker) -> None:
    topic, cluster = new_topic(broker, 1), TopicCluster(broker.bootstrap_servers, {})
    rounds = []

    def send() -> None:
        with transaction.Transaction(cluster, f"fenced-{topic}", 30.0, {}) as sending:
            sending.fence()
            sending.begin()
            rounds.append(sending)
            if len(rounds) == 1:
                with transaction.Transaction(cluster, f"fenced-{topic}", 30.0, {}) as other:
                    other.fence()
            sending.send(topic, None, b"%d" % len(rounds), [])
            sending.flush()
            sending.commit()

    transaction.uninterrupted(send)
    assert [message.value() for message in committed(broker.bootstrap_servers, topic)] == [b"2"]


def test_an_interrupt_that_comes_while_the_client_tells_an_error_is_not_lost(
    broker: Broker, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent-kafka 2.16 loses the exception of a callback."""
    topic, cluster = new_topic(broker, 1), TopicCluster(proxy.bootstrap_servers, {})
    pids = [os.getpid()]
    monkeypatch.setattr(TopicCluster, "_remember", lambda *_: os.kill(pids.pop(), signal.SIGINT) if pids else None)
    with transaction.Transaction(cluster, f"interrupted-{topic}", 10.0, {}) as sending:
        sending.fence()
        sending.begin()
        proxy.arm(Armed(Fault.CUT_BEFORE, 1000, PRODUCE))
        sending.send(topic, None, b"never", [])
        with pytest.raises(KeyboardInterrupt):
            sending.flush()
    assert committed(broker.bootstrap_servers, topic) == []


@pytest.mark.exhaustive
def test_K7_an_attempt_whose_transaction_the_broker_has_aborted_begins_it_again(make_topic_world: Make) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    world.settings["sinks"][0]["topic"]["transaction_timeout"] = "10s"
    world.write_pipeline()
    world.produce(60, bad_every=9)
    done = world.tidemark("run", "demo", failpoint="publish.mid:hang:14")
    assert done.returncode == 0, done.stderr
    ends = sum(world.broker.log_end(world.out, partition) for partition in range(3))
    assert ends > 2 * (60 - len(world.bad)), "they were sent twice, and seen once"
    world.assert_complete()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.port) as opened:
        yield opened


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault.ANSWER_LOST, 1),
        pytest.param(Fault.CUT_BEFORE, 1, marks=pytest.mark.exhaustive),
        pytest.param(Fault.ANSWER_LOST, 1000, marks=pytest.mark.exhaustive),
    ],
)
def test_a_commit_whose_answer_is_lost_is_looked_up_and_nothing_is_sent_twice(
    make_topic_world: Make, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault, times: int
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST, servers=proxy.bootstrap_servers)
    world.produce(20)
    world.ok("run", "demo")
    monkeypatch.setattr(transaction, "WAIT_S", 6.0)
    world.produce(40, bad_every=9)
    armed = proxy.arm(Armed(fault, times))
    done = world.here("run", "demo", "--run-key", "one")
    assert armed.struck
    assert done.exit_code in (0, 1), done.stderr
    armed.times = 0
    world.finish()


def test_brokers_that_begin_no_transaction_are_named_before_anything_is_read(
    make_topic_world: Make, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_topic_world(servers=proxy.bootstrap_servers)
    world.produce(20)
    world.ok("plan", "demo", "--run-key", "one")
    monkeypatch.setattr(transaction, "WAIT_S", 3.0)
    armed = proxy.arm(Armed(Fault.CUT_BEFORE, 1000, INIT_PRODUCER_ID))
    refused = world.here("run", "demo", "--run-key", "one")
    assert refused.exit_code == 1
    assert "Kafka did not begin a transaction within 3 s" in refused.stderr
    armed.times = 0
    world.assert_nothing_is_seen()
    world.ok("retry", "demo")
    world.assert_complete()


def test_records_of_a_partition_come_in_their_order_also_beside_an_attempt_that_is_slow(make_topic_world: Make) -> None:
    """A manifest waits for the one before it while that is at work, and is refused when it has failed."""
    world = make_topic_world()
    world.produce(60)  # two manifests
    world.ok("plan", "demo")
    first, second = (str(manifest["id"]) for manifest in world.manifests())
    slow = world.start("retry", "demo", "--manifest", first, failpoint="publish.receipt:stop")
    wait_stopped(slow)
    waits = world.start("retry", "demo", "--manifest", second)
    with pytest.raises(subprocess.TimeoutExpired):
        waits.wait(timeout=3)
    assert wake(slow).returncode == 0
    assert wait_ended(waits).returncode == 0
    world.assert_complete()

    world.produce(60)
    world.ok("plan", "demo")
    *_, third, fourth = (str(manifest["id"]) for manifest in world.manifests())
    assert world.tidemark("retry", "demo", "--manifest", third, failpoint="read.before:raise").returncode == 1
    refused = world.here("retry", "demo", "--manifest", fourth)
    assert refused.exit_code == 1
    assert f"manifest {third}, which is failed, has earlier records" in refused.stderr
    assert "tidemark retry demo" in refused.stderr
    world.ok("retry", "demo")
    world.assert_complete()


class EarlyEnd:
    """A consumer that is told once, right before the first marker, that the log ends there: by a new leader whose high
    watermark lags (KIP-207)."""

    told = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._real = Consumer(*arguments, **named)
        self._held: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def poll(self, timeout: float) -> Any:
        message, self._held = self._held or self._real.poll(timeout), None
        if EarlyEnd.told or message is None or b'"marker"' not in (message.key() or b""):
            return message
        EarlyEnd.told += 1
        self._held, end = message, mock.Mock()
        end.error.return_value, end.offset.return_value = KafkaError(KafkaError._PARTITION_EOF), message.offset()
        return end


def test_a_marker_behind_an_end_that_was_told_too_early_is_not_missed(
    make_topic_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_topic_world()
    world.produce(20)
    assert world.tidemark("run", "demo", failpoint="publish.before_mark:kill9").returncode == -signal.SIGKILL
    assert set(world.seen().values()) == {1}
    EarlyEnd.told = 0
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "Consumer", EarlyEnd)
        world.ok("retry", "demo")
    assert EarlyEnd.told == 1
    assert set(world.seen().values()) == {1}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_topic_of_markers_that_one_answer_of_kafka_lacks_is_not_taken_for_empty(
    make_topic_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_topic_world()
    world.produce(20)
    world.ok("run", "demo")
    [sink] = world.context().sinks
    assert isinstance(sink.ledger, TopicLedger)
    markers = sink.ledger.markers
    [marker] = markers.all().values()
    with monkeypatch.context() as patched:
        patched.setattr(TopicCluster, "partitions", lambda *_: ([], [markers.name]))
        with pytest.raises(Unavailable, match="was there a moment ago"):
            markers.all()
    assert [*markers.all().values()] == [marker]
