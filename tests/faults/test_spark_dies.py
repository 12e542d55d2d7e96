"""Spark loses executors, workers and its JVM in the middle of an attempt, and does some of the work twice.

The executors of `local-cluster` are separate processes. They belong to the process group of the command that started
them, so `stage.mid:stop` stops them too, with some tasks done, some running and some not started.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from sandbox.services.processes import wait_until
from tests.worlds.slow_batches import at_work, slow
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_stopped

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1200)]

CLUSTER = "local-cluster[2,1,1024]"
EXECUTOR = "CoarseGrainedExecutorBackend"
START = 480  # seconds for a session and two executors: 15 on two idle cores, 200 were seen on busy ones


@pytest.fixture
def world(make_table_world: Callable[..., TableWorld]) -> TableWorld:
    """One manifest of six tasks, each of which writes for a lake and for a table."""
    made = make_table_world(partitions=6, has_lake=True, settings={"kafka": {"slice": {"max_records": 10_000}}})
    made.produce(600, bad_every=9)
    return made


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """PySpark's folder by links: the workers of a local cluster keep their files in it."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return home


def stopped_while_staging(world: World, master: str, **env: str) -> subprocess.Popen[str]:
    process = world.start("run", "demo", "--master", master, failpoint="stage.mid:stop", spark=True, env=env)
    wait_stopped(process, timeout=START)
    return process


def go_on(process: subprocess.Popen[str]) -> str:
    """SIGCONT, wait for the end, and what it said on standard error."""
    os.killpg(process.pid, signal.SIGCONT)
    printed = process.communicate(timeout=START)[1]
    assert "Traceback" not in printed
    return printed


def started_by(world: World, word: str) -> list[int]:
    """Living processes of this world whose own command line has the word; Python workers leave the group."""
    mark = f"TIDEMARK_HOME={world.folder}\0".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and word.encode() in (folder / "cmdline").read_bytes():
                pids.append(int(folder.name))
        except OSError:
            continue
    return sorted(pids)


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_R8_executors_killed_in_the_middle_of_their_tasks_every_row_is_there_once(
    world: TableWorld, spark_home: Path
) -> None:
    process = stopped_while_staging(world, CLUSTER, SPARK_HOME=str(spark_home))
    executors = started_by(world, EXECUTOR)
    assert len(executors) == 2
    kill(executors)
    printed = go_on(process)
    assert process.returncode == 0, printed
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == 1, "Spark did the tasks again; the attempt is one"
    world.assert_complete()


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]"], ids=["tasks are tried once", "tasks are tried again"])
def test_R8_python_workers_killed_in_the_middle_of_a_task(world: TableWorld, master: str) -> None:
    slow(world, seconds=2)
    process = world.start("run", "demo", "--master", master, spark=True)
    wait_until(lambda: at_work(world), "a task to be at work", timeout=START)
    kill(started_by(world, "pyspark.daemon"))
    printed = process.communicate(timeout=START)[1]
    if master == "local[2]":
        assert process.returncode == 1
        assert "Spark failed: a Python worker was killed, often because the machine had no memory left" in printed
        world.assert_nothing_is_seen()
        world.ok("retry", "demo")
    assert process.returncode == (1 if master == "local[2]" else 0), printed
    world.assert_complete()


def test_the_jvm_killed_in_the_middle_of_a_job_is_one_clear_error(world: TableWorld) -> None:
    process = stopped_while_staging(world, "local[2]")
    kill(started_by(world, "java"))
    printed = go_on(process)
    assert process.returncode == 1
    assert (
        "Spark failed: its JVM was killed by signal 9 (SIGKILL), often because the machine had no memory left"
        in printed
    )
    world.assert_nothing_is_seen()
    assert not (world.lake / "_staging").exists()
    world.ok("retry", "demo")
    world.assert_complete()


def test_R2_the_command_killed_alone_takes_spark_with_it_and_the_next_one_does_the_work(world: TableWorld) -> None:
    process = stopped_while_staging(world, "local[2]")
    assert started_by(world, "java")
    kill([process.pid])
    os.killpg(process.pid, signal.SIGCONT)
    process.communicate(timeout=60)
    wait_until(lambda: not started_by(world, ""), "everything below it to end", timeout=60)
    world.assert_nothing_is_seen()
    world.ok("retry", "demo")
    world.assert_complete()


def test_R16_a_batch_that_unpacks_to_a_thousand_times_its_size_is_read(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=1)
    text = json.dumps({"n": 1, "at": "2024-03-01T00:00:00Z", "name": "0" * 4_000_000})
    producer = world.broker.producer(compression_type="zstd", message_max_bytes=1_000_000_000)
    for _ in range(30):
        producer.produce(world.topic, text, partition=0)
    assert producer.flush(60) == 0
    [log] = (world.broker.state / "data" / f"{world.topic}-0").glob("*.log")
    assert log.stat().st_size < 1_000_000, "120 MB in less than 1"
    done = world.tidemark("run", "demo", "--master", "local[2]", spark=True)
    assert done.returncode == 0, done.stderr
    assert world.exact() == {(world.topic, 0, offset): 1 for offset in range(30)}
    assert world.ok("audit", "demo", "--deep") == ""


def test_R10_tasks_that_speculation_runs_twice_count_once(world: TableWorld, spark_home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.command_with_speculation", "run", "demo", "--master", CLUSTER],
        env=world.environment(SPARK_HOME=str(spark_home), TIDEMARK_FAILPOINT="stage.mid:stop"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    world.started.append(process)
    wait_stopped(process, timeout=START)
    slow, _ = started_by(world, EXECUTOR)
    for pid in set(started_by(world, "")) - {slow}:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: all_staged(world), "the other executor to do the tasks of both", timeout=START)
    printed = go_on(process)  # the slow one wakes, and may write what is written
    assert process.returncode == 0, printed
    world.assert_complete()


def all_staged(world: World) -> bool:
    """Whether each task has staged a file, or all are published already."""
    staged = {path.name.split("-")[0] for path in world.lake.rglob("_staging/**/[!.]*.parquet")}
    return len(staged) == 6 or any(world.lake.glob("_manifests/demo/*.json"))
