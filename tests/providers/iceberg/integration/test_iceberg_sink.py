"""An Iceberg table beside other programs that use it, and what is refused, by the command line without Spark."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from sandbox.services.s3 import Bucket
from tests.worlds.iceberg_others import compact, current, expire, roll_back, upgrade_to_version_3
from tests.worlds.iceberg_readers import read_by_duckdb
from tests.worlds.iceberg_world import TABLE, IcebergWorld, catalog_at
from tidemark.config.base import LoadContext
from tidemark.connections.kept import close_kept_clients, keep_clients
from tidemark.connections.lookup import from_environment
from tidemark.errors import Unavailable
from tidemark.providers.iceberg.catalog import OpenCatalog
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.iceberg.table import Claim, IcebergTarget
from tidemark.providers.lake_tables.table_columns import stored_columns
from tidemark.sinks.base import Owner

CHECKOUT = Path(__file__).parents[4]
Make = Callable[..., IcebergWorld]
WHY = ("--why", "a test")
MORE_COLUMNS = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT"


@pytest.fixture
def world(make_iceberg_world: Make) -> IcebergWorld:
    """Three manifests published, each in a run of its own."""
    made = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        made.produce(30, bad_every=13)
        made.ok("run", "demo", "--run-key", str(number))
    return made


def other_rows(world: IcebergWorld) -> None:
    """From here on the pipeline makes other rows of the same records, so that a replay has to move."""
    world.settings["decode"] = {"format": "json", "schema": MORE_COLUMNS}
    world.write_pipeline()


def test_rows_that_others_have_compacted_are_replaced_and_the_others_stay(world: IcebergWorld) -> None:
    compact(world)
    assert world.ok("audit", "demo", "--deep") == ""
    assert sum(file["rows"] for file in world.json("objects", "demo")) == world.rows().total()
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "2")
    world.assert_complete()
    table = world.table()
    assert table is not None
    rows = table.scan(selected_fields=("_manifest_id", "n", "k")).to_arrow().to_pylist()
    assert {row["_manifest_id"] for row in rows if row["k"] is not None} == {2}, "a column that was added"
    assert all(row["k"] == row["n"] % 9 for row in rows if row["_manifest_id"] == 2)
    assert Counter(read_by_duckdb(table.metadata_location)) == world.rows(), "another engine reads the same"


def test_expired_snapshots_take_no_evidence_away(world: IcebergWorld) -> None:
    compact(world)
    expire(world)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert world.here("plan", "demo", "--run-key", "0").stderr == ""
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    world.produce(10)
    world.ok("run", "demo")
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_table_that_was_rolled_back_is_refused_until_a_person_adopts_it(world: IcebergWorld) -> None:
    table = world.table()
    assert table is not None
    before = table.current_snapshot()
    assert before is not None
    assert before.parent_snapshot_id is not None
    roll_back(world, before.parent_snapshot_id)
    assert world.shown() == {1: 1, 2: 1}
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "went back: it stands at position 2, and this database has published up to position 3" in refused.stderr
    assert "does not show all of attempt 1, which is published" in world.here("audit", "demo").stdout
    adopted = world.ok("db", "adopt", "demo", *WHY)
    assert "manifest 3 is published and not in" in adopted
    assert "next: tidemark replay demo --manifest 3" in adopted
    world.ok("replay", "demo", "--manifest", "3")
    world.produce(10)
    world.ok("run", "demo")
    world.assert_complete()


def test_a_table_that_was_rolled_back_to_a_compaction_whose_past_was_expired_is_refused(world: IcebergWorld) -> None:
    """No snapshot that is left on main is one of Tidemark's, so none says which publications are in it."""
    compact(world)
    expire(world)
    compacted = current(world)
    for number in (3, 4):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
    assert world.shown() == dict.fromkeys(range(1, 6), 1)
    roll_back(world, compacted)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert "went back: it stands at position 3, and this database has published" in world.here("run", "demo").stderr
    adopted = world.ok("db", "adopt", "demo", *WHY)
    for manifest in ("4", "5"):
        assert f"next: tidemark replay demo --manifest {manifest}" in adopted
        world.ok("replay", "demo", "--manifest", manifest)
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "2")
    world.produce(10)
    world.ok("run", "demo")
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_catalog_that_was_restored_from_an_older_copy_is_refused_at_plan(world: IcebergWorld) -> None:
    """It names the metadata of the table as it was before the last publication."""
    older = "UPDATE iceberg_tables SET metadata_location = previous_metadata_location RETURNING table_name"
    with psycopg.connect(world.targets["warehouse"], autocommit=True) as connection:
        assert connection.execute(older).rowcount == 1
    for words in (("plan", "demo"), ("replay", "demo", "--manifest", "1"), ("repair", "demo", *WHY)):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "went back: it stands at position 2, and this database has published up to position 3" in refused.stderr
    assert "next: tidemark replay demo --manifest 3" in world.ok("db", "adopt", "demo", *WHY)
    world.ok("replay", "demo", "--manifest", "3")
    world.assert_complete()


def test_an_empty_database_adopts_what_the_table_says_and_a_renamed_sink_has_what_it_had(world: IcebergWorld) -> None:
    world.lose_manifest_database()
    refused = world.here("run", "demo")
    assert "belongs to another manifest database" in refused.stderr
    assert world.json("db", "adopt", "demo", *WHY)["manifests"] == [1, 2, 3]
    world.assert_complete()
    world.settings["sinks"] = world.sinks(name="lakehouse")
    world.write_pipeline()
    assert "tidemark rename sink demo iceberg lakehouse" in world.here("run", "demo").stderr
    world.ok("rename", "sink", "demo", "iceberg", "lakehouse", *WHY)
    assert world.ok("audit", "demo", "--deep") == ""
    assert "unchanged" in world.here("replay", "demo", "--manifest", "1").stderr
    world.produce(10)
    world.ok("run", "demo")
    assert world.rows().total() == 100 - len(world.bad)


def test_people_find_their_way(world: IcebergWorld) -> None:
    """``where``, dead letters, ``objects``, the summary of a snapshot, and doctor."""
    [row] = world.json("where", world.topic, "0", "3")
    assert row["sinks"][0]["place"] == f"connection warehouse, sql catalog tidemark, table {TABLE}"
    [dead] = world.json("where", world.topic, "0", "0")
    assert dead["sinks"][0]["place"].startswith(f"{world.location}/_dead_letters/")
    files = world.json("objects", "demo")
    assert world.ok("objects", "demo").splitlines() == [file["path"] for file in files]
    read = [pq.read_table(file["path"], columns=["_manifest_id"])["_manifest_id"].to_pylist() for file in files]
    assert [len(ids) for ids in read] == [file["rows"] for file in files]
    ids = [manifest_id for of_file in read for manifest_id in of_file]
    assert ids == sorted(ids), "manifest by manifest"
    assert len(ids) == world.rows().total()
    assert world.json("dead-letters", "demo")["count"] == len(world.bad)
    table = world.table()
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["tidemark.manifest"] == "3"
    assert snapshot.summary["tidemark.ranges"] == f"{world.topic}-0[30,45) {world.topic}-1[30,45)"
    assert json.loads(str(snapshot.summary["tidemark.counts"]))["written"] == 30 - 2
    examined = world.here("doctor", "demo").stdout
    assert "table, columns and partitions are what an attempt needs" in examined


def test_old_snapshots_are_dropped_except_those_that_a_tag_needs(make_iceberg_world: Make) -> None:
    world = make_iceberg_world(iceberg={"keep_snapshots": 2})
    for number in range(4):
        world.produce(20)
        world.ok("run", "demo", "--run-key", str(number))
        if number == 0:
            with world.catalog() as catalog:
                table = catalog.load_table(TABLE)
                table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "first").commit()
    table = world.table()
    assert table is not None
    assert len(table.metadata.snapshots) == 3
    assert world.shown() == dict.fromkeys(range(1, 5), 1)
    world.assert_complete()


@pytest.fixture
def targets(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[IcebergTarget]]:
    """The same table, which is not there yet, as two processes see it."""
    values = {"connection": "warehouse", "table": TABLE, "warehouse": "warehouse", "auto_create": True}
    settings = Settings.model_validate(values, context=LoadContext(tmp_path, tmp_path))
    with postgres.temporary_database("warehouse") as warehouse:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", warehouse)
        yield [IcebergTarget("demo", settings, from_environment) for _ in range(2)]


def test_a_command_keeps_its_connection_and_gets_another_one_where_the_server_has_ended_it(
    targets: list[IcebergTarget],
) -> None:
    dsn = os.environ["AIRFLOW_CONN_WAREHOUSE"]
    sessions = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(dsn, autocommit=True) as admin, keep_clients():

        def processes() -> list[int]:
            return [pid for (pid,) in admin.execute(f"SELECT pid {sessions}")]

        first, second = targets
        assert first.load() is None
        [kept] = processes()
        assert second.claimed() is None
        assert processes() == [kept], "the same of both"
        admin.execute(f"SELECT pg_terminate_backend(pid, 10000) {sessions}")
        assert first.load() is None
        [other] = processes()
        assert other != kept
        close_kept_clients()
        wait_until(lambda: not processes(), "the connection to be closed before Spark works", timeout=60)


def before_request(target: IcebergTarget, number: int, then: Callable[[], object]) -> None:
    """Do something as the target is about to ask the catalog for the ``number``-th time."""
    ask, numbers = target._catalog, count(1)

    def asked(**more: object) -> AbstractContextManager[OpenCatalog]:
        if next(numbers) == number:
            then()
        return ask(**more)

    target._catalog = asked  # type: ignore[method-assign]


@pytest.mark.parametrize("number", range(1, 7))
def test_of_two_databases_that_claim_a_table_at_once_at_most_one_gets_it(
    targets: list[IcebergTarget], number: int
) -> None:
    first, second = targets
    claims: list[Claim] = []

    def claim(target: IcebergTarget, database: str) -> None:
        with suppress(Unavailable):
            claims.append(target.claim(Owner(database)))

    before_request(first, number, lambda: claim(second, "B"))
    claim(first, "A")
    standing = second.claimed()
    assert all(made == standing for made in claims), "whoever is told of a claim is told of the one that stands"
    assert first.claim(Owner("A")) == second.claim(Owner("B")), "and nobody is in the way of a later one"


def test_who_claims_a_table_that_another_is_claiming_is_told_who(targets: list[IcebergTarget]) -> None:
    first, second = targets
    told: list[str] = []

    def claim() -> None:
        with pytest.raises(Unavailable) as refused:
            second.claim(Owner("B"))
        told.append(str(refused.value))

    before_request(first, 3, claim)  # it has said that it asks, and has not looked yet
    assert first.claim(Owner("A")).owner == Owner("A")
    [message] = told
    assert "another process claims the table at the same time, for pipeline demo of database A" in message
    assert "tidemark plan demo" in message


def test_two_slices_that_add_the_same_column_at_once_both_find_it(targets: list[IcebergTarget]) -> None:
    first, second = targets
    first.claim(Owner("A"))
    narrow, wide = (
        stored_columns({"format": "json", "schema": schema}, ()) for schema in ("n BIGINT", "n BIGINT, k BIGINT")
    )
    first.check(narrow)
    before_request(first, 3, lambda: second.check(wide))  # it has loaded the table without the column
    table = first.check(wide)
    assert table is not None
    assert [field.name for field in table.schema().fields].count("k") == 1


def create(world: IcebergWorld, schema: Schema) -> None:
    with world.catalog() as catalog:
        if catalog.table_exists(TABLE):
            catalog.drop_table(TABLE)
        catalog.create_namespace_if_not_exists("sales")
        catalog.create_table(TABLE, schema=schema, location=f"file://{world.location}")


def refusal(world: IcebergWorld) -> str:
    """The message of an attempt that must fail and leave no row."""
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1, failed.stderr
    assert "Traceback" not in failed.stderr
    assert "next:" in failed.stderr
    table = world.table()
    assert table is None or table.scan().to_arrow().num_rows == 0
    return failed.stderr


def test_a_table_of_another_shape_is_refused_by_name(make_iceberg_world: Make) -> None:
    world = make_iceberg_world()
    world.produce(20)
    world.ok("plan", "demo")
    create(world, Schema(NestedField(1, "n", StringType(), required=False)))
    assert "column n of the table is string, the rows have long" in refusal(world)
    create(world, Schema(NestedField(1, "n", LongType(), required=False)))
    assert "the table is partitioned by nothing, but the pipeline file says hour(_event_time)" in refusal(world)
    world.settings["sinks"] = world.sinks(auto_create=False, partition_by=[])
    world.write_pipeline()
    create(world, Schema(NestedField(1, "n", LongType(), required=False)))
    assert "the table has no column _topic, _topic_partition" in refusal(world)
    with world.catalog() as catalog:
        catalog.drop_table(TABLE)
    assert "the table does not exist" in refusal(world)


def test_a_table_that_was_upgraded_to_format_version_3_is_refused_before_anything_is_read(world: IcebergWorld) -> None:
    upgrade_to_version_3(world)
    world.produce(30)
    for words in (("doctor", "demo"), ("run", "demo", "--run-key", "v3"), ("retry", "demo")):
        refused = world.here(*words)
        assert refused.exit_code == 1, words
        assert (
            "the table has format version 3, and Tidemark can write only version 2" in refused.stdout + refused.stderr
        )
    assert not list(world.location.glob("data/0000000004*"))


def test_a_table_of_another_database_or_pipeline_and_a_catalog_that_is_down_are_named(world: IcebergWorld) -> None:
    second = world.another("second")
    (world.pipelines / "second.yaml").write_text(second)
    failed = world.here("run", "second")
    assert failed.exit_code == 1
    assert "the table belongs to pipeline demo" in failed.stderr
    (world.pipelines / "second.yaml").unlink()
    right = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:canary-of-iceberg@127.0.0.1:1/lakehouse"
    failed = world.here("run", "demo")
    assert failed.exit_code == 1
    assert "the catalog does not answer" in failed.stderr
    assert "canary-of-iceberg" not in failed.stderr + failed.stdout
    world.targets["warehouse"] = right
    assert world.rows().total() == 90 - len(world.bad)
    world.assert_complete()


def test_a_sink_that_is_added_later_is_filled(make_iceberg_world: Make) -> None:
    world = make_iceberg_world(has_lake=True)
    both = world.settings["sinks"]
    world.settings["sinks"] = both[:1]
    world.write_pipeline()
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    world.settings["sinks"] = both
    world.write_pipeline()
    world.ok("fill", "demo", "iceberg", *WHY)
    world.assert_complete()
    of_table, of_lake = world.json("objects", "demo", "--sink", "iceberg"), world.json("objects", "demo")
    assert {file["sink"] for file in of_lake} == {"files"}
    assert sum(file["rows"] for file in of_table) == sum(file["rows"] for file in of_lake) == 60 - len(world.bad)


def test_every_type_of_a_schema_is_stored_and_read_back_as_it_was(make_iceberg_world: Make) -> None:
    types = (
        "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, a INT, b DOUBLE, c DECIMAL(10,2), d DATE, e BOOLEAN, "
        "f ARRAY<STRING>, g STRUCT<x: INT, y: STRING>, h SMALLINT"
    )
    world = make_iceberg_world(settings={"decode": {"format": "json", "schema": types}}, partitions=1)
    value = {
        "n": 1, "at": "2024-03-01T10:00:00Z", "a": 2, "b": 0.5, "c": 2.5, "d": "2024-03-01", "e": True,
        "f": ["x", None], "g": {"x": 1, "y": "z"}, "h": 3,
    }  # fmt: skip
    nothing = {name: None for name in value if name not in ("n", "at")} | {"n": 2, "at": value["at"]}
    world.send(json.dumps(value), json.dumps(nothing))
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
    assert "unchanged" in world.here("replay", "demo", "--manifest", "1").stderr
    table = world.table()
    assert table is not None
    rows = table.scan().to_arrow().sort_by("n")
    assert rows.column("f").to_pylist() == [["x", None], None]
    assert rows.column("g").to_pylist() == [{"x": 1, "y": "z"}, None]
    assert rows.column("h").type == pa.int32()


def test_a_record_with_several_rows_has_them_all_and_each_has_its_number(make_iceberg_world: Make) -> None:
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, f ARRAY<STRING>"}
    explode = [{"explode": {"column": "f"}}]
    world = make_iceberg_world(settings={"decode": decode, "transform": explode}, partitions=1)
    world.send(*(json.dumps({"n": n, "at": "2024-03-01T10:00:00Z", "f": ["x"] * (n + 1)}) for n in range(3)))
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
    assert "unchanged" in world.here("replay", "demo", "--manifest", "1").stderr
    table = world.table()
    assert table is not None
    rows = table.scan(selected_fields=("_offset", "_row")).to_arrow().to_pylist()
    assert sorted((row["_offset"], row["_row"]) for row in rows) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]


def test_the_example_runs_and_its_partitions_are_hidden(make_iceberg_world: Make) -> None:
    world = make_iceberg_world(partitions=1)
    world.targets["lakehouse"] = world.targets.pop("warehouse")
    example = (CHECKOUT / "include" / "pipelines" / "examples" / "iceberg.yaml").read_text()
    example = example.replace("connection: kafka_default", f'bootstrap_servers: "{world.broker.bootstrap_servers}"')
    example = example.replace("topics: [orders]", f"topics: [{world.topic}]")
    (world.pipelines / "demo.yaml").write_text(example)
    orders = [
        {
            "order_id": number,
            "customer": f"c{number}",
            "price": 0.5,
            "ordered_at": f"2024-03-0{day}T10:00:00Z",
        }
        for number, day in enumerate((1, 1, 2, 2, 3))
    ]
    world.send(*map(json.dumps, orders), "{")
    world.ok("run", "orders_in_iceberg")
    assert world.ok("audit", "orders_in_iceberg", "--deep") == ""
    with catalog_at(world.targets["lakehouse"]) as catalog:
        table = catalog.load_table("sales.orders")
        assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[8]"]
        chosen = table.scan("_event_time >= '2024-03-02T00:00:00+00:00'")
        assert sorted(chosen.to_arrow().column("order_id").to_pylist()) == [2, 3, 4]
        assert len(list(chosen.plan_files())) < len(list(table.scan().plan_files())), "others are not opened"
        assert sorted(table.scan("customer = 'c1'").to_arrow().column("order_id").to_pylist()) == [1]


def test_a_table_in_a_bucket_is_written_and_its_metadata_too(make_iceberg_world: Make, s3: Bucket) -> None:
    world = make_iceberg_world(iceberg={"warehouse": s3.below(uuid4().hex).root, "store_connection": "store"})
    world.targets["store"] = s3.connection()
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
    [row] = world.json("where", world.topic, "0", "3")
    assert row["standing"] == "held"
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "1")
    assert world.ok("audit", "demo", "--deep") == ""
