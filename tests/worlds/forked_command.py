"""The command line without Spark, or on a Spark Connect server, in a forked process with all imports done.

A server imports once and forks for each command, which then starts at once: a new interpreter takes a second of
processor time. The forked process leads its own session and process group, has its own environment, standard output and
error, and can be killed, stopped and continued like any other. Its parent is the server, which reports how it ended.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO

UPLOADS_FROM = "TESTS_UPLOADS_FROM"  # in the environment: from how many bytes on a file of a bucket is an upload


class ForkServer:
    """The server that forks. Start it once per session. ``stop`` ends the server, but not the commands.

    ``connects`` is true if commands use a Spark server.
    """

    def __init__(self, *, connects: bool) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            theirs.set_inheritable(True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.worlds.forked_command", str(theirs.fileno()), str(connects)],
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> "ForkedCommand":
        out, err = (tempfile.TemporaryFile("w+b") for _ in range(2))  # noqa: SIM115 - the command closes them
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs, tempfile.TemporaryFile("w+b") as request:
            request.write(json.dumps({"words": list(words), "environment": dict(environment)}).encode())
            request.flush()
            request.seek(0)
            fds = [request.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            socket.send_fds(self._socket, [b"start"], fds)
        return ForkedCommand(words, ours, out, err)

    def stop(self) -> None:
        self._socket.close()
        self._process.wait(timeout=30)


SERVERS: dict[bool, ForkServer] = {}


def fork_server(*, connects: bool = False) -> ForkServer:
    """The server of this process; it ends with it, or before by ``stop_servers``."""
    if connects not in SERVERS:
        SERVERS[connects] = ForkServer(connects=connects)
    return SERVERS[connects]


def stop_servers() -> None:
    """Stop those that have been started."""
    while SERVERS:
        SERVERS.popitem()[1].stop()


class ForkedCommand:
    """A forked process, with the parts of ``subprocess.Popen`` that tests need."""

    def __init__(self, words: Sequence[str], server: socket.socket, out: IO[bytes], err: IO[bytes]) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        self._server, self._out, self._err = server, out, err
        self._answer = b""
        server.settimeout(60)
        self.pid = int(self._line())

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._server.settimeout(timeout)
            try:
                self.returncode = int(self._line())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._server.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return self._text(self._out), self._text(self._err)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _line(self) -> bytes:
        while b"\n" not in self._answer:
            received = self._server.recv(64)
            if not received:
                raise AssertionError("the server of forked commands has ended")
            self._answer += received
        line, _, self._answer = self._answer.partition(b"\n")
        return line

    @staticmethod
    def _text(file: IO[bytes]) -> str:
        if file.closed:
            return ""
        file.seek(0)
        text = file.read().decode()
        file.close()
        return text


def _serve(requests: socket.socket) -> None:
    """Fork for each request until the other side closes; tell each the pid, and the exit status when it has ended."""
    waiting: dict[int, socket.socket] = {}
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    message, fds, _, _ = socket.recv_fds(requests, 16, 4)
                    if not message:
                        return
                    _fork(fds, waiting)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                _reap(waiting)


def _fork(fds: list[int], waiting: dict[int, socket.socket]) -> None:
    request, out, err, client = fds
    pid = os.fork()
    if pid == 0:
        _run(request, out, err)  # never returns
    connection = socket.socket(fileno=client)
    connection.sendall(b"%d\n" % pid)
    waiting[pid] = connection
    for fd in (request, out, err):
        os.close(fd)


def _reap(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with waiting.pop(pid) as connection, contextlib.suppress(OSError):  # nobody may wait for it any more
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _run(request: int, out: int, err: int) -> None:
    """The forked process: become what ``python -m tests.worlds.command_without_spark`` or ``tidemark`` would be."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with os.fdopen(request, "rb") as file:
            wanted = json.load(file)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(wanted["environment"])
        time.tzset()
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1) for fd in (1, 2))
        sys.argv = ["tidemark", *wanted["words"]]
        S3Store.uploads_from = int(os.environ.get(UPLOADS_FROM, S3Store.uploads_from))
        main.main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import pyarrow as pa

    from tests.worlds.arrow_stage import without_spark
    from tests.worlds.expected_rows import EXPECT
    from tidemark.cli import main
    from tidemark.kinds import DECODERS, SINKS, TRANSFORMS
    from tidemark.model.expectations import ExpectationOrder
    from tidemark.spark import engines
    from tidemark.storage.s3.store import S3Store
    from tidemark.transforms.expectations import Expectations

    # Imported now, so that no forked process has to.
    for name in ("decide", "inspect", "prepare", "records", "run"):
        import_module(f"tidemark.cli.{name}")
    for kinds in (SINKS, DECODERS, TRANSFORMS):
        for module in kinds.names:
            kinds.modules(module)
    of_sinks = ("tidemark.sinks.formats.parquet", "pyiceberg.catalog.sql", "pyiceberg_core.transform", "pyarrow.acero")
    for name in ("tidemark.sources.kafka.source", "sqlalchemy.dialects.postgresql.psycopg", *of_sinks):
        import_module(name)
    if sys.argv[2] == str(True):
        import_module("tidemark.spark.connected")
    else:
        engines.stage_in = without_spark
    # DuckDB takes 60 ms more for the first check of conditions than for later ones, also in forked processes.
    orders = [ExpectationOrder(condition["name"], condition["check"]) for condition in EXPECT]
    Expectations(orders, pa.schema([("n", pa.int64())]))
    gc.freeze()  # else the collector of each forked process writes to, and so copies, every page of the server
    _serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # DuckDB's bindings would list on stderr what the end of the interpreter leaves
