"""Schedule 8: a run is green only when all that it stands for is published, whichever run has planned it.

Real PostgreSQL and real files; the broker is the model of ``tests/faults``, whose records are stamped a minute apart.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import EPOCH, ModelWorld, ScheduleSettings
from tidemark.errors import DataLost, TopicChanged, WorkFailed
from tidemark.lifecycle import attempt
from tidemark.lifecycle.close import close
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.covering import manifests_between
from tidemark.lifecycle.plan import PlannedRun, Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.operations.complete import Completeness, completeness
from tidemark.operations.decisions import accept_truncation

ONE = ScheduleSettings(partitions=1, max_records=10, max_slices=100)
Make = Callable[..., ModelWorld]


@pytest.fixture
def make(postgres: Postgres, template: str) -> Iterator[Make]:
    """Creates a world: ``make(partitions=2)``."""
    with contextlib.ExitStack() as stack:

        def create(**settings: object) -> ModelWorld:
            world = ModelWorld(postgres, template, replace(ONE, **settings), Counter())  # type: ignore[arg-type]
            return stack.enter_context(contextlib.closing(world))

        yield create


@pytest.fixture
def world(make: Make) -> ModelWorld:
    return make()


def minute(number: float) -> datetime:
    """The time of record ``number`` of a partition; a cut there ends before it."""
    return EPOCH + timedelta(minutes=number + 1)


def by_hand(world: ModelWorld, until: float | None, key: str | None = None) -> PlannedRun:
    cut = None if until is None else minute(until)
    return plan(world.onlooker(), Tick.by_hand(cut, key or f"by hand {until}"))


def of_interval(
    world: ModelWorld, since: float, until: float, kind: RunKind = RunKind.SCHEDULED, key: str = ""
) -> PlannedRun:
    return plan(world.onlooker(), Tick(key or minute(until).isoformat(), kind, minute(until), minute(since)))


def publish(world: ModelWorld, *manifests: int) -> None:
    for manifest_id in manifests:
        attempt.process(world.onlooker(), manifest_id, world.stage)


def green(world: ModelWorld, run: PlannedRun) -> bool:
    """Whether the task ``close`` of the run would pass."""
    try:
        close(world.onlooker(), run.run_key)
    except WorkFailed:
        return False
    return True


# what a run names


def test_a_covered_run_names_every_slice_before_its_cut_that_is_not_published(world: ModelWorld) -> None:
    world.produce(30, minutes=1)
    assert by_hand(world, 30).manifests == (1, 2, 3)
    publish(world, 2, 3)
    covered = by_hand(world, 30, "again")
    assert (covered.manifests, covered.covered_by) == ((), (1, 3)), "3 holds the last offset"
    assert not green(world, covered)
    publish(world, 1)
    assert green(world, covered)
    assert by_hand(world, 30, "and again").covered_by == (3,)


def test_a_run_until_a_time_inside_an_older_run_names_the_slices_up_to_there(world: ModelWorld) -> None:
    world.produce(30, minutes=1)
    by_hand(world, 30)
    publish(world, 2)
    inside = by_hand(world, 15)
    assert (inside.manifests, inside.covered_by) == ((), (1, 2))
    after_it = by_hand(world, 25)
    assert after_it.covered_by == (1, 3), "nobody closes a plan by hand, so it does not end where that one did"
    publish(world, 1)
    assert (green(world, inside), green(world, after_it)) == (True, False)


def test_a_backfilled_interval_names_all_of_its_slices_and_no_others(world: ModelWorld) -> None:
    world.produce(60, minutes=1)
    by_hand(world, 60)
    publish(world, 1, 2, 4, 5, 6)
    runs = [of_interval(world, since, since + 20, RunKind.BACKFILL) for since in (40, 0, 20)]
    assert [run.covered_by for run in runs] == [(5, 6), (1, 2), (3, 4)]
    assert [green(world, run) for run in runs] == [True, True, False]


def test_a_plan_by_hand_in_the_middle_of_an_interval_is_part_of_its_run(world: ModelWorld) -> None:
    world.produce(20, minutes=1)
    of_interval(world, -10, 10)
    assert by_hand(world, 15).manifests == (2,)
    scheduled = of_interval(world, 10, 20)
    assert (scheduled.manifests, scheduled.covered_by) == ((3,), (2,))
    publish(world, 1, 3)
    assert not green(world, scheduled)
    publish(world, 2)
    assert green(world, scheduled)


def test_a_scheduled_run_after_intervals_that_airflow_skipped_stands_for_them_too(world: ModelWorld) -> None:
    world.produce(30, minutes=1)
    of_interval(world, -10, 10)
    by_hand(world, 15)
    assert of_interval(world, 20, 30).covered_by == (2,)
    backfilled = of_interval(world, 20, 30, RunKind.BACKFILL, "backfill")
    assert backfilled.covered_by == (3, 4), "of a backfill each interval has its own run"


def test_intervals_meet_when_late_records_moved_the_time_between_them(world: ModelWorld) -> None:
    world.produce(10, minutes=1)
    of_interval(world, -10, 10)
    world.produce(5, minutes=-5)  # late: the source now says that the next interval begins behind them
    world.produce(5, minutes=1)
    assert by_hand(world, 12).manifests == (2,)
    assert of_interval(world, 10, 20).covered_by == (2,)


def test_a_quiet_interval_is_green_though_an_older_one_is_not(world: ModelWorld) -> None:
    world.produce(10, minutes=1)
    busy = of_interval(world, 0, 10)
    quiet = of_interval(world, 10, 20)
    assert (quiet.manifests, quiet.covered_by) == ((), ())
    assert (green(world, busy), green(world, quiet)) == (False, True)


def test_a_run_until_a_time_counts_the_partitions_that_others_have_planned(make: Make) -> None:
    world = make(partitions=2)
    world.produce(10, minutes=1)
    by_hand(world, 10)
    log = world.log("a", 1)
    world.broker.produce(log, minute(3))
    again = by_hand(world, 10, "again")
    assert (again.manifests, again.covered_by) == ((2,), (1,))


def test_a_run_by_hand_without_a_time_stands_for_what_it_plans(world: ModelWorld) -> None:
    world.produce(10, minutes=1)
    by_hand(world, None)
    world.produce(5, minutes=1)
    second = by_hand(world, None, "second")
    assert (second.manifests, second.covered_by) == ((2,), ())
    publish(world, 2)
    assert green(world, second)
    assert by_hand(world, None, "nothing new").covered_by == (1, 2)


def test_a_run_that_max_slices_ended_ends_there_and_the_next_interval_begins_there(make: Make) -> None:
    world = make(max_slices=1)
    world.produce(30, minutes=1)
    first, second = of_interval(world, 0, 20), of_interval(world, 20, 30)
    assert [(run.manifests, run.covered_by, run.reached) for run in (first, second)] == [
        ((1,), (), False), ((2,), (), False)
    ]  # fmt: skip
    third = of_interval(world, 20, 30, key="the rest")
    assert (third.manifests, third.covered_by) == ((3,), (2,)), "its interval begins where the run before it ended"


# what a log holds that was cut


def cut(world: ModelWorld, lost: int) -> None:
    """The log loses so many records, and a person accepts it."""
    world.truncate(lost)
    with pytest.raises(TopicChanged):
        by_hand(world, None, f"refused after {world.clock}")
    accept_truncation(world.onlooker(), "a", 0, "the disk was restored", start=None, dry_run=False)


def test_a_run_until_a_time_names_what_is_unpublished_below_a_cut(world: ModelWorld) -> None:
    world.produce(20, minutes=1)
    by_hand(world, 20)
    publish(world, 2)
    cut(world, 5)
    world.produce(10, minutes=1)
    after_it = by_hand(world, 30)
    assert (after_it.manifests, after_it.covered_by) == ((3,), (1,))
    publish(world, 3)
    assert not green(world, after_it)
    assert by_hand(world, 30, "again").covered_by == (1, 3)
    assert by_hand(world, 5).covered_by == (1,), "the last offset before that time is below the cut"
    publish(world, 1)
    assert green(world, after_it)


def test_an_interval_names_the_manifests_of_all_generations_that_hold_it(world: ModelWorld) -> None:
    world.produce(20, minutes=1)
    of_interval(world, -10, 10)
    by_hand(world, 20)
    publish(world, 2)
    cut(world, 5)
    world.produce(5, minutes=1)
    by_hand(world, 23)  # three of the five records that came after the cut
    scheduled = of_interval(world, 10, 25)
    assert (scheduled.manifests, scheduled.covered_by) == ((4,), (2, 3))
    assert of_interval(world, 0, 10, RunKind.BACKFILL, "backfill").covered_by == (1,)


def test_an_interval_that_was_read_in_part_before_its_log_was_cut_is_not_replayed_and_is_named(
    world: ModelWorld,
) -> None:
    world.produce(30, minutes=1)
    by_hand(world, 30)
    publish(world, 1, 2)
    cut(world, 5)
    world.produce(10, minutes=1)
    by_hand(world, 40)
    context = world.onlooker()
    with pytest.raises(TopicChanged, match="manifests 2 were made before their log was cut") as refused:
        manifests_between(context, minute(10), minute(40))
    assert "replay only what is whole: tidemark replay demo --manifest 3; tidemark replay demo --manifest 4" in str(
        refused.value.next_step
    )
    assert manifests_between(context, minute(20), minute(40)) == [3, 4], "3 is still to be read, below the cut"


def test_offsets_below_a_cut_are_complete_up_to_a_time_before_it(world: ModelWorld) -> None:
    world.produce(20, minutes=1)
    by_hand(world, 20)
    publish(world, 1)
    cut(world, 5)
    world.produce(10, minutes=1)
    by_hand(world, 30)
    publish(world, 3)
    context = world.onlooker()
    assert completeness(context, minute(10)).complete
    assert missing(completeness(context, minute(12))) == [(2, "planned", 10, 12)]


# what retention took of an interval that is to be replayed


def test_an_interval_whose_records_retention_took_in_part_is_not_replayed_and_is_named(world: ModelWorld) -> None:
    world.produce(60, minutes=1)
    for until in (20, 40, 60):
        by_hand(world, until)
    publish(world, *range(1, 7))
    world.log("a", 0).start = 25
    context = world.onlooker()
    with pytest.raises(DataLost, match=r"took offsets \[20, 25\) of a-0: manifests 3 were made from them") as refused:
        manifests_between(context, minute(20), minute(40))
    assert "replay only what is whole: tidemark replay demo --manifest 4" in refused.value.next_step
    with pytest.raises(DataLost, match=r"took offsets \[0, 20\) of a-0: manifests 1, 2 were"):
        manifests_between(context, minute(-5), minute(20))
    assert manifests_between(context, minute(40), minute(60)) == [5, 6], "what is gone is older than the interval"
    assert manifests_between(context, minute(30), minute(60)) == [4, 5, 6], "its first record is still there"


def test_an_interval_all_of_whose_records_are_gone_is_not_replayed(world: ModelWorld) -> None:
    world.produce(20, minutes=1)
    by_hand(world, 20)
    publish(world, 1, 2)
    world.log("a", 0).start = 20
    with pytest.raises(DataLost, match=r"took offsets \[0, 20\) of a-0: manifests 1, 2 were"):
        manifests_between(world.onlooker(), minute(0), minute(20))


# whether all before a time is published


def missing(answer: Completeness) -> list[tuple[int, str, int, int]]:
    return [(part.manifest_id, part.state, part.covered.start, part.covered.end) for part in answer.missing]


def test_all_before_a_time_is_complete_over_all_runs_and_names_what_is_missing(world: ModelWorld) -> None:
    world.produce(40, minutes=1)
    context = world.onlooker()
    for until in (20, 30, 40):
        by_hand(world, until)
    publish(world, 1, 2, 4)
    answers = [completeness(context, minute(until)) for until in (20, 30, 40, 41)]
    assert [each.complete for each in answers] == [True, False, False, False]
    assert [missing(each) for each in answers] == [[], [(3, "planned", 20, 30)], [(3, "planned", 20, 30)],
                                                [(3, "planned", 20, 30)]]  # fmt: skip
    assert [each.run_key for each in answers[:3]] == ["by hand 20", "by hand 30", "by hand 40"]
    assert (answers[3].run_key, answers[3].planned_up_to) == (None, minute(40))
    assert {part.sink for part in answers[1].missing} == {"lake"}


def test_a_time_between_two_cuts_asks_the_source_only_when_something_is_missing(world: ModelWorld) -> None:
    world.produce(40, minutes=1)
    by_hand(world, 40)
    publish(world, 1, 2)
    context = world.onlooker()
    asked: list[str] = []
    world.broker.notice = asked.append
    assert completeness(context, minute(20)).complete
    assert missing(completeness(context, minute(25))) == [(3, "planned", 20, 25)]
    assert asked == ["kafka partitions", "kafka offsets_at"] * 2
    publish(world, 3, 4)
    asked.clear()
    assert completeness(context, minute(25)).complete
    assert asked == []


def test_a_run_that_did_not_reach_its_time_does_not_answer_for_it(make: Make) -> None:
    world = make(max_slices=1)
    world.produce(20, minutes=1)
    first = by_hand(world, 20)
    publish(world, 1)
    assert not first.reached
    assert completeness(world.onlooker(), minute(20)).run_key is None
    by_hand(world, 20, "the rest")
    assert missing(completeness(world.onlooker(), minute(20))) == [(2, "planned", 10, 20)]
    publish(world, 2)
    assert completeness(world.onlooker(), minute(20)).complete


def test_a_run_of_all_there_is_answers_for_its_moment_unless_a_transaction_hides_records(world: ModelWorld) -> None:
    world.produce(10, minutes=1)
    by_hand(world, None)
    publish(world, 1)
    assert completeness(world.onlooker(), minute(10)).complete
    newest = completeness(world.onlooker(), minute(10)).planned_up_to
    assert newest is not None
    world.begin()
    world.produce(5, minutes=1)
    by_hand(world, None, "held back")
    assert completeness(world.onlooker(), newest + timedelta(microseconds=1)).run_key is None


def test_lost_offsets_are_named_as_lost_and_do_not_keep_it_incomplete(make: Make) -> None:
    world = make(on_data_loss="record")
    world.produce(10, minutes=1)
    by_hand(world, 10)
    publish(world, 1)
    world.produce(10, minutes=1)
    world.log("a", 0).start = 15
    by_hand(world, 20)
    publish(world, 2)
    answer = completeness(world.onlooker(), minute(20))
    assert (answer.complete, [(part.start, part.end) for part in answer.lost]) == (True, [(10, 15)])


def test_a_sink_that_lacks_a_done_manifest_is_named(world: ModelWorld) -> None:
    world.produce(10, minutes=1)
    by_hand(world, 10)
    publish(world, 1)
    context: Context = world.onlooker()
    with context.database.transaction():
        context.database.pipelines.remember("demo", {"warehouse": "a table"})
    answer = completeness(context, minute(10))
    assert [(part.manifest_id, part.state, part.sink) for part in answer.missing] == [(1, "done", "warehouse")]
