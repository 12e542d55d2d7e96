"""The log of a command, on standard error: lines for people, or one JSON object per line."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from tidemark.cli.log_format import LogFormat, chosen_format
from tidemark.cli.terminal import echo, json_text, open_console
from tidemark.errors import TidemarkError
from tidemark.lifecycle import events
from tidemark.lifecycle.events import Event, LogLine
from tidemark.lifecycle.publish import Outcome
from tidemark.lifecycle.work import Progress
from tidemark.model.manifest import Manifest, count_of


def emit(line: LogLine) -> None:
    """Write a line for programs. The log for people does not have these lines."""
    if chosen_format() is LogFormat.JSON:
        level = "error" if line.event is Event.FAILED else "info"
        entry = {"timestamp": datetime.now(UTC).isoformat(), "level": level, "event": line.event, **line.values}
        echo(json_text(entry), err=True)


class _Warnings(logging.Handler):
    """Writes notes for what our modules and libraries log as a warning or worse, if no logging is set up."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


def show_warnings() -> None:
    """Show warnings as notes. Python itself would print them to standard error without a format."""
    logging.lastResort = _Warnings(logging.WARNING)


def note(text: str) -> None:
    if chosen_format() is LogFormat.JSON:
        emit(events.note(text))
    else:
        open_console(stderr=True).print(text, style="dim", markup=False)


def error(error: TidemarkError) -> None:
    if chosen_format() is LogFormat.JSON:
        emit(events.failed(error))
        return
    console = open_console(stderr=True)
    what, _, next_step = str(error).partition("\nnext: ")
    console.print("[bold red]error:[/] ", end="")
    console.print(what, markup=False)
    if next_step:
        console.print("[bold]next:[/]  ", end="")
        console.print(next_step, markup=False)


def errors_of_members(errors: Iterable[TidemarkError]) -> None:
    """Write the errors of a group's members; for people, only the first of those with the same cause."""
    told = set()
    for each in errors:
        if chosen_format() is LogFormat.JSON or each.what not in told:
            error(each)
        told.add(each.what)


def emit_failures(errors: Iterable[TidemarkError]) -> None:
    """Write errors for programs. People read them in the result of the command."""
    for each in errors:
        emit(events.failed(each))


def left_out(manifest: Manifest) -> None:
    """Say that a manifest is left out, since an attempt is at work on it."""
    if chosen_format() is LogFormat.JSON:
        emit(events.left_out(manifest))
        return
    fence = f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id} --take-over"
    note(f"manifest {manifest.id} is left out: attempt {manifest.attempt} is at work; to fence it: {fence}")


class LoggedProgress(Progress):
    """Logs the progress of work on manifests of a pipeline. The stage logs that an attempt begins."""

    def __init__(self, pipeline_name: str) -> None:
        self.pipeline_name = pipeline_name

    def begins(self, manifest: Manifest, number: int, of: int) -> None:
        if chosen_format() is LogFormat.TEXT:
            offsets = sum(covered.span for covered in manifest.ranges)
            what = f"{count_of(len(manifest.ranges), 'range')}, {count_of(offsets, 'offset')}"
            note(f"[{number}/{of}] manifest {manifest.id}: {what} ...")

    def ended(self, outcome: Outcome) -> None:
        emit(events.attempt_ends(self.pipeline_name, outcome))
        indent = ""
        if chosen_format() is LogFormat.TEXT:
            counts, indent = outcome.counts, "      "
            note(
                f"{indent}manifest {outcome.manifest_id} attempt {outcome.attempt} {outcome.ending}: read "
                f"{counts.read:,}, {counts.described()}"
            )
        if outcome.note:
            note(f"{indent}{outcome.note}")

    def failed(self, error_of_one: TidemarkError) -> None:
        error(error_of_one)

    def left_out(self, manifest: Manifest) -> None:
        left_out(manifest)
