"""Child processes that end with us, and free ports for them.

Each child runs below a guard (`guard.py`), which stops the child and everything below it when we ask for it, when we
exit, and when we are killed with SIGKILL.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from sandbox.errors import SandboxFailed

_GUARD = Path(__file__).with_name("guard.py")
LOWEST_PORT = 10_000  # lower ports belong to known programs
PROCESSES = 16  # the most processes that look for ports at the same time
DEFAULT_OF_CONNECTIONS = 32_768
_given_ports: set[int] = set()
_ports_lock = threading.Lock()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now. This process never gets the same port twice.

    It is below the ports that the kernel gives to connections: one of those may be taken before a server uses it. For
    the same reason processes that start at the same time, such as those of pytest, have different ports.
    """
    while True:
        shares = (_lowest_of_connections() - LOWEST_PORT) // PROCESSES
        port = LOWEST_PORT + secrets.randbelow(shares) * PROCESSES + os.getpid() % PROCESSES
        with _ports_lock:
            if port not in _given_ports and _is_free(port):
                _given_ports.add(port)
                return port


def _lowest_of_connections() -> int:
    """Return the lowest port that the kernel gives to connections. If Linux allows any port, or if another system does
    not say it, return Linux's default.
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return DEFAULT_OF_CONNECTIONS
    return lowest if lowest >= 2 * LOWEST_PORT else DEFAULT_OF_CONNECTIONS


def kept_ports(file: Path, count: int) -> list[int]:
    """Return the ports of the last call with this file, or new ones if another process uses one of them now."""
    ports: list[int] = json.loads(file.read_text()) if file.exists() else []
    if len(ports) != count or not all(map(_is_free, ports)):
        ports = [free_port() for _ in range(count)]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(ports))
    with _ports_lock:
        _given_ports.update(ports)
    return ports


def _is_free(port: int) -> bool:
    """Return whether a server can take the port. Connections that have just ended do not matter, as for servers."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def port_answers(port: int) -> bool:
    """Return whether something accepts connections on this port of 127.0.0.1."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Child:
    """One running command, its process tree and its log file.

    ``grace``: the seconds between ``stop_signal`` and SIGKILL. ``user``: the user that the command runs as; None: ours.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        grace: float = 10.0,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = log
        self.exit_code: int | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(grace), str(int(stop_signal)), user or "-"]
        with log.open("ab") as sink:
            self._guard = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline().removeprefix(b"pid "))
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            self.exit_code = int(line.removeprefix(b"exit "))

    @property
    def running(self) -> bool:
        """Return whether the command itself runs; its children may run longer."""
        return self.exit_code is None and self._guard.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        os.kill(self.pid, number)

    def kill(self, *, tree: bool = False) -> None:
        """Send SIGKILL to the command, and wait until it has ended. Its children go on until ``stop``.

        ``tree``: also kill its direct children, of all its threads (on Linux only).
        """
        threads = Path(f"/proc/{self.pid}/task").glob("*/children") if tree else []
        children = [child for thread in threads for child in thread.read_text().split()]
        self.signal(signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: not self.running, f"{self.name} to die", timeout=60)

    def begin_stop(self) -> None:
        """Start the stop without waiting for it, so that several children can stop at the same time."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()

    def stop(self) -> None:
        """Stop the whole tree, and return when all of it has ended. May be called again."""
        assert self._guard.stdout is not None
        self.begin_stop()
        self._guard.wait()
        self._watcher.join()
        self._guard.stdout.close()

    def wait_ready(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Return when ``ready`` is true. Raises ``SandboxFailed``, with the end of the log, if the command ends
        first.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise self.failure(f"{self.name} ended with exit code {self.exit_code} before it was ready")
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} was not ready within {timeout:.0f} s")
            time.sleep(0.05)

    def failure(self, what: str) -> SandboxFailed:
        """Return an error with the last lines of this child's log."""
        return SandboxFailed(f"{what}\n{tail(self.log)}", next_step=f"read {self.log}")


class Service(ABC):
    """A server of one process; start it with ``with`` or ``start``, which returns when it answers.

    A copy, also in another process, knows where the server is, but cannot stop, kill or restart it.
    """

    _child: Child | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_child": None}

    @abstractmethod
    def start(self) -> None:
        """Set ``_child`` and wait until it is ready."""

    def stop(self) -> None:
        """Stop the server and everything below it; no error if it is not started."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Send SIGKILL to the server and its children. ``restart`` starts it again with the data that it had
        written.
        """
        self._started.kill(tree=True)

    def stop_signal(self) -> None:
        """Send SIGSTOP, and wait until it has taken effect: the server freezes and its connections stay open.

        On a busy machine a server goes on, and may answer, until its first thread is scheduled and stops the others.
        """
        self._started.signal(signal.SIGSTOP)
        process = psutil.Process(self._started.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, f"{self._started.name} to stop", timeout=60)

    def cont_signal(self) -> None:
        """Send SIGCONT, to go on after ``stop_signal``."""
        self._started.signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start again, on the same port and data, after ``kill`` or while running."""
        assert self._child is not None, "not started"
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """Return the process id of the server; its own children are below it."""
        return self._started.pid

    @property
    def _started(self) -> Child:
        assert self._child is not None, "not started"
        return self._child


def wait_until(done: Callable[[], bool], what: str, *, timeout: float, interval: float = 0.05) -> None:
    """Wait until ``done`` is true. Raises ``SandboxFailed`` with ``what`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not done():
        if time.monotonic() > deadline:
            raise SandboxFailed(f"waited {timeout:.0f} s for {what}", next_step="read the logs (.tidemark/logs)")
        time.sleep(interval)


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log file, indented."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])
