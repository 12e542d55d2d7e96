"""`tidemark db migrate` upgrades what older releases made: stored dumps of them, and a made-up version 2 and 3."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.stored_dump import DUMPS, RestoredWorld, pg_dump, restored
from tests.worlds.world import World
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate, migrations
from tidemark.errors import ConfigurationError, TidemarkError, Unavailable
from tidemark.version import PACKAGE

NEWEST = len(migrations())
each_dump = pytest.mark.parametrize("dump", sorted(DUMPS.glob("*.tar.gz")), ids=lambda path: path.name)

# Two made-up versions. The first changes rows that have a history; so it needs an actor.
MADE_UP = {
    NEWEST + 1: "ALTER TABLE manifest ADD COLUMN owner text; UPDATE manifest SET owner = 'nobody, 100 %';",
    NEWEST + 2: "ALTER TABLE manifest ADD CHECK (owner <> ''); CREATE INDEX ON manifest (owner);",
}
PROGRAM = """
import sys
from pathlib import Path
from tidemark.database.migrate import migrate
print(migrate(sys.argv[1], Path(sys.argv[2])))
"""


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder of migrations with two versions more than this Tidemark has."""
    folder = tmp_path / "database"
    for step in migrations():
        write(folder, step.name, step.sql.decode())
    for version, sql in MADE_UP.items():
        write(folder, f"migrations/{version:04}.sql", sql)
    return folder


def write(folder: Path, name: str, sql: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sql)


@pytest.fixture
def tables_of(postgres: Postgres) -> Callable[[str], str]:
    """Every table, column, type, constraint, index, view, function and trigger of a database, as SQL."""
    return lambda dsn: pg_dump(postgres, dsn, "--schema-only", "--schema=tidemark")


@pytest.fixture
def older(postgres: Postgres) -> Iterator[str]:
    """A database with manifests, made by this Tidemark's newest release; the made-up versions are newer."""
    with postgres.temporary_database("older") as dsn:
        restored(postgres, dsn, max(DUMPS.glob("*.tar.gz")))
        migrate(dsn)
        yield dsn


def version(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        [[number]] = connection.execute("SELECT version FROM tidemark.database").fetchall()
    return int(number)


@each_dump
def test_what_a_release_made_works_on(
    dump: Path, tmp_path: Path, postgres: Postgres, broker: Broker, spark_jars: Path
) -> None:
    folder = tmp_path / "world"
    with (
        postgres.temporary_database("restored") as dsn,
        RestoredWorld(dump, postgres, folder, dsn, broker, spark_jars) as world,
    ):
        works_on(world)


def works_on(world: RestoredWorld) -> None:
    of_release = version(world.dsn)
    if of_release < NEWEST:
        refused = world.here("manifests", "demo")
        assert (refused.exit_code, "tidemark db migrate" in refused.stderr) == (2, True), refused.stderr
    before = content(world.dsn)
    assert world.json("db", "migrate")["versions"] == list(range(of_release + 1, NEWEST + 1))
    assert content(world.dsn) == before, "the same manifests, attempts, publications and history"
    assert world.json("db", "migrate")["versions"] == []

    assert {manifest["state"] for manifest in world.manifests()} == {"done", "failed", "planned"}
    attempts = [
        attempt["state"]
        for manifest in world.manifests()
        for attempt in world.json("show", str(manifest["id"]))["attempts"]
    ]
    assert {"published", "unchanged", "failed"} <= set(attempts)
    decided = world.ok("history", "demo")
    decisions = ("rename", "rename-sink", "a better word", "accept-loss", "retention was too short")
    assert all(word in decided for word in decisions), decided
    [answer] = world.json("where", world.topic, "0", "3")
    assert (answer["pipeline"], answer["manifest"]["id"]) == ("demo", 1)
    world.ok("audit", "demo", "--deep")

    world.write(10)
    world.ok("plan", "demo")
    world.ok("retry", "demo")
    world.write(10)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", str(world.manifests()[-1]["id"]))
    assert {manifest["state"] for manifest in world.manifests()} == {"done"}
    assert world.exact() == world.listing() == world.recorded() == world.readable()
    assert world.ok("audit", "demo", "--deep") == ""


def content(dsn: str) -> list[tuple[Any, ...]]:
    """How many rows of each kind there are, by SQL that each version understands."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            """
            SELECT 'manifest', state::text, count(*) FROM tidemark.manifest GROUP BY state
            UNION ALL SELECT 'attempt', state::text, count(*) FROM tidemark.attempt GROUP BY state
            UNION ALL SELECT 'range', kind::text, count(*) FROM tidemark.manifest_range GROUP BY kind
            UNION ALL SELECT 'former name', name, count(*) FROM tidemark.former_name GROUP BY name
            UNION ALL SELECT 'publication', sink, count(*) FROM tidemark.publication GROUP BY sink
            UNION ALL SELECT 'history', subject, count(*) FROM tidemark.event WHERE actor <> 'tidemark db migrate'
                GROUP BY subject
            ORDER BY 1, 2
            """
        ).fetchall()


@each_dump
def test_an_upgraded_database_has_the_tables_of_a_new_one(
    dump: Path, postgres: Postgres, database: str, newer: Path, tables_of: Callable[[str], str]
) -> None:
    with postgres.temporary_database("upgraded") as upgraded, postgres.temporary_database("new") as new:
        restored(postgres, upgraded, dump)
        migrate(upgraded)
        assert tables_of(upgraded) == tables_of(database)
        migrate(upgraded, newer)
        assert migrate(new, newer) == tuple(range(1, NEWEST + 3))
        assert tables_of(upgraded) == tables_of(new) != tables_of(database)


@pytest.fixture
def of_release_3(tmp_path: Path, postgres: Postgres) -> Iterator[str]:
    """An empty database as release 0.3 made it, of version 4."""
    folder = tmp_path / "release 0.3"
    for step in migrations()[:4]:
        write(folder, step.name, step.sql.decode())
    with postgres.temporary_database("release") as dsn:
        assert migrate(dsn, folder) == (1, 2, 3, 4)
        yield dsn


def test_a_database_without_archived_manifests_is_upgraded(
    of_release_3: str, database: str, tables_of: Callable[[str], str]
) -> None:
    assert migrate(of_release_3) == tuple(range(5, NEWEST + 1))
    assert tables_of(of_release_3) == tables_of(database)


ARCHIVED = """
SET search_path = tidemark;
SET tidemark.actor = 'tidemark 0.3';
INSERT INTO pipeline (name) VALUES ('orders'), ('clicks');
INSERT INTO run (pipeline, run_key, kind, reached, manifests, covered_by, notes)
    VALUES ('orders', 'one', 'manual', true, '{1,2}', '{}', '{}'), ('clicks', 'one', 'manual', true, '{3}', '{}', '{}');
INSERT INTO archive (pipeline, before, actor, why, manifests)
    VALUES ('orders', now(), 'a', 'b', 2), ('clicks', now(), 'a', 'b', 1);
INSERT INTO archived_manifest
    SELECT id, archive, pipeline, archive, 0, 1, NULL, now(), now(), '{}', '{}', '{}'
    FROM (VALUES (1, 1, 'orders'), (2, 1, 'orders'), (3, 2, 'clicks')) AS m (id, archive, pipeline);
"""


def test_archived_manifests_are_refused_by_name_before_anything_changes(of_release_3: str, postgres: Postgres) -> None:
    with psycopg.connect(of_release_3) as connection:
        connection.execute(ARCHIVED)
    before = pg_dump(postgres, of_release_3)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError) as refused:
            migrate(of_release_3, dry_run=dry_run)
        assert "cannot read: 1 of pipeline clicks, 2 of pipeline orders" in refused.value.what
        assert "nothing was changed: go on with Tidemark 0.3; or" in refused.value.next_step
    assert pg_dump(postgres, of_release_3) == before


OTHER_EVIDENCE = {
    "connection lakehouse, sql catalog lake, table db.clicks": True,
    "rest catalog lake, table db.clicks": True,
    "region eu-central-1, DynamoDB table clicks": True,
    "connection warehouse, table clicks": False,
    "lake": False,
    "/data/catalog/table": False,
}


@pytest.mark.parametrize("target", OTHER_EVIDENCE)
def test_sinks_whose_evidence_is_not_carried_over_are_refused_by_name_until_release_3_has_retired_them(
    of_release_3: str, postgres: Postgres, target: str
) -> None:
    with psycopg.connect(of_release_3) as connection:
        connection.execute("SET search_path = tidemark; SET tidemark.actor = 'tidemark 0.3'")
        connection.execute("INSERT INTO pipeline (name) VALUES ('clicks')")
        connection.execute("INSERT INTO sink (pipeline, name, target) VALUES ('clicks', 'out', %s)", [target])
    before = pg_dump(postgres, of_release_3)
    if OTHER_EVIDENCE[target]:
        for dry_run in (True, False):
            with pytest.raises(ConfigurationError) as refused:
                migrate(of_release_3, dry_run=dry_run)
            assert f"not carried over: out of pipeline clicks ({target})" in refused.value.what
            assert "nothing was changed: go on with Tidemark 0.3; or" in refused.value.next_step
        assert pg_dump(postgres, of_release_3) == before
        with psycopg.connect(of_release_3) as connection:
            connection.execute("SET search_path = tidemark; SET tidemark.actor = 'tidemark 0.3'")
            connection.execute("UPDATE sink SET retired_at = now()")
    assert migrate(of_release_3) == tuple(range(5, NEWEST + 1))


def test_archived_ranges_that_come_while_it_upgrades_change_nothing(of_release_3: str, postgres: Postgres) -> None:
    with psycopg.connect(of_release_3) as connection:
        connection.execute(
            """
            SET search_path = tidemark;
            SET tidemark.actor = 'tidemark 0.3';
            INSERT INTO pipeline (name) VALUES ('orders');
            INSERT INTO chain (pipeline, topic, topic_id, partition) VALUES ('orders', 't', 'id', 0);
            INSERT INTO manifest_range (chain_id, end_offset, kind) VALUES (1, 0, 'anchor');
            INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind) VALUES (1, 0, 10, 'archived');
            """
        )
    before = pg_dump(postgres, of_release_3)
    with pytest.raises(ConfigurationError, match="range_not_archived"):
        migrate(of_release_3)
    assert pg_dump(postgres, of_release_3) == before


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE run ADD COLUMN more int",
        "ALTER TABLE run ALTER COLUMN notes DROP NOT NULL",
        "ALTER TABLE attempt ALTER COLUMN started_at TYPE timestamp",
        "ALTER TABLE manifest_range DROP CONSTRAINT range_not_empty",
        "ALTER TYPE run_kind ADD VALUE 'other'",
        "DROP INDEX sink_one_name_for_a_target",
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "DROP TRIGGER immutable ON run_end",
        "ALTER TABLE event DISABLE TRIGGER append_only",
        "CREATE TABLE other (id int)",
    ],
)
def test_a_difference_between_tables_is_seen(
    database: str, template: str, postgres: Postgres, statement: str, tables_of: Callable[[str], str]
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute(statement)  # type: ignore[arg-type]
    assert tables_of(database) != tables_of(postgres.dsn(template))


def test_each_version_is_made_once_and_told_in_the_history(older: str, newer: Path) -> None:
    assert migrate(older, newer, dry_run=True) == tuple(MADE_UP)
    assert version(older) == NEWEST
    assert migrate(older, newer) == tuple(MADE_UP)
    assert migrate(older, newer) == migrate(older, newer, dry_run=True) == ()
    assert version(older) == NEWEST + 2
    with psycopg.connect(older) as connection:
        owners = connection.execute("SELECT DISTINCT owner FROM tidemark.manifest").fetchall()
        actors = connection.execute("SELECT actor FROM tidemark.event WHERE what ? 'owner'").fetchall()
    assert owners == [("nobody, 100 %",)]
    assert set(actors) == {("tidemark db migrate",)}


@pytest.mark.parametrize("start", ["nothing", "older tables"])
def test_many_at_once_make_each_version_once(start: str, older: str, newer: Path, postgres: Postgres) -> None:
    with postgres.temporary_database("new") as new, ThreadPoolExecutor(10) as pool:
        dsn = new if start == "nothing" else older
        made = list(pool.map(migrate, [dsn] * 10, [newer] * 10))
        expected = list(range(1 if start == "nothing" else NEWEST + 1, NEWEST + 3))
        assert sorted(number for numbers in made for number in numbers) == expected
        assert version(dsn) == NEWEST + 2


@pytest.mark.parametrize(("at_pass", "left"), [(1, NEWEST), (2, NEWEST + 1)])
def test_killed_in_the_middle_nothing_is_half_done(
    older: str, newer: Path, tmp_path: Path, at_pass: int, left: int, tables_of: Callable[[str], str]
) -> None:
    armed = {"TIDEMARK_FAILPOINT": f"migrate.before_commit:kill9@{at_pass}", "TIDEMARK_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, older, str(newer)]
    killed = subprocess.run(command, env={**os.environ, **armed}, start_new_session=True, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert version(older) == left
    assert ("owner text" in tables_of(older)) == (left > NEWEST)
    assert migrate(older, newer) == tuple(range(left + 1, NEWEST + 3))


def test_killed_while_it_creates_tables_there_are_none(world: World, postgres: Postgres) -> None:
    with postgres.temporary_database("new") as dsn:
        killed = world.tidemark("db", "migrate", failpoint="migrate.before_commit:kill9", env={"TIDEMARK_DB": dsn})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT to_regnamespace('tidemark')").fetchall() == [(None,)]
        assert migrate(dsn) == tuple(range(1, NEWEST + 1))


BROKEN = {
    "no SQL": "ALTER TABEL manifest ADD COLUMN more int;",
    "an unknown table": "ALTER TABLE manifests ADD COLUMN more int;",
    "an unknown column": "CREATE INDEX ON manifest (more);",
    "rows that a new constraint refuses": "ALTER TABLE manifest ADD CHECK (attempt > 99);",
    "rows that are missing in the end": "UPDATE manifest_range SET end_offset = end_offset + 1000 WHERE kind = 'data';",
    "a change of what never changes": "UPDATE event SET actor = 'nobody';",
    "a block that raises": "DO $$ BEGIN RAISE EXCEPTION 'no'; END $$;",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_migration_changes_nothing_and_is_named(
    older: str, newer: Path, postgres: Postgres, case: str
) -> None:
    name = f"migrations/{NEWEST + 1:04}.sql"
    chain = "SET LOCAL tidemark.chain_surgery = 'on';"
    write(newer, name, f"CREATE TABLE more (id int); {chain} {BROKEN[case]}")
    before = pg_dump(postgres, older)
    with pytest.raises(ConfigurationError, match=f"{name} cannot make the tables: .* \\(SQLSTATE .....\\)") as refused:
        migrate(older, newer)
    assert "nothing of this file was stored" in refused.value.next_step
    assert pg_dump(postgres, older) == before
    with ManifestDatabase(older, "test") as manifests:
        assert manifests.manifests.find("demo")


def test_a_migration_that_waits_for_a_lock_names_itself_and_says_try_again(older: str, newer: Path) -> None:
    name = f"migrations/{NEWEST + 1:04}.sql"
    write(newer, name, f"SET LOCAL lock_timeout = '100ms'; {MADE_UP[NEWEST + 1]}")
    with psycopg.connect(older) as reader:
        reader.execute("SELECT FROM tidemark.manifest")
        with pytest.raises(Unavailable, match="waited") as late:
            migrate(older, newer)
    assert late.value.context["migration"] == name
    assert version(older) == NEWEST
    assert migrate(older, newer) == tuple(MADE_UP)


def test_a_file_that_was_changed_after_its_release_is_refused(older: str, newer: Path) -> None:
    migrate(older, newer)
    write(newer, f"migrations/{NEWEST + 1:04}.sql", MADE_UP[NEWEST + 1] + "\n-- more")
    for dry_run in (False, True):
        with pytest.raises(TidemarkError, match="a state of Tidemark that was never released"):
            migrate(older, newer, dry_run=dry_run)


COMMANDS = """
import json, sys
from click.testing import CliRunner
from tidemark.cli.main import main
done = [CliRunner().invoke(main, words) for words in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in done]))
"""
Answer = tuple[int, str, str]


@pytest.fixture
def newer_tidemark(tmp_path: Path, newer: Path) -> Callable[..., list[Answer]]:
    """Runs commands of a Tidemark that is this one with two more migrations: exit status, output, errors of each."""
    installed = tmp_path / "newer"
    shutil.copytree(PACKAGE, installed / "tidemark")
    shutil.copytree(newer, installed / "tidemark" / "database", dirs_exist_ok=True)

    def run(world: World, *commands: str) -> list[Answer]:
        environment = world.environment(PYTHONPATH=str(installed))
        words = json.dumps([command.split() for command in commands])
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, words], env=environment, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return [(code, out, err) for code, out, err in json.loads(done.stdout)]

    return run


def test_every_command_over_older_tables_says_migrate(
    world: World, newer_tidemark: Callable[..., list[Answer]]
) -> None:
    refused = newer_tidemark(
        world, "manifests", "plan demo", "status", "run demo", "doctor demo", "db migrate --dry-run"
    )
    for code, out, err in refused[:-1]:
        assert code == (1 if "PostgreSQL" in out else 2), (out, err)
        assert f"the tables are of version {NEWEST}, this Tidemark needs {NEWEST + 2}" in out + err
        assert "upgrade them with: tidemark db migrate" in out + err
    code, out, err = refused[-1]
    assert (code, out.rpartition(" ")[0]) == (0, f"would be upgraded to version {NEWEST + 2}: manifest database"), err
    assert "nothing was changed (dry run)" in err
    assert version(world.dsn) == NEWEST

    upgraded, repeated, listed = newer_tidemark(world, "db migrate --json", "db migrate", "manifests")
    shown = json.loads(upgraded[1])
    assert (shown["created"], shown["versions"], shown["dry_run"]) == (False, list(MADE_UP), False)
    assert repeated[1] == f"nothing to do: manifest database {shown['database']}\n"
    assert listed[0] == 0, listed

    too_old = world.here("manifests")
    assert too_old.exit_code == 2
    assert f"the tables are of version {NEWEST + 2}, this Tidemark needs {NEWEST}" in too_old.stderr
    assert "there is no way back to older tables" in too_old.stderr
