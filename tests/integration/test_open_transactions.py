"""A transaction that does not end is said with its place and age, and nothing past it is planned.

I32: where one was open when a plan looked, the plan stands for no time.
"""

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from sandbox.services.processes import wait_until
from tests.worlds.world import World
from tidemark.kafka.cluster import KafkaCluster
from tidemark.model.partitions import OpenTransaction

MakeWorld = Callable[..., World]
LONG_AGO = timedelta(minutes=14, seconds=20)
GAPS = {"kafka": {"gaps": "transactions"}}


def record(number: int) -> str:
    return json.dumps({"n": number, "at": "2024-03-01T12:00:00Z"})


@contextmanager
def transaction(world: World, *partitions: int, since: datetime) -> Iterator[Producer]:
    """An open transaction with one record in each of the partitions, stamped ``since``; aborted at the end."""
    producer = world.broker.producer(transactional_id=uuid4().hex)
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(world.topic, record(partition), partition=partition, timestamp=int(since.timestamp() * 1000))
    assert producer.flush(30) == 0
    yield producer
    producer.abort_transaction(30)


def observed(world: World) -> list[OpenTransaction]:
    cluster = KafkaCluster(world.broker.bootstrap_servers, {})
    places, _ = cluster.partitions([world.topic])
    return [pending for _, pending in sorted(cluster.open_transactions(cluster.bounds(places)).items())]


def settled(world: World) -> bool:
    return not observed(world)


def stored_notes(world: World) -> list[list[str]]:
    with psycopg.connect(world.dsn) as connection:
        return [row[0] for row in connection.execute("SELECT notes FROM tidemark.run ORDER BY id").fetchall()]


def notes_of_transactions(world: World) -> list[str]:
    """The notes of a further plan; those about manifests that earlier plans left are of another kind."""
    return [note for note in world.json("plan", "demo")["notes"] if not note.startswith(("not done: ", "next: "))]


def test_a_plan_says_which_transaction_holds_it_back_and_since_when_and_stores_it(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, settings=GAPS)
    world.send(record(0), record(1))
    world.send(record(0), partition=1)
    with transaction(world, 0, since=datetime.now(UTC) - LONG_AGO):
        world.send(record(3), record(4))
        done = world.json("plan", "demo")
        [note] = done["notes"]
        assert note.startswith(
            f"{world.topic}-0: an open transaction holds back 3 offsets from offset 2 on, for 14 min, "
            "by the timestamp of its first record ("
        )
        assert stored_notes(world) == [[note]]
        assert world.chain()[1] == (0, "data", 0, 2), "never up to the high watermark"
        printed = world.here("plan", "demo", "--run-key", "again").stderr
        assert "an open transaction holds back 3 offsets" in " ".join(printed.split())
    wait_until(lambda: settled(world), "the abort is visible", timeout=60)
    assert notes_of_transactions(world) == []
    world.ok("retry", "demo")
    assert sorted(world.exact()) == [(world.topic, 0, offset) for offset in (0, 1, 3, 4)] + [(world.topic, 1, 0)]


def test_the_doctor_says_an_open_transaction_as_a_plan_does(make_world: MakeWorld) -> None:
    world = make_world(settings=GAPS)
    with transaction(world, 0, since=datetime.now(UTC) - LONG_AGO):
        done = world.here("doctor", "demo", "--json")
        [warned] = [finding for finding in json.loads(done.stdout) if "transaction" in finding["message"]]
    assert warned["severity"] == "warning"
    assert warned["message"].startswith(
        f"{world.topic}-0: an open transaction holds back 1 offset from offset 0 on, for 14 min, "
        "by the timestamp of its first record ("
    )


def test_a_cut_before_the_open_transaction_is_not_held_back_by_it(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings=GAPS)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    world.send(record(0), at=noon)
    world.send(record(1), at=noon + timedelta(hours=1))
    with transaction(world, 0, since=noon + timedelta(hours=2)):
        early = world.json("plan", "demo", "--until", (noon + timedelta(minutes=5)).isoformat())
        assert (early["notes"], world.chain()[-1]) == ([], (0, "data", 0, 1))
        late = world.json("plan", "demo", "--until", (noon + timedelta(hours=3)).isoformat())
        assert "holds back 1 offset from offset 2 on" in late["notes"][0]
        assert world.chain()[-1] == (0, "data", 1, 2)


def test_each_partition_of_a_transaction_has_its_own_place_and_age(make_world: MakeWorld) -> None:
    world = make_world(partitions=40)
    for partition in range(40):
        world.send(record(partition), partition=partition)
    since = datetime.now(UTC).replace(microsecond=0) - LONG_AGO
    with transaction(world, *range(0, 40, 2), since=since):
        transactions = observed(world)
        assert [pending.at.partition for pending in transactions] == list(range(0, 40, 2))
        assert {(pending.first_offset, pending.held_back, pending.since) for pending in transactions} == {(1, 1, since)}
    wait_until(lambda: settled(world), "the abort is visible", timeout=60)


def test_the_older_of_two_open_transactions_gives_the_age(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    since = datetime.now(UTC).replace(microsecond=0)
    with transaction(world, 0, since=since - LONG_AGO), transaction(world, 0, since=since):
        [pending] = observed(world)
        assert (pending.first_offset, pending.held_back, pending.since) == (0, 2, since - LONG_AGO)
    wait_until(lambda: settled(world), "the aborts are visible", timeout=60)


def test_a_transaction_whose_first_record_was_deleted_is_still_reported(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    since = datetime.now(UTC).replace(microsecond=0)
    with transaction(world, 0, since=since - LONG_AGO) as producer:
        producer.produce(world.topic, record(1), partition=0)
        assert producer.flush(30) == 0
        world.administer("delete_records", [TopicPartition(world.topic, 0, 1)])
        [pending] = observed(world)
        assert (pending.first_offset, pending.held_back) == (1, 1)


def test_a_producer_stopped_inside_its_transaction_is_reported_until_its_timeout_ends_it(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1, settings=GAPS)
    world.send(record(0))
    program = (
        "import os, signal, sys\n"
        "from confluent_kafka import Producer\n"
        "servers, topic, name = sys.argv[1:]\n"
        "timeout = {'transaction.timeout.ms': 15000}\n"
        "producer = Producer({'bootstrap.servers': servers, 'transactional.id': name, **timeout})\n"
        "producer.init_transactions(30)\n"
        "producer.begin_transaction()\n"
        "producer.produce(topic, b'hangs', partition=0)\n"
        "assert producer.flush(30) == 0\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    words = [sys.executable, "-c", program, world.broker.bootstrap_servers, world.topic, uuid4().hex]
    hanging = subprocess.Popen(words)
    try:
        wait_until(lambda: not settled(world), "the transaction is open", timeout=30)
        world.send(record(2))
        assert "an open transaction holds back 2 offsets from offset 1 on" in world.json("plan", "demo")["notes"][0]
        wait_until(lambda: settled(world), "the broker ended the transaction", timeout=120)
        assert notes_of_transactions(world) == []
    finally:
        hanging.send_signal(signal.SIGKILL)
        hanging.wait()
    world.ok("retry", "demo")
    assert world.exact() == Counter([(world.topic, 0, 0), (world.topic, 0, 2)])


def before_question(patch: pytest.MonkeyPatch, number: int, event: Callable[[], object]) -> None:
    """Something happens right before one of the questions for offsets that are asked from now on, counted from 0."""
    questions = itertools.count()
    ask = KafkaCluster._offsets

    def asked(self: KafkaCluster, *words: Any) -> Any:
        if next(questions) == number:
            event()
        return ask(self, *words)

    patch.setattr(KafkaCluster, "_offsets", asked)


def planned_up_to(world: World) -> list[datetime | None]:
    """The time that each run stands for, in the order of runs."""
    with psycopg.connect(world.dsn) as connection:
        return [row[0] for row in connection.execute("SELECT planned_up_to FROM tidemark.run ORDER BY id").fetchall()]


@pytest.mark.parametrize("question", range(2))
def test_records_that_come_between_two_questions_are_no_open_transaction(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, question: int
) -> None:
    world = make_world(partitions=1)
    world.send(*map(record, range(2)))
    cluster = KafkaCluster(world.broker.bootstrap_servers, {})
    places, _ = cluster.partitions([world.topic])
    before_question(monkeypatch, 1 + question, lambda: world.send(*map(record, range(2))))
    bounds = cluster.bounds(places)
    assert [(bound.last_stable, bound.log_end) for bound in bounds.values()] == [(4, 4)]
    assert cluster.open_transactions(bounds) == {}


@pytest.mark.parametrize("question", range(6))
def test_a_transaction_that_ends_at_any_question_of_a_plan_leaves_no_time_that_is_false(
    make_world: MakeWorld, question: int
) -> None:
    world = make_world(partitions=2, settings=GAPS)
    world.send(record(0))
    producer = world.broker.producer(transactional_id=uuid4().hex)
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(world.topic, record(partition), partition=partition)
    assert producer.flush(30) == 0
    observer = KafkaCluster(world.broker.bootstrap_servers, {})
    places, _ = observer.partitions([world.topic])
    ended: list[int] = []

    def commit() -> None:
        ended.append(1)
        producer.commit_transaction(30)
        wait_until(lambda: not observer.open_transactions(observer.bounds(places)), "the commit is visible", timeout=60)

    with pytest.MonkeyPatch.context() as patch:
        before_question(patch, question, commit)
        world.ok("plan", "demo")
    planned = {partition: end for partition, kind, _, end in world.chain() if kind == "data"}
    [time] = planned_up_to(world)
    assert (time is not None) == (planned == {0: 3, 1: 2}), "a time stands for all that was there"
    if not ended:
        commit()
    world.ok("plan", "demo", "--run-key", "again")
    assert planned_up_to(world)[1] is not None
    assert {end for _, kind, _, end in world.chain() if kind == "data"} >= {3, 2}


def test_records_before_the_cut_that_come_while_a_plan_looks_leave_no_time_that_is_false(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    world.send(record(0), at=noon)
    ask = KafkaCluster.offsets_at

    def asked(self: KafkaCluster, *words: Any) -> Any:
        world.send(record(1), at=noon + timedelta(minutes=10))
        world.send(record(2), at=noon + timedelta(hours=2))
        return ask(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaCluster, "offsets_at", asked)
        early = world.json("plan", "demo", "--until", (noon + timedelta(hours=1)).isoformat())
    assert early["notes"][0] == (
        f"{world.topic}-0: records before the cut came while the source was asked, so the run ends at offset 1, not at "
        "2; the next run reads them"
    )
    assert (early["reached"], planned_up_to(world)) == (False, [None])
    world.ok("plan", "demo", "--until", (noon + timedelta(hours=1)).isoformat(), "--run-key", "again")
    assert (world.chain()[-1], planned_up_to(world)[1]) == ((0, "data", 1, 2), noon + timedelta(hours=1))


def test_beside_a_producer_that_commits_all_the_time_no_time_is_false(make_world: MakeWorld) -> None:
    """A record that the broker had acknowledged when a run began is in the run, or the run tells no time.

    The broker's own timestamps would not do: it gives them a moment before a reader can see the record.
    """
    world = make_world(partitions=2, settings=GAPS)
    ended = threading.Event()
    acknowledged: list[tuple[int, int, datetime]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append((message.partition() or 0, message.offset() or 0, datetime.now(UTC)))

    def produce() -> None:
        producer = world.broker.producer(transactional_id=uuid4().hex)
        producer.init_transactions(30)
        while not ended.is_set():
            producer.begin_transaction()
            for number in range(8):
                producer.produce(world.topic, record(number), partition=number % 2, on_delivery=delivered)
            producer.flush(30)
            ended.wait(random.uniform(0, 0.1))
            producer.commit_transaction(30)
            ended.wait(random.uniform(0, 0.1))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for number in range(300):
            world.ok("plan", "demo", "--run-key", str(number))
            if number >= 30 and any(planned_up_to(world)):  # on a busy machine one is open at nearly every look
                break
    finally:
        ended.set()
        thread.join()
    with psycopg.connect(world.dsn) as connection:
        stored = connection.execute(
            "SELECT c.partition, e.end_offset, r.planned_up_to FROM tidemark.run r "
            "JOIN tidemark.run_end e ON e.run_id = r.id JOIN tidemark.chain c ON c.id = e.chain_id "
            "WHERE r.planned_up_to IS NOT NULL"
        ).fetchall()
    assert stored, "sometimes no transaction is open"
    assert len(acknowledged) >= 16
    for partition, end, time in stored:
        assert not [
            offset for at, offset, moment in acknowledged if at == partition and offset >= end and moment < time
        ], (partition, end)
