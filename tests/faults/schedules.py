"""Schedules written by hand, each for one promise; the mutation checks break the promise and play them again."""

from pathlib import PurePath

from tests.faults.actors import Fault
from tests.faults.checked_world import Play, Schedule
from tests.faults.oracle import Violated
from tests.faults.schedules_of_lives import OF_LIVES, TRUNCATED
from tidemark.errors import Fenced
from tidemark.publishing import Ending


def _overtaken_at(point: str) -> Schedule:
    def schedule(play: Play) -> None:
        world = play.world
        play.planned()
        older = world.process(1)
        play(world.run_to(older, point))
        newer = play.well(world.process(1))
        play.end(older)
        assert isinstance(older.error, Fenced) or older.result.ending is Ending.SUPERSEDED, older.error  # type: ignore
        assert newer.result.ending in (Ending.PUBLISHED, Ending.RECOVERED)  # type: ignore[attr-defined]
        play.settle()

    return schedule


def overtaken_by_one_that_has_put_nothing(play: Play) -> None:
    """The older attempt wakes in the middle of putting; no reader sees either, and it must take its objects back."""
    world = play.world
    play.planned()
    older, newer = world.process(1), world.process(1)
    play(world.run_to(older, "publish.mid"))
    play(world.run_to(newer, "stage.done"))
    play.refused(older, Fenced)
    left = [key for key in map(PurePath, world.lake.files()) if "-a0001-" in key.name or key.stem.endswith(".0001")]
    if left:
        raise Violated(f"I9 fenced: attempt 1 left {[*map(str, left)]} after attempt 2 had begun")
    play.well(newer)
    play.settle()


def killed_between_record_and_mark(play: Play) -> None:
    world = play.world
    play.planned()
    killed = world.process(1)
    play(world.run_to(killed, "publish.before_mark"))
    play(world.kill(killed))
    assert play.well(world.process(1)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    play.settle()


def recovered_while_another_discards(play: Play) -> None:
    """The first died before its mark; the second is about to remove its output; the third finds only the mark missing.

    Whoever stored a receipt may wake and remove what lower attempts put, so the third must not publish that.
    """
    world = play.world
    play.planned()
    first = world.process(1)
    play(world.run_to(first, "publish.before_mark"))
    play(world.kill(first))
    second = world.process(1, replay=True)
    while not second.life.at.startswith("lake delete "):
        play(world.step(second, operations=1))
    play.well(world.process(1))
    play.end(second)
    play.settle()


def killed_while_it_cleans_after_a_replay(play: Play) -> None:
    """What the published attempt replaced is still there; the clean-up is finished by somebody else."""
    world = play.world
    play.planned()
    play.well(world.process(1))
    world.change_code()
    killed = world.process(1, replay=True)
    play(world.run_to(killed, "publish.marked"))
    play(world.kill(killed))
    play.well(world.sweep())
    play.settle()


def killed_while_it_puts(play: Play) -> None:
    world = play.world
    play.planned()
    killed = world.process(1)
    play(world.run_to(killed, "publish.mid"))
    play(world.kill(killed))
    play.settle()


def planner_overtaken(play: Play) -> None:
    """It asked Kafka, then another planned, and more records came in."""
    world = play.world
    world.produce(5)
    older = world.plan()
    while not older.life.at.startswith("kafka offsets") and not older.life.at.startswith("kafka watermarks"):
        play(world.step(older, operations=1))
    play(world.step(older, operations=1))
    world.produce(5)
    play.well(world.plan())
    play.well(older)
    play.settle()


def transactions_open_aborted_and_committed(play: Play) -> None:
    world = play.world
    world.produce(3)
    world.begin()
    world.produce(3)
    world.begin(partition=1)
    world.produce(3, partition=1)
    play.run()
    world.end(commit=True)
    world.end(commit=False, partition=1)
    play.run()
    play.settle()


def the_answer_to_its_mark_is_lost(play: Play) -> None:
    world = play.world
    play.planned()
    attempt = world.process(1)
    play(world.run_to(attempt, "publish.before_mark"))
    play(world.hit(attempt, Fault.LOSE, 2))
    assert world.database.manifest(1).publications
    play.settle()


def its_session_ends_while_it_puts(play: Play) -> None:
    """It lives on and does not know that it may not: another attempt has been through before it goes on."""
    world = play.world
    play.planned()
    attempt = world.process(1)
    play(world.run_to(attempt, "publish.mid"))
    play(world.cut(attempt))
    play.well(world.process(1))
    assert play.well(attempt).result.ending is Ending.SUPERSEDED  # type: ignore[attr-defined]
    play.settle()


def swept_while_replays_go_on(play: Play) -> None:
    """A sweeper that stands after it has looked, while a replay publishes and another is at work."""
    world = play.world
    play.planned()
    play.well(world.process(1))
    world.change_code()
    killed = world.process(1, replay=True)
    play(world.run_to(killed, "publish.before_record"))
    play(world.kill(killed))
    sweeper = world.sweep()
    while "discard" not in sweeper.life.at and not sweeper.life.at.startswith("sql receipts_below"):
        play(world.step(sweeper, operations=1))
    play.well(world.process(1, replay=True))
    world.change_code()
    other = world.process(1, replay=True)
    play(world.run_to(other, "publish.before_mark"))
    play.well(sweeper)
    play.well(other)
    play.settle()


def repaired_while_a_replay_publishes(play: Play) -> None:
    """A repair that has looked at manifests and files before a replay has published what lies there."""
    world = play.world
    play.planned()
    play.well(world.process(1))
    world.change_code()
    repairer = world.repair()
    while not repairer.life.at.startswith("lake list"):
        play(world.step(repairer, operations=1))
    replay = world.process(1, replay=True)
    play(world.run_to(replay, "publish.before_record"))
    while not repairer.life.at.startswith("sql unknown_manifests") and not repairer.life.at.startswith("lake names"):
        play(world.step(repairer, operations=1))
    play.well(replay)
    play.well(repairer)
    play.settle()


OVERTAKEN = {f"overtaken at {point}": _overtaken_at(point) for point in (
    "attempt.started", "read.before", "stage.mid", "stage.done", "publish.receipt", "publish.mid",
    "publish.before_record", "publish.before_mark",
)}  # fmt: skip
SCHEDULES: dict[str, Schedule] = (
    OVERTAKEN
    | TRUNCATED
    | {
        one.__name__.replace("_", " "): one
        for one in (
            overtaken_by_one_that_has_put_nothing,
            killed_between_record_and_mark,
            recovered_while_another_discards,
            killed_while_it_cleans_after_a_replay,
            killed_while_it_puts,
            planner_overtaken,
            transactions_open_aborted_and_committed,
            the_answer_to_its_mark_is_lost,
            its_session_ends_while_it_puts,
            swept_while_replays_go_on,
            repaired_while_a_replay_publishes,
            *OF_LIVES,
        )
    }
)
