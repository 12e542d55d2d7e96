"""What the code does is what the model does: recorded runs of real attempts, sweeps and repairs are paths of the
model."""

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from uuid import uuid4

import pytest

from sandbox.services.postgres import Postgres
from sandbox.services.s3 import Bucket
from tests.faults.actors import Actor, Fault
from tests.faults.lakes import BucketLake
from tests.faults.model_world import ScheduleSettings
from tests.model.recorder import COMMIT, MANIFEST, STORE, Event, RecordedWorld, attempts_of
from tests.model.traces import Path
from tests.model.world import Kind
from tests.worlds.s3_world import CONNECTION
from tidemark.connections.lookup import variable_of
from tidemark.model.manifest import ManifestState
from tidemark.providers.postgres import marked

FEW = 4
IN_STAGING = ("failpoint read.before", "failpoint stage.mid")  # the model prepares and stages in one step
POINTS = ["publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark", "publish.marked"]
OF_DATABASE = [("sql start", 1), ("sql store_receipt", 1), ("sql publish", 1), ("sql unlock_attempt", 1)]
OF_LAKE = [("lake move", 1), ("lake move", 2), ("lake put ", 1), ("lake delete", 1), ("lake delete", 2)]
LATE = [*OF_LAKE[:3], ("lake delete [", 1), ("lake delete [", 2)]
TAKES_BACK = [("sql take_back", 1), *(("lake delete", number) for number in (1, 2, 3, 4))]
DRAWN = [("sql", 60), ("sql store_receipt", 1), ("sql take_back", 2), ("sql publish", 1), (STORE, 8)]


def kinds(*others: Kind) -> list[Any]:
    """A folder, and what is too long for ``make test``."""
    return [Kind.FOLDER, *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in others)]


@pytest.fixture(params=kinds(Kind.BUCKET, Kind.TABLE, Kind.SHARED), ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def make_recorded(
    postgres: Postgres, template: str, kind: Kind, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RecordedWorld]]:
    """Makes worlds with a planned manifest; its rows do not meet what the first code ``expects``."""
    monkeypatch.setenv(variable_of(CONNECTION), s3.connection())
    monkeypatch.setattr(marked, "IDLE_TIMEOUT_S", 1)
    with ExitStack() as stack:

        def make(*, expects: bool = False) -> RecordedWorld:
            lake = BucketLake(s3.below(f"trace-{uuid4().hex}")) if kind is Kind.BUCKET else None
            world = RecordedWorld(postgres, template, ScheduleSettings(expects=expects), Counter(), lake)
            if kind.is_table:
                world.warehouse = world.dsn
                if kind is Kind.TABLE:
                    world.warehouse = stack.enter_context(postgres.temporary_database("warehouse"))
                monkeypatch.setenv(variable_of("warehouse"), world.warehouse)
                table = {"connection": "warehouse", "table": "latest", "key": ["n"], "auto_create": True}
                world.table = {"postgres": table}
            world.planned()
            return world

        yield make


@pytest.fixture
def world(make_recorded: Callable[[], RecordedWorld], kind: Kind) -> Iterator[RecordedWorld]:
    """Followed in the model when the test ends."""
    with followed(make_recorded(), kind) as world:
        yield world


@contextmanager
def followed(made: RecordedWorld, kind: Kind) -> Iterator[RecordedWorld]:
    """When the block ends, what was recorded must be a path of the model that ends where database and target are."""
    with closing(made) as world:
        yield world
        path = Path(kind, expects=made.settings.expects)
        path.follow(world.events)
        manifest = world.database.manifests.get(MANIFEST)
        assert path.world.newest == manifest.attempt
        assert path.world.published == (manifest.published_attempt or 0)
        assert path.world.state == manifest.state.value
        assert not path.places, "a process of the model has not ended"
        in_model = {
            (attempt, is_record)
            for attempt, made in enumerate(path.world.attempts, 1)
            for is_record in (True, False)
            if (made.record if is_record else made.parts)
        }
        assert kind.is_table or set(attempts_of(world.lake.files())) == in_model


def test_published_once_then_replayed_with_equal_and_with_other_rows(world: RecordedWorld, kind: Kind) -> None:
    world.ended(world.process(MANIFEST))
    world.ended(world.process(MANIFEST, replay=True))
    world.change_code()
    world.ended(world.process(MANIFEST, replay=True))
    world.ended(world.sweep())
    assert [event.about for event in world.events if event.what == "mark_and_end"] == [(1,), (1,), (3,)]
    with pytest.raises(AssertionError, match="the model is at"):  # as if the code had not asked
        Path(kind).follow(event for event in world.events if event.what != "may_put")


@pytest.mark.parametrize("point", [*POINTS, "publish.cleaned"])
def test_killed_and_tried_again(world: RecordedWorld, point: str) -> None:
    world.died(world.process(MANIFEST), point)
    retried(world)


@pytest.mark.parametrize("point", POINTS[1:])
def test_failed_and_tried_again(world: RecordedWorld, point: str) -> None:
    world.failed(world.process(MANIFEST), point)
    retried(world)


def retried(world: RecordedWorld) -> None:
    world.ended(world.sweep())
    if world.database.manifests.get(MANIFEST).state is not ManifestState.DONE:
        world.ended(world.process(MANIFEST))


@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_dies_is_swept(world: RecordedWorld, kind: Kind, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    world.died(world.process(MANIFEST, replay=True), point)
    world.ended(world.sweep())
    published = world.database.manifests.get(MANIFEST).published_attempt
    unseen = POINTS[: 4 if kind is Kind.SHARED else 3]  # there the rows are committed together with the mark
    assert published == (1 if point in unseen else 2)


@pytest.mark.parametrize("other_rows", [False, True], ids=["equal rows", "other rows"])
@pytest.mark.parametrize("point", [*POINTS, "publish.cleaned"])
def test_stopped_while_another_attempt_goes_through_and_woken(
    world: RecordedWorld, point: str, other_rows: bool
) -> None:
    first = world.process(MANIFEST)
    world.run_to(first, point)
    if other_rows:
        world.change_code()
    world.ended(world.process(MANIFEST, replay=True))
    world.ended(first)
    world.ended(world.sweep())
    assert world.database.manifests.get(MANIFEST).state is ManifestState.DONE


@pytest.mark.parametrize("point", POINTS[:-1])
def test_a_replay_stopped_while_another_stands_one_point_before_it(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    first = world.process(MANIFEST, replay=True)
    world.run_to(first, point)
    second = world.process(MANIFEST, replay=True)
    world.run_to(second, POINTS[max(0, POINTS.index(point) - 1)])
    world.ended(first)
    world.ended(second)
    world.ended(world.sweep())


@pytest.mark.parametrize("point", POINTS)
def test_one_that_has_lost_its_session_is_swept_and_woken(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    replay = world.process(MANIFEST, replay=True)
    world.run_to(replay, point)
    world.cut_off(replay)
    world.ended(world.sweep())
    world.ended(replay)
    world.ended(world.sweep())


def test_the_answer_is_lost_to_each_thing_that_an_attempt_changes(
    make_recorded: Callable[[], RecordedWorld], kind: Kind
) -> None:
    of_target = {Kind.TABLE: [(COMMIT, 1)], Kind.SHARED: [("sql may_put", 2)]}.get(kind, OF_LAKE)
    for operation, number in [*OF_DATABASE, *of_target]:
        print(operation, number)
        with followed(make_recorded(), kind) as world:
            world.lost(world.process(MANIFEST), operation, number)
            assert world.reached["fault lose"] == 1
            retried(world)


@pytest.mark.parametrize("kind", kinds(Kind.BUCKET), ids=str, indirect=True)
def test_the_answer_is_lost_to_each_thing_that_takes_back(
    make_recorded: Callable[[], RecordedWorld], kind: Kind
) -> None:
    """By a sweep, and by a replay that comes after one that died."""
    for operation, number in TAKES_BACK:
        print(operation, number)
        with followed(make_recorded(), kind) as world:
            world.ended(world.process(MANIFEST))
            world.change_code()
            world.died(world.process(MANIFEST, replay=True), "publish.mid")
            world.lost(world.sweep(), operation, number)
            world.died(world.process(MANIFEST, replay=True), "publish.mid")
            world.lost(world.process(MANIFEST, replay=True), operation, number)
            # What a replay removes was declared together with its receipt.
            assert world.reached["fault lose"] == (1 if operation == "sql take_back" else 2)
            world.ended(world.sweep())


@pytest.mark.parametrize("point", POINTS)
def test_a_repair_after_a_replay_that_died(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    world.died(world.process(MANIFEST, replay=True), point)
    world.ended(world.repair())
    world.ended(world.repair())


@pytest.mark.parametrize("point", POINTS)
def test_a_repair_beside_a_replay_that_stands_still(world: RecordedWorld, kind: Kind, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    replay = world.process(MANIFEST, replay=True)
    world.run_to(replay, point)
    world.ended(world.repair())
    if kind is not Kind.SHARED:  # there the server ends the open merge, and with it the session
        world.cut_off(replay)
        world.ended(world.repair())
    world.ended(replay)
    world.ended(world.repair())


@pytest.mark.parametrize("kind", kinds(Kind.BUCKET), ids=str, indirect=True)
@pytest.mark.parametrize("operation", ["sql take_back", "lake delete"])
def test_a_repair_removes_what_a_sweep_could_not(
    make_recorded: Callable[[], RecordedWorld], kind: Kind, operation: str
) -> None:
    """The answers to one operation after the other are lost, of the sweep that a repair begins with, and of its own."""
    for number in range(1, 6):
        print(number)
        with followed(make_recorded(), kind) as world:
            world.ended(world.process(MANIFEST))
            world.change_code()
            world.died(world.process(MANIFEST, replay=True), "publish.mid")
            world.lost(world.repair(), operation, number)
            world.ended(world.repair())


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [Kind.BUCKET], ids=str, indirect=True)
@pytest.mark.parametrize("replays", [False, True], ids=["first attempt", "replay"])
@pytest.mark.parametrize("lands", ["before the next", "after the next", "never"])
@pytest.mark.parametrize(("operation", "number"), LATE)
def test_a_request_without_an_answer_takes_effect_late(
    world: RecordedWorld, operation: str, number: int, lands: str, replays: bool
) -> None:
    """A move or a record of an attempt, or a removal by the sweep that takes it back."""
    if replays:
        world.ended(world.process(MANIFEST))
        world.change_code()
    attempt = world.process(MANIFEST, replay=replays)
    if operation == "lake delete [":
        world.died(attempt, "publish.mid")
        attempt = world.sweep() if replays else world.process(MANIFEST)
    world.delayed(attempt, operation, number)
    if lands == "before the next":
        world.lands()
    retried(world)
    if lands == "after the next":
        world.lands()
    retried(world)
    world.ended(world.repair())
    if lands == "after the next" and operation == "lake move":
        with pytest.raises(AssertionError, match="the model is at"):  # as if it had never been done
            Path(Kind.BUCKET).follow(event for event in world.events if event.what != "lands")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [Kind.TABLE], ids=str, indirect=True)
@pytest.mark.parametrize("then", ["a sweep", "a replay"])
def test_a_commit_without_an_answer_takes_effect_late(world: RecordedWorld, then: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    world.delayed_commit(world.process(MANIFEST, replay=True))
    if then == "a sweep":
        world.ended(world.sweep())
    world.lands()
    world.ended(world.sweep() if then == "a sweep" else world.process(MANIFEST, replay=True))
    assert (world.database.manifests.get(MANIFEST).published_attempt or 0) > 1
    if then == "a replay":
        return  # it would put its rows in the place of any others
    with pytest.raises(AssertionError, match="the model is at"):  # as if it had never been done
        Path(Kind.TABLE).follow(event for event in world.events if event.what != "lands")


@pytest.mark.parametrize("kind", kinds(Kind.BUCKET, Kind.TABLE), ids=str, indirect=True)
def test_a_record_or_marker_whose_answer_was_lost_is_looked_for(world: RecordedWorld, kind: Kind) -> None:
    operation, event, look = ("lake put ", "put_record", "has_record")
    if kind is Kind.TABLE:
        operation, event, look = (COMMIT, "commit", "was_committed")
    world.lost(world.process(MANIFEST), operation)
    retried(world)
    [lost] = [number for number, entry in enumerate(world.events) if entry.lost]
    assert world.events[lost].what == event
    looked = next(number for number, entry in enumerate(world.events) if number > lost and entry.what == look)
    assert world.events[looked].answer
    with pytest.raises(AssertionError, match="the model is at"):  # as if the code had not looked
        Path(kind).follow(world.events[:looked] + world.events[looked + 1 :])
    with pytest.raises(AssertionError, match="the model is at"):  # as if nothing had been done
        Path(kind).follow([*world.events[:lost], Event(1, "raises"), *world.events[lost + 1 :]])


def test_a_receipt_whose_answer_was_lost_is_in_the_database(world: RecordedWorld, kind: Kind) -> None:
    world.lost(world.process(MANIFEST), "sql store_receipt")
    retried(world)
    [lost] = [number for number, entry in enumerate(world.events) if entry.lost]
    with pytest.raises(AssertionError, match="the model is at"):  # as if nothing had been stored
        Path(kind).follow([*world.events[:lost], Event(1, "unanswered", (False,)), *world.events[lost + 1 :]])


@pytest.mark.parametrize("how", ["accepted", "with another file"])
@pytest.mark.parametrize("fault", ["", "stage.done", "sql accepted_expectations", "sql block"])
def test_blocked_by_an_expectation_and_published(
    make_recorded: Callable[..., RecordedWorld], kind: Kind, how: str, fault: str
) -> None:
    """The first attempt ends, dies before it is blocked, or loses the answer to what it asks or to the block."""
    with followed(make_recorded(expects=True), kind) as world:
        first = world.process(MANIFEST)
        if fault.startswith("sql"):
            world.lost(first, fault)
            assert world.reached["fault lose"] == 1
        elif fault:
            world.died(first, fault)
        else:
            world.ended(first)
        world.ended(world.sweep())
        if world.database.manifests.get(MANIFEST).state is not ManifestState.BLOCKED:
            world.ended(world.process(MANIFEST))
        world.released()
        world.ended(world.process(MANIFEST))
        assert world.database.manifests.get(MANIFEST).state is ManifestState.BLOCKED
        world.accepted() if how == "accepted" else world.change_code()
        world.released()
        world.ended(world.process(MANIFEST))
        assert world.database.manifests.get(MANIFEST).state is ManifestState.DONE
        if how == "accepted":
            with pytest.raises(AssertionError, match="the model is at"):  # as if nobody had accepted it
                Path(kind, expects=True).follow(e for e in world.events if e != Event(0, "accepted"))


@pytest.mark.parametrize("runs", [FEW, pytest.param(14, marks=pytest.mark.exhaustive)])
def test_drawn_runs_are_paths_of_the_model(make_recorded: Callable[[], RecordedWorld], kind: Kind, runs: int) -> None:
    """The few are always the same, the others new each time; a failure prints the seed of its run."""
    first, lost = 0 if runs == FEW else secrets.randbelow(10**9), 0
    for seed in range(first, first + runs):
        print(f"seed {seed}")
        with followed(make_recorded(), kind) as world:
            play(world, random.Random(seed))
            lost += any(event.lost for event in world.events)
    assert lost, "no run has lost an answer"


def play(world: RecordedWorld, dice: random.Random) -> None:
    """At most three attempts, sweeps and repairs at a time: at failpoints they stop, die, fail or lose their session;
    and they lose the answer to anything that they ask the database, or do to the target."""
    live: list[Actor] = []
    for _ in range(dice.randint(4, 12)):
        if len(live) < 3 and dice.random() < 0.4:
            live.append(a_process(world, dice))
        if dice.random() < 0.2:
            world.change_code()
        if live:
            actor = dice.choice(live)
            how = dice.choice(("step", "step", "step", "end", "die", "fail", "cut", "lose", "lose"))
            if how == "lose":
                names, most = dice.choice(DRAWN)
                world.lost(actor, names, dice.randint(1, most))
            else:
                move(world, actor, how)
            live = [actor for actor in live if not actor.ended]
    for actor in live:
        world.ended(actor)
    retried(world)


def move(world: RecordedWorld, actor: Actor, how: str) -> None:
    """Let it go to its next failpoint or its end, or hit it at the failpoint where it stands."""
    note = world.recorders[actor].note
    at_failpoint = actor.life.at.startswith("failpoint")
    match how:
        case "die" if at_failpoint:
            world.kill(actor)
            note("dies")
            return
        case "cut" if at_failpoint:
            if actor not in world.without_session:
                world.cut_off(actor)
            return
        case "fail" if at_failpoint and "publish.receipt" not in actor.life.at:  # in the model it is in a sink then
            actor.life.armed = (Fault.FAIL, 1)
            note("raises")
            world.finish(actor)
        case "end":
            world.finish(actor)
        case _:
            world.step(actor)
            while actor.life.at in IN_STAGING and not actor.ended:
                world.step(actor)
    if actor.ended:
        note("ends")


def a_process(world: RecordedWorld, dice: random.Random) -> Actor:
    """A sweep, a repair or an attempt; a replay when the manifest is done."""
    if (cleans := dice.random()) < 0.3:
        return world.sweep() if cleans < 0.15 else world.repair()
    done = world.database.manifests.get(MANIFEST).state is ManifestState.DONE
    return world.process(MANIFEST, replay=done)
