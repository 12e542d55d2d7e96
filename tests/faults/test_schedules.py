"""Each schedule of ``schedules.py`` passes, and also with any fault or stop at any operation of a process."""

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.actors import Actor, Fault
from tests.faults.checked_world import CheckedWorld, Schedule
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tests.faults.other_sinks import KINDS, OtherSinks
from tests.faults.schedules import SCHEDULES
from tests.faults.schedules_of_generations import IN_ORDER
from tests.faults.schedules_of_others import OF_OTHERS
from tidemark.lifecycle.publish import Ending, Outcome

MOST = 200  # operations of one process; the longest here has about 90
APART = 57  # of the fast part, which tries some operations only


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_is_missing_and_nothing_twice(checked: CheckedWorld, name: str) -> None:
    SCHEDULES[name](checked)


@pytest.mark.parametrize("name", SCHEDULES)
def test_with_deferred_attempts_nothing_is_missing_and_nothing_twice(
    postgres: Postgres, template: str, reached: Counter[str], name: str
) -> None:
    """Two processes do an attempt, and while neither is there, others may take it for dead."""
    settings = ScheduleSettings(defers=True)
    with contextlib.closing(ModelWorld(postgres, template, settings, reached)) as world:
        SCHEDULES[name](CheckedWorld(world))


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_process_of_a_deferred_attempt_knows_what_the_first_has_prepared(
    postgres: Postgres, template: str, reached: Counter[str], other_sinks: OtherSinks, kind: str
) -> None:
    """Each has sinks of its own, as in two tasks of Airflow."""
    columns = []
    for defers in (False, True):
        settings = ScheduleSettings(second=kind, defers=defers)
        with contextlib.closing(ModelWorld(postgres, template, settings, reached, other_sinks=other_sinks)) as world:
            checked = CheckedWorld(world)
            checked.planned()
            checked.well(world.process(1))
            stored = world.database.targets.get(world.onlooker().sinks[-1].target)
            assert stored is not None
            columns.append({*(stored["columns"] or ())})
            replayed = checked.well(world.process(1, replay=True)).result
            assert isinstance(replayed, Outcome)
            assert replayed.ending is Ending.UNCHANGED
            checked.settle()
    assert columns[0] == columns[1], "those that a later attempt misses when they are dropped"


def test_killed_between_two_sinks_the_next_attempt_leaves_nothing_over_in_either(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    """The first sink is published: the next attempt writes to the second only, and cleans both."""
    with contextlib.closing(ModelWorld(postgres, template, ScheduleSettings(second="files"), reached)) as world:
        checked = CheckedWorld(world)
        checked.planned()
        checked.kill_at(world.process(1), "publish.marked")
        for manifest in [*checked.oracle.manifests]:
            checked.well(world.process(manifest))
        checked.oracle.check_quiet()


@pytest.mark.parametrize("kind", KINDS)
def test_over_a_lake_and_another_sink_nothing_is_missing_and_nothing_twice(
    postgres: Postgres, template: str, reached: Counter[str], other_sinks: OtherSinks, kind: str
) -> None:
    """Of the first manifest one attempt stands still before it puts, one is killed inside, and a third goes through."""
    settings = ScheduleSettings(second=kind)
    with contextlib.closing(ModelWorld(postgres, template, settings, reached, other_sinks=other_sinks)) as world:
        checked = CheckedWorld(world)
        checked.planned()
        paused, killed = world.process(1), world.process(1)
        for actor in (paused, killed):
            while actor.life.at != f"{world.others[0].name} put":
                checked(world.step(actor, operations=1))
        checked(world.hit(killed, Fault.KILL, 3))
        assert killed.life.dead
        checked.well(world.process(1))
        checked.end(paused)
        checked(world.hit(world.process(1, replay=True), Fault.LOSE, 60))
        checked.settle()


@pytest.mark.parametrize("schedule", IN_ORDER)
def test_a_topic_gets_the_records_of_a_log_in_order_over_all_its_generations(
    postgres: Postgres, template: str, reached: Counter[str], other_sinks: OtherSinks, schedule: Schedule
) -> None:
    settings = ScheduleSettings(second="topic", partitions=1, max_records=100)
    with contextlib.closing(ModelWorld(postgres, template, settings, reached, other_sinks=other_sinks)) as world:
        schedule(CheckedWorld(world))


@pytest.mark.parametrize("name", OF_OTHERS)
def test_with_other_sinks_nothing_is_missing_and_nothing_twice(
    make_other_world: Callable[[str], ModelWorld], name: str
) -> None:
    kind, schedule = OF_OTHERS[name]
    with contextlib.closing(make_other_world(kind)) as world:
        schedule(CheckedWorld(world))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SCHEDULES)
def test_over_a_bucket_nothing_is_missing_and_nothing_twice(
    make_bucket_world: Callable[[], ModelWorld], name: str
) -> None:
    with contextlib.closing(make_bucket_world()) as world:
        SCHEDULES[name](CheckedWorld(world))


def plan(checked: CheckedWorld) -> Actor:
    checked.planned()
    checked.world.produce(9)
    return checked.world.plan()


def process(checked: CheckedWorld) -> Actor:
    checked.planned()
    return checked.world.process(1)


def process_after_a_kill(checked: CheckedWorld, point: str = "publish.mid") -> Actor:
    checked.planned()
    checked.kill_at(checked.world.process(1), point)
    return checked.world.process(1)


def process_that_finds_all_put(checked: CheckedWorld) -> Actor:
    return process_after_a_kill(checked, "publish.before_mark")


def replay_of_other_rows(checked: CheckedWorld) -> Actor:
    checked.planned()
    checked.well(checked.world.process(1))
    checked.world.change_code()
    return checked.world.process(1, replay=True)


def sweep(checked: CheckedWorld) -> Actor:
    killed = replay_of_other_rows(checked)
    checked.kill_at(killed, "publish.marked")
    return checked.world.sweep()


def accept_loss(checked: CheckedWorld) -> Actor:
    checked.planned()
    checked.world.delete_records(0.7)
    return checked.world.accept_loss()


BEGINNINGS = (plan, process, process_after_a_kill, process_that_finds_all_put, replay_of_other_rows, sweep, accept_loss)
HITS = (Fault.KILL, Fault.FAIL, Fault.LOSE)


def hit_at(checked: CheckedWorld, begin: Callable[[CheckedWorld], Actor], fault: Fault, operation: int) -> bool:
    """Whether the process got as far as that operation."""
    actor = begin(checked)
    checked(checked.world.hit(actor, fault, operation))
    checked.settle()
    return actor.life.armed is None


def stopped_at(
    checked: CheckedWorld, begin: Callable[[CheckedWorld], Actor], operation: int, rivals: list[Actor]
) -> bool:
    """The same for a process that stands there while another goes through, and wakes; planners stand on one lock."""
    actor = begin(checked)
    checked(checked.world.step(actor, operations=operation))
    if actor.ended:
        return False
    if not actor.holds_lock or not actor.plans:
        rival: Actor = checked.world.plan("rival") if actor.plans else checked.world.process(1, replay=True)
        checked.end(rival)
        rivals.append(rival)
    checked.end(actor)
    checked.settle()
    return True


def all_operations(make: Callable[[], ModelWorld], step: Callable[[CheckedWorld, int], bool], apart: int) -> None:
    """At operations so far ``apart``, each in a world of its own; `make test-faults` begins elsewhere each time."""
    first = 1 + (apart // 2 if apart == APART else secrets.randbelow(apart))
    for operation in range(first, MOST, apart):
        with contextlib.closing(make()) as world:
            try:
                if not step(CheckedWorld(world), operation):
                    return
            except BaseException as error:
                error.add_note(f"at operation {operation}")
                raise
    pytest.fail(f"it has more than {MOST} operations")


@pytest.mark.parametrize("apart", [APART, pytest.param(13, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("fault", HITS)
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_hit_at_any_operation_nothing_is_missing_and_nothing_twice(
    make_model_world: Callable[[], ModelWorld], begin: Callable[[CheckedWorld], Actor], fault: Fault, apart: int
) -> None:
    all_operations(make_model_world, lambda checked, at: hit_at(checked, begin, fault, at), apart)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", HITS)
@pytest.mark.parametrize("begin", [process, process_that_finds_all_put, replay_of_other_rows, sweep])
def test_hit_over_a_bucket_nothing_is_missing_and_nothing_twice(
    make_bucket_world: Callable[[], ModelWorld], begin: Callable[[CheckedWorld], Actor], fault: Fault
) -> None:
    all_operations(make_bucket_world, lambda checked, at: hit_at(checked, begin, fault, at), 41)


@pytest.mark.parametrize("apart", [APART, pytest.param(13, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_stopped_at_any_operation_while_another_goes_through_nothing_is_missing_and_nothing_twice(
    make_model_world: Callable[[], ModelWorld], begin: Callable[[CheckedWorld], Actor], apart: int
) -> None:
    rivals: list[Actor] = []
    all_operations(make_model_world, lambda checked, at: stopped_at(checked, begin, at, rivals), apart)
    assert not rivals or any(rival.error is None for rival in rivals), "no rival ever got through"
