"""Prints results for people or programs: tables and lines on standard output, and notes on standard error.

JSON has the values unchanged (``json_value``); tables are made from the same values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from rich.text import Text

from tidemark.cli.log import error, note
from tidemark.cli.terminal import Table, echo, json_text, open_console, printable
from tidemark.errors import TidemarkError
from tidemark.lifecycle.close import Closing
from tidemark.lifecycle.known_sinks import is_not_filled
from tidemark.lifecycle.plan import PlannedRun, nothing_new
from tidemark.model.expectations import ExpectationCount
from tidemark.model.json_values import json_value
from tidemark.model.manifest import AttemptState, Decision, Manifest, ManifestState, count_of, listed
from tidemark.model.offsets import Range
from tidemark.model.problem import Problem
from tidemark.model.unknown_fields import UnknownField
from tidemark.operations.audit import Compared
from tidemark.operations.change import Change
from tidemark.operations.complete import Completeness
from tidemark.operations.fill import Filled
from tidemark.operations.hours import Hour
from tidemark.operations.lag import Lag
from tidemark.operations.new_project import NewProject
from tidemark.operations.status import (
    SharedCause,
    State,
    Status,
    group_of,
    members_in_short,
    own_problems,
    shared_causes,
)
from tidemark.pipeline.group import Group
from tidemark.pipeline.settings import Pipeline
from tidemark.views.manifests import ManifestHistoryView, ManifestView
from tidemark.views.objects import ObjectView
from tidemark.views.pipelines import DecisionView

Value = TypeVar("Value")
Others = ParamSpec("Others")
STATE_STYLES = {
    ManifestState.DONE: "green",
    ManifestState.FAILED: "red",
    ManifestState.BLOCKED: "red",
    ManifestState.RUNNING: "yellow",
    ManifestState.PLANNED: "cyan",
}


def notes(run: PlannedRun) -> None:
    for text in run.notes:
        note(text)
    if not run.manifests and not run.slices:
        note(nothing_new(run))


def as_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text, none of it taken for rich's markup. Only a terminal wraps long paths."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*map(Text, map(printable, row)))
    console = open_console()
    if not console.is_terminal:
        console.width = 1_000
    console.print(table)


def print_json(value: object) -> None:
    echo(json_text(value, indent=2))


def or_json(show: Callable[Concatenate[Value, Others], None]) -> Callable[Concatenate[Value, bool, Others], None]:
    """Wrap a function that shows a value to people: with ``as_json``, the second argument, print it as JSON instead."""

    @wraps(show)
    def printed(value: Value, as_json: bool, /, *others: Others.args, **named: Others.kwargs) -> None:
        if as_json:
            print_json(value)
        else:
            show(value, *others, **named)

    return printed


@or_json
def planned(run: PlannedRun) -> None:
    notes(run)
    console = open_console()
    if run.dry_run:
        console.print(f"would plan {count_of(len(run.slices), 'manifest')}; nothing was stored")
    else:
        again = " (planned before)" if run.repeated else ""
        console.print(
            f"run {run.run_key}{again}: manifests {', '.join(map(str, run.manifests)) or 'none'}", markup=False
        )
    for number, ranges in enumerate(run.slices):
        console.print(f"  slice {number}: {', '.join(map(str, ranges))}", markup=False)
    if not run.reached:
        console.print(
            "the cut is not reached: max_slices or an open transaction ended the plan, the next run goes on from there"
        )


@or_json
def finished(views: Sequence[ManifestView], *, nothing: str) -> None:
    if not views:
        note(nothing)
        return
    table = Table("id", "pipeline", "run", "slice", "state", "attempt", "ranges", "read", "written", "dead", "files")
    for view in views:
        counts = view.counts and (view.counts.read, view.counts.written, view.counts.dead_lettered)
        state = view.state + (" (at work)" if view.alive and view.state is not ManifestState.DONE else "")
        table.add_row(
            str(view.id), view.pipeline_name, view.run_key, str(view.slice), f"[{STATE_STYLES[view.state]}]{state}[/]",
            str(view.attempt), _ranges(view.ranges), *(f"{count:,}" for count in counts or ()),
            *([""] * (0 if counts else 3)), str(len(view.objects)),
        )  # fmt: skip
    open_console().print(table)
    for view in views:
        behind = [published.sink for published in view.publications if published.behind]
        if behind:
            what = f"manifest {view.id}: a replay has not reached {', '.join(behind)}"
            open_console().print(f"{what}; next: tidemark retry {view.pipeline_name}", markup=False)
        if view.reason:
            open_console().print(f"manifest {view.id}: {view.reason}", markup=False)
    lacking: dict[tuple[str, str], list[int]] = {}
    for view in views:
        for sink in view.unfilled:
            lacking.setdefault((view.pipeline_name, sink), []).append(view.id)
    for (pipeline_name, sink), manifests in sorted(lacking.items()):
        what, next_step = is_not_filled(pipeline_name, sink, sorted(manifests))
        open_console().print(f"{what}; next: {next_step}", markup=False)


def _ranges(ranges: Sequence[Range]) -> str:
    """Return ranges as text for a table with rich's markup."""
    return _spans(ranges).replace("[", "\\[")


def _spans(ranges: Sequence[Range]) -> str:
    shown = [str(covered) for covered in ranges[:8]]
    return "\n".join(shown + ([f".. {len(ranges) - 8} more"] if len(ranges) > 8 else []))


@or_json
def filled(view: Filled) -> None:
    for manifest_id in view.filled:
        echo(f"manifest {manifest_id}: {'would be published' if view.dry_run else 'published'} to {view.sink}")
    for lacking in view.not_filled:
        echo(f"manifest {lacking.manifest_id}: not filled: {lacking.what}; next: {lacking.next_step}")
    if view.left:
        echo(f"not tried: manifests {', '.join(map(str, view.left))}")
    if not view.filled and not view.not_filled:
        note(f"sink {view.sink} lacks no manifest that is done")
    elif view.dry_run:
        note("nothing was changed (dry run)")


@or_json
def filled_members(views: Mapping[str, Filled], sink: str) -> None:
    """Print, for each member of a group, how many manifests a sink got, and which it did not get and why."""
    for name, view in views.items():
        word = "would be published" if view.dry_run else "published"
        if view.filled:
            echo(f"{name}: {count_of(len(view.filled), 'manifest')} {word} to {sink}")
        for lacking in view.not_filled:
            echo(f"{name}: manifest {lacking.manifest_id}: not filled: {lacking.what}; next: {lacking.next_step}")
        if view.left:
            echo(f"{name}: not tried: manifests {', '.join(map(str, view.left))}")
    if not any(view.filled or view.not_filled for view in views.values()):
        note(f"sink {sink} lacks no manifest that is done")
    elif any(view.dry_run for view in views.values()):
        note("nothing was changed (dry run)")


def planned_members(runs: Mapping[str, PlannedRun], as_json: bool) -> None:
    """Print, for each member of a group, which manifests were planned."""
    if as_json:
        print_json(runs)
        return
    for name, run in runs.items():
        for text in run.notes:
            note(f"{name}: {text}")
        if run.dry_run:
            echo(f"{name}: would plan {count_of(len(run.slices), 'manifest')}; nothing was stored")
        else:
            echo(f"{name}: manifests {', '.join(map(str, run.manifests)) or 'none'}")


def closed(run: Closing, manifests: Sequence[ManifestView], as_json: bool) -> None:
    """Print a closed run; ``manifests`` are its own, and those that it took along."""
    if as_json:
        print_json(json_value(run) | {"manifests": manifests})
        return
    finished(manifests, False, nothing=f"run {run.run_key} is complete, it planned nothing itself")


def shown(view: ManifestHistoryView, compared: Sequence[Compared] | None, as_json: bool) -> None:
    if as_json:
        print_json(json_value(view) | ({} if compared is None else {"compared": compared}))
        return
    console = open_console()
    errors = {attempt.error for attempt in view.attempts if attempt.error}  # each is printed once, below the attempts
    finished([replace(view, reason=None) if view.reason in errors else view], False, nothing="")
    table = Table("attempt", "state", "by", "started", "ended", "objects", title="attempts")
    for attempt in view.attempts:
        # An attempt whose process died is still ``running`` in the database, until the next one fences it.
        died = attempt.state == AttemptState.RUNNING and not view.alive
        table.add_row(
            str(attempt.attempt), "died" if died else attempt.state, attempt.actor, _time(attempt.started_at),
            _time(attempt.ended_at), str(attempt.objects),
        )  # fmt: skip
    console.print(table)
    for attempt in view.attempts:
        if text := attempt.error or attempt.note:
            console.print(f"attempt {attempt.attempt}: {text}", markup=False)  # no column is wide enough for a sentence
    console.print(_publications(view) if view.publications else "published: nothing; readers see nothing of it")
    if view.unknown_fields:
        console.print(_unknown_fields(view.unknown_fields))
    if view.expectations:
        console.print(expectations_table(view.expectations))
    entries = Table("at", "by", "what", title="history")
    for event in view.events:
        changes = ", ".join(
            f"{name}={value}"
            for name, value in sorted(event.what.items())
            if name in _TOLD and value is not None and str(value) not in errors
        )
        if changes:
            entries.add_row(_time(event.at), event.actor, f"{event.subject}: {changes}")
    console.print(entries)
    if compared is not None:
        console.print(_compared(compared))


def _compared(compared: Sequence[Compared]) -> Table:
    table = Table("sink", "verdict", "what it shows", "next", title="compared with the sinks")
    for each in compared:
        table.add_row(each.sink, each.verdict or "not known", each.what, each.next_step)
    return table


@or_json
def history(decisions: Sequence[DecisionView]) -> None:
    if not decisions:
        note("nobody has decided anything about this pipeline")
        return
    table = Table("at", "by", "decision", "why", "what")
    for decision in decisions:
        lines, more = decision.lines[:MOST_LINES], len(decision.lines) - MOST_LINES
        rest = [f"and {more} more (--json)"] if more > 0 else []
        table.add_row(_time(decision.at), decision.actor, decision.decision, decision.why, "\n".join([*lines, *rest]))
    open_console().print(table)


MOST_LINES = 10  # of one decision in a table


def _publications(view: ManifestView) -> Table:
    """Return a table of what readers see, sink by sink."""
    table = Table("sink", "attempt", "written", "dead", "superseded", "stale", "at", title="published")
    for published in view.publications:
        counts = published.counts
        shown_counts = (counts.written, counts.dead_lettered, counts.superseded, counts.stale)
        attempt = f"{published.attempt} (behind)" if published.behind else str(published.attempt)
        table.add_row(
            published.sink, attempt, *(f"{count:,}" for count in shown_counts),
            _time(published.published_at),
        )  # fmt: skip
    return table


def _unknown_fields(fields: Sequence[UnknownField]) -> Table:
    table = Table("field", "records", "first", title="fields that the schema does not have")
    for field in fields:
        first = f"{field.topic}-{field.partition} offset {field.offset}"
        table.add_row(Text(printable(field.name)), f"{field.count:,}", Text(first))
    return table


def expectations_table(counts: Sequence[ExpectationCount]) -> Table:
    table = Table("expectation", "rows", "not met", "of these null or failed", "first", title="expectations")
    for count in counts:
        numbers = (f"{number:,}" for number in (count.rows, count.unmet, count.unknown))
        table.add_row(Text(printable(count.name)), *numbers, Text(count.places))
    return table


_TOLD = ("decision", "why", "state", "dag_run", "attempt", "reason", "sink", "digest", "error", "note", "slice")


def _time(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S") if when else ""


@or_json
def hours(views: Sequence[Hour]) -> None:
    if not views:
        note("there are no such hours")
        return
    table = Table("hour (UTC)", "rows", "late", "manifests", "complete", "revision", "not as rows")
    for view in views:
        complete = Text(_time(view.complete_at) if view.complete else f"waits for {view.waits_for}")
        if view.output is not State.OK:
            complete = Text(": ".join([view.output, *map(str, view.damage[:1])]))
        if view.given_up:
            complete.append(f", damage accepted in {', '.join(view.given_up)}")
        if view.complete or view.output is not State.OK:
            complete.stylize("green" if view.complete and not view.lacks else "red")
        table.add_row(
            f"{view.start:%Y-%m-%d %H}", f"{view.rows:,}", f"{view.late:,}", f"{len(view.manifests)}",
            complete, str(view.revision),
            view.without_rows.described(),
        )  # fmt: skip
    open_console().print(table)


@or_json
def objects(views: Sequence[ObjectView]) -> None:
    for view in views:
        echo(view.path)


@or_json
def decided(decision: Decision, pipeline_name: str) -> None:
    for line in decision.lines:
        echo(line)
    if not decision.lines:
        note("there is nothing to do")
    elif decision.dry_run:
        note("nothing was changed (dry run)")
    elif decision.manifests:
        ids = ", ".join(map(str, decision.manifests))
        note(f"manifests {ids}; tidemark retry {pipeline_name} finishes what is planned")


@or_json
def decided_members(decisions: Mapping[str, Decision], group_name: str) -> None:
    """Print what was decided about each member of a group, by member."""
    for name, decision in decisions.items():
        for line in decision.lines:
            echo(f"{name}: {line}")
    if not any(decision.lines for decision in decisions.values()):
        note("there is nothing to do")
    elif any(decision.dry_run for decision in decisions.values()):
        note("nothing was changed (dry run)")
    elif any(decision.manifests for decision in decisions.values()):
        note(f"tidemark retry {group_name} finishes what is planned")


@or_json
def lag(views: Sequence[Lag]) -> None:
    table = Table("topic", "partition", "log start", "planned up to", "last stable", "log end", "lag", "unpublished")
    for view in views:
        offsets = (view.log_start, view.planned, view.last_stable, view.log_end)
        counts = (f"{count:,}" for count in (view.lag, view.unpublished))
        table.add_row(view.topic, str(view.partition), *map(str, offsets), *counts)
    open_console().print(table)
    for view in views:
        for line in filter(None, (view.open_transaction, view.changed)):
            open_console().print(line, markup=False)
    open_console().print(
        f"lag {sum(view.lag for view in views):,} offsets, {sum(view.unpublished for view in views):,} unpublished"
    )


@or_json
def status(views: Sequence[Status], *, folded: bool) -> None:
    """Print the state of each pipeline. ``folded``: of a group, only count the members that are healthy, and print what
    several members have in common once.
    """
    if not views:
        note("there are no pipelines")
    shared = shared_causes(views)
    common = _common_problems(views, shared) if folded else {}
    if folded:
        for group in sorted({group for view in views if (group := group_of(view.pipeline_name))}):
            echo(members_in_short(group, views))
    for view in (
        views if not folded else [view for view in views if not (view.healthy and group_of(view.pipeline_name))]
    ):
        problems = [
            problem
            for problem in own_problems(view, shared)
            if (group_of(view.pipeline_name), problem.kind, problem.what) not in common
        ]
        if view.problems and not problems:
            continue  # its problems are shared, and shown once, below
        echo(f"{view.pipeline_name}: {'; '.join(_facts(view))}")
        for problem in problems:
            echo(f"  {problem.kind}: {problem.what}\n    next: {problem.next_step}")
        if view.warning:
            look = f"see whether that is intended: tidemark peek {view.pipeline_name}"
            echo(f"  warning: {view.warning}\n    next: {look}")
        if view.leftover:
            echo(f"  left over: {view.leftover.what}\n    next: {view.leftover.next_step}")
        for retry in view.retries:
            echo(f"  retrying: {retry.what}; Airflow tries again by {retry.at:%Y-%m-%d %H:%M:%S} UTC")
    for (group, kind, what), names in common.items():
        echo(f"{count_of(len(names), 'topic')} of {group}: {listed(names)}")
        echo(f"  {kind}: {what}\n    next: tidemark status {group} has the next step of each")
    for cause in shared:
        waiting = f"{len(cause.pipelines)} pipelines wait for it: {', '.join(cause.pipelines)}"
        echo(f"{cause}; {waiting}\n    next: {cause.next_step or 'tidemark doctor'}")


def _common_problems(
    views: Sequence[Status], shared: Sequence[SharedCause]
) -> dict[tuple[str | None, State, str], list[str]]:
    """Return the problems that several members of a group have in the same words, with the names of these members."""
    common: dict[tuple[str | None, State, str], list[str]] = {}
    for view in views:
        group = group_of(view.pipeline_name)
        for problem in own_problems(view, shared) if group else ():
            common.setdefault((group, problem.kind, problem.what), []).append(view.pipeline_name)
    return {problem: names for problem, names in common.items() if len(names) > 1}


def _facts(view: Status) -> list[str]:
    facts: list[str] = [view.state]
    if view.published_up_to:
        facts.append(f"published up to {_time(view.published_up_to)} UTC")
    facts += [f"{count_of(view.lag, 'offset')} behind"] if view.lag is not None else []
    facts += [f"{count_of(len(view.at_work), 'manifest')} at work"] if view.at_work else []
    facts += [f"{len(view.waiting)} waiting"] if view.waiting else []
    facts += [f"accepted loss {count_of(view.lost, 'offset')}"] if view.lost else []
    facts += [count_of(view.dead_lettered, "dead letter")] if view.dead_lettered else []
    newest = view.newest
    if newest.read > newest.written or newest.stale or newest.unknown_fields or newest.unmet:
        facts.append(f"of the newest {count_of(view.newest.read, 'record')}: {view.newest.described()}")
    return facts


def completeness_of_members(views: Mapping[str, Completeness], as_json: bool) -> None:
    if as_json:
        print_json(views)
        return
    for name, view in views.items():
        echo(f"{name}:")
        completeness(view, False, name)


@or_json
def completeness(view: Completeness, pipeline_name: str) -> None:
    until = view.until.isoformat()
    if view.run_key is None:
        furthest = f": the furthest planned up to {view.planned_up_to.isoformat()}" if view.planned_up_to else ""
        echo(f"no run has planned up to {until} yet{furthest}")
    elif view.published:
        damaged = "" if view.complete else f", but its output is {view.output}"
        echo(f"everything before {until} is published (run {view.run_key} says so){damaged}")
        counted = view.without_rows.described()
        since = f" of what came since {view.since.isoformat()}" if view.since else ""
        if counted:
            echo(f"not as rows{since}: {counted}")
        if view.given_up:
            echo(f"damage accepted{since}: {', '.join(view.given_up)}")
    else:
        echo(f"not everything before {until} is published (run {view.run_key} says so)")
    parts: dict[tuple[int, str, str], list[Range]] = {}
    for part in view.missing:
        parts.setdefault((part.manifest_id, part.state, part.sink), []).append(part.covered)
    if parts:
        rows = [(str(number), state, sink, _spans(covered)) for (number, state, sink), covered in parts.items()]
        as_table("not published", ("manifest", "state", "sink", "offsets"), rows)
    for covered in view.lost:
        echo(f"lost: {covered}")
    for problem in view.damage:
        echo(f"damaged: {problem}")
    if view.output is State.UNKNOWN:
        note(f"an audit found more than it kept; all of it: tidemark audit {pipeline_name}")
    if any(part.state is not ManifestState.DONE for part in view.missing):
        note(f"next: tidemark retry {pipeline_name}")
    for manifest_id in sorted({part.manifest_id for part in view.missing if part.state is ManifestState.BLOCKED}):
        note(f"manifest {manifest_id} is blocked; why: tidemark show {manifest_id}")


@or_json
def audited(differences: Sequence[Problem], manifests: Sequence[Manifest]) -> None:
    for difference in differences:
        echo(str(difference))
    done = [manifest for manifest in manifests if manifest.state is ManifestState.DONE]
    rows = sum(manifest.publications[0].counts.written for manifest in done if manifest.publications)
    wrong = count_of(len(differences), "difference")
    note(f"{len(done)} of {count_of(len(manifests), 'manifest')} done, {count_of(rows, 'row')}; {wrong}")


def validated(
    loaded: Sequence[tuple[Path, Pipeline | Group | TidemarkError]],
    warnings: Mapping[Path, Sequence[str]],
    changes: Mapping[Path, Sequence[Change]] | None,
    as_json: bool,
) -> None:
    """Print the result of ``validate``: for each file its error, its warnings, and its changes since the last run.
    ``changes`` is None if files were not compared with their history.
    """
    if as_json:
        print_json(
            [
                {
                    "file": str(file),
                    "error": str(pipeline) if isinstance(pipeline, TidemarkError) else None,
                    "warnings": list(warnings.get(file, ())),
                    **({} if changes is None else {"changes": changes.get(file, ())}),
                }
                for file, pipeline in loaded
            ]
        )
        return
    for file, pipeline in loaded:
        if not isinstance(pipeline, TidemarkError):
            echo(f"{file}: ok" + (", as it was run last" if changes is not None and not changes[file] else ""))
            for change in changes[file] if changes is not None else ():
                echo(f"  {change.what}" + (f"; next: {change.next_step}" if change.next_step else ""))
        else:
            error(pipeline)
        for warning in warnings.get(file, ()):
            note(f"warning: {file}: {warning}")


@or_json
def project_made(project: NewProject) -> None:
    for name in project.made:
        echo(f"{'would make' if project.dry_run else 'made'} {project.folder / name}")
    if not project.made:
        echo(f"nothing to do: all of the project is in {project.folder}")
    if project.dry_run:
        note("nothing was written (dry run)")
    else:
        note(f"next: the commands of {project.folder / 'README.md'}")


def migrated(versions: Sequence[int], database: str | None, dry_run: bool, as_json: bool) -> None:
    """Print which ``versions`` of the tables were created, or would be."""
    created = 1 in versions
    if as_json:
        print_json({"created": created, "versions": versions, "dry_run": dry_run, "database": database})
        return
    if not versions:
        done = "nothing to do"
    else:
        done = ("would be " if dry_run else "") + ("created" if created else f"upgraded to version {versions[-1]}")
    echo(f"{done}: manifest database {database or ''}".rstrip())
    if dry_run and versions:
        note("nothing was changed (dry run)")
