"""The actions of the page: each starts a DAG run with a conf as the trigger form has it, with the name and rights of
the caller.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.exceptions import AirflowException, DagRunAlreadyExists
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from tidemark.airflow import addresses, run_conf
from tidemark.airflow.run_notes import note_of
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotDone, NotFound, Unavailable
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Decision, Manifest, ManifestSelection, ManifestState
from tidemark.pipeline.each_topic import split_name


class Action(StrEnum):
    RETRY = "retry"
    REPLAY = "replay"
    FILL = "fill"
    ACCEPT_LOSS = "accept-loss"
    ACCEPT_TOPIC = "accept-topic"
    ACCEPT_TRUNCATION = "accept-truncation"
    ACCEPT_DAMAGE = "accept-damage"
    AUDIT = "audit"

    @property
    def decides(self) -> bool:
        """Return whether the action is a decision, which the run makes before it plans."""
        return self in run_conf.DECISIONS


@dataclass(frozen=True)
class Wish:
    """An action and its subject, as in the trigger form of the DAG.

    ``by_id``: a retry of only these ``manifests``, also blocked ones. Otherwise ``manifests`` are those that a preview
    showed. ``depth`` is that of an audit.
    """

    action: Action
    manifests: tuple[int, ...] = ()
    by_id: bool = False
    sink: str | None = None
    topic: str | None = None
    partition: int | None = None
    depth: run_conf.Depth = run_conf.Depth.LIGHT

    @property
    def manifest(self) -> int | None:
        """Return the manifest to decide about, or None."""
        return self.manifests[0] if self.manifests else None

    def conf(self, why: str) -> dict[str, Any]:
        match self.action:
            case Action.RETRY:
                return {"retry": list(self.manifests)} if self.by_id else {"retry_unfinished": True}
            case Action.REPLAY:
                return {"replay": list(self.manifests)}
            case Action.FILL:
                return {"fill": self.sink}
            case Action.AUDIT:
                return {"audit": self.depth}
        about = {name: getattr(self, name) for name in run_conf.DECISIONS[self.action]}
        return {"accept": {"decision": self.action.value, **about, "why": why}}


@dataclass(frozen=True)
class DagState:
    """The state of a DAG in Airflow. A run of a ``paused`` DAG waits until it is unpaused."""

    paused: bool
    next_run: datetime | None


@dataclass(frozen=True)
class Preview:
    """A preview of a run, made by the functions that its task ``plan`` calls; ``lines`` are those of its decision."""

    manifests: tuple[Manifest, ...] = ()
    blocked: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        return sum(part.span for manifest in self.manifests for part in manifest.ranges)


def preview(context: Context, wish: Wish) -> Preview:
    """Return the preview of a run. Raises what the run would fail with: a live attempt, a manifest of another pipeline,
    nothing lost.
    """
    database, conf = context.database, wish.conf("a preview")
    if wish.action.decides:
        return Preview(lines=run_conf.accept(context, conf["accept"], dry_run=True).lines)
    if wish.action is Action.AUDIT:
        return Preview()
    if wish.action is Action.REPLAY and not wish.manifests:
        raise ConfigurationError("no manifest is selected", next_step="select some in the list of manifests")
    blocked: list[Manifest] = []
    if wish.action is Action.RETRY and not wish.by_id:
        blocked = database.manifests.page(context.pipeline_name, ManifestSelection(ManifestState.BLOCKED), limit=100)
    todo = database.manifests.find(ids=run_conf.manifests_asked_for(context, conf) or [])
    return Preview(tuple(todo), tuple(manifest.id for manifest in blocked))


def conf_of(pipeline_name: str, wish: Wish, why: str) -> dict[str, Any]:
    """Return the conf of the run. The DAG of a member is that of its group, so the conf names the topic."""
    _, topic = split_name(pipeline_name)
    return wish.conf(why) | ({} if topic is None else {"topics": [topic]})


def new_run_id(action: Action) -> str:
    """Return an id for the form: a form that is sent twice starts one run."""
    return f"{action}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}_{secrets.token_hex(4)}"


def start(database: ManifestDatabase, dag_id: str, wish: Wish, why: str, user: BaseUser, run_id: str) -> None:
    """Start the run unless it was started already. Its note and the history of the pipeline have the reason.

    The history is written first, so that no run exists without an entry. If the run could not be started, the history
    says so too, unless this process has died. To send the form again then starts it, with one entry.
    """
    _note_asked(database, dag_id, wish, why, user.get_name(), run_id)
    try:
        with create_session(scoped=False) as session:  # the scoped one is closed by what is called here
            run = trigger_dag(
                split_name(dag_id)[0],
                run_id=run_id,
                conf=conf_of(dag_id, wish, why),
                triggered_by=DagRunTriggeredByType.UI,
                triggering_user_name=user.get_name(),
                session=session,
            )
            # A person's note, as Airflow stores those from its own form: without the id the scheduler would replace it.
            assert run is not None
            run.note = note_of(why, addresses.links(dag_id, list(wish.manifests))), user.get_id()
    except DagRunAlreadyExists:
        return
    except (AirflowException, ValueError) as error:
        with database.because(why):
            line = f"DAG run {run_id} was not started: {error}"
            database.decisions.note(dag_id, wish.action, Decision((line,), wish.manifests))
        raise NotDone(
            f"Airflow does not start a run of {dag_id}: {error}", next_step="look at the DAG in Airflow"
        ) from None
    except SQLAlchemyError:
        raise Unavailable(
            f"Airflow's database has not said whether DAG run {run_id} was started",
            next_step="send the form again: the run is started once",
            pipeline=dag_id,
        ) from None


def _note_asked(database: ManifestDatabase, dag_id: str, wish: Wish, why: str, user_name: str, run_id: str) -> None:
    """Note who asked for the run and why, once for each run, even if the form is sent several times or twice at
    once.
    """
    line = f"DAG run {run_id}, asked for on the page by {user_name}"
    with database.because(why):
        database.runs.lock_planning(dag_id)
        if not any(line in made["lines"] for made in database.decisions.of_pipeline(dag_id)):
            database.decisions.note(dag_id, wish.action, Decision((line,), wish.manifests))


def dag_states(dag_ids: Sequence[str]) -> dict[str, DagState]:
    """Return the states of the DAGs that Airflow has now."""
    with create_session() as session:
        columns = DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after
        rows = session.execute(select(*columns).where(DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale))
        return {dag_id: DagState(bool(paused), next_run) for dag_id, paused, next_run in rows}


def set_paused(dag_id: str, paused: bool) -> None:
    """Pause a DAG or unpause it. Raises ``NotFound`` if Airflow has no such DAG."""
    with create_session() as session:
        dag = session.get(DagModel, dag_id)
        if dag is None:
            raise NotFound(f"Airflow has no DAG {dag_id}", next_step="look at the list of DAGs in Airflow")
        dag.is_paused = paused


def run_state(dag_id: str, run_id: str) -> DagRunState | None:
    """Return the state of a run; None if Airflow does not have it."""
    with create_session() as session:
        state = session.scalar(select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
        return None if state is None else DagRunState(state)


def known_runs(runs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the runs (DAG, run) that Airflow still has: a link to another one would lead nowhere."""
    if not runs:
        return set()
    with create_session() as session:
        columns = DagRun.dag_id, DagRun.run_id
        return {
            (dag_id, run_id) for dag_id, run_id in session.execute(select(*columns).where(tuple_(*columns).in_(runs)))
        }
