"""An attempt of one manifest database is paused in the middle of publishing, as on a laptop that is closed. Meanwhile
another database adopts the lake and goes on. Then the attempt wakes: what it had put is taken back, and no record of it
is written."""

from collections.abc import Callable

import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.world import World, wait_stopped, wake
from tidemark.database.migrate import migrate

WHY = ("--why", "another database")


@pytest.mark.parametrize("point", ["publish.mid", "publish.before_record"])
@pytest.mark.parametrize("replayed", [False, True])
def test_it_wakes_and_leaves_the_lake_as_the_new_owner_has_it(
    make_world: Callable[..., World], postgres: Postgres, point: str, *, replayed: bool
) -> None:
    world = make_world()
    world.produce(30)
    world.ok("run", "demo")
    if replayed:
        world.settings["transform"] = [{"filter": "n <> 7"}]
        world.write_pipeline()
        sleeper = world.start("replay", "demo", "--manifest", "1", failpoint=f"{point}:stop")
    else:
        world.produce(20)
        sleeper = world.start("run", "demo", failpoint=f"{point}:stop")
    wait_stopped(sleeper)
    world.settings.pop("transform", None)
    world.write_pipeline()
    with postgres.temporary_database("second") as second:
        world.dsn = second
        migrate(second)
        world.ok("db", "adopt", "demo", *WHY)
        world.produce(10)
        world.ok("run", "demo")
        if replayed:
            world.ok("replay", "demo", "--manifest", "1")
        woken = wake(sleeper)
        assert woken.returncode == 1
        assert "was adopted by the manifest database" in woken.stderr
        assert world.listing() == world.everything()
        assert world.recorded() == world.everything()
        assert world.ok("audit", "demo", "--deep") == ""
        assert world.status("demo")[0]["state"] == "ok"
