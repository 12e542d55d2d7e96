"""Makes structured lines of a log, one for each step: an event word, and names and numbers to search for.

Tasks of Airflow write them with ``airflow/event_log.py``, commands with ``cli/log.py``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tidemark.errors import TidemarkError
from tidemark.lifecycle.close import ranges_of_hours
from tidemark.lifecycle.plan import PlannedRun
from tidemark.lifecycle.publish import Outcome
from tidemark.model.manifest import Decision, Manifest
from tidemark.model.order import Order


class Event(StrEnum):
    """The event words; ``docs/operations.md`` lists the keys of each."""

    PLANNED = "tidemark_planned"
    ATTEMPT_BEGINS = "tidemark_attempt_begins"
    ATTEMPT_ENDS = "tidemark_attempt_ends"
    LEFT_OUT = "tidemark_left_out"
    HOURS_COMPLETE = "tidemark_hours_complete"
    DECIDED = "tidemark_decided"
    NOTE = "tidemark_note"
    FAILED = "tidemark_failed"


@dataclass(frozen=True)
class LogLine:
    """A line of the log; each of its ``values`` can be written as JSON."""

    event: Event
    values: Mapping[str, Any]


def planned(pipeline_name: str, run: PlannedRun) -> LogLine:
    values = {
        "pipeline": pipeline_name,
        "run_key": run.run_key,
        "manifests": [*run.manifests],
        "covered_by": [*run.covered_by],
        "reached": run.reached,
    }
    return LogLine(Event.PLANNED, values)


def attempt_begins(order: Order) -> LogLine:
    values = {
        "pipeline": order.pipeline_name,
        "manifest": order.manifest_id,
        "attempt": order.attempt,
        "offsets": sum(part.span for part in order.ranges),
        "ranges": [f"{part.at.name} [{part.start}, {part.end})" for part in order.ranges],
        "sinks": [sink.name for sink in order.sinks],
    }
    return LogLine(Event.ATTEMPT_BEGINS, values)


def attempt_ends(pipeline_name: str, outcome: Outcome) -> LogLine:
    values = {
        "pipeline": pipeline_name,
        "manifest": outcome.manifest_id,
        "attempt": outcome.attempt,
        "ending": outcome.ending.value,
        "read": outcome.counts.read,
        "written": outcome.counts.written,
        "dead_lettered": outcome.counts.dead_lettered,
    }
    return LogLine(Event.ATTEMPT_ENDS, values)


def left_out(manifest: Manifest) -> LogLine:
    """Return the line for a manifest that is skipped; ``attempt`` is the one that works on it."""
    values = {"pipeline": manifest.pipeline_name, "manifest": manifest.id, "attempt": manifest.attempt}
    return LogLine(Event.LEFT_OUT, values)


def hours_complete(pipeline_name: str, hours: Iterable[datetime]) -> LogLine:
    return LogLine(Event.HOURS_COMPLETE, {"pipeline": pipeline_name, "hours": ranges_of_hours(hours)})


def decided(pipeline_name: str, decision_name: str, decision: Decision) -> LogLine:
    """Return the line for a decision; ``decision_name`` is its name in the history, such as ``accept-loss``."""
    values = {
        "pipeline": pipeline_name,
        "decision": decision_name,
        "lines": [*decision.lines],
        "manifests": [*decision.manifests],
        "dry_run": decision.dry_run,
    }
    return LogLine(Event.DECIDED, values)


def note(text: str) -> LogLine:
    return LogLine(Event.NOTE, {"message": text})


def failed(error: TidemarkError) -> LogLine:
    """Return the line for an error: its code in ``docs/errors.md``, with the names and numbers of its context."""
    context = {name: value if isinstance(value, int | float) else str(value) for name, value in error.context.items()}
    values = {**context, "error": error.code, "what": error.what, "next_step": error.next_step}
    return LogLine(Event.FAILED, values)
