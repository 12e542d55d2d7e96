"""Checks that everything before a time is published: over all runs, and for each sink.

The time is one of cuts, not of events. The manifest database answers: of the first run that planned up to the time or
past it, everything below its ends must be published. Only when that run went past the time and something is missing is
the source asked where the time is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidemark.database.chains import place_from
from tidemark.database.statements import Row
from tidemark.lifecycle.context import Context
from tidemark.model.json_values import INLINE, in_json
from tidemark.model.manifest import ManifestState, WithoutRows
from tidemark.model.offsets import Range, TopicPartition
from tidemark.planner import CLOCK_TOLERANCE

BEGIN = datetime(1, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class MissingPart:
    """Offsets of one manifest that ``sink`` does not show; ``state`` is the manifest's."""

    manifest_id: int
    state: ManifestState
    sink: str
    covered: Range = field(metadata=INLINE)


@dataclass(frozen=True)
class Completeness:
    """The answer whether everything before the cut time ``until`` is published, and what is missing.

    ``run_key`` is the run that answers, and ``planned_up_to`` how far it planned. When no run has planned up to
    ``until`` yet, ``run_key`` is None, ``planned_up_to`` is that of the furthest run (None: there is none), and
    ``missing`` is what is unpublished of all that is planned.

    ``lost`` offsets are before the time too; nothing can publish them, so they do not make it incomplete. Of what came
    after ``since``, and was read by the run that answers at the latest, ``without_rows`` became no rows, and a person
    has accepted that the sinks ``given_up`` lack some of it. ``whole`` is complete without dead letters, losses and
    output that was given up.
    """

    until: datetime
    run_key: str | None
    planned_up_to: datetime | None
    missing: tuple[MissingPart, ...]
    lost: tuple[Range, ...]
    since: datetime | None
    without_rows: WithoutRows
    given_up: tuple[str, ...]

    @property
    @in_json
    def complete(self) -> bool:
        return self.run_key is not None and not self.missing

    @property
    @in_json
    def whole(self) -> bool:
        return self.complete and not (self.without_rows.dead_lettered or self.without_rows.lost or self.given_up)


def completeness(context: Context, until: datetime, since: datetime | None = None) -> Completeness:
    """Return what is missing of everything before a time (aware), and what became no rows ``since`` another one.

    That is, if not given, the time up to which the run before read. Raises ``Unavailable`` when the source must be
    asked and does not answer.
    """
    database, pipeline_name = context.database, context.pipeline_name
    sinks = sorted({*database.sinks.current_names(pipeline_name), *context.sink_names()})
    run = database.runs.past(pipeline_name, until)
    run_id = run["id"] if run else None
    missing = database.ranges.unpublished(pipeline_name, sinks, run_id)
    lost = database.ranges.lost(pipeline_name, run_id)
    if missing and run is not None and run["planned_up_to"] > until:
        stops = _stops(context, [place_from(row) for row in (*missing, *lost)], until)
        missing, lost = _before(missing, stops), _before(lost, stops)
    since = since or database.runs.planned_before(pipeline_name, until)
    [without_rows] = database.hours.without_rows(pipeline_name, [(since or BEGIN, until)]) if run else [WithoutRows()]
    answers = run or database.runs.newest(pipeline_name) or {"planned_up_to": None}
    return Completeness(
        until,
        run["run_key"] if run else None,
        answers["planned_up_to"],
        tuple(
            MissingPart(row["manifest_id"], ManifestState(row["state"]), row["sink"], _range(row)) for row in missing
        ),
        tuple(map(_range, lost)),
        since,
        without_rows,
        database.hours.given_up(pipeline_name, since or BEGIN, until) if run else (),
    )


def _stops(context: Context, places: Sequence[TopicPartition], until: datetime) -> dict[TopicPartition, int]:
    """Return where a time is in the source; without an entry for a partition whose topic is gone, or that has no record
    of then or later: all of it is before."""
    existing, _ = context.source.partitions(sorted({place.topic for place in places}))
    answers = context.source.offsets_at(sorted({*existing} & {*places}), until)
    trusted = context.database.now() + CLOCK_TOLERANCE
    return {place: answer[0] for place, answer in answers.items() if answer is not None and answer[1] <= trusted}


def _before(parts: Sequence[Row], stops: Mapping[TopicPartition, int]) -> list[Row]:
    """The parts below the stops, cut off there; all of what lies above the end of its log generation: the stops are in
    the log as it is now."""
    before = []
    for row in parts:
        end, generation_end = row["end_offset"], row["generation_end"]
        stop = stops.get(place_from(row), end) if generation_end is None or end <= generation_end else end
        if row["start_offset"] < stop:
            before.append({**row, "end_offset": min(end, stop)})
    return before


def _range(row: Row) -> Range:
    return Range(place_from(row), row["start_offset"], row["end_offset"])
