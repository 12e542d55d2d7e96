"""The manifests of a DAG run, from the XCom of ``plan``, or, after ``airflow db clean``, from the database."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk.definitions._internal.expandinput import DictOfListsExpandInput

from tidemark.airflow.addresses import TaskTry
from tidemark.airflow.bundles import flat
from tidemark.airflow.lookup import database_of
from tidemark.airflow.verdict import airflow_verdict
from tidemark.database.client import ManifestDatabase
from tidemark.errors import NotFound
from tidemark.pipeline.each_topic import split_name


class PlannedManifests(DictOfListsExpandInput):
    """The argument ``manifest_id`` of each mapped task, as ``expand`` makes it from the list of ``plan``.

    If Airflow has removed that list, a cleared task gets the manifest of its last attempt, or all manifests of its
    bundle that it has begun.
    """

    def __init__(self, value: Any, pipeline_name: str, *, bundled: bool) -> None:
        super().__init__(value)
        self.pipeline_name, self.bundled = pipeline_name, bundled

    def resolve(self, context: Mapping[str, Any]) -> tuple[Mapping[str, Any], set[int]]:
        try:
            return super().resolve(context)
        except KeyError:  # raised for an XCom that is None, which has no length
            with airflow_verdict(), database_of(context) as database:
                manifests = _of_task(database, self.pipeline_name, context["ti"])
                return {"manifest_id": manifests if self.bundled else manifests[-1]}, set()


def _is_member(name: str, group: str) -> bool:
    owner, topic = split_name(name)
    return owner == group and topic is not None


def _of_task(database: ManifestDatabase, pipeline_name: str, instance: Any) -> list[int]:
    manifests = _by_index(database, pipeline_name, instance.dag_id, instance.run_id, instance.task_id)
    if instance.map_index not in manifests:
        raise NotFound(
            f"nothing says which manifest this task is for: Airflow has removed the list of DAG run {instance.run_id} "
            "(airflow db clean does that), and this task has no earlier attempt",
            next_step="nothing was started; in Airflow, clear the task plan of this run too, which gives the same "
            f"manifests again; or: tidemark retry {pipeline_name}",
            pipeline=pipeline_name,
        )
    return manifests[instance.map_index]


def manifests_of_run(database: ManifestDatabase, pipeline_name: str, instance: Any) -> list[int]:
    """Return the manifests that the mapped tasks of this run have worked on; ``instance`` is the task instance of
    ``close``.
    """
    process = f"{instance.task_id.removesuffix('close')}process"
    return sorted({*flat(_by_index(database, pipeline_name, instance.dag_id, instance.run_id, process).values())})


def _by_index(
    database: ManifestDatabase, pipeline_name: str, dag_id: str, run_id: str, task_id: str
) -> dict[int, list[int]]:
    """Return, by map index, the manifests that were begun, the one of the newest attempt last. The history names the
    tasks.
    """
    prefix = f"airflow {dag_id} {run_id} {task_id}["
    manifests: dict[int, list[int]] = {}
    names = [
        pipeline_name,
        *(name for name in database.pipelines.names(retired=True) if _is_member(name, pipeline_name)),
    ]
    for row in (row for name in names for row in database.attempts.by(name, prefix)):
        task = TaskTry.of(row["actor"])
        if task is not None and task.map_index is not None:
            own = manifests.setdefault(task.map_index, [])
            own[:] = [*(each for each in own if each != row["manifest_id"]), row["manifest_id"]]
    return manifests
