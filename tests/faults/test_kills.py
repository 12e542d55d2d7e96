"""`kill -9` at every failpoint, over every kind of sink; then `retry` and `run` end in the rows of a fault-free run."""

import signal
import subprocess
import time
from collections.abc import Callable, Collection

import pytest

from tests.faults.kinds_of_worlds import KINDS
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_ended, wait_stopped, wake
from tidemark.failpoints import FAILPOINTS

OF_NO_SINK = FAILPOINTS[: FAILPOINTS.index("stage.mid")]  # there nothing has been written, whatever the sinks are
BEFORE_RECORD = FAILPOINTS[: FAILPOINTS.index("publish.before_mark")]
IN_THE_MERGE = ("publish.mid", "publish.before_record", "publish.before_mark")  # 10 s idle there end the session
BEFORE_PUBLICATION = FAILPOINTS[: FAILPOINTS.index("publish.marked")]


TELLING = ("publish.receipt", "publish.mid", "publish.before_mark", "publish.marked")  # where two sinks may differ
OF_ATTEMPTS = [point for point in FAILPOINTS if not point.startswith("plan.")]
ALONE = ("lake", "bucket")  # test_guarantees.py kills over these at the same failpoints, and looks closer


def at_each(
    points: Collection[str],
    first: str,
    *,
    but: Collection[str] = (),
    quick: Collection[str] = (),
) -> pytest.MarkDecorator:
    """At each of the points over all kinds of sinks ``but`` some, and where no sink is written to over the ``first``.

    The ``quick`` points over the first one are in `make test`, all others only in `make test-faults`.
    """
    cases = [
        pytest.param(kind, point, marks=() if kind == first and point in quick else pytest.mark.exhaustive)
        for kind in KINDS
        for point in points
        if kind not in but and (kind == first or point not in OF_NO_SINK)
    ]
    return pytest.mark.parametrize(("world", "point"), cases, indirect=["world"])


@at_each(FAILPOINTS, "lake and table", but=ALONE, quick=("stage.mid", *TELLING))
def test_killed_at_a_failpoint_nothing_is_missing_and_nothing_twice(world: World, point: str) -> None:
    world.produce(100, bad_every=9)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.assert_whole()
    published = {manifest["id"] for manifest in world.json("manifests", "demo") if manifest["published_attempt"]}
    assert len(published) == (0 if point in BEFORE_PUBLICATION else 1)
    world.ok("retry", "demo")
    world.assert_whole()
    world.ok("run", "demo", "--run-key", "one")
    world.assert_complete()
    world.produce(50)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


@at_each(OF_ATTEMPTS, "table", but=(*ALONE, "topic"))  # a topic has nothing to move: test_topic_sink.py appends again
def test_killed_while_replaying_what_is_published_stays_whole(world: World, point: str) -> None:
    world.produce(60)
    world.ok("run", "demo")
    last = world.manifests()[-1]  # a table still has rows of it
    world.damage(last)  # else the replay finds its own rows published and moves nothing
    killed = world.tidemark("replay", "demo", "--manifest", str(last["id"]), failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert world.json("show", str(last["id"]))["state"] == "done"
    world.ok("replay", "demo", "--manifest", str(last["id"]))
    world.assert_complete()


def standing(world: World) -> object:
    """What readers count: the rows, and which attempt is published in each sink."""
    published = [(manifest["id"], manifest["publications"]) for manifest in world.manifests()]
    return world.exact(), world.rows() if isinstance(world, TableWorld) else {}, published


@at_each(OF_ATTEMPTS, "lake", quick=("stage.done", "publish.mid", "publish.before_mark"))
def test_a_paused_attempt_that_wakes_late_changes_nothing_readers_count(world: World, point: str) -> None:
    world.produce(60)
    paused = world.start("run", "demo", failpoint=f"{point}:stop")
    wait_stopped(paused)
    taken_over = {manifest["id"]: manifest["attempt"] for manifest in world.json("manifests", "demo")}
    world.ok("replay", "demo", "--run-key", world.manifests()[0]["run_key"], "--take-over")
    world.assert_readers_complete()
    before = standing(world)
    woken = wake(paused)
    assert "Traceback" not in woken.stderr
    assert standing(world) == before
    if isinstance(world, TableWorld) and world.targets.get("warehouse") == world.dsn and point in IN_THE_MERGE:
        assert (woken.returncode, "the manifest database failed" in woken.stderr) == (1, True), "it lost its session"
    else:
        assert woken.returncode == 0, woken.stderr
    if world.lies_in_files():
        assert world.listing() == world.exact(), "it takes back what it had put"
    world.ok("retry", "demo")
    world.assert_complete()
    assert all(manifest["attempt"] > taken_over[manifest["id"]] for manifest in world.json("manifests", "demo"))


@pytest.mark.parametrize("point", [point for point in FAILPOINTS if point.startswith("plan")])
def test_a_paused_planner_that_wakes_late_planned_what_nobody_else_did(
    make_world: Callable[..., World], point: str
) -> None:
    """Inside its transaction it holds others up; after it they go on, and so does it."""
    world = make_world()
    world.produce(60)
    paused = world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(paused)
    world.produce(40)
    other = world.start("run", "demo", "--run-key", "two")
    if point == "plan.after_commit":
        assert wait_ended(other).returncode == 0
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=4)
        assert world.json("manifests", "demo") == [], "one planner at a time"
    assert wake(paused).returncode == 0
    assert wait_ended(other).returncode == 0
    world.assert_complete()


@at_each(FAILPOINTS, "lake", quick=FAILPOINTS)
def test_an_error_at_a_failpoint_is_one_message_and_leaves_nothing_half(world: World, point: str) -> None:
    world.produce(60)
    failed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:raise")
    assert failed.returncode == 1
    assert f"failpoint {point} raised" in failed.stderr
    assert "Traceback" not in failed.stderr
    world.assert_whole()
    if point in BEFORE_RECORD and world.lies_in_files():
        assert world.listing() == world.exact(), "a failed attempt takes back what it had put"
    world.finish()


@pytest.mark.parametrize(
    ("world", "seconds"),
    [
        pytest.param(kind, seconds, marks=() if (kind, seconds) == ("lake", 0.3) else pytest.mark.exhaustive)
        for kind in KINDS
        for seconds in (0.1, 0.2, 0.3, 0.45, 0.7)
    ],
    indirect=["world"],
)
def test_killed_at_any_moment_a_retry_and_a_run_end_right(world: World, seconds: float) -> None:
    world.produce(80, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one")
    time.sleep(seconds)  # the work takes 0.4 s over a folder, and up to 1 s elsewhere: the moments lie all over it
    process.kill()
    process.communicate()
    world.finish()
