"""Searches for secrets where they must not be: files, tables, command lines, output.

Tests also check what was searched, because a search of nothing finds nothing.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil
import psycopg
from psycopg import sql

WORKER = "PYTEST_XDIST_WORKER"
SHORT_LIVED = ("order.json", "receipt.json", "failure.json")


@dataclass
class Canaries:
    """Secrets to search for; ``secrets`` has them by name.

    The search uses the first part of a secret, up to a character that would be escaped.
    """

    secrets: dict[str, str]
    leaks: list[str] = field(default_factory=list)

    def look(self, where: str, content: str | bytes) -> None:
        """Search a content, and store where a secret was."""
        data = content.encode() if isinstance(content, str) else content
        for name, secret in self.secrets.items():
            if _needle(secret) in data:
                self.leaks.append(f"{name} in {where}")

    def look_at_files(self, folder: Path) -> list[Path]:
        """Search every file below a folder; returns the files."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for file in files:
            with suppress(FileNotFoundError):
                self.look(str(file), file.read_bytes())
        return files

    def look_at_database(self, dsn: str) -> list[str]:
        """Search every row of every table; returns the tables."""
        with psycopg.connect(dsn) as connection:
            tables = connection.execute(
                "SELECT table_schema, table_name FROM information_schema.tables "
                "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
            ).fetchall()
            for schema, table in tables:
                rows = connection.execute(
                    sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, table))
                ).fetchall()
                self.look(f"table {schema}.{table}", "\n".join(row for (row,) in rows))
        return [f"{schema}.{table}" for schema, table in tables]


def _needle(secret: str) -> bytes:
    end = next((at for at, char in enumerate(secret) if char in '"\\' or not 32 <= ord(char) < 127), len(secret))
    assert end >= 20, "a text this short may occur by chance"
    return secret[:end].encode()


class Watch:
    """Collects, during its block, the command lines of all processes, and files that exist only for a moment."""

    def __init__(self, canaries: Canaries, folder: Path) -> None:
        self._canaries, self._folder = canaries, folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.commands: set[str] = set()
        self.orders: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for text in (*self.commands, *self.orders):
            self._canaries.look(f"while it ran: {text[:200]}", text)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.commands.update(_command_lines())
            with suppress(OSError):  # a folder may be removed meanwhile; the next round reads the rest
                self.orders |= {file.read_text() for file in self._folder.rglob("*.json") if file.name in SHORT_LIVED}
            time.sleep(0.2)  # what is looked for is there for longer


def _command_lines() -> Iterator[str]:
    """Give those of all processes of this machine, but for those of other workers' tests.

    All workers share a PostgreSQL, whose password is a canary in one test and part of a command in another.
    """
    others = {str(process.pid) for worker in _other_workers() for process in (worker, *_descendants(worker))}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        if file.parent.name in others:
            continue
        with suppress(OSError):
            if _worker_in(file.with_name("environ").read_bytes()) not in (None, os.environ.get(WORKER)):
                continue  # its parent has ended
            yield file.read_bytes().decode(errors="replace").replace("\0", " ")


def _worker_in(environment: bytes) -> str | None:
    """The worker that a process inherited its environment from."""
    variables = [entry for entry in environment.split(b"\0") if entry.startswith(f"{WORKER}=".encode())]
    return variables[0].decode().partition("=")[2] if variables else None


def _other_workers() -> list[psutil.Process]:
    """The other workers of pytest-xdist; none when the tests run in one process."""
    controller = psutil.Process().parent()
    if WORKER not in os.environ or controller is None:
        return []
    return [child for child in controller.children() if child.pid != os.getpid() and _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    """Workers name themselves after the test that they run (setproctitle), or run execnet's first line."""
    with suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return "pytest-xdist" in line or "exec(eval(sys.stdin.readline()))" in line
    return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []
