"""The local services keep what they promise: data survives a kill, and nothing survives the end."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from sandbox.bootstrap import ceph
from sandbox.bootstrap.check_machine import check_alone, holder
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.jars import ensure, folder_of, locked, spark_set
from sandbox.demo import flights
from sandbox.errors import SandboxBusy, SandboxFailed
from sandbox.services.broker import Broker
from sandbox.services.kafka_programs import write_programs
from sandbox.services.postgres import Postgres, remove_home
from sandbox.services.processes import Child, free_port, port_answers, wait_until
from sandbox.services.s3 import Bucket
from sandbox.services.stack import LockFile


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_postgres_keeps_committed_rows_when_killed(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        dsn = server.create_database("kept")
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        server.kill()
        assert not port_answers(server.port)
        server.restart()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    assert not port_answers(server.port)
    remove_home(tmp_path)


def test_postgres_keeps_its_data_from_one_start_to_the_next(tmp_path: Path) -> None:
    with Postgres(tmp_path) as first:
        first.create_database("kept")
    with Postgres(tmp_path) as second:
        assert second.has_database("kept")
        assert second.port == first.port
        second.drop_database("kept")
        assert not second.has_database("kept")
    remove_home(tmp_path)


def test_postgres_refuses_a_wrong_password(postgres: Postgres) -> None:
    wrong = postgres.dsn().replace(postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_databases_are_copies_of_the_template_and_of_one_test_alone(
    database: str, postgres: Postgres, template: str
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE mine ()")
    with postgres.temporary_database("other", template) as other, psycopg.connect(other) as connection:
        tables = connection.execute("SELECT to_regclass('mine'), to_regclass('tidemark.manifest')").fetchone()
        assert tables == (None, "tidemark.manifest")


def committed(broker: Broker, topic: str) -> list[bytes | None]:
    """Every record of partition 0 that a read_committed reader sees."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**options, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while message := consumer.poll(20):
        if message.error():
            break
        values.append(message.value())
    consumer.close()
    return values


def send(producer: Producer, topic: str, value: bytes, *, commit: bool) -> None:
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def test_the_broker_shows_committed_transactions_only_and_keeps_them_when_killed(tmp_path: Path) -> None:
    with Broker(tmp_path, STATE / "jars" / "kafka") as broker:
        broker.create_topic("kept")
        producer = broker.producer(transactional_id="writer")
        producer.init_transactions(30)
        send(producer, "kept", b"one", commit=True)
        send(producer, "kept", b"aborted", commit=False)
        send(producer, "kept", b"two", commit=True)
        broker.create_topic(flights.TOPIC, flights.PARTITIONS)
        loader = broker.producer()
        for partition in range(flights.PARTITIONS):
            loader.produce(flights.TOPIC, b"{}", partition=partition)
        assert loader.flush(30) == 0
        before = broker.bootstrap_servers
        broker.kill()
        assert not port_answers(broker.port)
        broker.restart()
        assert broker.bootstrap_servers == before
        assert flights.records(broker) == flights.PARTITIONS, "asked before every partition has its leader again"
        assert committed(broker, "kept") == [b"one", b"two"]
        assert_answers_again_when_it_goes_on(broker)
    assert not port_answers(broker.port)


def assert_answers_again_when_it_goes_on(broker: Broker) -> None:
    """After it was stopped for a while."""
    admin = broker.admin()
    admin.list_topics(timeout=10)
    broker.stop_signal()
    try:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
    finally:
        broker.cont_signal()
    # Who slept for longer than a session lasts is given up, and comes back a moment later.
    wait_until(lambda: bool(admin.list_topics(timeout=20).brokers), "the broker to be in its cluster", timeout=60)


def test_records_lie_in_the_order_in_which_they_were_produced(topic: Callable[..., str], broker: Broker) -> None:
    """A topic just created says of a partition that its leader is another one, and small batches overtake each other.

    With several batches on their way at once, more than half of such topics were out of order.
    """
    partitions, values = 30, {}
    for _ in range(3):
        name = topic(partitions=partitions)
        producer = broker.producer(linger_ms=0, batch_num_messages=3)
        for number in range(20 * partitions):
            producer.produce(name, str(number), partition=number % partitions)
        assert producer.flush(30) == 0
        values[name] = read(broker, name, partitions, 20 * partitions)
    right = {(number % partitions, number // partitions): number for number in range(20 * partitions)}
    assert values == dict.fromkeys(values, right)


def read(broker: Broker, topic: str, partitions: int, count: int) -> dict[tuple[int, int], int]:
    """The number at each (partition, offset)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: dict[tuple[int, int], int] = {}
    while len(values) < count:
        messages = consumer.consume(count, 30)
        assert messages, f"{len(values)} of {count} records within 30 s"
        values |= {(message.partition(), message.offset()): int(message.value()) for message in messages}
    consumer.close()
    return values


def test_a_topic_that_exists_is_not_made_again(broker: Broker, topic: Callable[..., str]) -> None:
    with pytest.raises(SandboxFailed, match="was not created"):
        broker.create_topic(topic())


# A tree as Airflow and Spark make it: a child in a session of its own, and neither cares for SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 2:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def started(child_file: Path) -> list[int]:
    wait_until(lambda: child_file.exists() and child_file.read_text().endswith("\n"), "the tree to start", timeout=60)
    return [int(pid) for pid in child_file.read_text().split()]


def test_stop_ends_children_in_other_sessions_that_ignore_the_signal(tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    child = Child("stubborn", [sys.executable, "-c", STUBBORN, str(pids_file)], tmp_path / "log", grace=0.3)
    pids = started(pids_file)
    assert all(map(alive, pids))
    child.stop()
    assert not any(map(alive, pids))


def test_stop_finds_what_lost_its_parent(tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    child = Child("stubborn", [sys.executable, "-c", STUBBORN, str(pids_file)], tmp_path / "log", grace=0.3)
    parent, orphan = started(pids_file)
    child.kill()
    assert not alive(parent)
    assert alive(orphan)
    child.stop()
    assert not alive(orphan)


def test_nothing_is_left_when_we_are_killed_ourselves(tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    program = (
        "import sys, time; from pathlib import Path; from sandbox.services.processes import Child;"
        "Child('stubborn', [sys.executable, '-c', *sys.argv[1:3]], Path(sys.argv[3]), grace=0.3); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, STUBBORN, str(pids_file), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=CHECKOUT) as us:
        pids = started(pids_file)
        assert all(map(alive, pids))
        us.kill()
    wait_until(lambda: not any(map(alive, pids)), "the tree to end", timeout=60)


def test_a_command_that_ends_too_early_is_reported_with_its_log(tmp_path: Path) -> None:
    child = Child("hasty", [sys.executable, "-c", "print('no room here'); raise SystemExit(3)"], tmp_path / "log")
    with pytest.raises(SandboxFailed, match=r"(?s)exit code 3 before it was ready.*no room here"):
        child.wait_ready(lambda: False, timeout=20)
    child.stop()


def test_a_command_that_is_never_ready_is_reported_in_time(tmp_path: Path) -> None:
    child = Child("slow", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log", grace=0.3)
    start = time.monotonic()
    with pytest.raises(SandboxFailed, match="not ready within"):
        child.wait_ready(lambda: False, timeout=0.2)
    assert time.monotonic() - start < 60
    child.stop()


def test_a_second_user_of_a_state_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    first, second = LockFile(tmp_path / "run.lock"), LockFile(tmp_path / "run.lock")
    first.acquire()
    with pytest.raises(SandboxBusy, match=str(os.getpid())):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_jars_that_are_not_the_locked_ones_are_removed_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(STATE)
    some = [jar for jar in locked() if jar.set == spark_set()]
    folder = folder_of(spark_set(), STATE)
    assert sorted(path.name for path in folder.iterdir()) == sorted(jar.file_name for jar in some)
    tampered = tmp_path / "jars.lock"
    smallest = min(some, key=lambda jar: (folder / jar.file_name).stat().st_size)
    tampered.write_text(str(smallest).replace(smallest.sha256, "0" * 64) + "\n")
    monkeypatch.setattr("sandbox.bootstrap.jars.LOCK_OF_SPARK", tampered)
    (tmp_path / "empty.lock").touch()
    monkeypatch.setattr("sandbox.bootstrap.jars.LOCK", tmp_path / "empty.lock")
    with pytest.raises(SandboxFailed, match="is not the locked file"):
        ensure(tmp_path / "state")


def check_machine(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox.bootstrap.check_machine"]
    return subprocess.run(command, cwd=CHECKOUT, env=env, text=True, capture_output=True)


def test_the_check_of_the_machine_names_what_is_missing_on_a_machine_without_java(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = check_machine(env)
    assert done.returncode == 2
    assert done.stderr.startswith("no Java was found by the PATH\n  install a JDK 17 or 21")


def test_the_check_of_the_machine_refuses_a_java_that_spark_cannot_run_on(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho '    java.specification.version = 11' >&2\n")
    fake.chmod(0o755)
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = check_machine(env)
    assert done.returncode == 2
    assert f"Spark runs on Java 17 or 21, {fake} is Java 11" in done.stderr


def test_the_check_of_the_machine_sees_a_lock_that_is_held_and_forgets_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.bootstrap.check_machine.STATE", tmp_path)
    assert holder("run.lock") is None
    lock = LockFile(tmp_path / "run.lock")
    lock.acquire()
    assert holder("run.lock") == str(os.getpid())
    lock.release()
    assert holder("run.lock") is None


def test_whoever_starts_make_up_twice_is_told_where_the_first_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.bootstrap.check_machine.STATE", tmp_path)
    monkeypatch.setattr("sandbox.bootstrap.check_machine.READY", tmp_path / "up.json")
    assert check_alone() == []
    lock = LockFile(tmp_path / "run.lock")
    lock.acquire()
    assert "at work" in check_alone()[0]
    page = {"url": "http://127.0.0.1:1", "user": "admin", "password": "p"}
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as service:
        ports = {"PostgreSQL": service.getsockname()[1]}
        (tmp_path / "up.json").write_text(json.dumps({**page, "ports": ports}))
        [told] = check_alone()
        assert "is up (process" in told
        assert "http://127.0.0.1:1  user admin  password p" in told
        dead = free_port()
        (tmp_path / "up.json").write_text(json.dumps({**page, "ports": {**ports, "Kafka": dead}}))
        [told] = check_alone()
        assert "is up (process" not in told
        assert f"Kafka (port {dead}) does not answer" in told
        assert "make down && make up" in told
    lock.release()
    assert check_alone() == [], "what a killed one has left does not count"


@pytest.mark.exhaustive
@pytest.mark.skipif(bool(ceph.missing()), reason="Ceph's programs are not installed: make test-stores")
def test_a_store_of_ceph_ends_with_the_command_beside_it_also_when_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    beside = ["sh", "-c", f"env > {told}.part; mv {told}.part {told}; exec sleep 600"]
    command = subprocess.Popen([sys.executable, "-m", "sandbox", "beside-ceph", *beside], cwd=CHECKOUT)
    try:
        wait_until(told.exists, "the store to start", timeout=240)
        store = Bucket.of_environment(dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line))
        assert store is not None
        store.client().put_object(Bucket=store.name, Key="a", Body=b"1")
        store.empty()
        port = int(store.endpoint_url.rpartition(":")[2])
    finally:
        command.kill()
        command.wait()
    wait_until(lambda: not port_answers(port), "the store to stop", timeout=30)
    folder = STATE / f"ceph-{command.pid}"
    wait_until(lambda: not processes_in(folder), "its processes to end", timeout=30)
    shutil.rmtree(folder)


def processes_in(folder: Path) -> list[Path]:
    """The processes whose current folder is below a folder."""
    inside = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if place.readlink().is_relative_to(folder):
                inside.append(place)
    return inside


def test_the_programs_that_messages_name_work_in_the_shell_of_make_up(broker: Broker, tmp_path: Path) -> None:
    folder = write_programs(tmp_path / "bin")

    def typed(command: str) -> str:
        shell = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-ec", command], text=True, capture_output=True, timeout=60, env=shell)
        assert done.returncode == 0, done.stderr
        return done.stdout

    topic, server = f"typed-{free_port()}", f"--bootstrap-server {broker.bootstrap_servers}"
    typed(f"kafka-topics.sh {server} --create --topic {topic} --partitions 2 --config retention.ms=-1")
    typed(f"kafka-topics.sh {server} --alter --topic {topic} --partitions 3")
    changed = f"--entity-type topics --entity-name {topic} --add-config cleanup.policy=compact"
    typed(f"kafka-configs.sh {server} --alter {changed}")
    assert topic in typed(f"kafka-topics.sh {server} --list").split()
    admin = broker.admin()
    wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3, "three", timeout=30)
    again = subprocess.run(
        [folder / "kafka-topics.sh", *server.split(), "--create", "--topic", topic], text=True, capture_output=True
    )
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    typed(f"kafka-topics.sh {server} --delete --topic {topic}")
