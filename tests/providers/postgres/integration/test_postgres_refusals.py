"""A target that is down, locked, of another shape or without a right: one message with the way out, nothing half."""

import json
import re
from collections.abc import Callable
from unittest import mock

import psycopg
import pytest
from psycopg import sql

from tests.worlds.table_world import TableWorld, table_sink
from tidemark.lifecycle.attempt import order_of
from tidemark.providers.postgres import session

MakeTableWorld = Callable[..., TableWorld]
CREATE = (
    "CREATE TABLE public.latest ({columns}, k bigint PRIMARY KEY, _topic text, _partition integer, _offset bigint, \
_timestamp timestamptz, _manifest_id bigint, _is_deleted boolean, _log_generation integer, _attempt integer)"
)
COLUMNS = "n bigint, at timestamptz, name text"


@pytest.fixture
def world(make_table_world: MakeTableWorld) -> TableWorld:
    """A table that a person makes: the pipeline may not."""
    made = make_table_world(settings={"sinks": [table_sink(auto_create=False)]})
    made.produce(20)
    return made


def refused(world: TableWorld) -> str:
    """What the person reads; nothing is published, and no row is in the table."""
    failed = world.here("run", "demo", "--run-key", "one")
    assert failed.exit_code == 1, failed.stderr
    assert world.manifests()[0]["published_attempt"] is None
    assert world.rows() == {} if world.table_is_readable() else True
    return failed.stderr


def run_ddl(world: TableWorld, message: str) -> None:
    """Do what the message says is to be run."""
    line = message.split("run in its database: ")[1].splitlines()[0]
    world.execute(line.split("; then: ")[0])


def test_the_statement_that_a_refusal_names_is_all_that_is_missing(world: TableWorld) -> None:
    message = refused(world)
    assert "the table does not exist" in message
    assert 'CREATE TABLE "public"."latest" ("n" bigint, ' in message
    run_ddl(world, message)
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.parametrize("auto_create", [False, True])
def test_columns_of_a_table_that_release_0_2_0_made_get_their_names_and_keep_their_values(
    world: TableWorld, auto_create: bool
) -> None:
    world.execute(CREATE.format(columns=COLUMNS))
    world.ok("run", "demo")
    former = {"_is_deleted": "_deleted", "_log_generation": "_incarnation"}
    for name, before in former.items():
        world.execute(f"ALTER TABLE public.latest RENAME COLUMN {name} TO {before}")
    world.execute("ALTER TABLE public.latest DROP COLUMN name")
    world.execute("UPDATE tidemark.target SET columns = NULL", world.dsn)  # that release did not keep them
    world.produce(5)
    world.settings["sinks"] = [table_sink(auto_create=auto_create)]
    world.write_pipeline()
    if not auto_create:
        failed = world.here("run", "demo")
        assert (failed.exit_code, "the table has no column" in failed.stderr) == (1, True), failed.stderr
        assert 'RENAME COLUMN "_deleted" TO "_is_deleted"; ' in failed.stderr
        run_ddl(world, failed.stderr)
    world.ok("run" if auto_create else "retry", "demo")
    world.assert_complete()
    assert {"_deleted", "_incarnation"}.isdisjoint(world.query("SELECT * FROM public.latest")[0])
    rows = world.query("SELECT DISTINCT _manifest_id, _is_deleted, _log_generation FROM public.latest ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [(1, False, 1), (2, False, 1)]


def test_a_row_is_found_in_a_table_that_release_0_2_0_made_before_the_next_run_renames_its_columns(
    make_table_world: MakeTableWorld,
) -> None:
    key = ["_topic", "_partition", "_offset", "_log_generation"]
    world = make_table_world(partitions=1, settings={"sinks": [table_sink(key=key, order_by=None)]})
    world.produce(5)
    world.ok("run", "demo")
    words = "where", world.topic, "0", "3", "--json"
    before = world.ok(*words)
    for name, former in {"_is_deleted": "_deleted", "_log_generation": "_incarnation"}.items():
        world.execute(f"ALTER TABLE public.latest RENAME COLUMN {name} TO {former}")
    assert world.ok(*words) == before
    assert '"_log_generation": 1' in before


@pytest.mark.parametrize("auto_create", [False, True])
def test_a_table_in_a_schema_that_is_not_there_is_created_with_its_schema(
    make_table_world: MakeTableWorld, auto_create: bool
) -> None:
    sink = table_sink(auto_create=auto_create, table="sales.latest")
    world = make_table_world(settings={"sinks": [sink]})
    world.produce(20)
    if not auto_create:
        message = refused(world)
        assert 'run in its database: CREATE SCHEMA IF NOT EXISTS "sales"; CREATE TABLE "sales"."latest" (' in message
        run_ddl(world, message)
    world.ok("run", "demo", "--run-key", "one")
    [rows] = world.query("SELECT count(*) AS count FROM sales.latest WHERE NOT _is_deleted")
    assert rows["count"] > 0


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ("n bigint, at timestamptz", "the table has no column name"),
        ("n integer, at timestamptz, name text", "column n is integer, the rows have bigint"),
        ("n bigint, at date, name text", "column at is date, the rows have timestamp with time zone"),
        (
            f"{COLUMNS}, house text NOT NULL",
            "column house is NOT NULL without a default, and the rows have no such column",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused_with_the_statement_that_mends_it(
    world: TableWorld, columns: str, difference: str
) -> None:
    world.execute(CREATE.format(columns=columns))
    message = refused(world)
    assert difference in message
    run_ddl(world, message)
    world.ok("retry", "demo")
    world.assert_complete()


def test_null_in_a_column_that_takes_none_costs_its_record_in_every_sink(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1, has_lake=True, settings={"on_error": "dead_letter"})
    world.execute(CREATE.format(columns=COLUMNS.replace("name text", "name text NOT NULL")))
    row = {"k": 1, "n": 1, "at": "2024-03-01T00:00:00Z", "name": "a"}
    world.send(*(json.dumps({**row, "k": k, "name": None if k == 1 else "a"}) for k in range(3)))
    world.ok("run", "demo")
    for sink in ("files", "postgres"):
        [letter] = world.json("dead-letters", "demo", "--sink", sink, "--show")["records"]
        assert (letter["offset"], letter["reason"]) == (
            1, "field name: is null, which the table of sink postgres does not take"
        )  # fmt: skip
    assert [row["k"] for row in world.query("SELECT k FROM public.latest ORDER BY k")] == [0, 2]
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize(
    "columns",
    ["n numeric, at timestamptz, name varchar", f"{COLUMNS}, id bigint GENERATED ALWAYS AS IDENTITY, more text"],
)
def test_wider_columns_and_columns_of_its_own_are_the_tables_business(world: TableWorld, columns: str) -> None:
    world.execute(CREATE.format(columns=columns))
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rate%", "psycopg takes no name with %"),
        ("c" * 64, "a name has at most 63 bytes"),
        ("ü" * 32, "a name has at most 63 bytes"),
        ("xmin", "PostgreSQL has a column of that name in every table"),
    ],
)
def test_a_column_whose_name_postgresql_cannot_take_is_refused_before_anything(
    world: TableWorld, name: str, why: str
) -> None:
    world.settings["decode"]["schema"] += f", `{name}` STRING"
    world.write_pipeline()
    wrong = world.here("validate")
    assert wrong.exit_code == 2
    assert f"may not have a column {name if name.isalnum() else repr(name)}: {why}" in wrong.stderr


def test_a_column_of_the_table_that_differs_by_case_only_is_named(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS.replace("name text", '"Name" text')))
    world.settings["sinks"][0]["postgres"]["auto_create"] = True
    world.write_pipeline()
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "the table cannot have a column name as the rows do: it differs from Name by case only" in refused.stderr


def test_a_row_that_breaks_a_constraint_is_shown_nowhere(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=f"{COLUMNS}, CONSTRAINT quiet CHECK (name <> 'canary-of-a-row')"))
    world.send(json.dumps({"n": 1, "at": "2024-03-01T00:00:00Z", "name": "canary-of-a-row", "k": 77}))
    failed = world.here("run", "demo")
    assert 'violates check constraint "quiet"' in failed.stderr
    assert "constraint=quiet" in failed.stderr
    commands = [world.here(*words) for words in (("status",), ("status", "--json"), ("show", "1"), ("history", "demo"))]
    shown = "".join(command.stdout + command.stderr for command in (failed, *commands))
    with psycopg.connect(world.dsn) as connection:
        for table in ("attempt", "event", "manifest"):
            [stored] = connection.execute(f"SELECT json_agg(t)::text FROM tidemark.{table} t").fetchone() or ("",)  # type: ignore[call-overload]
            shown += stored
    for log in (world.folder / "home").rglob("*"):
        shown += log.read_text(errors="replace") if log.is_file() else ""
    assert "quiet" in shown
    assert "canary-of-a-row" not in shown


def test_a_key_that_is_checked_late_is_named_and_nothing_is_applied(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS).replace("PRIMARY KEY", "NOT NULL CONSTRAINT late UNIQUE DEFERRABLE"))
    message = refused(world)
    assert "ON CONFLICT does not support deferrable unique constraints" in message
    assert "constraint=late" in message
    world.execute("ALTER TABLE public.latest DROP CONSTRAINT late, ADD UNIQUE (k)")
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_key_that_is_not_unique_in_the_table_is_refused(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS).replace("k bigint PRIMARY KEY", "k bigint NOT NULL"))
    message = refused(world)
    assert "the table has no unique key over just (k), so there may be several rows of a key" in message
    run_ddl(world, message)
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_constraint_that_says_no_is_named_and_nothing_is_applied(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS.replace("n bigint", "n bigint CONSTRAINT small CHECK (n < 15)")))
    message = refused(world)
    assert "violates check constraint" in message
    assert "constraint=small" in message
    world.execute("ALTER TABLE public.latest DROP CONSTRAINT small")
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_new_column_is_an_error_with_its_ddl_unless_the_pipeline_may_create_it(world: TableWorld) -> None:
    run_ddl(world, refused(world))
    world.ok("retry", "demo")
    schema = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT NOT NULL, colour STRING"
    world.settings["decode"] = {"format": "json", "schema": schema}
    world.write_pipeline()
    world.produce(20)
    failed = world.here("run", "demo", "--run-key", "two")
    assert 'ALTER TABLE "public"."latest" ADD COLUMN "colour" text' in failed.stderr
    world.settings["sinks"] = [table_sink(auto_create=True)]
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


def as_guest(world: TableWorld) -> str:
    """A user with no rights in the warehouse; the connection uses it from here on."""
    owner = world.targets["warehouse"]
    world.execute("DROP ROLE IF EXISTS guest_of_tests")
    world.execute("CREATE ROLE guest_of_tests LOGIN PASSWORD 'guest'")
    world.targets["guest"] = owner
    host = owner.rpartition("@")[2]
    world.targets["warehouse"] = f"postgresql://guest_of_tests:guest@{host}"
    return owner


def test_columns_that_a_user_may_not_rename_are_named_with_the_statements_for_the_owner(world: TableWorld) -> None:
    former = CREATE.replace("_is_deleted", "_deleted").replace("_log_generation", "_incarnation")
    world.execute(former.format(columns=COLUMNS))
    world.settings["sinks"] = [table_sink(auto_create=True)]
    world.write_pipeline()
    owner = as_guest(world)
    try:
        world.execute("CREATE SCHEMA tidemark_target AUTHORIZATION guest_of_tests", owner)
        world.execute("GRANT SELECT, INSERT, UPDATE ON latest TO guest_of_tests", owner)
        failed = world.here("run", "demo", "--run-key", "one")
        assert (failed.exit_code, "must be owner of table latest" in failed.stderr) == (1, True), failed.stderr
        line = failed.stderr.split("have its owner run in its database: ")[1].splitlines()[0]
        world.execute(line.split("; then: ")[0], owner)
        world.ok("retry", "demo")
    finally:
        world.targets["warehouse"] = owner
        world.execute("DROP OWNED BY guest_of_tests")
        world.execute("DROP ROLE guest_of_tests")


def test_a_missing_right_is_named_with_the_grant(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS))
    owner = as_guest(world)
    try:
        failed = world.here("run", "demo", "--run-key", "one")
        assert failed.exit_code == 1
        assert (
            "the schema tidemark_target cannot be created: PostgreSQL says: permission denied for database"
            in failed.stderr
        )
        assert "CREATE SCHEMA tidemark_target AUTHORIZATION" in failed.stderr
        world.execute("CREATE SCHEMA tidemark_target AUTHORIZATION guest_of_tests", owner)
        failed = world.here("run", "demo", "--run-key", "one")
        assert "user guest_of_tests may not read and write the table" in failed.stderr
        world.execute(failed.stderr.split("run in its database: ")[1].splitlines()[0], owner)
        world.ok("retry", "demo")
        world.assert_complete()
    finally:
        world.targets["warehouse"] = owner
        world.execute("DROP OWNED BY guest_of_tests")
        world.execute("DROP ROLE guest_of_tests")


def test_what_a_replay_is_refused_for_is_corrected_and_the_replay_is_repeated(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    world.execute("ALTER TABLE public.latest ALTER COLUMN name TYPE varchar(2) USING left(name, 2)")
    refused = world.here("replay", "demo", "--manifest", "1")
    assert refused.exit_code == 1
    [(statement, step)] = re.findall(r"run in its database: (.*); then: tidemark (.*)", refused.stderr)
    assert step == "replay demo --manifest 1", "the manifest is done: a retry would do nothing"
    newest = world.json("show", "1")["attempts"][-1]
    assert newest["error"].rstrip().endswith("; then: tidemark replay demo --manifest 1"), newest["error"]
    assert "retry" not in newest["error"]
    world.execute(statement)
    world.ok(*step.split())
    world.assert_complete()


def test_what_a_plan_is_refused_for_is_corrected_and_the_run_that_is_named_goes_on(
    make_table_world: MakeTableWorld,
) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    owner = as_guest(world)
    try:
        world.produce(20)
        refused = world.here("run", "demo")
        assert "permission denied for schema tidemark_target" in refused.stderr
        assert refused.stderr.rstrip().endswith("; then: tidemark run demo"), "no manifest waits for a retry"
        [problem] = world.status("demo")[0]["problems"]
        assert problem["next_step"].endswith("; then: tidemark run demo")
        world.targets["warehouse"] = owner
        world.ok("run", "demo")
        assert world.status("demo")[0]["state"] == "ok"
        world.assert_complete()
    finally:
        world.targets["warehouse"] = owner
        world.execute("DROP OWNED BY guest_of_tests")
        world.execute("DROP ROLE guest_of_tests")


NO_TABLES = {
    "view": "CREATE VIEW public.latest AS SELECT 1 AS k",
    "materialized view": "CREATE MATERIALIZED VIEW public.latest AS SELECT 1 AS k",
    "sequence": "CREATE SEQUENCE public.latest",
    "foreign table": "CREATE FOREIGN DATA WRAPPER of_tests; CREATE SERVER of_tests FOREIGN DATA WRAPPER of_tests; "
    "CREATE FOREIGN TABLE public.latest (k bigint) SERVER of_tests",
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_stands_in_the_place_of_a_table_is_named_and_moved_away(
    make_table_world: MakeTableWorld, kind: str
) -> None:
    world = make_table_world()
    world.execute(NO_TABLES[kind])
    world.produce(20)
    failed = world.here("run", "demo")
    words = f"public.latest is a {kind}, and the sink writes to a table"
    assert (failed.exit_code, words in failed.stderr) == (1, True), failed.stderr
    assert f"rename or drop the {kind}" in failed.stderr
    world.execute(f"ALTER {kind.upper()} public.latest RENAME TO moved")
    world.ok(*failed.stderr.rsplit("; then: tidemark ", 1)[1].split("\n")[0].split())
    world.ok("run", "demo")
    world.assert_complete()


def test_a_view_in_the_place_of_a_published_table_is_not_taken_for_the_table(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(20)
    world.ok("run", "demo")
    world.execute("ALTER TABLE public.latest RENAME TO kept; CREATE VIEW public.latest AS SELECT * FROM public.kept")
    world.produce(20)
    for words in (("run", "demo"), ("audit", "demo"), ("db", "adopt", "demo", "--why", "a test")):
        told = world.here(*words)
        assert told.exit_code == 1, words
        assert "public.latest is a view, and the sink writes to a table" in told.stdout + told.stderr
        assert "name back: ALTER TABLE .. RENAME TO latest" in told.stdout + told.stderr
    [problem] = [each for each in world.status("demo")[0]["problems"] if "run demo" in each["next_step"]]
    world.execute("DROP VIEW public.latest; ALTER TABLE public.kept RENAME TO latest")
    world.ok(*problem["next_step"].rsplit("; then: tidemark ", 1)[1].split())
    assert world.ok("audit", "demo") == ""
    assert world.status("demo")[0]["state"] == "ok"
    world.assert_complete()


def test_a_partitioned_table_that_cannot_have_the_key_is_told_so(world: TableWorld) -> None:
    partitioned = CREATE.replace(" PRIMARY KEY", "").format(columns=COLUMNS) + " PARTITION BY RANGE (at)"
    world.execute(partitioned)
    message = refused(world)
    assert "and cannot have one: it is partitioned by RANGE (at)" in message
    assert "partition it by columns of the key" in message
    world.execute("DROP TABLE public.latest")
    world.execute(CREATE.format(columns=COLUMNS) + " PARTITION BY HASH (k)")
    world.execute("CREATE TABLE latest_0 PARTITION OF latest FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_locked_table_is_waited_for_and_then_named(world: TableWorld) -> None:
    world.execute(CREATE.format(columns=COLUMNS))
    with (
        psycopg.connect(world.targets["warehouse"]) as holder,
        mock.patch.object(session, "LOCK_TIMEOUT_S", 1),
    ):
        holder.execute("LOCK TABLE public.latest IN SHARE MODE")
        failed = world.here("run", "demo", "--run-key", "one")
        assert failed.exit_code == 1
        assert "another session holds a lock for longer than lock_timeout" in failed.stderr
    assert world.rows() == {}
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_target_that_is_down_does_not_keep_the_lake_from_its_rows(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(50, bad_every=7)
    alive = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:canary-password@127.0.0.1:1/none"
    failed = world.here("run", "demo", "--run-key", "one")
    assert failed.exit_code == 1
    assert "the database of connection warehouse cannot be reached" in failed.stderr
    assert "canary" not in failed.stderr + failed.stdout
    assert world.exact() == world.listing() == world.recorded() == world.everything()
    before = {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")}
    assert {manifest["state"] for manifest in world.json("manifests", "demo")} == {"failed"}
    world.targets["warehouse"] = alive
    world.ok("retry", "demo")
    world.assert_complete()
    assert {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")} == before, "not written again"
    with psycopg.connect(world.dsn) as connection:
        publications = connection.execute(
            "SELECT DISTINCT sink, attempt FROM tidemark.publication ORDER BY 1"
        ).fetchall()
        history = connection.execute("SELECT json_agg(e)::text FROM tidemark.event e").fetchone()
    assert publications == [("files", 1), ("postgres", 2)]
    assert "canary" not in str(history)


def test_a_lake_that_is_no_folder_does_not_keep_the_table_from_its_rows(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(50)
    world.ok("plan", "demo", "--run-key", "one")
    aside = world.lake.rename(world.folder / "aside")
    world.lake.write_text("not a folder")
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1
    assert world.rows() == world.latest(world.everything())
    world.lake.unlink()
    aside.rename(world.lake)
    world.ok("retry", "demo")
    world.assert_complete()


def test_two_manifest_databases_do_not_write_one_table(make_table_world: MakeTableWorld, world: TableWorld) -> None:
    run_ddl(world, refused(world))
    world.ok("retry", "demo")
    world.lose_manifest_database()
    other = world.here("run", "demo", "--run-key", "two")
    assert other.exit_code == 1
    assert "connection warehouse, table public.latest belongs to another manifest database" in other.stderr


def test_a_table_that_vanished_with_its_database_is_not_begun_again(world: TableWorld) -> None:
    run_ddl(world, refused(world))
    world.ok("retry", "demo")
    world.execute("DROP SCHEMA tidemark_target CASCADE")
    world.execute("DROP TABLE public.latest")
    world.produce(20)
    failed = world.here("run", "demo", "--run-key", "two")
    assert failed.exit_code == 1
    assert "table public.latest is empty, and manifests are published there" in failed.stderr


def test_the_order_and_the_record_hold_no_secret(world: TableWorld) -> None:
    world.targets["warehouse"] = world.targets["warehouse"].replace("//", "//", 1)
    password = psycopg.conninfo.conninfo_to_dict(world.targets["warehouse"])["password"]
    context = world.context()
    run_ddl(world, refused(world))
    world.ok("retry", "demo")
    [manifest, *_] = context.database.manifests.find("demo")
    order = order_of(context, manifest, 1).to_json()
    [marker] = world.query("SELECT json_agg(m)::text AS text FROM tidemark_target.marker m")
    assert json.loads(order)["sinks"][0]["options"]["connection"] == "warehouse"
    assert str(password) not in order + str(marker["text"])


def test_a_statement_is_never_made_of_a_configured_text(world: TableWorld) -> None:
    world.settings["sinks"] = [table_sink(table='latest"; DROP TABLE x; --')]
    world.write_pipeline()
    assert "must be a table such as prices or sales.prices" in world.here("plan", "demo").stderr
    assert sql.Identifier('a"b').as_string(None) == '"a""b"', "I29 only names"
