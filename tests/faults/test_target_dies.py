"""G9: the database of a table is killed in the middle of the work and recovers, alone or together with the
manifests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld
from tests.worlds.world import wait_stopped, wake
from tidemark.database.migrate import migrate

POINTS = [
    "stage.done",
    "publish.receipt",
    "publish.mid",
    "publish.before_record",
    "publish.before_mark",
    "publish.marked",
]
CASES = [
    pytest.param(point, same, marks=() if (point, same) == ("stage.done", False) else pytest.mark.exhaustive)
    for point in POINTS
    for same in (False, True)
]


@pytest.fixture
def world(
    request: pytest.FixtureRequest, mortal: Postgres, database: str, broker: Broker, spark_jars: Path, tmp_path: Path
) -> Iterator[TableWorld]:
    """A table on the server that dies; with ``same`` the manifests are there too."""
    with mortal.temporary_database("warehouse") as warehouse:
        same = request.node.callspec.params["same"]
        if same:
            migrate(warehouse)
        dsn, targets = warehouse if same else database, {"warehouse": warehouse}
        with TableWorld(tmp_path / "world", dsn, broker, spark_jars, targets=targets) as made:
            yield made


@pytest.mark.parametrize(("point", "same"), CASES)
def test_G9_killed_and_back_while_a_process_is_stopped_nothing_is_half_applied(
    world: TableWorld, mortal: Postgres, point: str, same: bool
) -> None:
    world.produce(60, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(process)
    mortal.kill()
    mortal.restart()
    world.assert_whole()
    ended = wake(process)
    assert ended.returncode in (0, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    world.finish()


@pytest.mark.parametrize("same", [False])
def test_G9_staging_that_a_crash_emptied_is_noticed_by_counting(world: TableWorld, same: bool) -> None:
    world.produce(30, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one", failpoint="stage.done:stop")
    wait_stopped(process)
    for row in world.query("SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, 'staging')"):
        world.execute(f"TRUNCATE tidemark_target.{row['relname']}")  # what recovery does to an unlogged table
    ended = wake(process)
    assert ended.returncode == 1
    assert "staging holds 0 rows and 0 dead letters, the receipt says 26 and 4" in ended.stderr
    assert world.rows() == {}
    world.finish()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("point", "same"), [(point, False) for point in POINTS])
def test_G9_down_while_a_process_goes_on_it_says_so_and_the_next_one_ends_right(
    world: TableWorld, mortal: Postgres, point: str, same: bool
) -> None:
    world.produce(60, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(process)
    mortal.kill()
    try:
        ended = wake(process)
    finally:
        mortal.restart()
    assert "Traceback" not in ended.stderr
    world.finish()
