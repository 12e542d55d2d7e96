"""The event hours of a pipeline, and what each one that is not complete waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.hours import without_rows_of
from tidemark.model.event_hours import HourSelection, due
from tidemark.model.json_values import in_json
from tidemark.model.manifest import WithoutRows
from tidemark.model.problem import Problem
from tidemark.operations.known_damage import Damage
from tidemark.operations.status import State

MOST_NAMED = 10  # manifests in one text


@dataclass(frozen=True)
class Hour:
    """An event hour, from ``start`` in UTC. ``manifests`` have published its ``rows``; ``late`` of them came after the
    allowed lateness.

    ``without_rows`` counts records that became no rows, in the runs that read what arrived from the start of the hour
    until it was due. ``given_up`` are the sinks whose missing output of ``manifests`` was accepted: they hold less than
    ``rows``. ``revision`` counts how often the hour has become complete. ``complete_at`` is None while it is open
    (never complete, or open again); ``waits_for`` then names the obstacle.

    ``output`` is damaged if something is wrong with what ``manifests`` have published: ``damage`` names the first thing
    of each. It is unknown if an audit found more than it kept, and else ok. Only then is the hour ``complete``.
    """

    start: datetime
    rows: int
    late: int
    without_rows: WithoutRows
    manifests: tuple[int, ...]
    given_up: tuple[str, ...]
    complete_at: datetime | None
    revision: int
    waits_for: str | None
    output: State = State.OK
    damage: tuple[Problem, ...] = ()

    @property
    @in_json
    def complete(self) -> bool:
        return self.complete_at is not None and self.output is State.OK

    @property
    def state(self) -> str:
        """Return the words for the hour: damaged or unknown, open, or complete with what it lacks."""
        if self.output is not State.OK:
            return self.output
        return f"complete{self.lacks}" if self.complete else "open"

    @property
    def lacks(self) -> str:
        """Return the words to add after "complete" if the hour lacks something that was read, or else an empty text."""
        if self.given_up:
            return f", damage accepted in {', '.join(self.given_up)}"
        if self.without_rows.lost:
            return " with losses"
        return " with dead letters" if self.without_rows.dead_lettered else ""


def hours(database: ManifestDatabase, pipeline_name: str, lateness: timedelta, selection: HourSelection) -> list[Hour]:
    """Return the hours, oldest first; ``lateness`` is what the pipeline file allows. Asks only the manifest
    database.
    """
    damage = Damage.of_pipeline(database, pipeline_name)
    rows = database.hours.find(pipeline_name, selection, sorted(damage.of_manifest))
    waiting = _Waiting(database, pipeline_name, lateness) if any(row["complete_at"] is None for row in rows) else None
    counts = without_rows_of(database, pipeline_name, [row["hour"] for row in rows], lateness)
    return [
        Hour(
            row["hour"], row["rows"], row["late"], counted, tuple(row["manifests"]), tuple(row["given_up"]),
            row["complete_at"], row["revision"],
            waiting.text(row["hour"]) if waiting and row["complete_at"] is None else None,
            damage.output(row["manifests"]), damage.problems(row["manifests"]),
        )
        for row, counted in zip(rows, counts, strict=True)
    ]  # fmt: skip


class _Waiting:
    """The causes that keep hours open, read once."""

    def __init__(self, database: ManifestDatabase, pipeline_name: str, lateness: timedelta) -> None:
        self._name = pipeline_name
        self._lateness = lateness
        self._published = database.runs.published_up_to(pipeline_name)
        newest_run = database.runs.newest(pipeline_name)
        self._planned: datetime | None = newest_run["planned_up_to"] if newest_run else None
        self._undone = [manifest.id for manifest in database.manifests.undone(pipeline_name)]
        half_replayed = database.manifests.half_replayed(pipeline_name, database.sinks.current_names(pipeline_name))
        held = database.hours.held(pipeline_name, [manifest.id for manifest in half_replayed])
        self._held: dict[datetime, list[Mapping[str, Any]]] = {}
        for row in held:
            self._held.setdefault(row["hour"], []).append(row)

    def text(self, start: datetime) -> str:
        cut = due(start, self._lateness)
        if self._published is None or cut > self._published:
            if self._planned is None or cut > self._planned:
                return f"a run up to {cut:%Y-%m-%dT%H:%MZ} or later"
            return f"{_named(self._undone)} to be published: tidemark retry {self._name}"
        at_work = [row["manifest_id"] for row in self._held.get(start, ()) if row["at_work"]]
        if at_work:
            return f"the attempt at work on {_named(at_work)}: tidemark show {at_work[0]}"
        behind = [row["manifest_id"] for row in self._held.get(start, ())]
        if behind:
            return f"{_named(behind)} to be replayed in every sink: tidemark retry {self._name}"
        return f"the end of a run: tidemark run {self._name}"


def _named(manifests: Sequence[int]) -> str:
    ids = sorted(set(manifests))
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return f"manifest{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids[:MOST_NAMED]))}{more}"
