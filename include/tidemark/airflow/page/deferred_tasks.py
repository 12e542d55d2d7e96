"""Finds the tasks of a pipeline that wait in Airflow's triggerer, and the manifests that they wait for."""

from collections.abc import Sequence
from dataclasses import dataclass

from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from sqlalchemy import func, select

from tidemark.airflow.addresses import TaskTry
from tidemark.airflow.page.plan_tasks import PLAN, PlanTask
from tidemark.airflow.trigger import AttemptsEnd

NAMED = 3  # tasks; an hour of a stuck attempt may make dozens wait
TRIGGER = f"{AttemptsEnd.__module__}.{AttemptsEnd.__name__}"


@dataclass(frozen=True)
class DeferredTask:
    task: TaskTry
    manifests: Sequence[int]


@dataclass(frozen=True)
class DeferredTasks:
    """``count`` tasks wait; ``first`` are those that have waited longest."""

    count: int
    first: Sequence[DeferredTask]


def deferred_tasks(plan: PlanTask) -> DeferredTasks:
    """Return the tasks that wait beside a plan task: in the same DAG, and in the same task group of it."""
    group = plan.task_id.removesuffix(PLAN)
    named = TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index
    query = (
        select(*named, TaskInstance.try_number, Trigger, func.count().over())
        .join(Trigger, Trigger.id == TaskInstance.trigger_id)
        .where(TaskInstance.dag_id == plan.dag_id, Trigger.classpath == TRIGGER)
        .where(TaskInstance.task_id.in_([f"{group}close", f"{group}process"]))
        .order_by(Trigger.created_date, Trigger.id)
        .limit(NAMED)
    )
    with create_session() as session:
        rows = [
            (TaskTry(dag_id, run_id, task_id, None if index < 0 else index, number), trigger.kwargs["manifests"], count)
            for dag_id, run_id, task_id, index, number, trigger, count in session.execute(query)
        ]
    return DeferredTasks(rows[0][-1] if rows else 0, [DeferredTask(task, ids) for task, ids, _ in rows])
