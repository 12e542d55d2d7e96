"""Schedules over a lake and other sinks, by name: the other sinks, and the schedule."""

from dataclasses import replace

from tests.faults.checked_world import CheckedWorld, Schedule
from tests.faults.other_sinks import COMMIT, EXPIRE, NO_TAGS
from tests.faults.target_goes_back import gone_back
from tidemark.errors import Blocked, TopicChanged, WorkFailed


def cut_while_slices_wait_and_the_last_is_tried_first(checked: CheckedWorld) -> None:
    """What lies below the cut comes before what was written behind it, although it is of an earlier generation."""
    world = checked.world
    world.produce(14)
    checked.well(world.plan())
    world.truncate(4)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_truncation())
    world.produce(5)
    checked.well(world.plan())
    *_, last = checked.oracle.manifests
    checked.end(world.process(last))
    checked.settle()


def cut_then_recreated_when_only_the_lake_has_a_slice(checked: CheckedWorld) -> None:
    """The slice is below the cut, and the topic waited for the one before it, which is given up with the old log: so
    nobody reads it any more, and the topic goes without it."""
    world = checked.world
    world.produce(14)
    checked.well(world.plan())
    checked.refused(world.process(2), WorkFailed)
    world.truncate(2)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_truncation())
    world.recreate()
    world.produce(5)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    checked.settle()


def slices_that_others_wait_for_are_blocked(checked: CheckedWorld) -> None:
    """Without transactions in the pipeline file the markers of two block their slices, until a person writes them."""
    world = checked.world
    world.settings = replace(world.settings, gaps="none")
    for partition in (0, 1):
        world.begin(partition=partition)
        world.produce(4, partition=partition)
        world.end(partition=partition, commit=True)
        checked.well(world.plan())
        world.produce(9, partition=partition)
        checked.well(world.plan())
    first, second, *_ = checked.oracle.manifests
    checked.refused(world.process(first), Blocked)
    checked.refused(world.process(second), WorkFailed)
    checked.settle()


def rolled_back_to_before_replays_with_other_code(checked: CheckedWorld) -> None:
    """Three manifests are in the table, two are replayed, and the table goes back to before the replays."""
    world = checked.world
    for _ in range(3):
        world.produce(4)
        checked.run()
    newest = world.others[0].newest()
    world.change_code()
    checked.well(world.process(1, replay=True))
    checked.well(world.process(2, replay=True))
    gone_back(world, checked.oracle, 8 * newest)
    checked.settle()


def _rolled_back_before_anybody_looks(more: int) -> Schedule:
    """To the last but one, and then more happens to the table."""

    def schedule(checked: CheckedWorld) -> None:
        world = checked.world
        for _ in range(3):
            world.produce(4)
            checked.run()
        gone_back(world, checked.oracle, 8 * (world.others[0].newest() - 1) + more)
        checked.settle()

    return schedule


def replayed_when_the_snapshot_of_the_first_attempt_is_gone(checked: CheckedWorld) -> None:
    """Its files are named by the snapshots that followed it, and that are kept."""
    world = checked.world
    for _ in range(3):
        world.produce(4)
        checked.run()
    world.others[0].expire_oldest()
    world.change_code()
    checked.well(world.process(1, replay=True))
    checked.settle()


def _a_table_goes_back(which: int) -> Schedule:
    """The second manifest is in all tables but the one that another program has restored."""

    def schedule(checked: CheckedWorld) -> None:
        world = checked.world
        world.produce(5)
        checked.run()
        world.others[0].remember()
        world.produce(5)
        checked.run()
        gone_back(world, checked.oracle, which)
        checked.settle()

    return schedule


def overtaken_while_both_sinks_have_staged(checked: CheckedWorld) -> None:
    """An older attempt stands, another is killed inside of it, a third goes through; dead letters in each sink."""
    world = checked.world
    checked.planned()
    older = world.process(1)
    checked(world.run_to(older, "stage.done"))
    checked.kill_at(world.process(1), "publish.receipt")
    for manifest in [*checked.oracle.manifests]:
        checked.well(world.process(manifest))
    checked.end(older)
    world.produce(5)
    world.produce(2, bad=True)
    checked.run()
    checked.settle()


OF_OTHERS: dict[str, tuple[str, Schedule]] = {
    "cut while slices wait and the last is tried first": (
        "topic",
        cut_while_slices_wait_and_the_last_is_tried_first,
    ),
    "cut, then recreated when only the lake has a slice": (
        "topic",
        cut_then_recreated_when_only_the_lake_has_a_slice,
    ),
    "slices that others wait for are blocked": ("topic", slices_that_others_wait_for_are_blocked),
    "rolled back to before replays with other code": ("iceberg", rolled_back_to_before_replays_with_other_code),
    "rolled back, then another commit, then expired, before anybody looks": (
        "iceberg",
        _rolled_back_before_anybody_looks(COMMIT | EXPIRE),
    ),
    "rolled back, then another commit, then expired, and tags removed": (
        "iceberg",
        _rolled_back_before_anybody_looks(COMMIT | EXPIRE | NO_TAGS),
    ),
    "replayed when the snapshot of the first attempt is gone": (
        "iceberg",
        replayed_when_the_snapshot_of_the_first_attempt_is_gone,
    ),
    "contributions go back": ("totals", _a_table_goes_back(0)),
    "totals go back": ("totals", _a_table_goes_back(1)),
    "markers go back": ("totals", _a_table_goes_back(2)),
    "contributions of a copy go back": ("dynamodb", _a_table_goes_back(0)),
    "totals of a copy go back": ("dynamodb", _a_table_goes_back(1)),
    "the copy goes back": ("dynamodb", _a_table_goes_back(3)),
    "two topics of one name": ("topics of one name", overtaken_while_both_sinks_have_staged),
}
