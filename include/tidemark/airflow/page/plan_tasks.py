"""In which DAG a pipeline is planned, by the asset that its task ``close`` has as an outlet: also in a larger DAG, and
also when no plan has ever succeeded, of which the manifest database knows nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import and_, func, select

from tidemark.airflow.addresses import TaskTry, run_path

OF_A_PIPELINE = "tidemark://pipeline/"
CLOSE, PLAN = "close", "plan"


@dataclass(frozen=True)
class PlanTask:
    """The task that plans a pipeline; its id has the task group before it when the DAG is a larger one."""

    dag_id: str
    task_id: str


def plan_tasks() -> dict[str, PlanTask]:
    """By pipeline, of the DAGs that Airflow has now; of several DAGs the one with the pipeline's name, or the first."""
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
    """The DAG whose rights and runs are those of the pipeline; the one of its name when Airflow has no other."""
    task = tasks.get(pipeline_name)
    return task.dag_id if task else pipeline_name


@dataclass(frozen=True)
class Unplanned:
    """A pipeline that was never planned. ``state`` is that of the newest try to plan it, None when there was none;
    ``path`` leads to the log of that try, or to its DAG run."""

    pipeline: str
    dag_id: str
    state: str | None
    path: str | None

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "upstream_failed")


def unplanned(tasks: Mapping[str, PlanTask]) -> list[Unplanned]:
    """What the newest DAG run did for these pipelines."""
    dags = {task.dag_id for task in tasks.values()}
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dags)).group_by(DagRun.dag_id)
    columns = DagRun.dag_id, DagRun.run_id, TaskInstance.task_id, TaskInstance.state, TaskInstance.try_number
    query = (
        select(*columns)
        .join(TaskInstance, and_(TaskInstance.dag_id == DagRun.dag_id, TaskInstance.run_id == DagRun.run_id))
        .where(DagRun.id.in_(newest), TaskInstance.task_id.in_({task.task_id for task in tasks.values()}))
    )
    with create_session() as session:
        rows = list(session.execute(query))
    tries = {PlanTask(dag_id, task_id): (run_id, state, number) for dag_id, run_id, task_id, state, number in rows}
    return [_unplanned(name, task, tries.get(task)) for name, task in sorted(tasks.items())]


def _unplanned(name: str, task: PlanTask, newest: tuple[str, str | None, int] | None) -> Unplanned:
    if newest is None:
        return Unplanned(name, task.dag_id, None, None)
    run_id, state, number = newest
    tried = TaskTry(task.dag_id, run_id, task.task_id, None, number)
    return Unplanned(name, task.dag_id, str(state or "waiting"), tried.log_path if number else run_path(*tried.run))
