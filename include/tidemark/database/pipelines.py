"""Stores pipelines, their former names, and which are retired."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.database.statements import Part, Row


class Pipelines(Part):
    def remember(
        self, pipeline_name: str, targets: Mapping[str, str], orders: Mapping[str, str | None] | None = None
    ) -> None:
        """Store the pipeline and its sinks that are not known yet. ``targets`` and ``orders`` (the column that orders
        rows) are by sink name. Needs an open transaction."""
        self._sql.rows("remember_pipeline", pipeline_name=pipeline_name)
        names, values = list(targets), list(targets.values())
        columns = [(orders or {}).get(name) for name in names]
        self._sql.rows("remember_sinks", pipeline_name=pipeline_name, names=names, targets=values, orders=columns)

    def is_planned(self, pipeline_name: str) -> bool:
        """Return whether the pipeline was ever planned or adopted."""
        return bool(self._sql.rows("is_planned", pipeline_name=pipeline_name)[0]["known"])

    def cluster(self, pipeline_name: str) -> str | None:
        """Return the id of the cluster that the pipeline reads, as ``remember_cluster`` stored it."""
        row = self._sql.row("cluster", pipeline_name=pipeline_name)
        return None if row is None else row["cluster"]

    def remember_cluster(self, pipeline_name: str, cluster: str | None) -> None:
        self._sql.rows("remember_cluster", pipeline_name=pipeline_name, cluster=cluster)

    def names(self, *, retired: bool = False) -> list[str]:
        """Return the pipelines that were ever planned, with ``retired`` also the retired ones."""
        return [row["name"] for row in self._sql.rows("pipelines", retired=retired)]

    def planned_alike(self, pipeline_name: str, targets: Mapping[str, str], fingerprints: Sequence[str]) -> list[Row]:
        """Return name, topics and shared_with of other pipelines with these sinks (target by name) and settings."""
        names = list(targets)
        return self._sql.rows(
            "planned_alike", pipeline_name=pipeline_name, names=names, targets=list(targets.values()),
            fingerprints=list(fingerprints),
        )  # fmt: skip

    def retired_at(self, pipeline_name: str) -> datetime | None:
        """Return when a pipeline was retired; None if it was not, or was never planned."""
        row = self._sql.row("retired_at", pipeline_name=pipeline_name)
        return None if row is None else row["retired_at"]

    def retire(self, pipeline_name: str, *, retired: bool) -> None:
        self._sql.rows("retire_pipeline", pipeline_name=pipeline_name, retired=retired)

    def former_names(self, pipeline_name: str) -> list[Row]:
        """Return name, pipeline (the present name), until and in_targets of each former name of the pipeline; also of
        this name, if it is itself a former one."""
        return self._sql.rows("former_names", pipeline_name=pipeline_name)

    def rename(self, old: str, new: str) -> None:
        """Give a pipeline another name in the database; ``end_rename`` follows when its targets have the name too.
        Needs an open transaction that holds ``runs.lock_planning`` of both names."""
        self._sql.rows("rename_pipeline", old=old, new=new)

    def end_rename(self, new: str) -> None:
        self._sql.changed("end_pipeline_rename", new=new)
