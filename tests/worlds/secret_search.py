"""Looks for secrets where they must not be: files, tables, command lines, whatever was printed.

Every search is told what must be found as well: one that looks at nothing finds nothing.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql


@dataclass
class Canaries:
    """``secrets`` by what they are; each is sought by its part before anything that some format would escape."""

    secrets: dict[str, str]
    found: list[str] = field(default_factory=list)

    def look(self, where: str, content: str | bytes) -> None:
        """Remember where a secret stands."""
        data = content.encode() if isinstance(content, str) else content
        for name, secret in self.secrets.items():
            if _needle(secret) in data:
                self.found.append(f"{name} in {where}")

    def look_at_files(self, folder: Path) -> list[Path]:
        """Every file below a folder; those that were read."""
        seen = [one for one in sorted(folder.rglob("*")) if one.is_file()]
        for one in seen:
            with suppress(FileNotFoundError):
                self.look(str(one), one.read_bytes())
        return seen

    def look_at_database(self, dsn: str) -> list[str]:
        """Every row of every table; the tables."""
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
    end = next((at for at, one in enumerate(secret) if one in '"\\' or not 32 <= ord(one) < 127), len(secret))
    assert end >= 20, "too short to be told from chance"
    return secret[:end].encode()


class Watch:
    """While it is open, samples the command lines of all processes, and files that live for a moment only."""

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
        for one in (*self.commands, *self.orders):
            self._canaries.look(f"while it ran: {one[:200]}", one)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.commands.update(_command_lines())
            for name in ("order.json", "receipt.json", "failure.json"):
                with suppress(OSError):  # a folder may go while it is looked through; the next round sees the rest
                    self.orders |= {one.read_text() for one in self._folder.rglob(name)}
            time.sleep(0.05)


def _command_lines() -> Iterator[str]:
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield one.read_bytes().decode(errors="replace").replace("\0", " ")
