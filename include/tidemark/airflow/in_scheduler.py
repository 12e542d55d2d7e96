"""The note of a DAG run, and the label of a task that waits to start: only the scheduler may write these.

``plan`` leaves both as an XCom (`run_notes.py`). A mutation hook (Airflow's cluster policy) labels the tasks of
manifests while the scheduler makes them; the hook and a listener write the note. Without the plugin, tasks get their
label when they start, and runs have no note. No hook raises: that would stop the runs of every DAG.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.listeners import hookimpl
from airflow.policies import hookimpl as policy

from tidemark.airflow.run_notes import KEY, note_of

OPERATOR = "ProcessManifestOperator"
log = logging.getLogger(__name__)


@contextmanager
def whatever_fails() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("notes and labels of Tidemark's DAG runs cannot be written; nothing else is affected")


def notes_of_plans(dag_run: Any) -> dict[str, dict[str, Any]]:
    """Return the notes that the run's `plan` left, by task id: a DAG may have several task groups. Empty before `plan`,
    for other DAGs, and if the XCom lies in an XCom backend.
    """
    from airflow.models.xcom import XComModel  # tasks load this module too, and have no use for Airflow's tables
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return {}
    # Query columns, not objects: the scheduler's session is as old as the scheduler, and may hold an earlier `plan`'s.
    query = select(XComModel.task_id, XComModel.value).where(XComModel.dag_run_id == dag_run.id, XComModel.key == KEY)
    with session.no_autoflush:
        values = {row.task_id: XComModel.deserialize_value(row) for row in session.execute(query.order_by("task_id"))}
    return {task_id: note for task_id, note in values.items() if isinstance(note, dict)}


def write_note(dag_run: Any) -> None:
    """Give the run the note of its `plan`, with links to the page, unless a user has written a note."""
    notes, kept = [note for note in notes_of_plans(dag_run).values() if "note" in note], dag_run.dag_run_note
    if not notes or (kept is not None and kept.user_id is not None):
        return
    links = [link for note in notes for link in note.get("links", ())]
    text = note_of("\n".join(filter(None, (note["note"] for note in notes))), links)
    if text:
        dag_run.note = text
    elif kept is not None:
        dag_run.dag_run_note = None


@policy
@whatever_fails()
def task_instance_mutation_hook(task_instance: Any, dag_run: Any) -> None:
    """Label a task that was just mapped. Airflow calls this for the tasks of all DAGs; mostly there is nothing to
    do.
    """
    index = task_instance.map_index
    if dag_run is None or index < 0 or task_instance.operator != OPERATOR or task_instance._rendered_map_index:
        return
    plan = f"{task_instance.task_id.removesuffix('process')}plan"  # in a task group both have its prefix
    labels = notes_of_plans(dag_run).get(plan, {}).get("labels", [])
    if index < len(labels):
        task_instance._rendered_map_index = labels[index]
    if index == 0:
        write_note(dag_run)


@hookimpl
@whatever_fails()
def on_dag_run_success(dag_run: Any) -> None:
    write_note(dag_run)


@hookimpl
@whatever_fails()
def on_dag_run_failed(dag_run: Any) -> None:
    write_note(dag_run)
