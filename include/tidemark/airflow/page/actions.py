"""What a person can start here: a DAG run with the conf of the trigger form, in the caller's name and by his right."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, assert_never

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import AirflowException, DagRunAlreadyExists
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select

from tidemark.airflow.map_length import oldest, whole
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotDone
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import own_manifest, refuse_at_work, unfinished
from tidemark.manifest import Decision, Manifest, ManifestState


class Action(StrEnum):
    RETRY = "retry"
    REPLAY = "replay"

    def conf(self, manifests: Sequence[int]) -> dict[str, Any]:
        """As the trigger form of the DAG has it."""
        match self:
            case Action.RETRY:
                return {"retry_unfinished": True}
            case Action.REPLAY:
                return {"replay": list(manifests)}
        assert_never(self)


@dataclass(frozen=True)
class DagState:
    """What Airflow knows of a DAG: a run of one that is ``paused`` waits until somebody unpauses it."""

    paused: bool
    next_run: datetime | None


@dataclass(frozen=True)
class Preview:
    """What a run would do now, by the same functions that its task ``plan`` calls."""

    manifests: tuple[Manifest, ...]
    blocked: tuple[int, ...] = ()

    @property
    def ids(self) -> list[int]:
        return [manifest.id for manifest in self.manifests]

    @property
    def offsets(self) -> int:
        return sum(part.span for manifest in self.manifests for part in manifest.ranges)


def preview(context: Context, action: Action, manifests: Sequence[int]) -> Preview:
    """Raises what the run would fail with: an attempt that is alive, a manifest of another pipeline, too many."""
    database = context.database
    match action:
        case Action.RETRY:
            todo = oldest([manifest.id for manifest in unfinished(context)])
            blocked = database.page_of_manifests(context.pipeline_name, ManifestState.BLOCKED, limit=100)
            return Preview(tuple(database.manifests(ids=todo)), tuple(manifest.id for manifest in blocked))
        case Action.REPLAY:
            chosen = [own_manifest(context, manifest_id) for manifest_id in manifests]
            if not chosen:
                raise ConfigurationError("no manifest is selected", next_step="select some in the list of manifests")
            refuse_at_work(chosen)
            whole(context, list(manifests))
            return Preview(tuple(chosen))
    assert_never(action)


def new_run_id(action: Action) -> str:
    """Given to the form: sending the same form twice starts one run."""
    return f"{action}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}_{secrets.token_hex(4)}"


def start(
    database: ManifestDatabase, dag_id: str, action: Action, manifests: Sequence[int], why: str, user: str, run_id: str
) -> None:
    """Start the run unless it was started; its note and the pipeline's history have the reason."""
    try:
        trigger_dag(
            dag_id,
            run_id=run_id,
            conf=action.conf(manifests),
            triggered_by=DagRunTriggeredByType.UI,
            triggering_user_name=user,
            note=why,
        )
    except DagRunAlreadyExists:
        return
    except (AirflowException, ValueError) as error:
        raise NotDone(
            f"Airflow does not start a run of {dag_id}: {error}", next_step="look at the DAG in Airflow"
        ) from None
    lines = f"DAG run {run_id}, asked for on the page by {user}"
    with database.because(why):
        database.note_decision(dag_id, action, Decision((lines,), tuple(manifests)))


def dag_states(dag_ids: Sequence[str]) -> dict[str, DagState]:
    """Of the DAGs that Airflow has now."""
    with create_session() as session:
        columns = DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after
        rows = session.execute(select(*columns).where(DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale))
        return {dag_id: DagState(bool(paused), next_run) for dag_id, paused, next_run in rows}
