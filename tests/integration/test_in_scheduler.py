"""Notes and labels that the scheduler writes; a real one does in tests/e2e/test_dag_run.py."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tidemark.airflow import in_scheduler

OURS, A_PERSONS = SimpleNamespace(user_id=None), SimpleNamespace(user_id="1")


def note(left: dict[str, Any], kept: SimpleNamespace | None) -> tuple[object, object]:
    """(what was written as a note, the note that was kept)."""
    run = SimpleNamespace(id=1, note="nothing new", dag_run_note=kept)
    with mock.patch.object(in_scheduler, "left_by_plan", return_value=left):
        in_scheduler.on_dag_run_success(dag_run=run)
    return run.note, run.dag_run_note


def test_a_note_is_written_and_taken_back_and_a_persons_note_stays() -> None:
    assert note({"note": "manifest 1 is unfinished"}, None) == ("manifest 1 is unfinished", None)
    assert note({"note": "manifest 2 is unfinished"}, OURS) == ("manifest 2 is unfinished", OURS)
    assert note({"note": "manifest 1 is unfinished"}, A_PERSONS) == ("nothing new", A_PERSONS)
    assert note({"note": ""}, OURS) == ("nothing new", None)
    assert note({"note": ""}, A_PERSONS) == ("nothing new", A_PERSONS)
    assert note({}, OURS) == ("nothing new", OURS), "the DAG of somebody else"
    long, _ = note({"note": "x" * 2000}, None)
    assert (len(str(long)), str(long)[-4:]) == (1000, "x ..")


def test_a_hook_that_fails_stops_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    task = SimpleNamespace(map_index=0, operator="ProcessManifestOperator", _rendered_map_index=None)
    for hook, arguments in (
        (in_scheduler.task_instance_mutation_hook, {"task_instance": task, "dag_run": object()}),
        (in_scheduler.on_dag_run_success, {"dag_run": object()}),
        (in_scheduler.on_dag_run_failed, {"dag_run": object()}),
    ):
        caplog.clear()
        hook(**arguments)
        assert "notes and labels of Tidemark's DAG runs cannot be written" in caplog.text


def test_tasks_of_others_and_tasks_with_a_label_are_left_alone() -> None:
    with mock.patch.object(in_scheduler, "left_by_plan", return_value={"labels": ["not for this task"]}) as asked:
        for changes in ({"map_index": -1}, {"operator": "PythonOperator"}, {"_rendered_map_index": "manifest 1"}):
            known = {"map_index": 0, "operator": "ProcessManifestOperator", "_rendered_map_index": None}
            task = SimpleNamespace(**{**known, **changes})
            in_scheduler.task_instance_mutation_hook(task_instance=task, dag_run=object())
            assert task._rendered_map_index == changes.get("_rendered_map_index")
    asked.assert_not_called()
