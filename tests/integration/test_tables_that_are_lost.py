"""Tables that somebody has dropped, created again, emptied or restored while manifests are published there."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from deltalake import DeltaTable
from pyiceberg.types import StringType

from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld
from tests.worlds.iceberg_world import IcebergWorld
from tests.worlds.table_world import TableWorld
from tests.worlds.totals_world import TotalsWorld
from tests.worlds.world import World
from tidemark.lifecycle import attempt

MAKERS = [
    "make_table_world", "make_totals_world", "make_iceberg_world", "make_keyed_iceberg_world", "make_delta_world",
    "make_keyed_delta_world",
]  # fmt: skip
WHY = ("--why", "a test")
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}


@pytest.fixture(params=MAKERS)
def world(request: pytest.FixtureRequest) -> World:
    """Two manifests published, each in a run of its own."""
    made: World = request.getfixturevalue(request.param)(settings=ONE_MANIFEST)
    for number in range(2):
        made.produce(40, bad_every=0 if number else 13)
        made.ok("run", "demo", "--run-key", str(number))
    return made


def tables(world: TableWorld) -> list[str]:
    return [world.written, f"{world.written}_contributions"] if isinstance(world, TotalsWorld) else [world.written]


def drop(world: World) -> None:
    if isinstance(world, TableWorld):
        for table in tables(world):
            world.execute(f"DROP TABLE {table}")
    elif isinstance(world, IcebergWorld):
        with world.catalog() as catalog:
            catalog.drop_table(world.written)
    elif isinstance(world, DeltaWorld):
        for folder in [*Path(world.location).glob("_*=*"), Path(world.location, "_delta_log")]:
            shutil.rmtree(folder)


def replace_each(world: TableWorld, *, with_rows: bool) -> None:
    """Drop each table, and create it again as it was: empty, or with its rows."""
    for table in tables(world):
        world.execute(f"CREATE TABLE {table}_new (LIKE {table} INCLUDING ALL)")
        if with_rows:
            world.execute(f"INSERT INTO {table}_new SELECT * FROM {table}")
        world.execute(f"DROP TABLE {table}")
        world.execute(f"ALTER TABLE {table}_new RENAME TO {table.rpartition('.')[2]}")


def create_again(world: World) -> None:
    """Empty, as somebody does who has dropped it by mistake."""
    if isinstance(world, TableWorld):
        replace_each(world, with_rows=False)
    elif isinstance(world, IcebergWorld):
        table = world.table()
        assert table is not None
        drop(world)
        with world.catalog() as catalog:
            catalog.create_table(
                world.written,
                schema=table.schema(),
                partition_spec=table.spec(),
                properties=table.properties,
                location=table.location(),
            )
    elif isinstance(world, DeltaWorld):
        table = world.loaded()
        drop(world)
        DeltaTable.create(
            world.location, table.schema(), partition_by=table.metadata().partition_columns,
            configuration=table.metadata().configuration, raise_if_key_not_exists=False,
        )  # fmt: skip


def restore(world: World) -> None:
    """Drop it, and bring it back from a copy that has all rows."""
    if isinstance(world, TableWorld):
        replace_each(world, with_rows=True)
    elif isinstance(world, IcebergWorld):
        table = world.table()
        assert table is not None
        drop(world)
        with world.catalog() as catalog:
            catalog.register_table(world.written, table.metadata_location)
    elif isinstance(world, DeltaWorld):
        shutil.copytree(world.location, f"{world.location}.copy")
        shutil.rmtree(world.location)
        assert world.here("plan", "demo").exit_code == 1
        shutil.copytree(f"{world.location}.copy", world.location)


def empty(world: World) -> None:
    if isinstance(world, TableWorld):
        world.execute(f"TRUNCATE {', '.join(tables(world))}")
    elif isinstance(world, IcebergWorld):
        with world.catalog() as catalog:
            catalog.load_table(world.written).delete()
    elif isinstance(world, DeltaWorld):
        partition = "_bucket" if isinstance(world, KeyedDeltaWorld) else "_manifest_id"
        world.loaded().delete(f"{partition} > {-1 if isinstance(world, KeyedDeltaWorld) else 0}")


def replays_in(done: Result) -> list[str]:
    return list(dict.fromkeys(re.findall(r"tidemark (replay demo --manifest \d+)", done.output)))


def follow(world: World) -> None:
    """Type what each audit says, until one finds nothing."""
    for _ in range(3):
        audited = world.here("audit", "demo")
        if audited.exit_code == 0:
            return
        assert replays_in(audited), audited.output
        for step in replays_in(audited):
            world.ok(*step.split())
    pytest.fail("the advice of audits leads in a circle")


@pytest.mark.parametrize(("lose", "what"), [
    (drop, "does not exist any more"), (create_again, "is not the table that it was")])  # fmt: skip
def test_a_table_that_was_dropped_is_missed_by_every_command_and_begun_again_only_when_a_person_accepts_it(
    world: World, lose: Callable[[World], None], what: str
) -> None:
    lose(world)
    world.produce(40)
    for words in (("run", "demo"), ("plan", "demo"), ("retry", "demo"), ("replay", "demo", "--manifest", "1"),
                  ("audit", "demo"), ("show", "1", "--compare", "--json"), ("doctor", "demo")):  # fmt: skip
        done = world.here(*words)
        assert words == ("retry", "demo") or done.exit_code == 1, words
        assert words == ("retry", "demo") or what in done.output, (words, done.output)
    assert world.here("status").exit_code == 1
    refused = world.here("run", "demo").stderr
    sink = world.settings["sinks"][0]
    [(kind, settings)] = sink.items()
    assert f"published there: 2 manifests of sink {settings.get('name', kind)} of pipeline demo" in refused
    assert "tidemark db adopt demo --why TEXT" in refused
    adopted = world.here("db", "adopt", "demo", *WHY)
    assert adopted.exit_code == 0, adopted.output
    assert replays_in(adopted) == [f"replay demo --manifest {number}" for number in (1, 2)]
    [known] = world.status("demo")
    assert known["state"] == "damaged", "a run alone would leave the old rows out"
    assert "tidemark replay demo --damaged; then: tidemark audit demo" in known["problems"][0]["next_step"]
    world.ok("replay", "demo", "--damaged")
    follow(world)
    world.ok("run", "demo", "--run-key", "more")
    world.assert_complete()


def test_a_table_that_was_restored_goes_on_when_a_person_accepts_it(world: World) -> None:
    restore(world)
    world.produce(40)
    done = world.here("run", "demo", "--run-key", "more")
    if done.exit_code:
        assert "is not the table that it was" in done.stderr
        assert "tidemark audit demo --deep" in world.ok("db", "adopt", "demo", *WHY)
        world.ok("run", "demo", "--run-key", "more")
    world.assert_complete()


def test_a_table_that_was_emptied_is_noticed_without_reading_a_row_and_replays_fill_it(world: World) -> None:
    empty(world)
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert replays_in(audited)
    assert world.here("status").exit_code == 1
    follow(world)
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_lost_table_is_filled_beside_under_another_name(world: World) -> None:
    drop(world)
    if isinstance(world, DeltaWorld):
        shutil.rmtree(world.location)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    fill_beside(world)


def fill_beside(world: World) -> None:
    """Fill a sink of another table and name, and retire the one that was lost."""
    [(kind, settings)] = world.settings["sinks"][0].items()
    place: dict[str, Any] = {"location": f"{world.folder}/beside"} if kind == "delta" else {"table": "sales.beside"}
    world.settings["sinks"] = [{kind: {**settings, **place, "name": "beside"}}]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", settings.get("name", kind), *WHY)
    world.ok("fill", "demo", "beside", *WHY)
    world.produce(40)
    world.ok("run", "demo", "--run-key", "more")
    assert world.ok("audit", "demo", "--deep") == ""
    assert [manifest["state"] for manifest in world.manifests()] == ["done"] * 3


def drop_column(world: World) -> None:
    """The column ``name``, of the totals a column of each table."""
    if isinstance(world, TableWorld):
        for table in tables(world):
            world.execute(f"ALTER TABLE {table} DROP COLUMN {'n_sum' if isinstance(world, TotalsWorld) else 'name'}")
    elif isinstance(world, IcebergWorld):
        with world.catalog() as catalog, catalog.load_table(world.written).update_schema() as update:
            update.delete_column("name")
    elif isinstance(world, DeltaWorld):
        drop_from_log(world, "name")


def drop_from_log(world: DeltaWorld, column: str) -> None:
    """The files keep the column; a reader takes the columns that the newest metadata names."""
    log = Path(world.location, "_delta_log")
    commits = sorted(log.glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != column]
    action = {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    (log / f"{int(commits[-1].stem) + 1:020d}.json").write_text(json.dumps(action) + "\n")


def add_column(world: World) -> None:
    """The column ``name``, as somebody does who has dropped it by mistake."""
    if isinstance(world, TableWorld):
        world.execute(f"ALTER TABLE {world.written} ADD COLUMN name text")
    elif isinstance(world, IcebergWorld):
        with world.catalog() as catalog, catalog.load_table(world.written).update_schema() as update:
            update.add_column("name", StringType())


def damage(world: World) -> list[str]:
    problems = world.status("demo")[0]["problems"]
    return [problem["what"] for problem in problems if problem["kind"] == "damaged"]


# Tables of Delta, as Tidemark makes them, let nobody drop a column.
@pytest.mark.parametrize(("world", "again"), [
    ("make_table_world", False), ("make_table_world", True), ("make_totals_world", False),
    ("make_iceberg_world", True), ("make_keyed_iceberg_world", False), ("make_delta_world", False),
    ("make_keyed_delta_world", False)], indirect=["world"])  # fmt: skip
def test_a_column_that_was_dropped_is_missed_by_every_command_and_comes_back_with_its_values(
    world: World, again: bool
) -> None:
    before = values_of(world)
    drop_column(world)
    if again:
        add_column(world)
    for words in (("run", "demo"), ("plan", "demo"), ("replay", "demo", "--manifest", "1"), ("audit", "demo"),
                  ("show", "1", "--compare", "--json"), ("doctor", "demo")):  # fmt: skip
        done = world.here(*words)
        assert (done.exit_code, "of published rows" in done.output) == (1, True), (words, done.output)
    assert damage(world)
    if isinstance(world, TotalsWorld):
        refused = world.here("db", "adopt", "demo", *WHY)
        assert (refused.exit_code, "retire sink demo" in refused.stderr) == (1, True)
        fill_beside(world)
        assert world.status("demo")[0]["state"] == "ok"
        return
    assert "tidemark replay demo --manifest 2" in world.ok("db", "adopt", "demo", *WHY)
    world.ok("run", "demo", "--run-key", "more")
    assert damage(world)
    follow(world)
    world.assert_complete()
    assert values_of(world) == before
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.status("demo")[0]["state"] == "ok"


def values_of(world: World) -> list[Any]:
    """The values of the column ``name``."""
    if isinstance(world, TotalsWorld):
        return []
    if isinstance(world, TableWorld):
        return sorted(str(row["name"]) for row in world.query(f"SELECT name FROM {world.written}"))
    if isinstance(world, DeltaWorld):
        return sorted(str(row["name"]) for row in world.all_rows())
    assert isinstance(world, IcebergWorld)
    table = world.table()
    assert table is not None
    return sorted(map(str, table.scan().to_arrow()["name"].to_pylist()))


@pytest.mark.parametrize("world", ["make_table_world", "make_keyed_iceberg_world"], indirect=True)
def test_a_column_that_the_file_and_the_table_have_no_more_is_accepted_without_a_replay(world: World) -> None:
    drop_column(world)
    schema = world.settings["decode"]["schema"]
    world.settings["decode"]["schema"] = schema.replace("name STRING, ", "")
    assert world.settings["decode"]["schema"] != schema
    world.write_pipeline()
    assert "has lost columns of published rows (name)" in world.here("run", "demo").stderr
    assert "replay" not in world.ok("db", "adopt", "demo", *WHY)
    world.produce(20)
    world.ok("run", "demo", "--run-key", "more")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("world", ["make_delta_world"], indirect=True)
def test_a_table_that_went_back_and_has_lost_a_column_is_accepted_as_both(world: World) -> None:
    assert isinstance(world, DeltaWorld)
    before = values_of(world)
    world.loaded().restore(world.loaded().version() - 1)
    drop_column(world)
    adopted = world.ok("db", "adopt", "demo", *WHY)
    assert "went back" in adopted
    assert "columns (name) are missing too" in adopted
    assert "tidemark audit demo --deep" in adopted
    assert "replay demo --manifest 2" in adopted
    world.ok("replay", "demo", "--manifest", "2")
    assert values_of(world) == before
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("make", ["make_table_world", "make_iceberg_world", "make_delta_world"])
def test_a_table_that_is_dropped_while_an_attempt_is_at_work_is_not_created_by_its_commit(
    request: pytest.FixtureRequest, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world: World = request.getfixturevalue(make)(settings=ONE_MANIFEST)
    world.produce(20)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(20)
    world.ok("plan", "demo", "--run-key", "two")

    def dropped(point: str) -> None:
        if point == "stage.done":
            drop(world)

    monkeypatch.setattr(attempt, "failpoint", dropped)
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1
    assert "does not exist any more" in failed.stderr
