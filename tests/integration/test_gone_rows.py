"""Rows of the ledger that somebody has deleted with triggers off: `status`, a plan and the audit name them, and the
step that they name brings them back."""

from collections.abc import Callable, Sequence

import psycopg
import pytest

from tests.worlds.world import World

MakeWorld = Callable[..., World]
REFERRING = ("manifest_range", "attempt", "publication", "manifest_hour")
STEP = "next: tidemark db adopt demo --why TEXT, which reads back what the records in the targets say"


def delete(world: World, manifest_id: int, tables: Sequence[str]) -> None:
    """Delete what the tables have of a manifest as a superuser who switches triggers and foreign keys off."""
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for table in tables:
            column = "id" if table == "manifest" else "manifest_id"
            connection.execute(f"DELETE FROM tidemark.{table} WHERE {column} = {manifest_id}")


@pytest.fixture(params=["files", "postgres"])
def world(request: pytest.FixtureRequest, make_world: MakeWorld, make_table_world: MakeWorld) -> World:
    """Three manifests of twenty records."""
    made = make_world(partitions=1) if request.param == "files" else make_table_world(partitions=1)
    for _ in range(3):
        made.produce(20)
        made.ok("run", "demo")
    return made


def exact(world: World) -> bool:
    """Whether the sink shows every record once."""
    shown = getattr(world, "merged_spans", world.exact)()
    return bool(shown == world.everything())


@pytest.mark.parametrize("manifest_id", [1, 2, 3])
@pytest.mark.parametrize(
    ("tables", "named"),
    [
        (["manifest"], "table manifest of the manifest database: manifest {id}"),
        (["manifest_range"], "table manifest_range of the manifest database: manifest {id}"),
        (["attempt"], "table attempt of the manifest database: manifest {id}"),
        ([*REFERRING, "manifest"], "table manifest of the manifest database: manifest {id}"),
    ],
    ids=["manifest", "range", "attempt", "all of it"],
)
def test_a_published_manifest_without_rows_is_named_and_read_back(
    world: World, tables: Sequence[str], named: str, manifest_id: int
) -> None:
    delete(world, manifest_id, tables)
    cause = f"rows are gone from the {named.format(id=manifest_id)}"
    status, audit, run = world.here("status", "demo"), world.here("audit", "demo"), world.here("run", "demo")
    for told in (status.stdout, audit.stdout, run.stderr):
        assert cause in told, told
    assert (status.exit_code, audit.exit_code, run.exit_code) == (1, 1, 1)
    assert status.stdout.startswith("demo: damaged")
    assert STEP in " ".join(status.stdout.split())
    assert STEP in audit.stdout

    world.ok("db", "adopt", "demo", "--why", "the test of gone rows")
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SELECT tidemark.count_done()")  # what an audit names next, where sums were changed by hand
    assert world.ok("audit", "demo") == ""
    world.produce(20)
    world.ok("run", "demo")
    assert world.ok("status", "demo").startswith("demo: ok")
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.chain() == [
        (0, "anchor", None, 0), (0, "data", 0, 20), (0, "data", 20, 40), (0, "data", 40, 60), (0, "data", 60, 80),
    ]  # fmt: skip
    assert exact(world)


def test_a_manifest_without_its_publication_is_damaged_until_it_is_replayed(world: World) -> None:
    delete(world, 2, ["publication"])
    status = world.here("status", "demo")
    assert (status.exit_code, "is done without a publication" in status.stdout) == (1, True), status.stdout
    assert "next: tidemark replay demo --manifest 2" in status.stdout
    world.ok("replay", "demo", "--manifest", "2")
    assert world.ok("status", "demo").startswith("demo: ok")
    assert exact(world)


def test_what_nothing_was_published_of_is_planned_again(make_world: MakeWorld) -> None:
    """No target has a record of it: its own row, or its offsets, are planned again, and are read once."""
    world = make_world(partitions=1)
    world.produce(20)
    for tables in (["manifest"], ["manifest_range"], [*REFERRING, "manifest"]):
        [manifest_id] = world.json("plan", "demo")["manifests"]
        assert world.tidemark("retry", "demo", failpoint="publish.receipt:kill9@always").returncode < 0
        world.produce(20)
        world.ok("plan", "demo")
        delete(world, manifest_id, tables)
        status = world.here("status", "demo")
        assert "rows are gone from the table " in status.stdout, (tables, status.stdout)
        world.ok("db", "adopt", "demo", "--why", "the test of gone rows")
        world.ok("retry", "demo")
        assert world.ok("status", "demo").startswith("demo: ok"), tables
        assert world.exact() == world.everything()
        world.produce(20)
