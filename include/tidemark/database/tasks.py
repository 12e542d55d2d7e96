"""Stores notes about each ``plan``, ``process`` and ``close`` that has begun or failed."""

from datetime import datetime

from tidemark.database.statements import Part, Row


class Tasks(Part):
    def note_begun(self, pipeline_name: str, task: str, run_key: str) -> None:
        """Note that a ``plan`` or ``close`` has begun. Keep the note about an earlier one that failed."""
        values = {"task": task, "actor": self._sql.actor, "run_key": run_key}
        self._sql.rows("note_begun_task", pipeline_name=pipeline_name, **values)

    def forget_begun(self, pipeline_name: str, task: str) -> None:
        """Forget that a task has begun: it has ended without a failure. A note about a failure stays."""
        self._sql.rows("forget_begun_task", pipeline_name=pipeline_name, task=task)

    def note_failed(
        self,
        pipeline_name: str,
        task: str,
        what: str,
        next_step: str,
        *,
        refused: bool,
        retry_at: datetime | None = None,
        silent: str | None = None,
    ) -> None:
        """Store why the newest task of this kind failed, until one succeeds; with ``refused``, or until you decide.

        ``retry_at``: the latest time of its next try; not stored if a last try has failed before. ``silent``: the
        address of the source that did not answer.
        """
        values = {"task": task, "actor": self._sql.actor, "what": what, "next_step": next_step, "refused": refused}
        self._sql.rows("note_failed_task", pipeline_name=pipeline_name, retry_at=retry_at, silent=silent, **values)

    def forget_failed(self, pipeline_name: str, task: str) -> None:
        """Forget the failure of a task: one of this kind has succeeded."""
        self._sql.rows("forget_failed_task", pipeline_name=pipeline_name, task=task)

    def forget_failed_plan_of(self, pipeline_name: str, run_key: str) -> None:
        """Forget why the plan of this run failed, or a plan that had no run key yet: the run is stored now."""
        self._sql.rows("forget_failed_plan_of", pipeline_name=pipeline_name, run_key=run_key)

    def forget_refused_plan(self, pipeline_name: str) -> None:
        """Forget that a plan was refused: a decision has resolved it."""
        self._sql.rows("forget_refused_plan", pipeline_name=pipeline_name)

    def pipelines_noted(self) -> list[str]:
        """Return the pipelines with a task that has begun or failed, also pipelines that were never planned."""
        return [row["name"] for row in self._sql.rows("pipelines_noted")]

    def failed(self, pipeline_name: str) -> list[Row]:
        """Return why no plan, process or close succeeds: task, since, at (of the newest failure), times, actor, what,
        next_step, refused, retry_at, silent.

        If ``times`` is 0, a task has begun at ``since`` and has not ended.
        """
        return self._sql.rows("failed_tasks", pipeline_name=pipeline_name)
