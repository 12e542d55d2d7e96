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
        """Return the new run's id. ``unplanned``: offsets that the source has and no earlier run; None: not asked."""
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
        """Return where the run with this cut ended, by chain id; empty when no such run is known."""
        return self._ends("ends_of_cut", pipeline_name=pipeline_name, cut_at=cut_at)

    def ends_of_schedule(self, pipeline_name: str, cut_at: datetime) -> dict[int, int]:
        """Return where the newest scheduled run with this cut or an earlier one ended, by chain id; empty without
        one."""
        return self._ends("ends_of_schedule", pipeline_name=pipeline_name, cut_at=cut_at)

    def ends_before(self, pipeline_name: str, until: datetime) -> dict[int, int]:
        """Return where the newest run that planned up to ``until`` or less ended, by chain id; empty when no such run
        is known."""
        return self._ends("ends_before", pipeline_name=pipeline_name, until=until)

    def _ends(self, name: str, **values: object) -> dict[int, int]:
        return {row["chain_id"]: row["end_offset"] for row in self._sql.rows(name, **values)}

    def scheduled_cuts(self, pipeline_name: str) -> list[datetime]:
        """The cuts of scheduled runs and backfills: the ten newest, the newest first, and at last the oldest one."""
        return [row["cut_at"] for row in self._sql.rows("scheduled_cuts", pipeline_name=pipeline_name)]

    def newest(self, pipeline_name: str) -> Row | None:
        """run_key and planned_up_to of the run that planned furthest."""
        return self._sql.row("newest_run", pipeline_name=pipeline_name)

    def past(self, pipeline_name: str, until: datetime) -> Row | None:
        """id, run_key and planned_up_to of the run that planned up to ``until`` or just past it."""
        return self._sql.row("run_past", pipeline_name=pipeline_name, until=until)

    def planned_before(self, pipeline_name: str, time: datetime) -> datetime | None:
        """The time next before another one up to which a run planned."""
        at: datetime | None = self._sql.rows("planned_before", pipeline_name=pipeline_name, time=time)[0]["at"]
        return at

    def planned_at(self, pipeline_name: str) -> Row:
        """Return when a plan succeeded: ``first``, ``last``, and ``last_without_time``: of those that reached their
        cut, and stand for no time."""
        [row] = self._sql.rows("planned_at", pipeline_name=pipeline_name)
        return row

    def recent_cut(self, pipeline_name: str, runs: int) -> datetime | None:
        """The time up to which the oldest of so many of the newest runs read; None when no run says it."""
        [row] = self._sql.rows("recent_run", pipeline_name=pipeline_name, runs=runs)
        cut: datetime | None = row["planned_up_to"]
        return cut

    def published_up_to(self, pipeline_name: str) -> datetime | None:
        """The latest time before which everything is published, as far as runs say it."""
        row = self._sql.row("published_up_to", pipeline_name=pipeline_name)
        return None if row is None else row["planned_up_to"]

    def recent(self, pipeline_name: str) -> list[Row]:
        """The 20 runs that were planned last, oldest first, with the states of their manifests."""
        return self._sql.rows("recent_runs", pipeline_name=pipeline_name)

    def records(self, run_ids: Sequence[int]) -> dict[int, int]:
        """Return how many records were read for what is published, by run; a run may have nothing."""
        return {row["run_id"]: row["read"] for row in self._sql.rows("records_of_runs", runs=list(run_ids))}

    def files(self, run_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The published data files of runs in all sinks: their number and their bytes, by run; a run may have none."""
        rows = self._sql.rows("files_of_runs", runs=list(run_ids))
        return {row["run_id"]: (row["files"], row["bytes"]) for row in rows}

    def lags(self, pipeline_name: str, since: datetime, seconds: float) -> list[Row]:
        """Lags as plans have found them since a time: at, lag and published_before. Of each part of so many seconds the
        largest, at its newest time."""
        return self._sql.rows("lags_since", pipeline_name=pipeline_name, since=since, seconds=seconds)

    def periods(self, pipeline_name: str, start: datetime, end: datetime, seconds: int) -> list[Row]:
        """Runs and manifests by period of so many seconds, numbered from 0 at ``start``: period, state, number,
        first_manifest and records read; a row whose state is None has the number of runs."""
        return self._sql.rows("periods", pipeline_name=pipeline_name, start=start, end=end, seconds=seconds)
