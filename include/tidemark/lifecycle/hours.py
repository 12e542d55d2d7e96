"""Closes event hours. Only this module decides which hours are complete, and only when a run ends.

An hour is complete when a run has reached a cut at or after the hour's end plus ``allowed_lateness``, and everything
planned up to that run is published. A later receipt or publication with rows of the hour opens it again; when it is
closed once more, it gets its next revision.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tidemark.database.client import ManifestDatabase
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.model import event_hours
from tidemark.model.manifest import WithoutRows
from tidemark.sinks.capabilities import CompleteHour, ShowsHours


def close_hours(context: Context) -> list[datetime]:
    """Close the hours that are complete now, show them in the sinks that show hours, and return the newly closed ones.

    May be repeated: the next call writes the success files that a killed process did not write.
    """
    database, pipeline_name = context.database, context.pipeline_name
    with database.transaction():
        database.hours.lock(pipeline_name)
        closed: list[datetime] = []
        cut = database.runs.published_up_to(pipeline_name)
        if cut is not None:
            database.hours.fill(pipeline_name, _window(context, cut), cut)
            last = event_hours.last_due(cut, context.pipeline.event_time.allowed_lateness)
            closed = database.hours.close(pipeline_name, last, held_hours(context))
        failpoint("hours.before_commit")
    failpoint("hours.after_commit")
    for sink in context.sinks:
        if isinstance(sink.output, ShowsHours) and sink.output.shows_hours():
            _show(context, sink.output)
    return closed


def _window(context: Context, cut: datetime) -> datetime:
    return event_hours.window(cut, context.pipeline.hours_window)


def held_hours(context: Context) -> list[datetime]:
    """Return the hours that an attempt is working on, or that a replay has not brought to every sink."""
    behind = context.database.manifests.half_replayed(context.pipeline_name, context.sink_names())
    rows = context.database.hours.held(context.pipeline_name, [manifest.id for manifest in behind])
    return sorted({row["hour"] for row in rows})


def _show(context: Context, output: ShowsHours) -> None:
    """Show readers of folders the complete hours of which a sink has all output.

    Hide an hour again if the sink no longer has all of it, because missing output was given up.
    """
    database, pipeline_name = context.database, context.pipeline_name
    topics = database.chains.topics(pipeline_name)
    due = database.success_files.missing(pipeline_name, output.name)
    given_up = _given_up(context, output) if due else set()
    complete = [row for row in due if row["whole"] and row["hour"] not in given_up]
    lacking = [row for row in due if row["shown"] and (not row["whole"] or row["hour"] in given_up)]
    starts = [row["hour"] for row in complete]
    lateness = context.pipeline.event_time.allowed_lateness
    counts = without_rows_of(database, pipeline_name, starts, lateness, output.name)
    for row, counted in zip(complete, counts, strict=True):
        hour = CompleteHour(row["hour"], row["revision"], row["rows"], row["late"], counted)
        output.show_complete(topics, hour)
    for row in lacking:
        output.hide(topics, row["hour"])
    if lacking:
        hidden = {row["hour"]: row["revision"] for row in lacking}
        database.success_files.forget(pipeline_name, output.name, hidden)
    if complete:
        shown = {row["hour"]: row["revision"] for row in complete}
        database.success_files.note(pipeline_name, output.name, shown)


def _given_up(context: Context, output: ShowsHours) -> set[datetime]:
    """Return the hours for which files of this sink were given up (``tidemark accept damage``).

    A file counts for the hour of its folder. If its folder belongs to no hour of its manifest, because ``layout`` was
    changed, it counts for every hour of the manifest.
    """
    hours: set[datetime] = set()
    for row in context.database.success_files.given_up(context.pipeline_name, output.name):
        own = [hour for hour in row["hours"] if output.is_of_hour(row["path"], row["topic"], hour)]
        hours.update(own or row["hours"])
    return hours


def without_rows_of(
    database: ManifestDatabase,
    pipeline_name: str,
    hours: Sequence[datetime],
    lateness: timedelta,
    sink: str | None = None,
) -> list[WithoutRows]:
    """Return for each hour the counts of records that became no rows, for one sink or for all.

    They count in the runs that read what arrived from the hour's begin until it was due.
    """
    return database.hours.without_rows(pipeline_name, [(hour, event_hours.due(hour, lateness)) for hour in hours], sink)


def hours_to_tell(context: Context, dag_run: str, ended_well: Callable[[str], bool | None]) -> list[str]:
    """Return the keys of the hours that a DAG run must announce. They count as announced when that run ends well.

    ``ended_well`` returns whether another DAG run ended well; None while that is open. The next run announces the hours
    of a run that failed, and a run that is tried again announces the same hours again.
    """
    database, pipeline_name = context.database, context.pipeline_name
    endings = {run: ended_well(run) for run in database.hours.tellers(pipeline_name) if run != dag_run}
    with database.transaction():
        database.hours.lock(pipeline_name)
        for run, told in {**endings, dag_run: False}.items():
            if told is not None:
                database.hours.settle_told(pipeline_name, run, told=told)
        cut = database.runs.published_up_to(pipeline_name)
        known = event_hours.states(database.hours.since(pipeline_name, _window(context, cut))) if cut else []
        starts = event_hours.hours_to_tell(known)
        database.hours.tell(pipeline_name, dag_run, starts)
    return [event_hours.key(start) for start in starts]
