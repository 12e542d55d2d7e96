"""PostgreSQL as a site has it: odd defaults of databases, idle limits, a read-only server, publications, triggers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread

import psycopg
import pytest
from psycopg import sql

from sandbox.services.processes import wait_until
from tests.worlds.table_world import TableWorld
from tidemark.database import watch
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate

MakeTableWorld = Callable[..., TableWorld]
DEFAULTS = {
    "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on", "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard", "TimeZone": "America/New_York", "bytea_output": "escape", "search_path": "nowhere",
    "extra_float_digits": "0", "array_nulls": "off", "row_security": "off", "quote_all_identifiers": "on",
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
    assert "it is read only: default_transaction_read_only is on" in refused.stderr
    if place == "manifest":
        told = world.here("status", "demo")
        assert "it is read only" in told.stderr
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
        "rows right after they were put: a trigger, a rule or a policy of public.latest takes them away"
        in refused.stderr
    )
    world.execute("DROP TRIGGER meddle ON public.latest")
    world.ok("retry", "demo")
    if event == "UPDATE":
        world.assert_readers_complete()
