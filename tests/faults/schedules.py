"""Schedules written by hand, each for one promise. The mutation tests break the promise and run them again."""

from pathlib import PurePath

from tests.faults.actors import Fault
from tests.faults.checked_world import CheckedWorld, Schedule
from tests.faults.oracle import Violated
from tests.faults.restored_database import restored
from tests.faults.schedules_of_generations import OF_GENERATIONS, TRUNCATED
from tidemark.errors import Fenced
from tidemark.lifecycle.publish import Ending


def _overtaken_at(point: str) -> Schedule:
    def schedule(checked: CheckedWorld) -> None:
        world = checked.world
        checked.planned()
        older = world.process(1)
        checked(world.run_to(older, point))
        newer = checked.well(world.process(1))
        checked.end(older)
        assert isinstance(older.error, Fenced) or older.result.ending is Ending.SUPERSEDED, older.error  # type: ignore
        assert newer.result.ending in (Ending.PUBLISHED, Ending.RECOVERED)  # type: ignore[attr-defined]
        checked.settle()

    return schedule


def overtaken_by_one_that_has_put_nothing(checked: CheckedWorld) -> None:
    """The older attempt goes on in the middle of putting, and must remove its objects. Readers see neither attempt."""
    world = checked.world
    checked.planned()
    older, newer = world.process(1), world.process(1)
    checked(world.run_to(older, "publish.mid"))
    checked(world.run_to(newer, "stage.done"))
    checked.refused(older, Fenced)
    left = [key for key in map(PurePath, world.lake.files()) if "-a0001-" in key.name or key.stem.endswith(".0001")]
    if left:
        raise Violated(f"I9 fenced: attempt 1 left {[*map(str, left)]} after attempt 2 had begun")
    checked.well(newer)
    checked.settle()


def killed_between_record_and_mark(checked: CheckedWorld) -> None:
    world = checked.world
    checked.planned()
    killed = world.process(1)
    checked.kill_at(killed, "publish.before_mark")
    assert checked.well(world.process(1)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    checked.settle()


def recovered_while_another_discards(checked: CheckedWorld) -> None:
    """The first was killed before its mark, the second is about to remove its output, the third sees only no mark.

    An attempt with a receipt may go on and remove objects of lower attempts, so the third must not publish them.
    """
    world = checked.world
    checked.planned()
    first = world.process(1)
    checked.kill_at(first, "publish.before_mark")
    second = world.process(1, replay=True)
    while not second.life.at.startswith("lake delete "):
        checked(world.step(second, operations=1))
    checked.well(world.process(1))
    checked.end(second)
    checked.settle()


def killed_while_it_cleans_after_a_replay(checked: CheckedWorld) -> None:
    """The objects that the replay replaced still exist; another process finishes the clean-up."""
    world = checked.world
    checked.planned()
    checked.well(world.process(1))
    world.change_code()
    killed = world.process(1, replay=True)
    checked.kill_at(killed, "publish.marked")
    checked.well(world.sweep())
    checked.settle()


def restored_to_a_copy_where_what_was_staged_since_is_planned(checked: CheckedWorld) -> None:
    """Of the attempts that the copy does not know, one has published, and one was killed when it had staged."""
    world = checked.world
    checked.planned(records=10)
    world.snapshot()
    checked.well(world.process(1))
    checked.kill_at(world.process(2), "stage.done")
    assert restored(world, checked.oracle, None)
    assert world.database.manifests.get(2).attempt == 1, "its number is not used again"
    checked.settle(after_restore=True)


def killed_while_it_puts(checked: CheckedWorld) -> None:
    world = checked.world
    checked.planned()
    killed = world.process(1)
    checked.kill_at(killed, "publish.mid")
    checked.settle()


def planner_overtaken(checked: CheckedWorld) -> None:
    """After it has asked Kafka, more records arrive and another planner plans them."""
    world = checked.world
    world.produce(5)
    older = world.plan()
    while not older.life.at.startswith("kafka offsets") and not older.life.at.startswith("kafka bounds"):
        checked(world.step(older, operations=1))
    checked(world.step(older, operations=1))
    world.produce(5)
    checked.well(world.plan())
    checked.well(older)
    checked.settle()


def transactions_open_aborted_and_committed(checked: CheckedWorld) -> None:
    world = checked.world
    world.produce(3)
    world.begin()
    world.produce(3)
    world.begin(partition=1)
    world.produce(3, partition=1)
    checked.run()
    world.end(commit=True)
    world.end(commit=False, partition=1)
    checked.run()
    checked.settle()


def a_transaction_ends_between_two_looks_of_a_plan(checked: CheckedWorld) -> None:
    """The plan ends where the transaction began, so it may not store the time at which it began to look."""
    world = checked.world
    world.produce(3)
    world.begin()
    world.produce(3)
    planner = world.plan()
    assert world.run_to_question(planner, "kafka open_transactions")
    world.end(commit=True)
    checked.well(planner)
    checked.settle()


def the_answer_to_its_mark_is_lost(checked: CheckedWorld) -> None:
    world = checked.world
    checked.planned()
    attempt = world.process(1)
    checked(world.run_to(attempt, "publish.before_mark"))
    checked(world.hit(attempt, Fault.LOSE, 2))
    assert world.database.manifests.get(1).publications
    checked.settle()


def its_session_ends_while_it_puts(checked: CheckedWorld) -> None:
    """It goes on without knowing that its session has ended; another attempt has published meanwhile."""
    world = checked.world
    checked.planned()
    attempt = world.process(1)
    checked(world.run_to(attempt, "publish.mid"))
    checked(world.cut(attempt))
    checked.well(world.process(1))
    assert checked.well(attempt).result.ending is Ending.SUPERSEDED  # type: ignore[attr-defined]
    checked.settle()


def swept_while_replays_go_on(checked: CheckedWorld) -> None:
    """A sweeper stops after it has declared a take-back, while one replay publishes and another is at work."""
    world = checked.world
    checked.planned()
    checked.well(world.process(1))
    world.change_code()
    killed = world.process(1, replay=True)
    checked.kill_at(killed, "publish.before_record")
    sweeper = world.sweep()
    while not sweeper.life.at.startswith("lake delete"):
        checked(world.step(sweeper, operations=1))
    checked.well(world.process(1, replay=True))
    world.change_code()
    other = world.process(1, replay=True)
    checked(world.run_to(other, "publish.before_mark"))
    checked.well(sweeper)
    checked.well(other)
    checked.settle()


def repaired_while_a_replay_publishes(checked: CheckedWorld) -> None:
    """A repair reads manifests and files before a replay publishes, and goes on afterwards."""
    world = checked.world
    checked.planned()
    checked.well(world.process(1))
    world.change_code()
    repairer = world.repair()
    while not repairer.life.at.startswith("lake list"):
        checked(world.step(repairer, operations=1))
    replay = world.process(1, replay=True)
    checked(world.run_to(replay, "publish.before_record"))
    while not repairer.life.at.startswith("sql unknown_manifests") and not repairer.life.at.startswith("lake names"):
        checked(world.step(repairer, operations=1))
    checked.well(replay)
    checked.well(repairer)
    checked.settle()


OVERTAKEN = {f"overtaken at {point}": _overtaken_at(point) for point in (
    "attempt.started", "read.before", "stage.mid", "stage.done", "publish.receipt", "publish.mid",
    "publish.before_record", "publish.before_mark",
)}  # fmt: skip
SCHEDULES: dict[str, Schedule] = (
    OVERTAKEN
    | TRUNCATED
    | {
        schedule.__name__.replace("_", " "): schedule
        for schedule in (
            overtaken_by_one_that_has_put_nothing,
            killed_between_record_and_mark,
            recovered_while_another_discards,
            killed_while_it_cleans_after_a_replay,
            killed_while_it_puts,
            restored_to_a_copy_where_what_was_staged_since_is_planned,
            planner_overtaken,
            transactions_open_aborted_and_committed,
            a_transaction_ends_between_two_looks_of_a_plan,
            the_answer_to_its_mark_is_lost,
            its_session_ends_while_it_puts,
            swept_while_replays_go_on,
            repaired_while_a_replay_publishes,
            *OF_GENERATIONS,
        )
    }
)
