"""What the manifest database relies on in this PostgreSQL and this driver."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import psycopg
import pytest

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until

Connection = psycopg.Connection[tuple[object, ...]]
LOCK = "SELECT pg_advisory_lock(1, 2)"
LOCKS = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database()"
HELD = f"SELECT count(*) {LOCKS} AND l.locktype = 'advisory' AND l.granted"
WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def dsn(postgres: Postgres) -> Iterator[str]:
    with postgres.temporary_database("characterize") as made:
        yield made


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS link, counter")
        yield connection


@pytest.fixture
def other(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def held(connection: Connection) -> object:
    [row] = connection.execute(HELD).fetchall()
    return row[0]


def waits(connection: Connection) -> bool:
    return bool(connection.execute(WAITS).fetchall())


def test_a_session_lock_outlives_a_rollback_and_ends_with_its_backend(connection: Connection, dsn: str) -> None:
    holder = psycopg.connect(dsn)
    holder.execute(LOCK)
    holder.rollback()
    assert held(connection) == 1
    connection.execute("SELECT pg_terminate_backend(%s)", [holder.info.backend_pid])
    wait_until(lambda: held(connection) == 0, "the lock to go", timeout=30)
    holder.close()


def test_a_session_lock_ends_with_a_client_that_is_killed(connection: Connection, dsn: str) -> None:
    program = (
        "import psycopg, sys, time; c = psycopg.connect(sys.stdin.readline()); c.execute(sys.argv[1]); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", program, LOCK], stdin=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        client.stdin.write(dsn)
        client.stdin.close()
        wait_until(lambda: held(connection) == 1, "the client to take the lock", timeout=60)
        client.send_signal(signal.SIGSTOP)
        assert held(connection) == 1, "a client that is paused keeps it"
        client.kill()
    wait_until(lambda: held(connection) == 0, "the lock to go", timeout=30)


def test_a_deferred_foreign_key_lets_a_chain_grow_in_any_order_and_refuses_a_gap_at_commit(
    connection: Connection,
) -> None:
    connection.execute(
        "CREATE TABLE link (start_at int, end_at int NOT NULL, UNIQUE (start_at), UNIQUE (end_at), CONSTRAINT no_gap "
        "FOREIGN KEY (start_at) REFERENCES link (end_at) DEFERRABLE INITIALLY DEFERRED)"
    )
    with connection.transaction():
        connection.execute("INSERT INTO link VALUES (5, 9)")
        connection.execute("INSERT INTO link VALUES (NULL, 0), (0, 5)")
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as refused, connection.transaction():  # noqa: PT012
        connection.execute("INSERT INTO link VALUES (10, 12)")
        in_time = connection.execute("SELECT count(*) FROM link").fetchall()
    assert in_time == [(4,)], "the statement itself passes"
    assert refused.value.diag.constraint_name == "no_gap"
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("INSERT INTO link VALUES (5, 7)")
    assert connection.execute("SELECT count(*) FROM link").fetchall() == [(3,)]


def blocked(statement: str, connection: Connection, watcher: Connection) -> tuple[threading.Thread, list[object]]:
    """The statement in a thread, once it waits for a lock; its rows come into the list."""
    rows: list[object] = []
    thread = threading.Thread(target=lambda: rows.extend(connection.execute(statement).fetchall()))
    thread.start()
    wait_until(lambda: waits(watcher), "the statement to wait", timeout=30)
    return thread, rows


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("UPDATE counter SET attempt = attempt + 1 RETURNING attempt", [(3,)]),
        ("UPDATE counter SET state = 'done' WHERE attempt = 1 RETURNING attempt", []),
        ("WITH newest AS (SELECT FROM counter WHERE attempt = 1 FOR UPDATE) SELECT count(*) FROM newest", [(0,)]),
    ],
    ids=["a number is given out once", "a guard looks again", "so does one with FOR UPDATE"],
)
def test_a_statement_that_waited_for_a_row_sees_what_was_committed_meanwhile(
    connection: Connection, other: Connection, dsn: str, statement: str, rows: list[object]
) -> None:
    connection.execute("CREATE TABLE counter (attempt int, state text)")
    connection.execute("INSERT INTO counter VALUES (1, 'running')")
    with psycopg.connect(dsn, autocommit=True) as watcher:
        with connection.transaction():
            connection.execute("UPDATE counter SET attempt = 2")
            thread, answer = blocked(statement, other, watcher)
        thread.join(10)
    assert answer == rows


def test_an_upsert_whose_guard_says_no_returns_no_row_and_is_no_error(connection: Connection) -> None:
    connection.execute("CREATE TABLE counter (id int PRIMARY KEY, attempt int)")
    upsert = (
        "INSERT INTO counter VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET attempt = EXCLUDED.attempt "
        "WHERE counter.attempt <= EXCLUDED.attempt RETURNING attempt"
    )
    answers = [connection.execute(upsert, [attempt]).fetchall() for attempt in (2, 1, 2, 3)]
    assert answers == [[(2,)], [], [(2,)], [(3,)]]


def test_planners_wait_for_each_other_and_then_see_what_the_first_stored(
    connection: Connection, other: Connection, dsn: str
) -> None:
    connection.execute("CREATE TABLE counter (attempt int)")
    lock = "SELECT pg_advisory_xact_lock(7, 8)"
    with psycopg.connect(dsn, autocommit=True) as watcher, other.transaction():
        with connection.transaction():
            connection.execute(lock)
            thread, _ = blocked(lock, other, watcher)
            connection.execute("INSERT INTO counter VALUES (1)")
        thread.join(10)
        assert other.execute("SELECT attempt FROM counter").fetchall() == [(1,)], "READ COMMITTED: a snapshot each"


def test_a_connection_whose_backend_was_terminated_says_so_and_stays_broken(connection: Connection, dsn: str) -> None:
    victim = psycopg.connect(dsn, autocommit=True)
    with pytest.raises(psycopg.OperationalError), victim.transaction():  # noqa: PT012
        connection.execute("SELECT pg_terminate_backend(%s, 30000)", [victim.info.backend_pid])
        victim.execute("SELECT 1")
    assert victim.broken
    with pytest.raises(psycopg.OperationalError):
        victim.execute("SELECT 1")
