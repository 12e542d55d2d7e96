"""Each schedule of ``schedules.py`` is well, and so is whatever hits or stops a process at any of its operations."""

import contextlib
from collections.abc import Callable

import pytest

from tests.faults.actors import Actor, Fault
from tests.faults.checked_world import Play
from tests.faults.model_world import ModelWorld
from tests.faults.schedules import SCHEDULES

MOST = 200  # operations of one process; the longest here has about 90
APART = 29  # of the fast part, which tries some operations only


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_is_missing_and_nothing_twice(play: Play, name: str) -> None:
    SCHEDULES[name](play)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SCHEDULES)
def test_over_a_bucket_nothing_is_missing_and_nothing_twice(
    make_bucket_world: Callable[[], ModelWorld], name: str
) -> None:
    with contextlib.closing(make_bucket_world()) as world:
        SCHEDULES[name](Play(world))


def plan(play: Play) -> Actor:
    play.planned()
    play.world.produce(9)
    return play.world.plan()


def process(play: Play) -> Actor:
    play.planned()
    return play.world.process(1)


def process_after_a_kill(play: Play) -> Actor:
    play.planned()
    killed = play.world.process(1)
    play(play.world.run_to(killed, "publish.mid"))
    play(play.world.kill(killed))
    return play.world.process(1)


def process_that_finds_all_put(play: Play) -> Actor:
    play.planned()
    killed = play.world.process(1)
    play(play.world.run_to(killed, "publish.before_mark"))
    play(play.world.kill(killed))
    return play.world.process(1)


def replay_of_other_rows(play: Play) -> Actor:
    play.planned()
    play.well(play.world.process(1))
    play.world.change_code()
    return play.world.process(1, replay=True)


def sweep(play: Play) -> Actor:
    killed = replay_of_other_rows(play)
    play(play.world.run_to(killed, "publish.marked"))
    play(play.world.kill(killed))
    return play.world.sweep()


def accept_loss(play: Play) -> Actor:
    play.planned()
    play.world.delete_records(0.7)
    return play.world.accept_loss()


BEGINNINGS = (plan, process, process_after_a_kill, process_that_finds_all_put, replay_of_other_rows, sweep, accept_loss)
HITS = (Fault.KILL, Fault.FAIL, Fault.LOSE)


def hit_at(play: Play, begin: Callable[[Play], Actor], fault: Fault, operation: int) -> bool:
    """Whether the process got as far as that operation."""
    actor = begin(play)
    play(play.world.hit(actor, fault, operation))
    play.settle()
    return actor.life.armed is None


def stopped_at(play: Play, begin: Callable[[Play], Actor], operation: int, rivals: list[Actor]) -> bool:
    """The same for a process that stands there while another goes through, and wakes; planners stand on one lock."""
    actor = begin(play)
    play(play.world.step(actor, operations=operation))
    if actor.ended:
        return False
    if not actor.holds_lock or not actor.plans:
        rival: Actor = play.world.plan("rival") if actor.plans else play.world.process(1, replay=True)
        play.end(rival)
        rivals.append(rival)
    play.end(actor)
    play.settle()
    return True


def all_operations(make: Callable[[], ModelWorld], one: Callable[[Play, int], bool], apart: int) -> None:
    """At operations so far ``apart``, each in a world of its own."""
    for operation in range(1 + apart // 2, MOST, apart):
        with contextlib.closing(make()) as world:
            try:
                if not one(Play(world), operation):
                    return
            except BaseException as error:
                error.add_note(f"at operation {operation}")
                raise
    pytest.fail(f"it has more than {MOST} operations")


@pytest.mark.parametrize("apart", [APART, pytest.param(2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("fault", HITS)
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_hit_at_any_operation_nothing_is_missing_and_nothing_twice(
    make_model_world: Callable[[], ModelWorld], begin: Callable[[Play], Actor], fault: Fault, apart: int
) -> None:
    all_operations(make_model_world, lambda play, at: hit_at(play, begin, fault, at), apart)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", HITS)
@pytest.mark.parametrize("begin", [process, process_that_finds_all_put, replay_of_other_rows, sweep])
def test_hit_over_a_bucket_nothing_is_missing_and_nothing_twice(
    make_bucket_world: Callable[[], ModelWorld], begin: Callable[[Play], Actor], fault: Fault
) -> None:
    all_operations(make_bucket_world, lambda play, at: hit_at(play, begin, fault, at), 17)


@pytest.mark.parametrize("apart", [APART, pytest.param(2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_stopped_at_any_operation_while_another_goes_through_nothing_is_missing_and_nothing_twice(
    make_model_world: Callable[[], ModelWorld], begin: Callable[[Play], Actor], apart: int
) -> None:
    rivals: list[Actor] = []
    all_operations(make_model_world, lambda play, at: stopped_at(play, begin, at, rivals), apart)
    assert not rivals or any(one.error is None for one in rivals), "no rival ever got through"
