"""`make up` and `make down`: the demo in a background process, which keeps the services running afterwards."""

import json
import os
import signal
import subprocess
import sys
import time

from sandbox.bootstrap.check_machine import holder
from sandbox.bootstrap.checkout import CHECKOUT, READY, STATE
from sandbox.demo.report import Report
from sandbox.demo.run import ENVIRONMENT, show
from sandbox.errors import SandboxFailed
from sandbox.services.clock import Clock
from sandbox.services.processes import wait_until
from sandbox.services.stack import Stack

LOG = STATE / "logs" / "up.log"


def up() -> None:
    """Start the background process, print its output, and return when the demo is done and Airflow's page is up."""
    READY.unlink(missing_ok=True)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "sandbox", "serve"],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _follow(server)
    except BaseException:  # Ctrl-C or a signal, which does not reach a process with a session of its own
        _stop(server)
        raise
    if not READY.exists():
        raise SandboxFailed(f"`make up` ended with {server.returncode}", next_step=f"read its output above, or {LOG}")
    page = json.loads(READY.read_text())
    print(f"\nAirflow:    {page['url']}  user {page['user']}  password {page['password']}")
    print("Schedules:  on; the DAG flights has a run every hour")
    print("In a shell: . .tidemark/env    then: tidemark manifests, airflow connections list, psql")
    print("Your topic: docs/own-topic.md\nTo stop:    make down")


def _follow(server: subprocess.Popen[bytes]) -> None:
    """Print what the background process prints, until it is ready or has ended."""
    with LOG.open() as output:
        while True:
            ended = server.poll() is not None or READY.exists()
            print(output.read(), end="", flush=True)
            if ended:
                return
            time.sleep(0.2)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop the background process and wait for its services; a second Ctrl-C changes nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("\nstopping the services ..", file=sys.stderr, flush=True)
    server.terminate()
    server.wait()


def serve() -> None:
    """Run the demo, then wait for a signal to stop; runs in the background."""
    try:
        with Stack(STATE, Clock(), ENVIRONMENT) as stack:
            show(stack, Report())
            airflow = stack.wait_airflow()
            airflow.honour_schedules()
            READY.touch(mode=0o600)
            login = {"url": airflow.url, "user": airflow.user, "password": airflow.password}
            READY.write_text(json.dumps({**login, "ports": stack.ports}))
            while True:
                signal.pause()
    finally:
        READY.unlink(missing_ok=True)


def down() -> None:
    """Stop a running `make up` or `make run` of this checkout, and wait until its services have ended."""
    pid = holder("run.lock")
    if pid is None:
        print("nothing is running")
        return
    os.kill(int(pid), signal.SIGTERM)
    wait_until(lambda: holder("run.lock") is None, f"process {pid} to stop its services", timeout=60, interval=0.2)
    print("everything is stopped")
