"""Prints single records: their places, what a pipeline makes of them, and those that it could not read."""

import json
from collections.abc import Sequence
from typing import Any

from tidemark.cli.log import note
from tidemark.cli.output import as_table, or_json
from tidemark.cli.terminal import echo, json_text
from tidemark.model.manifest import count_of
from tidemark.operations.bring_back import BroughtBack
from tidemark.operations.dead_letters import DeadLetters, LetterPlace, PublishedDeadLetter
from tidemark.operations.locate import ChainOffset
from tidemark.operations.peek import Drift, Peeked
from tidemark.sinks.located import Located
from tidemark.text import readable
from tidemark.views.peeked import LetterView, PeekedView, RowView, peeked_view

SHOWN = 100  # characters of a value; --json has all of it


@or_json
def located(chains: Sequence[ChainOffset]) -> None:
    for chain in chains:
        generation = f", log generation {chain.generation}, which has ended" if chain.retired else ""
        place = f"{chain.at.topic}-{chain.at.partition} offset {chain.offset}"
        echo(f"{place} in pipeline {chain.pipeline_name}{generation}: {_what(chain)}")
        for sink in chain.sinks:
            echo(f"  {_sink_line(sink)}")


def _what(chain: ChainOffset) -> str:
    if chain.manifest is None or chain.range is None:
        return f"{chain.standing}; {chain.message}"
    covered = f"manifest {chain.manifest.id}, {chain.manifest.state}, offsets [{chain.range.start}, {chain.range.end})"
    return covered if chain.sinks else f"{covered}; {chain.message}"


def _sink_line(in_sink: Located) -> str:
    key = "".join(f" {name}={value}" for name, value in (in_sink.key or {}).items())
    place = f" in {in_sink.place}{key}" if in_sink.place and in_sink.kind else ""
    return f"sink {in_sink.sink}, attempt {in_sink.attempt}: {in_sink.message}{place}"


def peeked(records: Peeked, as_json: bool) -> None:
    """Rows and dead letters, as JSON one to a line; what would fail a manifest stands on standard error."""
    view = peeked_view(records, SHOWN)
    if as_json:
        for row in (*records.rows, *({**row, "taken_away": True} for row in records.taken_away), *records.dead_letters):
            echo(json_text(row))
    else:
        _tables(view)
    note(f"{view.counts}; nothing was written")
    for expected in view.expectations:
        note(f"expect {expected}")
    for doubt in view.doubts:
        note(f"warning: {doubt.what}\n  next: {doubt.next_step}")
    if view.refusal:
        note(f"a manifest with these records fails: {view.refusal}")


@or_json
def drift(view: Drift) -> None:
    """Print a table with the lines that the schema lacks."""
    rows = []
    for proposed in view.fields:
        field = proposed.field
        first = f"{field.topic}-{field.partition} offset {field.offset}"
        lines = ("", proposed.problem) if proposed.problem else (proposed.ddl or "", _json(proposed.json_schema))
        rows.append((field.path, f"{field.count:,}", first, *lines))
    if rows:
        columns = ("field", "records", "first", "DDL", "JSON Schema")
        as_table("fields that the schema does not have", columns, rows)
    lacks = f"the schema lacks {count_of(len(rows) + view.more, 'field')}" if rows else "the schema has all fields"
    more = f"; {view.more:,} more are not shown" if view.more else ""
    note(f"{lacks} of {count_of(view.records, 'record')}{more}; nothing was written")


def _json(properties: dict[str, Any] | None) -> str:
    """Return properties as they are written inside a JSON Schema."""
    return json.dumps(properties, ensure_ascii=False)[1:-1]


def _tables(view: PeekedView) -> None:
    if view.rows:
        as_table("rows", ("partition", "offset", "event time", "data", "to"), map(_row, view.rows))
    if view.taken_away:
        rows = [(row.place, str(row.offset), row.data) for row in view.taken_away]
        as_table("taken away by the transforms", ("partition", "offset", "data"), rows)
    if view.dead_letters:
        columns = ("partition", "offset", "reason", "value", "to")
        as_table("dead letters", columns, map(_dead_letter, view.dead_letters))


def _row(row: RowView) -> tuple[str, ...]:
    shown = row.data if row.before is None else f"{row.before}\n-> {row.data}"
    return row.place, str(row.offset), row.event_time, shown, "\n".join(row.targets)


def _dead_letter(letter: LetterView) -> tuple[str, ...]:
    return letter.place, str(letter.offset), letter.reason, letter.value, "\n".join(letter.targets)


@or_json
def dead_letters(view: DeadLetters) -> None:
    if view.groups:
        rows = [
            (f"{group.count:,}", group.error_class, group.reason, _placed(group.first), _placed(group.last))
            for group in view.groups
        ]
        as_table("dead letters", ("count", "class", "reason", "first", "last"), rows)
    if view.records:
        columns = ("manifest", "partition", "offset", "class", "reason", "key", "value")
        as_table("records", columns, map(_letter, view.records))
    count = f"{count_of(view.count, 'dead letter')} in {count_of(len(view.manifests), 'manifest')}"
    note(count if view.count else "there are no such dead letters")
    if view.count > len(view.records) > 0:
        note(f"the first {len(view.records):,} are shown; --limit shows more")


def _placed(place: LetterPlace) -> str:
    when = place.timestamp.strftime("%Y-%m-%d %H:%M:%S ") if place.timestamp else ""
    return f"{when}{place.topic}-{place.partition} offset {place.offset} (manifest {place.manifest_id})"


def _letter(view: PublishedDeadLetter) -> tuple[str, ...]:
    schemas = f" ({view.schemas})" if view.schemas else ""
    key, value = (readable(content, SHOWN) for content in (view.key, view.value))
    place = f"{view.topic}-{view.partition}"
    return str(view.manifest_id), place, str(view.offset), view.error_class, view.reason + schemas, key, value


@or_json
def brought_back(view: BroughtBack) -> None:
    for part in view.returned:
        if part.brought_back is None:
            echo(f"manifest {part.manifest_id}: would be replayed, for {count_of(part.before, 'dead letter')}")
        else:
            echo(f"manifest {part.manifest_id}: {part.brought_back:,} brought back, {part.remain:,} remain")
    for failed in view.failed:
        echo(f"manifest {failed.manifest_id}: not replayed: {failed.what}; next: {failed.next_step}")
    if view.left:
        echo(f"not tried: manifests {', '.join(map(str, view.left))}")
    if not view.returned and not view.failed:
        note("there are no such dead letters")
    elif view.dry_run:
        note("nothing was changed (dry run)")
