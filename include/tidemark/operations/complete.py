"""Checks that everything before a time is published: over all runs, and for each sink.

The time is compared with cuts, not with event times. The manifest database answers: everything below the ends of the
first run that planned up to the time or past it must be published, and no damage of it may be known. Only if that run
went past the time and something is missing or damaged, the source is asked for the offsets of the time.
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
from tidemark.model.problem import Problem
from tidemark.operations.known_damage import Damage
from tidemark.operations.status import State
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

    ``run_key`` is the run that answers, and ``planned_up_to`` how far it planned. If no run has planned up to ``until``
    yet, ``run_key`` is None, ``planned_up_to`` is that of the furthest run (None without runs), and ``missing`` is all
    that is planned and not published.

    ``lost`` offsets are before the time too. Nothing can publish them, so they do not make it incomplete.
    ``without_rows`` counts records that became no rows: those after ``since`` that the answering run or an earlier one
    read. ``given_up`` are the sinks whose missing output of this time was accepted.

    ``output`` is damaged if something is wrong with what is published of before the time: ``damage`` names the first
    thing of each manifest. It is unknown if an audit found more than it kept, and else ok, as of an event hour.

    ``complete`` means ``published`` (nothing is missing) and ok. ``whole`` means complete without dead letters, losses
    and output that was given up.
    """

    until: datetime
    run_key: str | None
    planned_up_to: datetime | None
    missing: tuple[MissingPart, ...]
    lost: tuple[Range, ...]
    since: datetime | None
    without_rows: WithoutRows
    given_up: tuple[str, ...]
    output: State
    damage: tuple[Problem, ...]

    @property
    @in_json
    def published(self) -> bool:
        return self.run_key is not None and not self.missing

    @property
    @in_json
    def complete(self) -> bool:
        return self.published and self.output is State.OK

    @property
    @in_json
    def whole(self) -> bool:
        return self.complete and not (self.without_rows.dead_lettered or self.without_rows.lost or self.given_up)


def completeness(context: Context, until: datetime, since: datetime | None = None) -> Completeness:
    """Return what is missing of everything before ``until`` (aware), and what became no rows after ``since``.

    By default ``since`` is the time up to which the previous run planned. Raises ``Unavailable`` if the source must be
    asked and does not answer.
    """
    database, pipeline_name = context.database, context.pipeline_name
    sinks = sorted({*database.sinks.current_names(pipeline_name), *context.sink_names()})
    run = database.runs.past(pipeline_name, until)
    run_id = run["id"] if run else None
    missing = database.ranges.unpublished(pipeline_name, sinks, run_id)
    lost = database.ranges.lost(pipeline_name, run_id)
    damage = Damage.of_pipeline(database, pipeline_name)
    damaged = database.ranges.of_manifests(list(damage.of_manifest), run_id) if damage.of_manifest else []
    if (missing or damaged) and run is not None and run["planned_up_to"] > until:
        stops = _stops(context, [place_from(row) for row in (*missing, *lost, *damaged)], until)
        missing, lost, damaged = _before(missing, stops), _before(lost, stops), _before(damaged, stops)
    manifests = sorted({row["manifest_id"] for row in damaged})
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
        State.UNKNOWN if damage.unnamed and not manifests else damage.output(manifests),
        damage.problems(manifests),
    )


def _stops(context: Context, places: Sequence[TopicPartition], until: datetime) -> dict[TopicPartition, int]:
    """Return the offset of a time in each partition of the source. A partition is left out if its topic no longer
    exists, or if it has no record of that time or later: then all of it is before the time.
    """
    existing, _ = context.source.partitions(sorted({place.topic for place in places}))
    answers = context.source.offsets_at(sorted({*existing} & {*places}), until)
    trusted = context.database.now() + CLOCK_TOLERANCE
    return {place: answer[0] for place, answer in answers.items() if answer is not None and answer[1] <= trusted}


def _before(parts: Sequence[Row], stops: Mapping[TopicPartition, int]) -> list[Row]:
    """Return the parts below the stops, cut off there. Parts above the end of their log generation stay whole: the
    stops are offsets of the present log.
    """
    before = []
    for row in parts:
        end, generation_end = row["end_offset"], row["generation_end"]
        stop = stops.get(place_from(row), end) if generation_end is None or end <= generation_end else end
        if row["start_offset"] < stop:
            before.append({**row, "end_offset": min(end, stop)})
    return before


def _range(row: Row) -> Range:
    return Range(place_from(row), row["start_offset"], row["end_offset"])
