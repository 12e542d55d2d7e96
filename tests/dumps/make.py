"""`make dump` writes ``tests/dumps/VERSION.tar.gz``: what this version makes, for the tests of later ones.

The content is the same each time, but for ids and times. It has manifests in each state that they rest in, attempts
that published, found nothing to change and failed, publications in a lake and in a table, dead letters, lost offsets, a
sink that was added later and renamed, a pipeline that was renamed, decisions, and the history of all that.
"""

import tempfile
from pathlib import Path

from confluent_kafka import TopicPartition

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres, remove_home
from tests.worlds.forked_command import stop_servers
from tests.worlds.stored_dump import DUMPS, store
from tests.worlds.table_world import TableWorld, table_sink
from tidemark.database.migrate import migrate
from tidemark.version import VERSION


def live(world: TableWorld) -> None:
    """The life of one pipeline, by commands."""
    world.produce(100, bad_every=17)
    world.add_and_rename(table_sink(), world.lake_entry(), to="latest")
    world.rename("demo")
    world.produce(40)
    failed(world, "publish.mid")
    world.ok("retry", "demo")
    world.ok("replay", "demo", "--manifest", str(world.manifests()[-1]["id"]))

    end = world.broker.log_end(world.topic, 0)
    world.produce(60)
    world.administer("delete_records", [TopicPartition(world.topic, 0, end + 5)])
    assert world.here("plan", "demo").exit_code == 1
    world.ok("accept", "loss", "demo", "--why", "retention was too short")
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""

    world.produce(30)
    failed(world, "stage.done")
    world.produce(30)
    world.ok("plan", "demo")
    assert {manifest["state"] for manifest in world.manifests()} == {"done", "failed", "planned"}


def failed(world: TableWorld, place: str) -> None:
    """A run that ends with an error there."""
    done = world.tidemark("run", "demo", failpoint=f"{place}:raise")
    assert (done.returncode, f"failpoint {place} raised" in done.stderr) == (1, True), done.stderr


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "services")
        with Postgres(state) as postgres, Broker(state, STATE / "jars" / "kafka") as broker:
            dsn = postgres.create_database("tidemark_dump")
            migrate(dsn)
            world = TableWorld(
                Path(folder, "world"), dsn, broker, STATE / "jars" / "spark",
                topic=f"of-{VERSION}", targets={"warehouse": dsn}, has_lake=True, name="first",
            )  # fmt: skip
            live(world)
            path = DUMPS / f"{VERSION}.tar.gz"
            store(world, postgres, path)
            world.stop()
            stop_servers()
        remove_home(state)
    print(f"{path.relative_to(DUMPS.parents[1])}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
