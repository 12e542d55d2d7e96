"""Requests of a transaction that the broker gets after the transaction has ended (the hole that KIP-890 closes).

A producer id and epoch that serve for two transactions have it where brokers do not verify transactions: by default
before Kafka 3.6, later with ``transaction.partition.verification.enable=false``. The first test is Tidemark, with and
without verification; the second is a producer that does have the hole, so the first can fail.
"""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import QUIET, Broker
from sandbox.services.processes import wait_until
from tests.faults.kafka_proxy import ADD_PARTITIONS_TO_TXN, END_TXN, PRODUCE, Armed, Fault, KafkaProxy
from tests.worlds.new_topics import new_topic
from tests.worlds.topic_world import TopicWorld, committed
from tests.worlds.world import wait_ended, wait_stopped, wake

pytestmark = pytest.mark.thorough

Make = Callable[..., TopicWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
VERIFICATION = "transaction.partition.verification.enable"
ALWAYS = 10_000  # times: the client repeats a request, and the broker must get none of them


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """In place of the session's: these tests change how it verifies transactions."""
    with Broker(tmp_path_factory.mktemp("late"), STATE / "jars" / "kafka") as server:
        yield server


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.port) as opened:
        yield opened


@dataclass(frozen=True)
class Late:
    """A kind of request, and the failpoint from which on it is held."""

    name: str
    request: int
    held_from: str = "publish.receipt"

    def __str__(self) -> str:
        return self.name


REQUESTS = (
    Late("Produce of records", PRODUCE),
    Late("Produce of the marker", PRODUCE, "publish.mid"),
    Late("AddPartitionsToTxn", ADD_PARTITIONS_TO_TXN),
    Late("EndTxn", END_TXN),
)
ENDS = (signal.SIGINT, signal.SIGKILL)
MOMENTS = ("before the retry", "inside its transaction", "after it")


def case(verifies: bool, late: Late, end: signal.Signals, moment: str) -> object:
    """All but the one that has broken the promise once are in `make test-faults` only."""
    is_first = (verifies, late, end, moment) == (False, REQUESTS[0], ENDS[0], MOMENTS[0])
    name = f"{late}, {end.name}, {moment}, {'verified' if verifies else 'not verified'}"
    marks = () if is_first else pytest.mark.exhaustive
    return pytest.param(verifies, late, end, moment, id=name, marks=marks)


CASES = [
    *(case(False, *values) for values in product(REQUESTS, ENDS, MOMENTS)),
    *(case(True, late, ENDS[0], MOMENTS[1]) for late in REQUESTS),  # the broker's own mend hides what goes wrong
]


@pytest.mark.parametrize(("verifies", "late", "end", "moment"), CASES)
def test_a_request_that_comes_after_its_attempt_has_ended_changes_nothing(
    make_topic_world: Make, broker: Broker, proxy: KafkaProxy, verifies: bool, late: Late, end: int, moment: str
) -> None:
    """SIGINT lets the attempt abort its transaction by itself, SIGKILL leaves that to the retry."""
    verify_transactions(broker, verifies)
    world = make_topic_world(settings=ONE_MANIFEST, servers=proxy.bootstrap_servers)
    world.produce(20)
    world.ok("run", "demo")
    world.produce(60, bad_every=9)
    attempt = world.start("run", "demo", failpoint=f"{late.held_from}:stop")
    wait_stopped(attempt)
    armed = proxy.arm(Armed(Fault.HELD, ALWAYS, late.request))
    attempt.send_signal(signal.SIGCONT)
    wait_until(lambda: armed.held, f"a request {late}", timeout=60)
    attempt.send_signal(end)
    assert wait_ended(attempt).returncode == (130 if end == signal.SIGINT else -end)
    armed.times = 0
    if moment == "before the retry":
        proxy.deliver(armed.held[0])
        world.ok("retry", "demo")
    elif moment == "inside its transaction":
        retry = world.start("retry", "demo", failpoint="publish.before_record:stop")
        wait_stopped(retry)
        proxy.deliver(armed.held[0])
        assert wake(retry).returncode == 0
    else:
        world.ok("retry", "demo")
        proxy.deliver(armed.held[0])
    topics = world.out, f"{world.out}-markers", f"{world.out}-dead-letters"
    wait_until(lambda: not open_in(broker, *topics), "the end of all transactions", timeout=30)
    world.assert_complete()
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize("verifies", [False, True], ids=["not verified", "verified"])
def test_a_producer_of_two_transactions_commits_what_it_has_aborted_unless_the_broker_verifies(
    broker: Broker, proxy: KafkaProxy, verifies: bool
) -> None:
    verify_transactions(broker, verifies)
    topic = new_topic(broker, 1)
    servers = {"bootstrap.servers": proxy.bootstrap_servers}
    producer = Producer({**QUIET, **servers, "transactional.id": f"reused-{topic}", "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    armed = proxy.arm(Armed(Fault.HELD, ALWAYS, PRODUCE))
    producer.produce(topic, b"aborted")
    wait_until(lambda: armed.held, "a request Produce", timeout=30)
    producer.abort_transaction(30)
    wait_until(
        lambda: broker.log_end(topic, 0) == 1, "the marker of the abort, which comes after its answer", timeout=30
    )
    armed.times = 0
    proxy.deliver(armed.held[0])
    if not verifies:
        wait_until(lambda: open_in(broker, topic) == [(topic, 0)], "a transaction that nobody ends", timeout=30)
    assert open_in(broker, topic) == ([] if verifies else [(topic, 0)])
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(30)
    wait_until(lambda: not open_in(broker, topic), "the end of the transaction", timeout=30)
    values = [message.value() for message in committed(broker.bootstrap_servers, topic)]
    assert values == ([b"committed"] if verifies else [b"aborted"])


def verify_transactions(broker: Broker, on: bool) -> None:
    """Set whether the broker asks, before it stores messages of a transaction, whether the transaction is open."""
    admin, value = broker.admin(), str(on).lower()
    entry = ConfigEntry(VERIFICATION, value, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(timeout=60)
    asked = ConfigResource(ResourceType.BROKER, "1")
    wait_until(
        lambda: admin.describe_configs([asked])[asked].result(timeout=60)[VERIFICATION].value == value,
        f"{VERIFICATION}={value}",
        timeout=60,
    )


def open_in(broker: Broker, *topics: str) -> list[tuple[str, int]]:
    """The partitions with an open transaction: readers of committed messages get less of them than there is."""
    admin = broker.admin()
    known = admin.list_topics(timeout=30).topics
    places = [TopicPartition(topic, at) for topic in topics if topic in known for at in known[topic].partitions]

    def ends(level: IsolationLevel) -> dict[tuple[str, int], int]:
        answers = admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
        return {(place.topic, place.partition): answer.result(30).offset for place, answer in answers.items()}

    last_stable, high_watermark = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
    return [place for place, offset in high_watermark.items() if last_stable[place] < offset]
