"""`make up` that is interrupted, started twice, or finds its ports taken, and `make run` that is killed.

Each in a checkout of its own.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.services.postgres import remove_home
from sandbox.services.processes import port_answers, wait_until

PORTS = ("postgres/port.json", "broker/ports.json", "airflow/ports.json")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of what `make up` uses, with the jars of this checkout."""
    for name in ("sandbox", "include", "dags", "plugins", "jars"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    state = tmp_path / ".tidemark"
    state.mkdir()
    (state / "jars").symlink_to(STATE / "jars")
    yield tmp_path
    remove_home(state)


@contextmanager
def up(checkout: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`make up` without its set-up; at the end of the block it must have ended."""
    with output.open("wb") as file:
        command = [sys.executable, "-m", "sandbox", "up"]
        process = subprocess.Popen(command, cwd=checkout, stdout=file, stderr=file, start_new_session=True)
        try:
            yield process
            process.wait(180)
        finally:
            process.terminate()
            process.wait()


def ports(checkout: Path) -> list[int]:
    return [port for name in PORTS for port in json.loads((checkout / ".tidemark" / name).read_text())]


def taken(port: int) -> socket.socket:
    """A server of somebody else on this port."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def assert_nothing_runs(checkout: Path) -> None:
    assert not any(map(port_answers, ports(checkout)))
    below = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            folder = (process / "cwd").readlink()
        except OSError:  # it has ended, or it is not ours
            continue
        below += [process.name] if folder.is_relative_to(checkout) else []
    assert below == []
    assert not (checkout / ".tidemark" / "env").exists()


@pytest.mark.thorough
def test_interrupted_while_it_starts_it_leaves_nothing_running_and_starts_again_on_other_ports(
    checkout: Path, tmp_path: Path
) -> None:
    env, output = checkout / ".tidemark" / "env", tmp_path / "output"
    with up(checkout, output) as first:
        wait_until(env.exists, "the services", timeout=180)
        command = [sys.executable, "-m", "sandbox.bootstrap.check_machine", "run"]
        second = subprocess.run(command, cwd=checkout, text=True, capture_output=True)
        assert second.returncode == 2
        assert "another `make run` or `make up` of this checkout is at work" in second.stderr
        assert "stop it: make down" in second.stderr
        first.send_signal(signal.SIGINT)  # while Airflow creates its tables
    assert first.returncode == 130
    assert "interrupted; nothing is left running" in output.read_text()
    assert_nothing_runs(checkout)

    before = ports(checkout)
    with ExitStack() as others:
        for port in before:
            others.enter_context(closing(taken(port)))
        with up(checkout, output) as again:
            wait_until(lambda: "Airflow is up: " in output.read_text() or again.poll() is not None, "it", timeout=300)
            assert not set(before) & set(ports(checkout))
            os.killpg(again.pid, signal.SIGTERM)
    assert again.returncode == 128 + signal.SIGTERM
    assert "Airflow is up: " in output.read_text()
    assert_nothing_runs(checkout)


@pytest.mark.thorough
def test_a_run_that_was_killed_at_work_is_finished_by_the_next_one(checkout: Path, tmp_path: Path) -> None:
    command, output = [sys.executable, "-m", "sandbox", "run"], tmp_path / "output"
    with output.open("wb") as file, subprocess.Popen(command, cwd=checkout, stdout=file, stderr=file) as killed:
        try:
            wait_until(lambda: "1 running" in output.read_text() or killed.poll() is not None, "a slice", timeout=300)
        finally:
            killed.kill()
    assert killed.returncode == -signal.SIGKILL, output.read_text()
    wait_until(lambda: not any(map(port_answers, ports(checkout))), "its services to end", timeout=120)

    # Airflow by its own settings would leave the tasks of the killed one as they are for 300 s.
    done = subprocess.run(command, cwd=checkout, text=True, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was interrupted; it is finished first" in done.stdout
    assert "336,776 records in" in done.stdout
    assert "tidemark audit finds no difference" in done.stdout
    assert_nothing_runs(checkout)
