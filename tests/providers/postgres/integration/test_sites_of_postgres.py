"""PostgreSQL as a site has it: odd defaults of databases, idle limits, a read-only server, publications, triggers."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from threading import Thread

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.worlds.table_world import TableWorld
from tidemark.connections.lookup import Secret
from tidemark.database import watch
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.providers.postgres.session import connect

MakeTableWorld = Callable[..., TableWorld]
DEFAULTS = {
    "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on", "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard", "TimeZone": "America/New_York", "bytea_output": "escape", "search_path": "nowhere",
    "extra_float_digits": "0", "array_nulls": "off", "row_security": "off", "quote_all_identifiers": "on",
    "client_encoding": "LATIN1",
}  # fmt: skip


def set_defaults(dsn: str, **defaults: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("SET default_transaction_read_only = off")
        for name, value in defaults.items():
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
            names = sql.Identifier(session.info.dbname), sql.Identifier(name)
            session.execute(statement.format(*names, sql.Literal(value)))


def test_defaults_of_a_database_change_no_row_and_no_answer(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    for dsn in (world.dsn, world.targets["warehouse"]):
        set_defaults(dsn, **DEFAULTS)
    world.produce(60, bad_every=10)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.json("dead-letters", "demo")["count"] == 6
    assert world.status("demo")[0]["state"] == "ok"


@pytest.mark.parametrize("place", ["manifest", "warehouse"])
def test_a_server_that_takes_no_changes_is_named_and_nothing_is_planned(
    make_table_world: MakeTableWorld, place: str
) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    world.produce(20)
    dsn = world.dsn if place == "manifest" else world.targets["warehouse"]
    set_defaults(dsn, default_transaction_read_only="on")
    refused = world.here("run", "demo")
    assert refused.exit_code != 0
    assert "it is read-only: default_transaction_read_only is on" in refused.stderr
    if place == "manifest":
        told = world.here("status", "demo")
        assert "it is read-only" in told.stderr
        assert told.exit_code != 0
    set_defaults(dsn, default_transaction_read_only="off")
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_sessions_that_may_not_be_idle_outlive_a_long_stage(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    for dsn in (world.dsn, world.targets["warehouse"]):
        set_defaults(dsn, idle_session_timeout="2s")
    world.produce(20)
    code = world.pipelines / "code"
    code.mkdir()
    (code / "slow.py").write_text("import time\n\n\ndef slow(rows):\n    time.sleep(3)\n    return rows\n")
    world.settings |= {"code": "code", "transform": [{"python": "slow:slow"}]}
    world.write_pipeline()
    world.ok("run", "demo")
    world.assert_complete()


def test_a_publication_of_all_tables_keeps_nothing_from_being_changed(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    for dsn in (world.dsn, world.targets["warehouse"]):
        world.execute("CREATE PUBLICATION dbz_publication FOR ALL TABLES", dsn)
    world.produce(40, bad_every=10)
    world.ok("run", "demo")
    world.produce(20)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    (world.pipelines / "demo.yaml").rename(world.pipelines / "orders.yaml")
    world.name = "orders"
    world.write_pipeline()
    world.ok("rename", "pipeline", "demo", "orders", "--why", "a better word")
    world.assert_complete()


def test_a_statement_that_the_server_lets_wait_is_told_with_what_it_waits_for(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    migrate(database)
    monkeypatch.setattr(watch, "BEAT_S", 0.1)
    monkeypatch.setattr(watch, "PATIENCE_S", 0.3)
    told: list[str] = []

    def release_when_told() -> None:
        try:
            wait_until(
                lambda: any(is_wait(line.getMessage()) for line in [*caplog.records]), "it to be told", timeout=50
            )
        finally:
            told.extend(record.getMessage() for record in caplog.records)
            holder.rollback()

    def is_wait(line: str) -> bool:
        return "the manifest database (" in line and "s for Lock: advisory" in line

    with psycopg.connect(database) as holder, ManifestDatabase(database, "a test") as waiting:
        holder.execute("SELECT pg_advisory_xact_lock(7)")
        release = Thread(target=release_when_told)
        release.start()
        waiting.session.execute("SELECT pg_advisory_lock(7)")
        release.join()
    assert any(map(is_wait, told)), told


CLOSED_AT_ONCE = """
import sys, time
from tidemark.connections.lookup import Secret
from tidemark.database import watch
from tidemark.database.client import ManifestDatabase
watch.BEAT_S = 0.0
for number in range(60):
    with ManifestDatabase(sys.argv[1], "a test"):
        time.sleep(number / 10_000)
"""


def test_a_session_is_closed_only_when_the_thread_that_keeps_it_in_use_has_let_it_go(database: str) -> None:
    migrate(database)
    done = subprocess.run([sys.executable, "-c", CLOSED_AT_ONCE, database], text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "in a process of its own: it would crash"


def test_a_command_ends_although_the_server_has_gone_silent_meanwhile(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(database)
    monkeypatch.setattr(watch, "BEAT_S", 0.1)
    with ManifestDatabase(database, "a test") as left:
        server = left.session.info.backend_pid
        os.kill(server, signal.SIGSTOP)
        try:
            time.sleep(0.5)
            begun = time.monotonic()
            left.close()
        finally:
            os.kill(server, signal.SIGCONT)
    assert time.monotonic() - begun < 5


@pytest.fixture
def make_encoded(postgres: Postgres) -> Iterator[Callable[[str], str]]:
    """Creates a database of an encoding."""
    names = []

    def create(encoding: str) -> str:
        names.append(f"encoded_{secrets.token_hex(4)}")
        with psycopg.connect(postgres.dsn(), autocommit=True) as session:
            statement = sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0")
            session.execute(statement.format(sql.Identifier(names[-1]), sql.Literal(encoding)))
        return postgres.dsn(names[-1])

    yield create
    for name in names:
        postgres.drop_database(name)


ENCODINGS = {"SQL_ASCII": "Grüße, 日本", "LATIN1": "Grüße", "EUC_JP": "日本"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_table_has_the_characters_of_the_records_whatever_its_database_stores_them_in(
    make_table_world: MakeTableWorld, make_encoded: Callable[[str], str], encoding: str
) -> None:
    world = make_table_world(partitions=1, has_lake=True)
    world.targets["warehouse"] = make_encoded(encoding)
    world.produce(9)
    row = {"n": 1000, "at": "2024-03-01T00:00:00", "name": ENCODINGS[encoding], "k": 77}
    world.send(json.dumps(row), key="ключ".encode())
    world.ok("run", "demo")
    utf8 = f"{world.targets['warehouse']}?client_encoding=utf8"
    with psycopg.connect(utf8) as session:
        assert session.execute("SELECT name FROM public.latest WHERE k = 77").fetchone() == (ENCODINGS[encoding],)
    assert world.ok("audit", "demo", "--deep") == ""
    if encoding == "SQL_ASCII":
        return  # it has any character
    world.send(json.dumps({**row, "name": "\N{GRINNING FACE}"}))
    refused = world.here("run", "demo")
    assert f'in encoding "UTF8" has no equivalent in encoding "{encoding}"' in refused.stderr
    assert world.status("demo")[0]["state"] == "failed"


def test_a_database_that_cannot_keep_any_message_gets_no_tables(make_encoded: Callable[[str], str]) -> None:
    dsn = make_encoded("LATIN1")
    with pytest.raises(ConfigurationError, match="has the encoding LATIN1"):
        migrate(dsn)
    migrate(make_encoded("SQL_ASCII"))


LIMITS = {"statement_timeout": "1ms", "transaction_timeout": "2s"}
# So a statement is at work when the limit comes: what ends a session between two statements may not be told.
SLOW = """CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(5); RETURN NULL; END';
CREATE TRIGGER slow AFTER INSERT OR UPDATE ON public.latest FOR EACH STATEMENT EXECUTE FUNCTION public.slow()"""


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_the_server_that_ends_an_attempt_is_named_and_may_be_lifted(
    make_table_world: MakeTableWorld, limit: str
) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    dsn = world.targets["warehouse"]
    world.execute(SLOW)
    set_defaults(dsn, **{limit: LIMITS[limit]})
    world.produce(20)
    refused = world.here("run", "demo")
    assert f"next:  a longer {limit} for the user, or for the database" in refused.stderr
    with psycopg.connect(dsn, autocommit=True, options=f"-c {limit}=0") as session:
        name = sql.Identifier(session.info.dbname)
        session.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(name))
        session.execute("DROP TRIGGER slow ON public.latest")
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_a_published_attempt_that_may_remove_nothing_has_ended_well(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    world.execute(
        "CREATE FUNCTION no_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$"
    )
    world.execute("CREATE EVENT TRIGGER no_drop ON sql_drop EXECUTE FUNCTION no_drop()")
    world.produce(20)
    done = world.here("run", "demo")
    assert done.exit_code == 0, done.stderr
    assert "the next retry or close removes what it staged in sink postgres" in done.stderr
    world.execute("DROP EVENT TRIGGER no_drop")
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_table_that_an_audit_cannot_read_is_unknown_and_not_damaged(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    warehouse, world.targets["warehouse"] = world.targets["warehouse"], "postgresql://nobody@127.0.0.1:1/warehouse"
    assert world.here("audit", "demo").exit_code == 1
    assert world.status("demo")[0]["state"] == "unknown"
    world.targets["warehouse"] = warehouse
    world.execute("DELETE FROM public.latest")
    assert world.here("audit", "demo").exit_code == 1
    assert world.status("demo")[0]["state"] == "damaged"


def test_rows_that_row_level_security_hides_are_not_called_gone(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    owner, role = world.targets["warehouse"], f"reader_{secrets.token_hex(4)}"
    world.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'reader'")
    try:
        for schema in ("public", "tidemark_target"):
            world.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            world.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        world.execute("ALTER TABLE public.latest ENABLE ROW LEVEL SECURITY")
        parts = psycopg.conninfo.conninfo_to_dict(owner)
        place = f"{parts['host']}:{parts['port']}/{parts['dbname']}"
        world.targets["warehouse"] = f"postgresql://{role}:reader@{place}"
        told = world.here("audit", "demo")
        assert f"row level security is active on public.latest, and user {role} sees no row of it" in told.stdout
        assert world.status("demo")[0]["state"] == "unknown"
        world.execute("ALTER TABLE public.latest DISABLE ROW LEVEL SECURITY", owner)
        assert world.ok("audit", "demo", "--deep") == ""
    finally:
        world.targets["warehouse"] = owner
        world.execute(f"DROP OWNED BY {role}")
        world.execute(f"DROP ROLE {role}")


def test_rows_that_a_trigger_takes_away_at_commit_refuse_the_manifest(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1)
    world.produce(20)
    world.ok("run", "demo")
    body = "DELETE FROM public.latest WHERE k = 3; RETURN NULL;"
    world.execute(f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    world.execute(
        "CREATE CONSTRAINT TRIGGER meddle AFTER INSERT OR UPDATE ON public.latest DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION meddle()"
    )
    world.produce(20)
    refused = world.here("run", "demo")
    assert "rows right after they were put: a trigger, a rule or a policy of public.latest" in refused.stderr
    world.execute("DROP TRIGGER meddle ON public.latest")
    world.ok("retry", "demo")
    world.assert_complete()


TAKES_AWAY = "IF NEW.k = 3 THEN RETURN NULL; END IF; RETURN NEW;"
CHANGES_THE_KEY = "IF NEW.k = 3 THEN NEW.k := 4000; END IF; RETURN NEW;"


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
@pytest.mark.parametrize("body", [TAKES_AWAY, CHANGES_THE_KEY])
def test_rows_that_a_trigger_takes_away_or_moves_refuse_the_manifest(
    make_table_world: MakeTableWorld, event: str, body: str
) -> None:
    world = make_table_world(partitions=1)
    world.produce(20)
    world.ok("run", "demo")
    world.execute(f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    world.execute(f"CREATE TRIGGER meddle BEFORE {event} ON public.latest FOR EACH ROW EXECUTE FUNCTION meddle()")
    if event == "INSERT":
        world.execute("DELETE FROM public.latest")
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert (
        "rows right after they were put: a trigger, a rule or a policy of public.latest removes or changes them"
        in refused.stderr
    )
    world.execute("DROP TRIGGER meddle ON public.latest")
    world.ok("retry", "demo")
    if event == "UPDATE":
        world.assert_readers_complete()


@pytest.mark.parametrize(("variable", "value"), [
    ("PGSSLMODE", "verify-full"), ("PGSERVICE", "nobody"),
    ("PGOPTIONS", "-c default_transaction_read_only=on")])  # fmt: skip
def test_a_variable_of_libpq_that_breaks_a_connection_is_named(
    make_table_world: MakeTableWorld, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    world = make_table_world()
    world.produce(20)
    given = {**conninfo_to_dict(world.dsn), "sslmode": ""}
    world.dsn = make_conninfo("", **{word: text for word, text in given.items() if text})
    monkeypatch.setenv(variable, value)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"libpq also takes {variable} from the environment" in refused.stderr
    with pytest.raises(TidemarkError) as of_sink:
        connect(Secret(world.dsn), "warehouse")
    assert f"libpq also takes {variable} from the environment" in of_sink.value.next_step
    monkeypatch.delenv(variable)
    world.ok("run", "demo")
    world.assert_complete()
