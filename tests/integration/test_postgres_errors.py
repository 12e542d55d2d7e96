"""What a real server refuses is classified once; the manifest database and a target say it in their own words."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sandbox.services.postgres import Postgres
from sandbox.services.processes import free_port
from tidemark.connections.lookup import Lookup
from tidemark.database import session as manifest
from tidemark.database.postgres_errors import Cause, PostgresError, translated
from tidemark.errors import (
    AccessDenied,
    ConfigurationError,
    IllegalTransition,
    PlanRefused,
    SinkRefused,
    TidemarkError,
    Unavailable,
)
from tidemark.providers.iceberg.catalog import OpenCatalog
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.postgres import session as target

RAISED = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{}'; END $$"
CASES = [
    ("SET ROLE pg_monitor; CREATE TABLE public.t ()", "42501", Cause.DENIED, AccessDenied, AccessDenied),
    ("SELECT * FROM nowhere", "42P01", Cause.TABLE_MISSING, ConfigurationError, SinkRefused),
    ("CREATE TABLE nowhere.t ()", "3F000", Cause.TABLE_MISSING, ConfigurationError, SinkRefused),
    ("SELECT 1/0", "22012", Cause.VALUE, IllegalTransition, SinkRefused),
    ("INSERT INTO small VALUES (9)", "23514", Cause.VALUE, IllegalTransition, SinkRefused),
    (RAISED.format("TM002"), "TM002", Cause.OURS, IllegalTransition, Unavailable),
    ("SELECT missing FROM small", "42703", Cause.STATEMENT, Unavailable, SinkRefused),
    ("SET transaction_read_only = on; CREATE TABLE u ()", "25006", Cause.STATEMENT, Unavailable, SinkRefused),
    ("SELECT pg_terminate_backend(pg_backend_pid())", "57P01", Cause.FAILED, Unavailable, Unavailable),
    ("SET lock_timeout = 10; LOCK small", "55P03", Cause.LOCKED, Unavailable, target.Locked),
]


@pytest.fixture
def run(database: str) -> Callable[[str, Callable[[], AbstractContextManager[None]]], None]:
    """Run a statement in a session of its own, below a translator, while another session has a lock on ``small``."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("CREATE TABLE public.small (n int CONSTRAINT range_of_somebody_else CHECK (n < 5))")

    def run(statement: str, below: Callable[[], AbstractContextManager[None]]) -> None:
        with (
            psycopg.connect(database) as holder,
            psycopg.connect(database, autocommit=True, options="-c search_path=public") as session,
        ):
            if "LOCK" in statement:
                holder.execute("LOCK public.small")
            with below():
                session.execute(statement)

    return run


@pytest.mark.parametrize(("statement", "state", "cause", "of_manifests", "of_target"), CASES)
def test_an_error_has_one_cause_and_two_wordings(
    run: Callable[..., None],
    database: str,
    statement: str,
    state: str,
    cause: Cause,
    of_manifests: type[TidemarkError],
    of_target: type[TidemarkError],
) -> None:
    seen: list[PostgresError] = []

    def see(error: PostgresError) -> TidemarkError:
        seen.append(error)
        return TidemarkError(error.message, next_step="none")

    with pytest.raises(TidemarkError):
        run(statement, lambda: translated(see))
    assert [(error.state, error.cause) for error in seen] == [(state, cause)]
    assert "\n" not in seen[0].message
    assert database not in seen[0].message
    with pytest.raises(TidemarkError) as of_the_target:
        run(statement, lambda: target.translated(pipeline="demo"))
    assert type(of_the_target.value) is of_target
    assert of_the_target.value.next_step.endswith("tidemark retry demo")
    if state == "23514":
        return  # its constraint has the name of one of ours, which only the manifest database may take for its own
    with pytest.raises(TidemarkError) as of_the_manifests:
        run(statement, lambda: manifest.translated(pipeline="demo"))
    assert type(of_the_manifests.value) is of_manifests


def test_a_constraint_of_the_chains_is_another_planner_in_the_manifest_database_only(run: Callable[..., None]) -> None:
    statement = "INSERT INTO small VALUES (9)"
    with pytest.raises(PlanRefused, match=r"another planner was faster.*range_of_somebody_else"):
        run(statement, manifest.translated)
    with pytest.raises(SinkRefused, match="the table does not take the rows") as refused:
        run(statement, lambda: target.translated(pipeline="demo"))
    assert refused.value.context["constraint"] == "range_of_somebody_else"


def test_a_connection_that_breaks_has_no_state_and_still_a_message(run: Callable[..., None], database: str) -> None:
    closed = psycopg.connect(database)
    closed.close()
    with pytest.raises(Unavailable, match="the connection is closed \\(SQLSTATE none\\)"), manifest.translated():
        closed.execute("SELECT 1")


PASSWORD = "canary-of-a-refusal"


class Refusal(NamedTuple):
    """How a connection string differs from a right one, and what the server says to it."""

    change: dict[str, str | None]
    words: str


REFUSALS = {
    "a wrong password": Refusal({"password": PASSWORD}, "password authentication failed"),
    "no password": Refusal({"password": None}, "no password supplied"),
    "an unknown user": Refusal({"user": "nobody_here", "password": PASSWORD}, "password authentication failed"),
    "a user without a login": Refusal({"user": "without_login", "password": PASSWORD}, "is not permitted to log in"),
    "a user without the right to connect": Refusal(
        {"user": "of_others", "password": PASSWORD}, "permission denied for database"
    ),
    "an unknown database": Refusal({"dbname": "nowhere"}, "does not exist"),
}


@pytest.fixture
def users(postgres: Postgres, database: str) -> Iterator[dict[str, str | None]]:
    """The parts of a right connection string; beside its user there are some that the server refuses."""
    name = conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
        for role in ("without_login NOLOGIN", "of_others LOGIN", "crowded LOGIN CONNECTION LIMIT 0"):
            owner.execute(f"CREATE ROLE {role} PASSWORD '{PASSWORD}'")
        owner.execute(f'GRANT CONNECT ON DATABASE "{name}" TO crowded')
    yield conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f'REVOKE ALL ON DATABASE "{name}" FROM crowded')
        for role in ("without_login", "of_others", "crowded"):
            owner.execute(f"DROP ROLE {role}")


def lookup_of(parts: dict[str, str | None]) -> Lookup:
    connection = {
        "conn_type": "postgres", "host": parts["host"], "port": parts["port"], "login": parts["user"],
        "password": parts["password"], "schema": parts["dbname"], "extra": {},
    }  # fmt: skip
    return {"warehouse": connection}.get


def errors_of(parts: dict[str, str | None]) -> Iterator[TidemarkError]:
    """Of everything that connects to PostgreSQL: the manifest database, a sink's table, an Iceberg catalog."""
    dsn = make_conninfo("", **{key: value for key, value in parts.items() if value is not None})
    lookup = lookup_of(parts)
    settings = Settings.model_validate(
        {"connection": "warehouse", "catalog": "sql", "table": "a.b", "warehouse": "/nowhere"}
    )
    for connect in (
        lambda: manifest.connect(dsn),
        lambda: target.connect(target.conninfo("warehouse", lookup), "warehouse", pipeline="demo"),
        lambda: OpenCatalog(settings, lookup),
    ):
        with pytest.raises(TidemarkError) as raised:
            connect()
        assert PASSWORD not in str(raised.value)
        yield raised.value


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_connection_that_the_server_refuses_is_denied_and_not_tried_again(
    users: dict[str, str | None], refusal: Refusal
) -> None:
    for error in errors_of(users | refusal.change):
        assert (type(error), error.code) == (AccessDenied, "access-denied")
        assert refusal.words in error.what
        assert "correct" in error.next_step


def test_a_server_that_is_full_or_does_not_answer_is_tried_again(users: dict[str, str | None]) -> None:
    for error in errors_of(users | {"user": "crowded", "password": PASSWORD}):
        assert (type(error), "too many connections" in error.what) == (Unavailable, True)
    for error in errors_of(users | {"port": str(free_port())}):
        assert (type(error), "Connection refused" in error.what) == (Unavailable, True)


CANARY = "canary-of-a-row"
OF_ROWS = {
    "a check": (f"INSERT INTO wide VALUES (1, '{CANARY}', 9)", 'violates check constraint "small"'),
    "a key twice": (
        f"INSERT INTO wide VALUES (1, '{CANARY}', 1), (2, '{CANARY}', 1)",
        'violates unique constraint "sole"',
    ),
    "no value": (f"INSERT INTO wide VALUES (NULL, '{CANARY}', 1)", 'null value in column "id" of relation "wide"'),
    "no parent": (f"INSERT INTO child VALUES ('{CANARY}')", 'violates foreign key constraint "of_wide"'),
    "not a number": (f"SELECT '{CANARY} with \" a quote'::int", 'invalid input syntax for type integer: ".."'),
    "not a time": (f"SELECT '{CANARY}'::timestamptz", 'invalid input syntax for type timestamp with time zone: ".."'),
    "not of an enum": (f"SELECT '{CANARY}'::mood", 'invalid input value for enum mood: ".."'),
    "too large": ("SELECT '77777'::smallint", 'value ".." is out of range for type smallint'),
    "a trigger": (f"INSERT INTO watched VALUES ('{CANARY}')", "PL/pgSQL function refuse_all() line 1 raised an error"),
}
TABLES = """
    CREATE TYPE mood AS ENUM ('good');
    CREATE TABLE wide (id int PRIMARY KEY, name text CONSTRAINT sole UNIQUE, n int CONSTRAINT small CHECK (n < 5));
    CREATE TABLE child (name text CONSTRAINT of_wide REFERENCES wide (name));
    CREATE TABLE watched (name text);
    CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''% is refused'', NEW.name USING ERRCODE = ''check_violation''; END';
    CREATE TRIGGER refusing BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION refuse_all();
"""


@pytest.mark.parametrize(("statement", "words"), OF_ROWS.values(), ids=OF_ROWS)
def test_an_error_names_what_a_row_breaks_and_not_the_row(database: str, statement: str, words: str) -> None:
    with psycopg.connect(database, autocommit=True, options="-c search_path=public") as session:
        session.execute(TABLES)
        for translated_here in (manifest.translated, lambda: target.translated(pipeline="demo")):
            with pytest.raises(TidemarkError) as refused, translated_here():
                session.execute(statement)  # type: ignore[call-overload]
            assert words in refused.value.what
            shown = "".join(traceback.format_exception(refused.value))
            assert CANARY not in shown + str(refused.value)
            assert "77777" not in shown + str(refused.value)
