"""Waits for manifests that other runs are at work on, and skips manifests that they have done."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskDeferred

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import AttemptState

log = logging.getLogger(__name__)


def defers(deferrable: bool | None) -> bool:
    """Return whether a task waits in the triggerer. The default is Airflow's own, which is false: without a running
    triggerer a deferred task would wait for ever.
    """
    return conf.getboolean("operators", "default_deferrable", fallback=False) if deferrable is None else deferrable


class WaitingOperator(BaseOperator):
    """The base of operators that call ``wait_for_others``; ``deferrable`` is as for ``defers``."""

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = defers(deferrable)

    def resume(self, context: Any, event: str | None = None) -> Any:
        """Begin the task again after its trigger has fired; what is done already is found in the database.

        If the trigger could not ask the database (the ``event`` says why), the task waits in its slot.
        """
        if event is not None:
            log.warning("the triggerer cannot wait for this task, which now waits in its slot: %s", event)
            self.deferrable = False
        return self.execute(context)


def wait_for_others(
    task_context: Any, database: ManifestDatabase, manifests: Sequence[int], *, also_replays: bool
) -> None:
    """Wait while other runs process these manifests; with ``also_replays`` also while they replay done ones.

    Otherwise ``close`` would fail although nothing is wrong, and a replay would fence the attempt of another run.
    A deferrable task ends here with Airflow's ``TaskDeferred``, which is no failure: do not call this within
    ``watched``.
    """
    attempts = database.attempts.alive(manifests, also_replays=also_replays) if manifests else []
    if not attempts:
        return
    from tidemark.airflow.trigger import AttemptsEnd, waiting_for  # few tasks wait, and need Airflow's core for it

    task = task_context["ti"].task
    trigger = AttemptsEnd([row["manifest_id"] for row in attempts], also_replays=also_replays)
    if task.deferrable:
        log.info("%s; in the triggerer, without a slot", waiting_for(attempts))
        raise TaskDeferred(trigger=trigger, method_name="resume", timeout=task.execution_timeout)
    asyncio.run(trigger.wait())


def replayed_since(database: ManifestDatabase, manifest_id: int, since: datetime | None) -> str | None:
    """Return the attempt that replayed the manifest after ``since``, the start of a run that asks for it; None if there
    was none.

    Runs of several dates may ask for a replay of one manifest at the same time: one replay is enough.
    """
    ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
    for row in reversed(database.attempts.of_manifest(manifest_id)):
        if since is not None and row["state"] in ended_well and row["started_at"] >= since:
            return f"attempt {row['attempt']} of {row['actor']}"
    return None
