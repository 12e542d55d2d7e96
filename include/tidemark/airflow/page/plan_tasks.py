"""Finds the DAG that plans a pipeline, by the asset that its task ``close`` has as an outlet. It finds a larger DAG
too, and a pipeline that was never planned, which the manifest database does not know.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from tidemark.airflow import addresses
from tidemark.airflow.addresses import TaskTry, run_path
from tidemark.operations.status import FailedRun
from tidemark.pipeline.each_topic import split_name

OF_A_PIPELINE = "tidemark://pipeline/"
CLOSE, PLAN = "close", "plan"
FAILED = ("failed", "upstream_failed")
ENDED = ("success", "skipped", *FAILED)
BY_ITSELF = DagRunType.SCHEDULED, DagRunType.ASSET_TRIGGERED


@dataclass(frozen=True)
class PlanTask:
    """The task that plans a pipeline. In a larger DAG its id begins with the task group."""

    dag_id: str
    task_id: str


def plan_tasks() -> dict[str, PlanTask]:
    """Return the plan task of each pipeline, among the DAGs that Airflow has now. Of several DAGs, take the one with
    the pipeline's name, or else the first.
    """
    columns = AssetModel.uri, TaskOutletAssetReference.dag_id, TaskOutletAssetReference.task_id
    query = (
        select(*columns)
        .join(TaskOutletAssetReference, TaskOutletAssetReference.asset_id == AssetModel.id)
        .join(DagModel, DagModel.dag_id == TaskOutletAssetReference.dag_id)
        .where(AssetModel.uri.startswith(OF_A_PIPELINE, autoescape=True), ~DagModel.is_stale)
        .order_by(TaskOutletAssetReference.dag_id.desc())
    )
    with create_session() as session:
        rows = list(session.execute(query))
    tasks: dict[str, PlanTask] = {}
    for uri, dag_id, task_id in rows:
        name = uri.removeprefix(OF_A_PIPELINE)
        group, _, task = f".{task_id}".rpartition(".")
        known = tasks.get(name)
        if task == CLOSE and "/" not in name and not (known and known.dag_id == name):
            tasks[name] = PlanTask(dag_id, f"{group}.{PLAN}".lstrip("."))
    return tasks


def dag_of(pipeline_name: str, tasks: Mapping[str, PlanTask]) -> str:
    """Return the DAG that plans the pipeline: its rights and runs count for the pipeline. For a member, it is the DAG
    of its group. If Airflow knows no such DAG, return the name of the pipeline or group.
    """
    group, _ = split_name(pipeline_name)
    task = tasks.get(group)
    return task.dag_id if task else group


@dataclass(frozen=True)
class Unplanned:
    """A pipeline that was never planned. ``state`` is that of the newest try to plan it, None without a try. ``path``
    leads to the log of that try, or to its DAG run.
    """

    pipeline: str
    dag_id: str
    state: str | None
    path: str | None


@dataclass(frozen=True)
class _Try:
    """The newest try of a plan task, in one run."""

    run_id: str
    state: str | None
    number: int
    ended_at: datetime | None

    def path(self, task: PlanTask) -> str:
        """Return the path of its log, or of its DAG run while there is no log."""
        tried = TaskTry(task.dag_id, self.run_id, task.task_id, None, self.number)
        return tried.log_path if self.number else run_path(*tried.run)


OF_RUN = and_(TaskInstance.dag_id == DagRun.dag_id, TaskInstance.run_id == DagRun.run_id)


def _newest_tries(tasks: Mapping[str, PlanTask], *is_true: ColumnElement[bool]) -> dict[PlanTask, _Try]:
    """Return, for each plan task, its try in the newest DAG run for which all of ``is_true`` hold. Reads all runs of
    these DAGs.
    """
    newest = (
        select(func.max(DagRun.id), TaskInstance.task_id)
        .join(TaskInstance, OF_RUN)
        .where(
            DagRun.dag_id.in_({task.dag_id for task in tasks.values()}),
            TaskInstance.task_id.in_({task.task_id for task in tasks.values()}),
            *is_true,
        )
        .group_by(DagRun.dag_id, TaskInstance.task_id)
    )
    with create_session() as session:
        return _tries(session, {(run, task_id) for run, task_id in session.execute(newest)})


def _newest_ended(tasks: Mapping[str, PlanTask]) -> dict[PlanTask, _Try]:
    """Return, for each plan task, its try in the newest run that Airflow itself started (by schedule or asset) and
    whose plan has ended.

    Reads at most two runs of each DAG, by Airflow's index: the newest with a logical date (schedule) and the newest
    without one (asset).
    """
    dags: dict[str, set[str]] = {}
    for task in tasks.values():
        dags.setdefault(task.task_id, set()).add(task.dag_id)
    newest: set[tuple[int, str]] = set()
    with create_session() as session:
        for task_id, dag_ids in dags.items():
            ended = (
                select(DagRun.id)
                .join(TaskInstance, OF_RUN)
                .where(DagRun.dag_id == DagModel.dag_id, DagRun.run_type.in_(BY_ITSELF))
                .where(TaskInstance.task_id == task_id, TaskInstance.state.in_(ENDED))
                .limit(1)
                .correlate(DagModel)
            )
            dated = ended.where(DagRun.logical_date.is_not(None)).order_by(DagRun.logical_date.desc())
            undated = ended.where(DagRun.logical_date.is_(None)).order_by(DagRun.id.desc())
            query = select(dated.scalar_subquery(), undated.scalar_subquery()).where(DagModel.dag_id.in_(dag_ids))
            newest |= {(max(filter(None, row)), task_id) for row in session.execute(query) if any(row)}
        return _tries(session, newest)


def _tries(session: Session, newest: Collection[tuple[int, str]]) -> dict[PlanTask, _Try]:
    """Return the tries of these runs (by number) in these tasks."""
    columns = DagRun.run_id, TaskInstance.state, TaskInstance.try_number, TaskInstance.end_date
    query = (
        select(DagRun.id, TaskInstance.task_id, DagRun.dag_id, *columns)
        .join(TaskInstance, OF_RUN)
        .where(DagRun.id.in_({run for run, _ in newest}), TaskInstance.task_id.in_({task_id for _, task_id in newest}))
    )
    return {
        PlanTask(dag_id, task_id): _Try(run_id, state and str(state), number, ended_at)
        for run, task_id, dag_id, run_id, state, number, ended_at in session.execute(query)
        if (run, task_id) in newest
    }


def unplanned(tasks: Mapping[str, PlanTask]) -> list[Unplanned]:
    """Return the newest try to plan each of these pipelines."""
    tries = _newest_tries(tasks)
    return [_unplanned(name, task, tries.get(task)) for name, task in sorted(tasks.items())]


def _unplanned(name: str, task: PlanTask, newest: _Try | None) -> Unplanned:
    if newest is None:
        return Unplanned(name, task.dag_id, None, None)
    return Unplanned(name, task.dag_id, newest.state or "waiting", newest.path(task))


def failed_runs(tasks: Mapping[str, PlanTask], *, asked_for: bool) -> dict[str, FailedRun]:
    """Return, by pipeline, the newest run whose plan has ended, if that plan failed. Looks only at runs that Airflow
    itself started; with ``asked_for`` also at runs that a user started.
    """
    tries = _newest_tries(tasks, TaskInstance.state.in_(ENDED)) if asked_for else _newest_ended(tasks)
    failed = {name: (task, tries[task]) for name, task in tasks.items() if task in tries}
    return {
        name: FailedRun(
            newest.ended_at,
            f"task {task.task_id} of DAG run {newest.run_id} is {newest.state}",
            f"its log in Airflow says why: {addresses.airflow_address()}{newest.path(task)}",
        )
        for name, (task, newest) in failed.items()
        if newest.state in FAILED and newest.ended_at is not None
    }
