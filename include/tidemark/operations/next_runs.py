"""Foretells the runs of a pipeline file's ``schedule``, ``start_date`` and ``catchup``, beside those that there were.

Airflow goes on from its newest run of the schedule or a backfill, and so does this module: the manifest database knows
the cuts of both.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from tidemark.operations.change import Change
from tidemark.pipeline.schedule import MOST, NextRuns, Schedule, next_runs
from tidemark.pipeline.settings import Pipeline


def changes_of_runs(pipeline: Pipeline, cuts: Sequence[datetime], now: datetime) -> list[Change]:
    """What schedule, start_date and catchup of the file do. ``cuts``: of the newest runs, the newest first, and at last
    of the oldest. Of a pipeline whose DAG a person has written nothing is known: that file has the last word."""
    if pipeline.airflow.own_dag:
        return []
    if pipeline.schedule is None:
        return [_without_schedule(pipeline, cuts[0])] if cuts else []
    schedule = Schedule(pipeline.schedule)
    start = datetime.combine(pipeline.start_date, time(), UTC)
    runs = next_runs(schedule, start, cuts[0] if cuts else None, now, catchup=pipeline.catchup)
    if not cuts:
        return [_first_runs(pipeline, runs)]
    next_ = max(runs.first, schedule.from_(start))
    changes = [_other_times(pipeline, cuts, next_)] if is_of_another(schedule, cuts) else []
    if pipeline.catchup:
        return changes + _caught_up(pipeline, schedule, start, cuts, runs)
    if runs.first == schedule.from_(start) > max(now, schedule.after(cuts[0])):
        return [*changes, _waits_for_start(pipeline, runs.first)]
    return changes + _left_out(schedule.times(schedule.after(cuts[0]), now), runs)


def is_of_another(schedule: Schedule, cuts: Sequence[datetime]) -> bool:
    """Whether the newest runs are at times that this schedule has not, or all further apart than it is due.

    Further apart they may be by a pause or by long runs, too; so one pair of neighbours is enough to say no.
    """
    if not all(schedule.has(cut) for cut in cuts[:2]):
        return True
    return len(cuts) > 2 and not any(schedule.after(earlier) == later for later, earlier in pairwise(cuts))


def _without_schedule(pipeline: Pipeline, newest: datetime) -> Change:
    return Change(
        f"it has no schedule any more: the scheduled run of {_at(newest)} was the last one; what arrives is read when "
        "somebody starts a run, and not before",
        f"trigger the DAG, or: tidemark run {pipeline.name}; with the schedule back in the file, the next run reads on "
        "where the last ended, while the source has the records",
    )


def _first_runs(pipeline: Pipeline, runs: NextRuns) -> Change:
    if pipeline.catchup and len(runs.due) > 1:
        return Change(
            f"no scheduled run was planned yet: with catchup: true Airflow starts {_several(runs.due)}, "
            f"{_side_by_side(pipeline)}. Each reads up to its own time, and nothing where that is read already",
            "for one run in place of them, write catchup: false, or a later start_date, before the DAG is unpaused",
        )
    return Change(f"no scheduled run was planned yet: the first is that of {_at(runs.first)}")


def _other_times(pipeline: Pipeline, cuts: Sequence[datetime], next_: datetime) -> Change:
    newest = f"those of {_at(cuts[1])} and {_at(cuts[0])}" if len(cuts) > 1 else f"that of {_at(cuts[0])}"
    return Change(
        f'schedule is "{pipeline.schedule}", and the newest scheduled runs, {newest}, were by another one, or runs '
        f"were left out: the next is that of {_at(next_)}. It reads on where the last one ended: nothing is left out, "
        "nothing is read twice, and runs that are planned keep their ranges",
        "what depends on the time between two runs must fit the new one: max_age, airflow.deadline, slice.max_slices, "
        "and DAGs that wait for clock times",
    )


def _waits_for_start(pipeline: Pipeline, first: datetime) -> Change:
    return Change(
        f"start_date is {pipeline.start_date}: no scheduled run before that of {_at(first)}, which then reads all that "
        "has arrived since the last one",
        f"so that retention takes nothing before: an earlier start_date, or now and then: tidemark run {pipeline.name}",
    )


def _caught_up(
    pipeline: Pipeline, schedule: Schedule, start: datetime, cuts: Sequence[datetime], runs: NextRuns
) -> list[Change]:
    """With ``catchup: true``."""
    changes = []
    if runs.first < start:
        empty = schedule.times(runs.first, start - timedelta(microseconds=1))
        changes.append(
            Change(
                f"start_date is {pipeline.start_date}, after the scheduled run of {_at(cuts[0])}: with catchup: true "
                f"Airflow goes on from that run all the same, and gives {_several(empty)} no task: these read nothing. "
                f"The run of {_at(schedule.from_(start))} reads all that has arrived since the last one",
                "leave start_date as it was; for one run in place of many write catchup: false",
            )
        )
    due = [moment for moment in runs.due if moment >= start]
    if len(due) > 1:
        changes.append(
            Change(
                f"with catchup: true Airflow starts {_several(due)}, {_side_by_side(pipeline)}. Each reads up to its "
                "own time, and nothing where that is read already",
                "for one run in place of them, write catchup: false before the DAG is unpaused",
            )
        )
    missing = schedule.times(schedule.from_(start), cuts[-1] - timedelta(microseconds=1))
    if missing:
        are = "is" if len(missing) == 1 else "are"
        changes.append(
            Change(
                f"Airflow starts no run for what lies before its first one, that of {_at(cuts[-1])}, though start_date "
                f"is {pipeline.start_date}: {_several(missing)} {are} left out. Nothing is unread by that",
                f"for runs of these times, which name what they find read: airflow backfill create --dag-id "
                f"{pipeline.name} --from-date {_at(missing[0])} --to-date {_at(missing[-1])}; for records from before "
                f"the pipeline's first offsets: tidemark extend-back {pipeline.name} --why TEXT",
            )
        )
    return changes


def _left_out(due: list[datetime], runs: NextRuns) -> list[Change]:
    """With ``catchup: false``: the newest time alone gets a run."""
    if len(due) < 2:
        return []
    return [
        Change(
            f"the schedule was due {_number(due)} times since the newest scheduled run: with catchup: false Airflow "
            f"starts one run, that of {_at(runs.first)}. It reads what arrived in all of that time",
            "for a run of each of these times, write catchup: true before the DAG is unpaused",
        )
    ]


def _several(times: list[datetime]) -> str:
    """``3 runs, those of .. to ..``"""
    if len(times) == 1:
        return f"one run, that of {_at(times[0])}"
    last = f" to {_at(times[-1])}" if len(times) < MOST else " on"
    return f"{_number(times)} runs, those of {_at(times[0])}{last}"


def _number(times: list[datetime]) -> str:
    return f"{len(times):,}" if len(times) < MOST else f"{MOST:,} or more"


def _side_by_side(pipeline: Pipeline) -> str:
    return "one after the other" if pipeline.max_active_runs == 1 else f"{pipeline.max_active_runs} at a time"


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
