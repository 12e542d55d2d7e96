"""One structured line in Airflow's task logs for each step: an event word, and names and numbers to search for.

Airflow writes its logs as JSON by structlog; the word is the key ``event``. People read the lines of ``log_lines``.
"""

from enum import StrEnum
from typing import Any

import structlog  # Airflow's tasks log through it

from tidemark.errors import TidemarkError
from tidemark.lifecycle.plan import PlannedRun
from tidemark.lifecycle.publish import Outcome
from tidemark.order import Order


class Event(StrEnum):
    """The words; ``docs/operations.md`` has the keys of each."""

    PLANNED = "tidemark_planned"
    ATTEMPT_BEGINS = "tidemark_attempt_begins"
    ATTEMPT_ENDS = "tidemark_attempt_ends"
    HOURS_COMPLETE = "tidemark_hours_complete"
    FAILED = "tidemark_failed"


def tell(event: Event, **values: Any) -> None:
    """Log the word with its values, which JSON must be able to hold."""
    structlog.get_logger("tidemark").info(event.value, **values)


def planned(pipeline_name: str, run: PlannedRun) -> None:
    tell(
        Event.PLANNED,
        pipeline=pipeline_name,
        run_key=run.run_key,
        manifests=[*run.manifests],
        covered_by=[*run.covered_by],
        reached=run.reached,
    )


def attempt_begins(order: Order) -> None:
    tell(
        Event.ATTEMPT_BEGINS,
        pipeline=order.pipeline_name,
        manifest=order.manifest_id,
        attempt=order.attempt,
        offsets=sum(part.span for part in order.ranges),
        ranges=[f"{part.at.name} [{part.start}, {part.end})" for part in order.ranges],
        sinks=[sink.name for sink in order.sinks],
    )


def attempt_ends(pipeline_name: str, outcome: Outcome) -> None:
    tell(
        Event.ATTEMPT_ENDS,
        pipeline=pipeline_name,
        manifest=outcome.manifest_id,
        attempt=outcome.attempt,
        ending=outcome.ending.value,
        read=outcome.counts.read,
        written=outcome.counts.written,
        dead_lettered=outcome.counts.dead_lettered,
    )


def failed(error: TidemarkError) -> None:
    """``error`` is the code of ``docs/errors.md``; the names and numbers of the message follow."""
    context = {name: value if isinstance(value, int | float) else str(value) for name, value in error.context.items()}
    tell(Event.FAILED, **{**context, "error": error.code, "what": error.what, "next_step": error.next_step})
