"""Manifests on a Spark Connect server that stays up: the same receipts, and what is left when a client or it dies."""

import configparser
import gc
import json
import os
import re
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.connect.client import SparkConnectClient

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.processes import wait_until
from sandbox.services.rabbitmq import RabbitMQ
from sandbox.services.spark_server import SparkServer
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.slow_batches import at_work, slow
from tests.worlds.stream_world import StreamWorld
from tests.worlds.table_world import TableWorld
from tests.worlds.world import Command, World, wait_ended, wait_stopped, wake
from tidemark.cli.prepare import spark_server as spark_server_command
from tidemark.connections.lookup import from_environment
from tidemark.doctor.checks import examine
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, DataLost, Unavailable, UndecodableRecord, WorkFailed
from tidemark.lifecycle.attempt import order_of, process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.model.findings import Severity
from tidemark.model.manifest import RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.loader import find
from tidemark.spark import connected
from tidemark.spark import doctor as spark_doctor
from tidemark.spark.connected import stage_on
from tidemark.spark.remote import DEFAULT_PORT, parsed

MakeWorld = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]


def on(server: SparkServer, world: World, **conf: str) -> Callable[[Order], Receipt]:
    """Stages orders on the server."""
    remote, database_id = parsed(server.remote, "a test"), world.context().database.id()
    return lambda order: stage_on(
        remote, order, database_id=database_id, home=world.folder / "home", conf=conf, connections={}
    )


def planned(world: World) -> list[int]:
    return list(plan(world.context(), Tick(uuid4().hex, RunKind.MANUAL, None)).manifests)


def order(world: World) -> Order:
    [manifest_id] = planned(world)
    context = world.context()
    return order_of(context, context.database.manifests.get(manifest_id), 1)


def remote(server: SparkServer) -> dict[str, str]:
    """The environment of commands that work on the server."""
    return {"TIDEMARK_SPARK_REMOTE": server.remote}


def test_a_server_makes_of_an_order_what_the_tests_without_spark_make_of_it(
    spark_server: SparkServer, make_world: MakeWorld, tmp_path: Path
) -> None:
    kafka = {"gaps": "transactions", "slice": {"max_records": 500}}
    world = make_world(partitions=3, settings={"kafka": kafka, "spark": {"records_per_task": 30}})
    world.produce(60, bad_every=7)
    world.send(b"\xff\x00", b"", None, key=b"k\x00", headers=[("a", b"1"), ("a", None), ("b", b"")])
    world.transact('{"n": 1, "at": "2024-03-01T00:00:00Z"}', "{", commit=True)
    world.transact('{"n": 2, "at": "2024-03-01T00:00:00Z"}', "{", commit=False, partition=1)
    made = order(world)
    assert sorted(map(len, made.tasks)) == [1, 2]  # ranges of each task of Spark
    [sink] = made.sinks
    elsewhere = replace(made, sinks=(replace(sink, options={**sink.options, "root": str(tmp_path / "other")}),))
    there, here = on(spark_server, world)(made), arrow_stage(elsewhere)
    assert there.digest("files") == here.digest("files")
    assert (there.partitions, there.hours) == (here.partitions, here.hours)


@pytest.mark.thorough
def test_commands_use_the_server_that_the_environment_names_and_start_no_spark(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    world = make_world()
    world.produce(60, bad_every=9)
    done = world.tidemark("run", "demo", spark=True, env=remote(spark_server))
    assert done.returncode == 0, done.stderr
    world.assert_complete()
    assert not (world.folder / "home" / "_logs" / "spark.log").exists()
    beside_a_proxy = {**remote(spark_server), "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    again = world.tidemark("replay", "demo", "--manifest", "1", spark=True, env=beside_a_proxy)
    assert "unchanged" in again.stderr, again.stderr


def test_tasks_get_the_secrets_of_sinks_from_a_process_of_the_same_user(
    spark_server: SparkServer, make_table_world: MakeTableWorld
) -> None:
    """The server has no connection of the warehouse in its environment."""
    world = make_table_world()
    world.produce(60)
    done = world.tidemark("run", "demo", spark=True, env=remote(spark_server))
    assert done.returncode == 0, done.stderr
    world.assert_complete()


def test_tasks_get_the_connection_of_a_source_that_they_read_by_themselves(
    spark_server: SparkServer, rabbit: RabbitMQ, make_world: MakeWorld
) -> None:
    """As above, of a stream of RabbitMQ."""
    pipeline = StreamWorld(rabbit, make_world)
    pipeline.produce(60, bad_every=9)
    done = pipeline.world.tidemark("run", "demo", spark=True, env=remote(spark_server))
    assert done.returncode == 0, done.stderr
    pipeline.read_once(60)
    pipeline.streams.delete_stream(pipeline.name)


def test_doctor_finds_on_the_server_the_connections_that_tasks_get(
    spark_server: SparkServer, make_table_world: MakeTableWorld
) -> None:
    """As above: what is not in the environment of the server is no fault when it comes with the work."""
    world = make_table_world()
    done = world.tidemark("doctor", "demo", "--json", spark=True, env=remote(spark_server))
    of_server = [
        finding for finding in json.loads(done.stdout) if finding["check"].startswith(("spark server", "executor "))
    ]
    assert [finding for finding in of_server if finding["severity"] == "failed"] == [], done.stdout
    for told in (" answers, Spark ", "its Python answered"):
        assert any(told in finding["message"] for finding in of_server), done.stdout


def test_doctor_says_of_a_lake_that_is_read_only_what_is_wrong_and_reports_no_bug(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    world = make_world()
    disk = world.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tidemark-test", str(disk)])
    assert mounted.returncode == 0, "no small file system can be mounted here"
    try:
        (disk / "lake").mkdir()
        world.lake.symlink_to(disk / "lake")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = world.tidemark("doctor", "demo", "--json", spark=True, env=remote(spark_server))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    wrong = {finding["check"]: finding for finding in json.loads(done.stdout) if finding["severity"] == "failed"}
    assert list(wrong) == ["demo: sink files"], done.stdout
    assert "the lake cannot be written (Read-only file system" in wrong["demo: sink files"]["message"]
    assert "mount the disk so that it can be written" in wrong["demo: sink files"]["next_step"]


def test_an_undecodable_record_is_named(spark_server: SparkServer, make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"on_error": "fail"})
    world.produce(5)
    world.send("{not json")
    with pytest.raises(UndecodableRecord) as failed:
        on(spark_server, world)(order(world))
    assert failed.value.context["offset"] == "5"


def test_offsets_that_go_before_they_are_read_are_named_as_a_plan_names_them(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    world = make_world(partitions=2)
    world.produce(20)
    [manifest_id] = planned(world)

    def too_late(made: Order) -> Receipt:
        world.administer("delete_records", [TopicPartition(world.topic, 1, 4)])
        return on(spark_server, world)(made)

    with pytest.raises(DataLost) as lost:
        process(world.context(), manifest_id, too_late)
    assert lost.value.what == f"retention took offsets [0, 4) of {world.topic}-1 before they were read"
    cause = lost.value.__cause__
    assert isinstance(cause, WorkFailed)
    assert "out of range" in cause.what
    assert "\n" not in cause.what


def test_a_session_that_is_collected_as_garbage_closes_nothing(
    spark_server: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own would end the threads of other sessions, and wait for a lock that its own thread may hold."""
    with connected._session(parsed(spark_server.remote, "a test"), str(uuid4()), {}) as session:
        assert session.range(3).count() == 3
    assert session.client.is_closed
    closed: list[SparkConnectClient] = []
    monkeypatch.setattr(SparkConnectClient, "close", lambda client: closed.append(client))
    collected = weakref.ref(session)
    del session
    gc.collect()
    assert (collected(), closed) == (None, [])


def test_a_property_that_only_a_whole_server_can_have_is_refused_by_name(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    world = make_world()
    world.produce(5)
    made = order(world)
    with pytest.raises(ConfigurationError, match=r"cannot set spark\.executor\.memory") as refused:
        on(spark_server, world, **{"spark.executor.memory": "4g"})(made)
    assert "spark: {engine: submit}" in refused.value.next_step
    assert on(spark_server, world, **{"spark.sql.files.maxRecordsPerFile": "7"})(made).partitions


def test_no_server_is_said_at_once(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(5)
    started = time.monotonic()
    refused = world.tidemark("run", "demo", spark=True, env={"TIDEMARK_SPARK_REMOTE": "sc://127.0.0.1:9"})
    assert time.monotonic() - started < 30
    assert refused.returncode == 1
    assert "the Spark Connect server cannot be reached (Connection refused)" in refused.stderr
    assert "start it: tidemark spark serve --port 9;" in refused.stderr
    assert "spark: {engine: submit}" in refused.stderr


POINTS = ["stage.mid", "publish.before_mark"]
OTHER_POINTS = ["attempt.started", "read.before", "stage.done", "publish.receipt", "publish.mid", "publish.marked"]
at_each_point = pytest.mark.parametrize(
    "point", [*POINTS, *(pytest.param(point, marks=pytest.mark.exhaustive) for point in OTHER_POINTS)]
)


@at_each_point
def test_a_client_that_is_killed_is_followed_by_one_that_finishes(
    spark_server: SparkServer, make_world: MakeWorld, point: str
) -> None:
    world = make_world()
    world.produce(40)
    killed = world.tidemark("run", "demo", failpoint=f"{point}:kill9", on=spark_server.remote)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.assert_whole()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    world.assert_complete()


@at_each_point
def test_a_client_that_stands_still_while_another_finishes_does_nothing_more(
    spark_server: SparkServer, make_world: MakeWorld, point: str
) -> None:
    world = make_world()
    world.produce(40)
    older = world.start("run", "demo", failpoint=f"{point}:stop", on=spark_server.remote)
    wait_stopped(older)
    done = world.tidemark("replay", "demo", "--manifest", "1", "--take-over", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    wake(older)
    world.ok("retry", "demo")
    world.assert_complete()


def run_slowly(world: World, server: SparkServer, tasks: int = 1) -> Command:
    """A run, once so many tasks of it are in the middle of a batch."""
    slow(world, 120)
    running = world.start("run", "demo", on=server.remote)
    wait_until(lambda: at_work(world, tasks), "tasks to be at work", timeout=120)
    return running


def test_doctor_answers_in_time_when_a_server_is_only_busy_and_says_so(
    spark_server: SparkServer, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=2, settings={"spark": {"records_per_task": 1}})
    world.produce(40)
    at_work_on_all_cores = run_slowly(world, spark_server, tasks=2)
    monkeypatch.setattr(spark_doctor, "SERVER_S", 15.0)
    for name, value in world.environment(**remote(spark_server)).items():
        monkeypatch.setenv(name, value)
    environment = Environment.from_variables()
    checks = spark_doctor.checks(environment, None, [find(world.pipelines, "demo")], [], from_environment)
    started = time.monotonic()
    answers, late = examine(checks, begin=lambda _: None)
    assert time.monotonic() - started < 30
    assert (answers.severity, late.severity) == (Severity.OK, Severity.FAILED)
    assert " answers, Spark " in answers.message
    assert late.message == "no answer within 15 s"
    assert "its cores are busy with other jobs" in late.next_step
    assert "firewall" not in late.next_step
    at_work_on_all_cores.send_signal(signal.SIGINT)
    assert wait_ended(at_work_on_all_cores).returncode == 130
    [asking] = [thread for thread in threading.enumerate() if thread.name == "check spark server"]
    asking.join(60)
    assert not asking.is_alive(), "the job of the doctor got the cores, and ended"


def test_the_job_of_a_dead_client_is_ended_by_the_next_attempt(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    """It would hold both threads of the server for two minutes."""
    world = make_world(partitions=2)
    world.produce(40)
    killed = run_slowly(world, spark_server)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    slow(world, 0)
    started = time.monotonic()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    world.assert_complete()


def test_ctrl_c_ends_the_job_on_the_server(spark_server: SparkServer, make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(40)
    interrupted = run_slowly(world, spark_server)
    interrupted.send_signal(signal.SIGINT)
    assert wait_ended(interrupted).returncode == 130
    slow(world, 0)
    started = time.monotonic()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    world.assert_complete()


def test_ctrl_c_ends_the_jobs_of_all_slices_on_the_server(spark_server: SparkServer, make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"spark": {"parallel_slices": 2}})
    world.produce(80)
    interrupted = run_slowly(world, spark_server, tasks=2)
    interrupted.send_signal(signal.SIGINT)
    slow(world, 0)
    ended = wait_ended(interrupted)
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert {(each["state"], each["alive"]) for each in world.manifests()} == {("failed", False)}
    started = time.monotonic()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    world.assert_complete()


@at_each_point
def test_a_client_that_is_killed_in_the_middle_of_two_slices_is_followed_by_one_that_finishes(
    spark_server: SparkServer, make_world: MakeWorld, point: str
) -> None:
    world = make_world(settings={"spark": {"parallel_slices": 2}})
    world.produce(160, bad_every=9)
    killed = world.tidemark("run", "demo", failpoint=f"{point}:kill9@2", on=spark_server.remote)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.assert_whole()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    world.assert_complete()


def test_a_server_that_is_killed_fails_the_attempt_and_a_new_one_does_the_next(
    spark_server: SparkServer, make_world: MakeWorld
) -> None:
    world = make_world(partitions=2)
    world.produce(40)
    running = run_slowly(world, spark_server)
    spark_server.kill()
    started = time.monotonic()
    ended = wait_ended(running)
    assert time.monotonic() - started < 60
    assert ended.returncode == 1
    assert "the Spark Connect server cannot be reached" in ended.stderr
    assert f"start it: tidemark spark serve --port {spark_server.port};" in ended.stderr
    world.assert_whole()
    slow(world, 0)
    spark_server.restart()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    world.assert_complete()


def test_the_command_that_the_docs_give_a_supervisor_becomes_the_server_itself(spark_server: SparkServer) -> None:
    """So systemd sees when the server has died, and a signal of it reaches the server."""
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    [unit] = re.findall(r"^```ini\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    settings = configparser.ConfigParser()
    settings.read_string(unit)
    program, group, command, *options = settings["Service"]["ExecStart"].split()
    assert (Path(program).name, group, command) == ("tidemark", "spark", "serve")
    assert settings["Service"]["Restart"] == "always"
    assert spark_server_command.make_context(command, options).params["port"] == DEFAULT_PORT
    assert Path(f"/proc/{spark_server.pid}/exe").readlink().name == "java"


def test_a_client_with_another_package_sends_it(
    spark_server: SparkServer, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the server had been started by another version: its workers then import what the client has sent."""
    monkeypatch.setattr("tidemark.spark.connected.package_hash", lambda: "another")
    world = make_world()
    world.produce(20)
    [manifest_id] = planned(world)
    assert process(world.context(), manifest_id, on(spark_server, world)).ending is Ending.PUBLISHED
    assert list((world.folder / "home" / "_packages").glob("*.zip"))


def test_errors_of_a_server_that_is_down_say_so(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(5)
    made = order(world)
    stopped = SparkServer(world.folder)
    with pytest.raises(Unavailable, match="cannot be reached"):
        on(stopped, world)(made)
