"""Records runs: their keys, their cuts, and where each ended."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.database.chains import place_from
from tidemark.database.statements import Part, Row
from tidemark.model.manifest import RunKind
from tidemark.model.offsets import TopicPartition


class Runs(Part):
    def lock_planning(self, pipeline_name: str) -> None:
        self._sql.rows("lock_planning", pipeline_name=pipeline_name)

    def find(self, pipeline_name: str, run_key: str) -> Row | None:
        return self._sql.row("find_run", pipeline_name=pipeline_name, run_key=run_key)

    def insert(
        self,
        pipeline_name: str,
        run_key: str,
        kind: RunKind,
        *,
        planned_up_to: datetime | None = None,
        unplanned: int | None = None,
        **more: object,
    ) -> int:
        """Insert a run; return its id. ``unplanned``: offsets of the source that no earlier run has; None: unknown."""
        values = {
            "run_key": run_key, "kind": kind.value, "planned_up_to": planned_up_to, "unplanned": unplanned,
            "published_before": None if unplanned is None else self.published_up_to(pipeline_name),
        }  # fmt: skip
        return int(self._sql.rows("insert_run", pipeline_name=pipeline_name, **values, **more)[0]["id"])

    def insert_ends(self, run_id: int, ends: Mapping[int, int]) -> None:
        """Store where a run ended, by chain id."""
        self._sql.rows("insert_run_ends", run_id=run_id, chains=list(ends), ends=list(ends.values()))

    def ends(self, run_id: int) -> dict[int, int]:
        """Return where a run ended, by chain id."""
        return self._ends("run_ends", run_id=run_id)

    def places_of_ends(self, run_id: int) -> list[tuple[TopicPartition, int]]:
        """Return where a run ended, by partition."""
        return [(place_from(row), row["end_offset"]) for row in self._sql.rows("places_of_run_ends", run_id=run_id)]

    def ends_of_cut(self, pipeline_name: str, cut_at: datetime) -> dict[int, int]:
        """Return where the run with this cut ended, by chain id; empty if no such run is known."""
        return self._ends("ends_of_cut", pipeline_name=pipeline_name, cut_at=cut_at)

    def ends_of_schedule(self, pipeline_name: str, cut_at: datetime) -> dict[int, int]:
        """Return where the newest scheduled run with this cut or an earlier one ended, by chain id; empty if there is
        none."""
        return self._ends("ends_of_schedule", pipeline_name=pipeline_name, cut_at=cut_at)

    def ends_before(self, pipeline_name: str, until: datetime) -> dict[int, int]:
        """Return where the newest run that planned up to ``until`` or less ended, by chain id; empty if there is
        none."""
        return self._ends("ends_before", pipeline_name=pipeline_name, until=until)

    def _ends(self, name: str, **values: object) -> dict[int, int]:
        return {row["chain_id"]: row["end_offset"] for row in self._sql.rows(name, **values)}

    def scheduled_cuts(self, pipeline_name: str) -> list[datetime]:
        """Return the ten newest cuts of scheduled runs and backfills, the newest first."""
        return [row["cut_at"] for row in self._sql.rows("scheduled_cuts", pipeline_name=pipeline_name)]

    def newest(self, pipeline_name: str) -> Row | None:
        """Return run_key and planned_up_to of the run that planned furthest."""
        return self._sql.row("newest_run", pipeline_name=pipeline_name)

    def past(self, pipeline_name: str, until: datetime) -> Row | None:
        """Return id, run_key and planned_up_to of the run that planned up to ``until`` or just past it."""
        return self._sql.row("run_past", pipeline_name=pipeline_name, until=until)

    def planned_before(self, pipeline_name: str, time: datetime) -> datetime | None:
        """Return the latest time before another one up to which a run planned."""
        at: datetime | None = self._sql.rows("planned_before", pipeline_name=pipeline_name, time=time)[0]["at"]
        return at

    def planned_at(self, pipeline_name: str) -> Row:
        """Return when plans succeeded: ``first``, ``last``, and ``last_without_time``, the last of those that reached
        their end and name no time up to which they read."""
        [row] = self._sql.rows("planned_at", pipeline_name=pipeline_name)
        return row

    def recent_cut(self, pipeline_name: str, runs: int) -> datetime | None:
        """Return the earliest cut among those of the ``runs`` latest runs with one; None if no run has a cut."""
        [row] = self._sql.rows("recent_run", pipeline_name=pipeline_name, runs=runs)
        cut: datetime | None = row["planned_up_to"]
        return cut

    def published_up_to(self, pipeline_name: str) -> datetime | None:
        """Return the latest time before which everything is published, of the times up to which runs planned."""
        row = self._sql.row("published_up_to", pipeline_name=pipeline_name)
        return None if row is None else row["planned_up_to"]

    def recent(self, pipeline_name: str) -> list[Row]:
        """Return the 20 runs that were planned last, oldest first, with the states of their manifests."""
        return self._sql.rows("recent_runs", pipeline_name=pipeline_name)

    def records(self, run_ids: Sequence[int]) -> dict[int, int]:
        """Return, by run, how many records were read for what is published; a run without publications is left out."""
        return {row["run_id"]: row["read"] for row in self._sql.rows("records_of_runs", runs=list(run_ids))}

    def files(self, run_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return, by run, the number and bytes of published data files in all sinks; a run without files is left
        out."""
        rows = self._sql.rows("files_of_runs", runs=list(run_ids))
        return {row["run_id"]: (row["files"], row["bytes"]) for row in rows}

    def lags(self, pipeline_name: str, since: datetime, seconds: float) -> list[Row]:
        """Return the lags that plans have measured since a time: at, lag and published_before. For each period of so
        many seconds, the largest, with the newest time of the period."""
        return self._sql.rows("lags_since", pipeline_name=pipeline_name, since=since, seconds=seconds)

    def periods(
        self, pipeline_name: str, start: datetime, end: datetime, seconds: int, damaged: Sequence[int]
    ) -> list[Row]:
        """Return runs and manifests by period of so many seconds, numbered from 0 at ``start``: period, state, number,
        first_manifest and records read. A row whose state is None has the number of runs. Done manifests of ``damaged``
        have that state."""
        values = {"start": start, "end": end, "seconds": seconds, "damaged": list(damaged)}
        return self._sql.rows("periods", pipeline_name=pipeline_name, **values)
