"""What a person or a program is shown: tables and lines on standard output, notes and progress on standard error."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError
from tidemark.lifecycle.close import Closing, Lag
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import PlannedRun
from tidemark.lifecycle.publish import Outcome
from tidemark.manifest import AttemptState, Decision, Manifest, ManifestState
from tidemark.offsets import Range
from tidemark.pipeline.loader import InvalidPipelines
from tidemark.pipeline.settings import Pipeline
from tidemark.receipt import ObjectKind
from tidemark.sinks.difference import Difference

STATE_STYLES = {"done": "green", "failed": "red", "blocked": "red", "running": "yellow", "planned": "cyan"}


def _console(stderr: bool = False) -> Console:
    """Colour only on a terminal; elsewhere wide enough that no cell is cut."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 200
    return console


def error(error: TidemarkError) -> None:
    console = _console(stderr=True)
    what, _, next_step = str(error).partition("\nnext: ")
    console.print("[bold red]error:[/] ", end="")
    console.print(what, markup=False)
    if next_step:
        console.print("[bold]next:[/]  ", end="")
        console.print(next_step, markup=False)


def note(text: str) -> None:
    _console(stderr=True).print(text, style="dim", markup=False)


def notes(run: PlannedRun) -> None:
    for text in run.notes:
        note(text)
    if not run.manifests and not run.slices:
        note(f"nothing new since the last run{_covered(run)}")


def _covered(run: PlannedRun) -> str:
    return f"; covered by manifests {', '.join(map(str, run.covered_by))}" if run.covered_by else ""


def working(manifest: Manifest, number: int, of: int) -> None:
    offsets = sum(one.span for one in manifest.ranges)
    note(f"[{number}/{of}] manifest {manifest.id}: {len(manifest.ranges)} ranges, {offsets:,} offsets ...")


def worked(outcome: Outcome) -> None:
    counts = outcome.counts
    note(
        f"      manifest {outcome.manifest_id} attempt {outcome.attempt} {outcome.ending}: read {counts.read:,}, "
        f"written {counts.written:,}, dead-lettered {counts.dead_lettered:,}"
    )


def as_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows of text, none of it taken for rich's markup; a path is folded on a terminal only."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*map(Text, row))
    console = _console()
    if not console.is_terminal:
        console.width = 1_000
    console.print(table)


def as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, default=as_text))


def range_view(one: Range) -> dict[str, Any]:
    return {**asdict(one.at), "start": one.start, "end": one.end}


def _span(one: Range) -> str:
    return f"{one.at.topic}-{one.at.partition} [{one.start:,}, {one.end:,})"


def manifest_views(
    database: ManifestDatabase,
    pipeline: str | None,
    *,
    states: Sequence[ManifestState] | None = None,
    ids: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Manifests as the documented JSON; ``counts`` is null and ``objects`` empty until something is published."""
    found = database.manifests(pipeline, states, ids)
    paths = _published_paths(database, [one.id for one in found])
    return [
        {
            "id": one.id,
            "pipeline": one.pipeline_name,
            "run_key": one.run_key,
            "slice": one.slice,
            "state": one.state.value,
            "attempt": one.attempt,
            "published_attempt": one.published_attempt,
            "alive": one.alive,
            "reason": one.reason,
            "ranges": [range_view(each) for each in one.ranges],
            "counts": asdict(one.publications[0].counts) if one.publications else None,
            "publications": [asdict(each) for each in one.publications],
            "objects": paths.get(one.id, {}).get(ObjectKind.DATA, []),
            "dead_letter_objects": paths.get(one.id, {}).get(ObjectKind.DEAD_LETTER, []),
            "created_at": one.created_at,
            "done_at": one.done_at,
        }
        for one in found
    ]


def _published_paths(
    database: ManifestDatabase, ids: Sequence[int]
) -> dict[int, dict[ObjectKind, list[dict[str, Any]]]]:
    paths: dict[int, dict[ObjectKind, list[dict[str, Any]]]] = {}
    for manifest, root, one in database.published_objects(ids=ids):
        view = {"path": f"{root}/{one.path}", "rows": one.rows, "bytes": one.bytes}
        paths.setdefault(manifest, {}).setdefault(one.kind, []).append(view)
    return paths


def planned(run: PlannedRun, as_json: bool) -> None:
    if as_json:
        _print_json({**asdict(run), "slices": [[range_view(one) for one in part] for part in run.slices]})
        return
    notes(run)
    console = _console()
    if run.dry_run:
        console.print(f"would plan {len(run.slices)} manifests; nothing was stored")
    else:
        again = " (planned before)" if run.repeated else ""
        console.print(
            f"run {run.run_key}{again}: manifests {', '.join(map(str, run.manifests)) or 'none'}", markup=False
        )
    for number, part in enumerate(run.slices):
        console.print(f"  slice {number}: {', '.join(_span(one) for one in part)}", markup=False)
    if not run.reached:
        console.print(
            "the cut is not reached: max_slices or an open transaction ended the plan, the next run goes on from there"
        )


def finished(views: list[dict[str, Any]], as_json: bool, *, nothing: str) -> None:
    if as_json:
        _print_json(views)
        return
    if not views:
        note(nothing)
        return
    table = Table("id", "pipeline", "run", "slice", "state", "attempt", "ranges", "read", "written", "dead", "files")
    for view in views:
        counts = view["counts"] or {"read": "", "written": "", "dead_lettered": ""}
        state = view["state"] + (" (at work)" if view["alive"] and view["state"] != "done" else "")
        table.add_row(
            str(view["id"]), view["pipeline"], view["run_key"], str(view["slice"]),
            f"[{STATE_STYLES[view['state']]}]{state}[/]", str(view["attempt"]), _ranges(view["ranges"]),
            *(f"{counts[name]:,}" if counts[name] != "" else "" for name in ("read", "written", "dead_lettered")),
            str(len(view["objects"])),
        )  # fmt: skip
    _console().print(table)
    for view in views:
        if view["reason"]:
            _console().print(f"manifest {view['id']}: {view['reason']}", markup=False)


def _ranges(ranges: list[dict[str, Any]]) -> str:
    shown = [f"{one['topic']}-{one['partition']} \\[{one['start']:,}, {one['end']:,})" for one in ranges[:8]]
    return "\n".join(shown + ([f".. {len(ranges) - 8} more"] if len(ranges) > 8 else []))


def closed(closing: Closing, views: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json({**asdict(closing), "manifests": views})
        return
    finished(views, False, nothing=f"run {closing.run_key} is complete, nothing had to be done")


def shown(database: ManifestDatabase, manifest: Manifest, as_json: bool) -> None:
    view = manifest_views(database, None, ids=[manifest.id])[0]
    attempts, events = database.attempts(manifest.id), database.events(manifest.id)
    if as_json:
        _print_json({**view, "attempts": attempts, "events": events})
        return
    console = _console()
    finished([view], False, nothing="")
    table = Table("attempt", "state", "by", "started", "ended", "objects", "error", title="attempts")
    for one in attempts:
        table.add_row(
            str(one["attempt"]), _standing(one["state"], manifest), one["actor"], _time(one["started_at"]),
            _time(one["ended_at"]), str(one["objects"]), one["error"] or "",
        )  # fmt: skip
    console.print(table)
    console.print(_publications(manifest))
    history = Table("at", "by", "what", title="history")
    for one in events:
        changes = ", ".join(f"{name}={value}" for name, value in sorted(one["what"].items()) if name in _TOLD)
        history.add_row(_time(one["at"]), one["actor"], f"{one['subject']}: {changes}")
    console.print(history)


def history(decisions: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json(list(decisions))
        return
    if not decisions:
        note("nobody has decided anything about this pipeline")
        return
    table = Table("at", "by", "decision", "why", "what")
    for one in decisions:
        said, more = one["lines"][:MOST_LINES], len(one["lines"]) - MOST_LINES
        said += [f"and {more} more (--json)"] if more > 0 else []
        table.add_row(_time(one["at"]), one["actor"], one["decision"], one["why"], "\n".join(said))
    _console().print(table)


MOST_LINES = 10  # of one decision in a table


def _publications(manifest: Manifest) -> Table:
    """What readers see, sink by sink."""
    table = Table("sink", "attempt", "written", "dead", "superseded", "stale", "at", title="published")
    for one in manifest.publications:
        counts = (one.counts.written, one.counts.dead_lettered, one.counts.superseded, one.counts.stale)
        table.add_row(one.sink, str(one.attempt), *(f"{count:,}" for count in counts), _time(one.published_at))
    return table


def _standing(state: str, manifest: Manifest) -> str:
    """An attempt whose process is gone still says ``running`` until the next one fences it."""
    return "died" if state == AttemptState.RUNNING and not manifest.alive else state


_TOLD = ("decision", "why", "state", "attempt", "reason", "sink", "digest", "error", "slice")


def _time(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S") if when else ""


def objects(database: ManifestDatabase, pipeline: Pipeline, *, dead_letters: bool, as_json: bool) -> None:
    kind = ObjectKind.DEAD_LETTER if dead_letters else ObjectKind.DATA
    found = [(root, one) for _, root, one in database.published_objects(pipeline.name) if one.kind is kind]
    if as_json:
        _print_json([{"path": f"{root}/{one.path}", "rows": one.rows, "bytes": one.bytes} for root, one in found])
        return
    for root, one in found:
        click.echo(f"{root}/{one.path}")


def decided(decision: Decision, as_json: bool) -> None:
    if as_json:
        _print_json(asdict(decision))
        return
    for line in decision.lines:
        click.echo(line)
    if not decision.lines:
        note("there is nothing to do")
    elif decision.dry_run:
        note("nothing was changed (dry run)")
    elif decision.manifests:
        note(f"manifests {', '.join(map(str, decision.manifests))}; tidemark retry finishes what is planned")


def lag(rows: Sequence[Lag], as_json: bool) -> None:
    if as_json:
        _print_json([{**asdict(one), "lag": one.lag} for one in rows])
        return
    table = Table("topic", "partition", "log start", "planned up to", "last stable", "log end", "lag", "unpublished")
    for one in rows:
        numbers = (one.log_start, one.planned, one.last_stable, one.log_end, one.lag, one.unpublished)
        table.add_row(one.topic, str(one.partition), *(f"{value:,}" for value in numbers))
    _console().print(table)
    for one in rows:
        if one.open_transaction:
            _console().print(one.open_transaction, markup=False)
    _console().print(
        f"lag {sum(one.lag for one in rows):,} offsets, {sum(one.unpublished for one in rows):,} unpublished"
    )


def audited(context: Context, differences: list[Difference], as_json: bool) -> None:
    if as_json:
        _print_json([asdict(one) for one in differences])
        return
    for one in differences:
        click.echo(str(one))
    manifests = context.database.manifests(context.pipeline.name)
    done = [one for one in manifests if one.state is ManifestState.DONE]
    rows = sum(one.publications[0].counts.written for one in done if one.publications)
    note(f"{len(done)} of {len(manifests)} manifests done, {rows:,} rows; {len(differences)} differences")


def validated(found: Sequence[tuple[Path, Pipeline | InvalidPipelines]], as_json: bool) -> None:
    if as_json:
        _print_json(
            [{"file": str(name), "error": None if isinstance(one, Pipeline) else str(one)} for name, one in found]
        )
        return
    for name, one in found:
        if isinstance(one, Pipeline):
            click.echo(f"{name}: ok")
        else:
            error(one)


def migrated(created: bool, database: str, as_json: bool) -> None:
    if as_json:
        _print_json({"created": created, "database": database})
    else:
        click.echo(f"{'created' if created else 'nothing to do'}: manifest database {database}")
