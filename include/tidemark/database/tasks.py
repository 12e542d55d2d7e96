"""Notes each ``plan``, ``process`` and ``close`` that has begun or failed."""

from datetime import datetime

from tidemark.database.statements import Part, Row


class Tasks(Part):
    def note_begun(self, pipeline_name: str, task: str, run_key: str) -> None:
        """A ``plan`` or ``close`` has begun; what is noted of an earlier one that failed stays."""
        values = {"task": task, "actor": self._sql.actor, "run_key": run_key}
        self._sql.rows("note_begun_task", pipeline_name=pipeline_name, **values)

    def forget_begun(self, pipeline_name: str, task: str) -> None:
        """It has ended, and not failed."""
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
        """Keep why the newest task of this kind failed, until one succeeds; ``refused``: or until a person decides.

        ``retry_at``: when it is tried again, at the latest. It is not kept beside a last try that has failed.
        ``silent``: the address of the source that did not answer.
        """
        values = {"task": task, "actor": self._sql.actor, "what": what, "next_step": next_step, "refused": refused}
        self._sql.rows("note_failed_task", pipeline_name=pipeline_name, retry_at=retry_at, silent=silent, **values)

    def forget_failed(self, pipeline_name: str, task: str) -> None:
        """A task of this kind has succeeded."""
        self._sql.rows("forget_failed_task", pipeline_name=pipeline_name, task=task)

    def forget_failed_plan_of(self, pipeline_name: str, run_key: str) -> None:
        """The run of this key is stored: what hindered its plan, or one before it began, is over."""
        self._sql.rows("forget_failed_plan_of", pipeline_name=pipeline_name, run_key=run_key)

    def forget_refused_plan(self, pipeline_name: str) -> None:
        """A person has decided what a plan was refused for."""
        self._sql.rows("forget_refused_plan", pipeline_name=pipeline_name)

    def pipelines_noted(self) -> list[str]:
        """The pipelines with a task that has begun or failed, also such as were never planned."""
        return [row["name"] for row in self._sql.rows("pipelines_noted")]

    def failed(self, pipeline_name: str) -> list[Row]:
        """Return the reason why no plan, process or close succeeds: task, since, at (the newest), times, actor, what,
        next_step, refused, retry_at, silent.

        With 0 ``times``, one has begun at ``since`` and has not ended.
        """
        return self._sql.rows("failed_tasks", pipeline_name=pipeline_name)
