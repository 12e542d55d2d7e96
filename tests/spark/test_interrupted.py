"""Ctrl-C: one clear line and exit status 130, whatever Spark is at."""

import logging
import os
import signal
import subprocess
from collections.abc import Callable

import psutil
import py4j.clientserver
import py4j.java_gateway
import pytest

from sandbox.services.processes import wait_until
from tests.worlds.slow_batches import at_work, slow
from tests.worlds.world import World, wait_stopped
from tidemark.spark.session import LOGGERS_OF_PY4J, _no_traceback_of_py4j

pytestmark = pytest.mark.timeout(600)


def hears_ctrl_c() -> None:
    """In the child: whoever started the tests in the background has made it deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def children(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def has_jvm(process: "subprocess.Popen[str]") -> bool:
    return any("java" in child.name() for child in children(process))


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def assert_one_clear_line(world: World, process: "subprocess.Popen[str]") -> None:
    printed = process.communicate(timeout=240)[1]
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    assert "py4j" not in printed
    assert printed.splitlines()[-1].startswith("interrupted; nothing is published half")
    assert {each["state"] for each in world.manifests()} == {"failed"}
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.parametrize(("file", "shown"), [(py4j.java_gateway.__file__, False), (__file__, True)])
def test_what_py4j_logs_of_a_jvm_that_is_gone_is_no_traceback(file: str, *, shown: bool) -> None:
    lost = (ConnectionError, ConnectionError("Answer from Java side is empty"), None)
    record = logging.LogRecord("root", logging.ERROR, file, 1, "Exception while sending command.", None, lost)
    assert _no_traceback_of_py4j(record) == shown


def test_each_logger_of_py4j_is_known() -> None:
    assert {py4j.java_gateway.logger.name, py4j.clientserver.logger.name} < {*LOGGERS_OF_PY4J}


@pytest.mark.exhaustive
def test_interrupted_while_spark_starts(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.produce(20)
    process = world.start("run", "demo", "--master", "local[2]", spark=True, preexec_fn=hears_ctrl_c)
    wait_until(lambda: has_jvm(process), "a JVM", timeout=240)
    process.send_signal(signal.SIGINT)
    assert_one_clear_line(world, process)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None])
def test_no_jvm_is_left_of_a_command_that_ends_or_is_ended_while_spark_starts(
    make_world: Callable[..., World], number: int | None
) -> None:
    world = make_world()
    world.produce(20)
    process = world.start("run", "demo", "--master", "local[2]", spark=True, preexec_fn=hears_ctrl_c)
    wait_until(lambda: has_jvm(process), "a JVM", timeout=240)
    started = children(process)  # Spark's script becomes the JVM
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=240)
    assert process.returncode == {None: 0, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[number]
    wait_until(lambda: all(map(has_ended, started)), "the JVM to end", timeout=240)
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.exhaustive
def test_interrupted_while_spark_works(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=4, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(200)
    words = ("run", "demo", "--master", "local[1]")
    process = world.start(*words, failpoint="stage.mid:stop", spark=True, preexec_fn=hears_ctrl_c)
    wait_stopped(process, timeout=240)
    process.send_signal(signal.SIGINT)
    os.killpg(process.pid, signal.SIGCONT)
    assert_one_clear_line(world, process)


@pytest.mark.exhaustive
def test_interrupted_while_two_slices_work(make_world: Callable[..., World]) -> None:
    world = make_world(
        partitions=1, settings={"spark": {"parallel_slices": 2}, "kafka": {"slice": {"max_records": 100}}}
    )
    world.produce(200)
    slow(world, 120)
    process = world.start("run", "demo", "--master", "local[2]", spark=True, preexec_fn=hears_ctrl_c)
    wait_until(lambda: at_work(world, 2), "a task of each slice to be at work", timeout=240)
    process.send_signal(signal.SIGINT)
    slow(world, 0)
    assert_one_clear_line(world, process)
