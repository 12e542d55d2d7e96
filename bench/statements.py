"""Counts the sessions and statements of a manifest database in the log of PostgreSQL (``log_statement = all``).

A session of Tidemark begins with a statement that nothing else uses. If it changes something, it names its actor, and
so the task of Airflow that has it. A session that changes nothing reads the label of a task.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

FIRST = "SELECT pg_backend_pid() AS process"
LABEL = "label"
# As sandbox/services/postgres.py sets log_line_prefix: time, process, database.
STATEMENT = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] (\S+) LOG:  (?:statement|execute [^:]+): (.*)")
ACTOR = re.compile(
    r"^\S+ \S+ \S+ \[(\d+)\] (\S+) DETAIL:  Parameters: \$1 = 'airflow .* (\S+?)(?:\[\d+\])? try \d+(?: on \S+)?'",
    re.IGNORECASE,
)


@dataclass
class LoggedSession:
    """One session; ``task`` is the id of the task of Airflow that had it. BEGIN and COMMIT are statements too."""

    task: str = LABEL
    statements: int = 0


def log_statements(dsn: str) -> None:
    """Make the server log each statement of new sessions of this database, from now on."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(name))


def logged(log: Path, start: int, dsn: str) -> list[LoggedSession]:
    """Return the sessions of a database that the log has after ``start`` bytes."""
    with log.open("rb") as file:
        file.seek(start)
        return sessions((line.decode(errors="replace") for line in file), str(conninfo_to_dict(dsn)["dbname"]))


def sessions(lines: Iterable[str], database: str) -> list[LoggedSession]:
    """Return the sessions in these lines. A new session may have the process id of one that has ended."""
    ended: list[LoggedSession] = []
    by_process: dict[str, LoggedSession] = {}
    for line in lines:
        if (made := STATEMENT.match(line)) and made[2] == database:
            if made[3].startswith(FIRST) and made[1] in by_process:
                ended.append(by_process.pop(made[1]))
            by_process.setdefault(made[1], LoggedSession()).statements += 1
        elif (named := ACTOR.match(line)) and named[2] == database and named[1] in by_process:
            by_process[named[1]].task = named[3]
    return [*ended, *by_process.values()]
