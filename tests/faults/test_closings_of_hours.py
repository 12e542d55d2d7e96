"""Event hours of a run that is killed between receipt, publication and closing, or is paused and continues late."""

import json
import signal
from datetime import UTC, datetime, timedelta

import pytest

from tests.faults.kinds_of_worlds import world_of
from tests.worlds.s3_world import S3World
from tests.worlds.world import World, wait_stopped, wake
from tidemark.failpoints import FAILPOINTS_OF_HOURS

DAY = datetime(2024, 3, 1, tzinfo=UTC)
SUCCESS = "2024/03/01/00/_SUCCESS"


@pytest.fixture(params=["lake", pytest.param("bucket", marks=[pytest.mark.exhaustive, pytest.mark.bucket])])
def world(request: pytest.FixtureRequest) -> World:
    """The first hour is complete at revision 1, and a late row for it is in Kafka."""
    made = world_of(request.param, request, partitions=1)
    [sink] = made.settings.get("sinks", [{"files": {"root": str(made.lake)}}])
    made.settings["sinks"] = [{"files": {**sink["files"], "success_files": True}}]
    made.write_pipeline()
    send(made, arrival=0.5)
    return made


def at(hours: float) -> str:
    return (DAY + timedelta(hours=hours)).isoformat()


def send(world: World, arrival: float) -> None:
    """A record of the first hour."""
    value = json.dumps({"n": 1, "at": at(0.5), "name": "x"})
    world.send(value, at=DAY + timedelta(hours=arrival))


def hour(world: World) -> tuple[int, bool, int]:
    """(rows, complete, revision) of the first hour."""
    view = world.json("hours", "demo")[0]
    return view["rows"], view["complete"], view["revision"]


def shown(world: World) -> int | None:
    """The revision that the success file of the first hour says."""
    key = f"raw/{world.topic}/{SUCCESS}"
    if isinstance(world, S3World):
        return json.loads(world._below.content(key))["revision"] if key in world.object_keys() else None
    path = world.lake / key
    return json.loads(path.read_text())["revision"] if path.exists() else None


@pytest.mark.parametrize(
    ("point", "after"),
    [
        ("stage.done", (1, True, 1)),
        ("publish.receipt", (1, False, 1)),
        ("publish.before_mark", (1, False, 1)),
        ("publish.marked", (2, False, 1)),
        ("hours.before_commit", (2, False, 1)),
        ("hours.after_commit", (2, True, 2)),
        ("hours.before_success", (2, True, 2)),
    ],
)
def test_killed_between_receipt_and_closing_an_hour_is_open_until_a_run_closes_it(
    world: World, point: str, after: tuple[int, bool, int]
) -> None:
    world.ok("run", "demo", "--until", at(2))
    assert (hour(world), shown(world)) == ((1, True, 1), 1)
    send(world, arrival=2.5)
    killed = world.tidemark("run", "demo", "--until", at(3), failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (hour(world), shown(world)) == (after, 1)
    world.ok("retry", "demo")
    world.ok("run", "demo", "--until", at(3))
    assert (hour(world), shown(world)) == ((2, True, 2), 2)
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("point", FAILPOINTS_OF_HOURS)
def test_a_paused_close_that_wakes_late_completes_and_overwrites_nothing(world: World, point: str) -> None:
    world.ok("plan", "demo", "--until", at(2))
    world.ok("retry", "demo")
    paused = world.start("run", "demo", "--until", at(2), failpoint=f"{point}:stop")
    wait_stopped(paused)
    send(world, arrival=2.5)
    world.ok("run", "demo", "--until", at(4))
    before = hour(world), shown(world)
    assert before == ((2, True, 1 if point == "hours.before_commit" else 2), before[1])
    assert before[1] == before[0][2]
    woken = wake(paused)
    assert "Traceback" not in woken.stderr
    assert woken.returncode == (1 if point == "hours.before_commit" else 0), woken.stderr
    assert (hour(world), shown(world)) == before
