"""`kill -9` at every failpoint, over every kind of sink; then `retry` and `run` end in the rows of a fault-free run.

One world of each kind has manifests for each failpoint in turn, and one deep audit at the end. What readers see of a
target that had nothing before is checked at each failpoint by test_guarantees.py and similar modules. A kind that
consists of other kinds, which are killed at each failpoint, takes every second failpoint; another run takes the others.
"""

import random
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

import pytest

from tests.faults.kinds_of_worlds import KINDS, world_of
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_ended, wait_stopped, wake
from tidemark.failpoints import FAILPOINTS

pytestmark = pytest.mark.timeout(600)

OF_NO_SINK = FAILPOINTS[: FAILPOINTS.index("stage.mid")]  # there nothing has been written, whatever the sinks are
BEFORE_RECORD = FAILPOINTS[: FAILPOINTS.index("publish.before_mark")]
IN_THE_MERGE = ("publish.mid", "publish.before_record", "publish.before_mark")  # 10 s idle there end the session
BEFORE_PUBLICATION = FAILPOINTS[: FAILPOINTS.index("publish.marked")]

TELLING = ("publish.receipt", "publish.mid", "publish.before_mark", "publish.marked")  # where two sinks may differ
OF_ATTEMPTS = [point for point in FAILPOINTS if not point.startswith("plan.")]
ONE_OF_EACH = ("lake", "bucket", "table", "topic", "iceberg", "totals", "dynamodb")
ALONE = ("lake", "bucket")  # test_guarantees.py kills over these at the same failpoints, and looks closer
COMBINED = ("lake and table", "lake and topic", "lake and totals")  # of kinds that are killed at each failpoint
SAME = ("table in the manifest database", "totals in the manifest database")  # these share what they have of their own


def at_each(
    points: Sequence[str],
    first: str,
    *,
    but: Collection[str] = (),
    quick: Sequence[str] = (),
    once: Collection[str] = (),
    in_turns: Collection[str] = (),
) -> pytest.MarkDecorator:
    """The points over each kind of sinks ``but`` some; those where no sink is written to, over the ``first`` alone, and
    every second one over kinds ``in_turns``.

    The ``quick`` points over the first one are in `make test-all`, and the kinds to kill ``once`` in `make test`; all
    others only in `make test-faults`.
    """
    later = {
        kind: [point for point in points if point not in (quick if kind == first else OF_NO_SINK)]
        for kind in KINDS
        if kind not in but
    }
    cases = [
        *(pytest.param(kind, (("publish.mid",), 1), id=f"{kind}, once", marks=pytest.mark.road) for kind in once),
        *([pytest.param(first, (quick, 1), id=f"{first}, quick", marks=pytest.mark.thorough)] if quick else ()),
        *(
            pytest.param(kind, (own, 2 if kind in in_turns else 1), id=kind, marks=pytest.mark.exhaustive)
            for kind, own in later.items()
            if own
        ),
    ]
    return pytest.mark.parametrize(("world", "points"), cases, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """Some of its rows do not meet what is expected of them."""
    return world_of(request.param, request, expects=True)


@pytest.fixture
def points(request: pytest.FixtureRequest) -> Sequence[str]:
    """All of them, or each of so many, from a first one that is drawn."""
    names, apart = request.param
    chosen: Sequence[str] = names[secrets.randbelow(apart) :: apart]
    return chosen


@at_each(
    FAILPOINTS, "lake and table", but=ALONE, quick=("stage.mid", *TELLING), once=ONE_OF_EACH, in_turns=COMBINED[1:]
)
def test_killed_at_a_failpoint_nothing_is_missing_and_nothing_twice(world: World, points: Sequence[str]) -> None:
    for point in points:
        before = len(world.manifests())
        world.produce(50, bad_every=9)
        killed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:kill9")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        world.assert_whole()
        published = [manifest for manifest in world.manifests()[before:] if manifest["published_attempt"]]
        assert len(published) == (0 if point in BEFORE_PUBLICATION else 1), point
        world.ok("retry", "demo")
        world.assert_whole()
        world.ok("run", "demo", "--run-key", point)
        world.assert_whole()
    world.assert_complete()
    world.produce(50)
    world.ok("run", "demo", "--run-key", "another")
    world.assert_complete()


# A topic has nothing to move: test_topic_sink.py appends again.
@at_each(OF_ATTEMPTS, "table", but=(*ALONE, "topic"), in_turns=(*COMBINED, *SAME))
def test_killed_while_replaying_what_is_published_stays_whole(world: World, points: Sequence[str]) -> None:
    world.produce(60)
    world.ok("run", "demo")
    last = world.manifests()[-1]  # a table still has rows of it
    for point in points:
        world.damage(last)  # else the replay finds its own rows published and moves nothing
        killed = world.tidemark("replay", "demo", "--manifest", str(last["id"]), failpoint=f"{point}:kill9")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        assert world.json("show", str(last["id"]))["state"] == "done", point
        world.ok("replay", "demo", "--manifest", str(last["id"]))
        world.assert_readers_complete()
        last = world.manifests()[-1]
    world.assert_complete()


def standing(world: World) -> object:
    """What readers count: the rows, and which attempt is published in each sink."""
    published = [(manifest["id"], manifest["publications"]) for manifest in world.manifests()]
    return world.exact(), world.rows() if isinstance(world, TableWorld) else {}, published


@at_each(OF_ATTEMPTS, "lake", quick=("stage.done", "publish.mid", "publish.before_mark"), in_turns=(*COMBINED, *SAME))
def test_a_paused_attempt_that_wakes_late_changes_nothing_readers_count(world: World, points: Sequence[str]) -> None:
    for point in points:
        world.produce(60)
        paused = world.start("run", "demo", "--run-key", point, failpoint=f"{point}:stop")
        wait_stopped(paused)
        taken_over = {manifest["id"]: manifest["attempt"] for manifest in manifests_of(world, point)}
        world.ok("replay", "demo", "--run-key", point, "--take-over")
        world.assert_readers_complete()
        before = standing(world)
        woken = wake(paused)
        assert "Traceback" not in woken.stderr, point
        assert standing(world) == before, point
        if isinstance(world, TableWorld) and world.targets.get("warehouse") == world.dsn and point in IN_THE_MERGE:
            lost = "the manifest database failed" in woken.stderr
            assert (woken.returncode, lost) == (1, True), f"{point}: it lost its session"
        else:
            assert woken.returncode == 0, (point, woken.stderr)
        if world.lies_in_files():
            assert world.listing() == world.exact(), f"{point}: it takes back what it had put"
        world.ok("retry", "demo")
        world.assert_readers_complete()
        attempts = {manifest["id"]: manifest["attempt"] for manifest in manifests_of(world, point)}
        assert all(attempts[manifest] > attempt for manifest, attempt in taken_over.items()), point
    world.assert_complete()


def manifests_of(world: World, run_key: str) -> list[dict[str, object]]:
    return [manifest for manifest in world.manifests() if manifest["run_key"] == run_key]


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


@at_each(FAILPOINTS, "lake", quick=FAILPOINTS, in_turns=(*COMBINED, *SAME))
def test_an_error_at_a_failpoint_is_one_message_and_leaves_nothing_half(world: World, points: Sequence[str]) -> None:
    for point in points:
        world.produce(60)
        failed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:raise")
        assert failed.returncode == 1, point
        assert f"failpoint {point} raised" in failed.stderr
        assert "Traceback" not in failed.stderr, point
        world.assert_whole()
        if point in BEFORE_RECORD and world.lies_in_files():
            assert world.listing() == world.exact(), f"{point}: a failed attempt takes back what it had put"
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", point)
        world.assert_readers_complete()
    world.assert_complete()


@pytest.mark.parametrize(
    ("world", "parts"),  # seconds; the work takes 0.4 over a folder, and up to 1 elsewhere: they lie all over it
    [
        ("lake", ((0.3, 0.3),)),
        *(
            pytest.param(kind, ((0.1, 0.25), (0.25, 0.45), (0.45, 0.8)), id=kind, marks=pytest.mark.exhaustive)
            for kind in KINDS
        ),
    ],
    indirect=["world"],
)
def test_killed_at_any_moment_a_retry_and_a_run_end_right(world: World, parts: Sequence[tuple[float, float]]) -> None:
    """At a moment of each part of the work."""
    for seconds in (random.uniform(*part) for part in parts):
        world.produce(80, bad_every=9)
        process = world.start("run", "demo", "--run-key", str(seconds))
        time.sleep(seconds)
        process.kill()
        process.communicate()
        world.assert_whole()
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", str(seconds))
    world.assert_complete()
