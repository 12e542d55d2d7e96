"""The deadline of a pipeline's runs: Airflow's scheduler notices that one has passed, and sends a notice once.

The setting of the pipeline file becomes a deadline alert of the DAG. Airflow runs its callback in a process of its own.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk.definitions.callback import AsyncCallback, SyncCallback  # the stub of airflow.sdk lacks them
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import NotDone, TidemarkError
from tidemark.lifecycle.older import NAMED, described
from tidemark.operations.notify import WEBHOOK, Notice, deliver_by_webhook
from tidemark.operations.status import State
from tidemark.pipeline.settings import Pipeline

log = logging.getLogger(__name__)


def deadline_of(pipeline: Pipeline) -> DeadlineAlert | None:
    """Return the alert for the DAG of a pipeline; None if its file has no deadline."""
    within = pipeline.airflow.deadline
    if within is None:
        return None
    # A number, as Airflow stored it before 3.3. With a timedelta, a run that is in time cannot be cleared: Airflow 3.3
    # does not read the stored value in the form in which it wrote it (apache/airflow, issue 70368).
    seconds: Any = within.total_seconds()
    arguments = {"pipeline_name": pipeline.name, "seconds": seconds}
    callback = SyncCallback(missed, arguments) if _runs_callbacks() else AsyncCallback(missed_in_triggerer, arguments)
    return DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, seconds, callback)


def _runs_callbacks() -> bool:
    """Return whether the first executor of Airflow is known to run callbacks itself, without a triggerer.

    Airflow 3.3's scheduler crashes when it hands a callback to an executor that cannot run it.
    """
    first = str(conf.get("core", "executor")).split(";")[0].split(",")[0]
    return first.strip(" =").rpartition(":")[2].rpartition(".")[2] == "LocalExecutor"


def missed(pipeline_name: str, seconds: float, context: Mapping[str, Any]) -> None:
    """Send a notice that a run is not done: to the log of the callback, and to the address in TIDEMARK_WEBHOOK if it is
    set.

    ``context`` is what Airflow gives the callback of a deadline: the run, and no task. Raises ``NotDone`` if the
    address does not accept it.
    """
    run_id, within = context["dag_run"]["dag_run_id"], timedelta(seconds=seconds)
    undone = _not_published(pipeline_name, run_id)
    notice = Notice(
        pipeline=pipeline_name,
        kind=State.LATE,
        manifest_id=None,
        what=f"DAG run {run_id} was to be done {within} after it was queued, and is not; {undone}",
        next_step=f"look at the run in Airflow, or: tidemark status {pipeline_name}",
        since=datetime.now(UTC),
    )
    log.error(notice.text())
    if url := os.environ.get(WEBHOOK):
        try:
            deliver_by_webhook(url)(notice)
        except NotDone as error:
            error.next_step = (
                f"correct {WEBHOOK}; Airflow reports a missed deadline once, and the notice is in the log above"
            )
            raise


async def missed_in_triggerer(pipeline_name: str, seconds: float, context: Mapping[str, Any]) -> None:
    """Run ``missed`` in a thread, because others wait for the loop of Airflow's triggerer."""
    await asyncio.to_thread(missed, pipeline_name, seconds, context)


def _not_published(pipeline_name: str, run_id: str) -> str:
    """Return words for the manifests that the run has still to publish. The notice is sent even if the database does
    not answer.
    """
    try:
        with ManifestDatabase(Environment.from_variables().database(), f"airflow {pipeline_name} {run_id}") as database:
            undone = [manifest for manifest in database.manifests.undone(pipeline_name) if manifest.dag_run == run_id]
    except TidemarkError as error:
        return f"what it has published is not known: {error.what}"
    if not undone:
        return "no manifest of it is unpublished"
    more = f"; and {len(undone) - NAMED} more" if len(undone) > NAMED else ""
    return f"not published: {'; '.join(map(described, undone[:NAMED]))}{more}"
