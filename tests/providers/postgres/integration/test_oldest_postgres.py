"""The oldest PostgreSQL that the README names, as manifest database and as the database of a sink."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld
from tidemark.database.migrate import migrate


class OldestPostgres(Postgres):
    version = 16


@pytest.fixture
def world(tmp_path: Path, broker: Broker, spark_jars: Path) -> Iterator[TableWorld]:
    with OldestPostgres(tmp_path) as server:
        manifests, warehouse = server.create_database("manifests"), server.create_database("warehouse")
        migrate(manifests)
        with psycopg.connect(manifests) as connection:
            assert connection.info.server_version // 10_000 == OldestPostgres.version
        targets = {"warehouse": warehouse}
        with TableWorld(tmp_path / "world", manifests, broker, spark_jars, targets=targets) as made:
            yield made


@pytest.mark.thorough
def test_a_killed_run_ends_with_each_key_once_and_replays_and_audits_as_on_the_newest(world: TableWorld) -> None:
    world.produce(100, bad_every=11)
    assert world.tidemark("run", "demo", "--run-key", "one", failpoint="publish.before_mark:kill9").returncode < 0
    world.finish()
    world.ok("replay", "demo", "--manifest", "1")
    world.produce(40)
    world.ok("run", "demo")
    world.assert_complete()
    assert [pipeline["state"] for pipeline in world.status()] == ["ok"]
