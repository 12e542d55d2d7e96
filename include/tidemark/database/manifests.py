"""Finds manifests by state, time and offsets, assigns them to DAG runs, and locks them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from tidemark.database.statements import Part, Row
from tidemark.errors import NotFound
from tidemark.model.manifest import (
    ALL_MANIFESTS,
    AttemptProcess,
    Counts,
    Manifest,
    ManifestSelection,
    ManifestState,
    Publication,
)
from tidemark.model.offsets import range_from
from tidemark.times.moments import with_zone

HIGHEST_ID = 2**63 - 1  # bigint


class Manifests(Part):
    def insert(self, run_id: int, pipeline_name: str, slices: int, *, first: int = 0) -> list[int]:
        """Insert manifests with slice numbers from ``first`` on, and add them to the run's list; return their ids."""
        rows = self._sql.rows(
            "insert_manifests", run_id=run_id, pipeline_name=pipeline_name, first=first, last=first + slices - 1
        )
        ids = [row["id"] for row in sorted(rows, key=lambda row: row["slice"])]
        self._sql.rows("list_manifests_of_run", run_id=run_id, manifests=ids)
        return ids

    def keep_ids_above(self, highest: int) -> None:
        """Give new manifests ids above ``highest``, and above every id that is in use."""
        self._sql.rows("keep_manifest_ids_above", id=max(highest, self.highest_id(), 1))

    def get(self, manifest_id: int) -> Manifest:
        manifests = self.find(ids=[manifest_id]) if manifest_id <= HIGHEST_ID else []
        if not manifests:
            raise no_such_manifest(manifest_id)
        return manifests[0]

    def find(
        self,
        pipeline_name: str | None = None,
        states: Sequence[ManifestState] | None = None,
        ids: Sequence[int] | None = None,
    ) -> list[Manifest]:
        """Return the manifests that meet all these conditions, sorted by id; None is no condition."""
        chosen = None if states is None else [state.value for state in states]
        values = {"pipeline_name": pipeline_name, "ids": None if ids is None else list(ids)}
        return list(map(_manifest, self._sql.rows("manifests", states=chosen, **values)))

    def note_failed(
        self,
        manifests: Sequence[int],
        reason: str,
        states: Sequence[ManifestState],
        retry_at: datetime | None,
        silent: str | None,
    ) -> bool:
        """Mark as failed those of these manifests that are in one of ``states`` without a live attempt; False if none.

        ``retry_at``: the latest time of the next try. ``silent``: the source that did not answer.
        """
        chosen = {"ids": list(manifests), "states": [state.value for state in states]}
        values = {"reason": reason, "retry_at": retry_at, "silent": silent}
        return self._sql.changed("note_failed_manifests", **values, **chosen) is not None

    def undone(self, pipeline_name: str) -> list[Manifest]:
        """Return the manifests that are not done."""
        manifests = map(_manifest, self._sql.rows("undone", pipeline_name=pipeline_name))
        return [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]

    def newest_done(self, pipeline_name: str) -> list[Row]:
        """Return id, run_key and done_at of the newest 100 manifests that are done."""
        return self._sql.rows("newest_done", pipeline_name=pipeline_name)

    def half_replayed(self, pipeline_name: str, sinks: Sequence[str]) -> list[Manifest]:
        """Return the done manifests where a replay is published in some of the sinks and not in others."""
        behind = self._sql.ids("behind", pipeline_name=pipeline_name, sinks=list(sinks)) if len(sinks) > 1 else []
        return self.find(ids=behind) if behind else []

    def page(
        self,
        pipeline_name: str | None,
        selection: ManifestSelection = ALL_MANIFESTS,
        *,
        limit: int | None = None,
        after: int | None = None,
    ) -> list[Manifest]:
        """Return at most ``limit`` manifests, newest first. ``after``: the last id of the page before.

        They are sorted by id. For one pipeline and a time (without ``lacks``) they are sorted by the time of their run,
        then by id, so that a page from long ago is as fast as the newest.
        """
        rows = self._chosen("newest_manifests", pipeline_name, selection, after, limit)
        ids = [row["id"] for row in islice(rows, limit)]
        by_id = {manifest.id: manifest for manifest in self.find(ids=ids)} if ids else {}
        return [by_id[manifest_id] for manifest_id in ids if manifest_id in by_id]

    def count(
        self, pipeline_name: str | None, selection: ManifestSelection, *, most: int, after: int | None = None
    ) -> int:
        """Return how many manifests of a pipeline are in a selection; with ``after``, how many of them are older.
        Counts only up to ``most``, because there may be millions."""
        rows = self._chosen("count_manifests", pipeline_name, selection, after, most)
        return min(sum(int(row["manifests"]) for row in rows), most)

    def _chosen(
        self,
        statement: str,
        pipeline_name: str | None,
        selection: ManifestSelection,
        after: int | None,
        limit: int | None,
    ) -> Iterator[Row]:
        """Yield the rows of a statement. It is run for each part of the manifests that may have some, newest first."""
        times = {"since": selection.since, "until": selection.until}
        values: dict[str, object] = {
            "pipeline_name": pipeline_name,
            "state": selection.state and selection.state.value,
            "lacks": selection.lacks,
            "limit": limit,
            **{name: time_ and with_zone(time_) for name, time_ in times.items()},
            "by_time": pipeline_name is not None and selection.lacks is None and any(times.values()),
            "behind": None,
            "after": after,
        }
        if values["by_time"] and after is not None:
            for row in self._sql.rows("time_of_manifest", manifest_id=after):
                values["behind"], after = row["time"], None
        place = {"topic": selection.topic, "partition": selection.partition}
        if place != {"topic": None, "partition": None}:
            values["chains"] = self._sql.ids("chains_at", pipeline_name=pipeline_name, **place)
            statement = f"{statement}_at"
        parts: list[Row] = [{"first_id": None, "end_id": None}]
        if selection.lacks is not None:
            parts = self._sql.rows("parts_lacking", pipeline_name=pipeline_name, sink=selection.lacks)
        for part in parts:
            ends = [end for end in (part["end_id"], after) if end is not None]
            yield from self._sql.rows(statement, **values, first_id=part["first_id"], end_id=min(ends, default=None))

    def covering(self, ends: Sequence[tuple[int, int]]) -> list[int]:
        """Return the ids of the manifests that hold the last offset before each (chain id, end)."""
        return self._sql.ids("covering_manifests", **_offsets(ends))

    def unpublished_before(self, pipeline_name: str, ends: Sequence[tuple[int, int]]) -> list[int]:
        """Return the ids of the manifests that are not done and hold an offset before any (chain id, end)."""
        return self._sql.ids("unpublished_before", pipeline_name=pipeline_name, **_offsets(ends))

    def between(self, parts: Sequence[tuple[int, int, int]]) -> list[int]:
        """Return the ids of the manifests that hold an offset of any part: (chain id, start, end), half-open."""
        chains, starts, ends = ([part[column] for part in parts] for column in range(3))
        return self._sql.ids("manifests_between", chains=chains, starts=starts, ends=ends)

    def undone_before(self, pipeline_name: str, until: datetime) -> Row:
        """Return how many manifests of runs up to a time are not done (``number``), and the lowest id of them
        (``first_manifest``)."""
        return self._sql.rows("undone_before", pipeline_name=pipeline_name, until=until)[0]

    def unknown(self, manifests: Sequence[int]) -> list[int]:
        """Return the ids of which this database has no manifest, because it was restored from an older copy."""
        return self._sql.ids("unknown_manifests", manifests=list(manifests))

    def highest_id(self, pipeline_name: str | None = None) -> int:
        return int(self._sql.rows("highest_manifest", pipeline_name=pipeline_name)[0]["id"])

    def hand_out(self, manifests: Sequence[Manifest], dag_run: str) -> list[int]:
        """Assign these manifests to a DAG run; return their ids, without those that another DAG run got meanwhile."""
        ids, before = [manifest.id for manifest in manifests], [manifest.dag_run for manifest in manifests]
        with self._sql.transaction():
            return sorted(self._sql.ids("hand_out", manifests=ids, dag_runs=before, dag_run=dag_run))

    def lock(self, pipeline_name: str) -> None:
        """Lock the manifests of a pipeline: until the transaction ends, no attempt can start, publish or end."""
        self._sql.rows("lock_manifests", pipeline_name=pipeline_name)

    def lock_undone(self, pipeline_name: str, also: Sequence[int] = ()) -> None:
        """Lock the manifests that are not done, and ``also``: until the transaction ends, no attempt can start."""
        self._sql.rows("lock_undone", pipeline_name=pipeline_name, also=list(also))

    def unblock(self, manifest_id: int) -> bool:
        return self._sql.changed("unblock", manifest_id=manifest_id) is not None

    def states(self, pipeline_name: str) -> dict[ManifestState, Row]:
        """Return, for each state that occurs, the number of ``manifests``, and ``last_done``."""
        return {ManifestState(row.pop("state")): row for row in self._sql.rows("states", pipeline_name=pipeline_name)}

    def add_up_sums(self, pipeline_name: str) -> None:
        """Add up the rows that each manifest has added to the sums of done manifests, so that there are few; may be
        repeated."""
        self._sql.rows("add_up_sums", pipeline_name=pipeline_name)

    def events(self, manifest_id: int) -> list[Row]:
        return self._sql.rows("events", manifest_id=manifest_id)


def no_such_manifest(manifest_id: int) -> NotFound:
    return NotFound("there is no such manifest", next_step="list them with: tidemark manifests", manifest=manifest_id)


def _offsets(ends: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    """Return pairs of (chain id, end) as the two array parameters that queries unnest."""
    return {"chains": [chain_id for chain_id, _ in ends], "ends": [end for _, end in ends]}


def _manifest(row: Row) -> Manifest:
    columns = dict(row)
    return Manifest(
        pipeline_name=columns.pop("pipeline"),
        state=ManifestState(columns.pop("state")),
        ranges=tuple(range_from(raw) for raw in columns.pop("ranges")),
        publications=tuple(_publication(raw) for raw in columns.pop("publications")),
        unfilled=tuple(columns.pop("unfilled")),
        given_up=tuple(columns.pop("given_up")),
        process=_process(columns.pop("process")),
        **columns,
    )


def _process(raw: Row | None) -> AttemptProcess | None:
    if raw is None:
        return None
    return AttemptProcess(raw["actor"], *(datetime.fromisoformat(raw[when]) for when in ("began_at", "last_entry_at")))


def _publication(raw: Row) -> Publication:
    published_at = datetime.fromisoformat(raw["published_at"])
    return Publication(raw["sink"], raw["attempt"], raw["digest"], Counts(**raw["counts"]), published_at, raw["behind"])
