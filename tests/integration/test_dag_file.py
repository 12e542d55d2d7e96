"""``dags/tidemark_dags.py``: a DAG per pipeline file, and for a task its own DAG alone."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for

from tests.unit.pipeline_text import GOOD
from tidemark.pipeline.loader import InvalidPipelines, load_each, load_named
from tidemark.pipeline.settings import Pipeline

DAG_FILE = Path(__file__).parents[2] / "dags" / "tidemark_dags.py"
Write = Callable[..., Path]


def named(name: str) -> str:
    return GOOD.replace("pipeline: flights", f"pipeline: {name}")


@pytest.fixture
def dags(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The ids of the DAGs in the file, as the scheduler or as a task of a DAG reads it."""
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(tmp_path))

    def read(dag_id: str | None = None) -> list[str]:
        with parsing_for(dag_id=dag_id):
            module: dict[str, Any] = runpy.run_path(str(DAG_FILE))
        return sorted(key for key, value in module.items() if getattr(value, "dag_id", None) == key)

    return read


def test_a_task_gets_its_own_pipeline_whatever_the_other_files_hold(
    write: Write, dags: Callable[..., list[str]]
) -> None:
    write(GOOD, "a.yaml")
    write(named("flights-2"), "b.yaml")
    write("pipeline: [flights", "broken.yaml")
    write(b"\xff\xfe", "binary.yaml")
    assert dags() == ["binary", "broken", "flights", "flights-2"]
    assert dags("flights") == ["flights"]
    assert dags("flights-2") == ["flights-2"]


def test_a_task_whose_pipeline_no_text_shows_gets_every_dag(write: Write, dags: Callable[..., list[str]]) -> None:
    write(named("${UNSET_NAME:-flights}"), "a.yaml")
    write(named("other"), "b.yaml")
    write("pipeline: 7", "broken.yaml")
    assert dags("flights") == dags() == ["broken", "flights", "other"]
    assert dags("broken") == dags(), "a broken DAG's task says what is wrong with its file"
    assert dags("gone") == dags()


@pytest.mark.parametrize(
    "text",
    [named("own"), named("'own'"), named('"own"   # comment'), named("own").replace("pipeline:", '"pipeline" :')],
)
def test_a_name_is_found_in_every_usual_way_to_write_it(write: Write, tmp_path: Path, text: str) -> None:
    write(text, "z.yaml")
    write("source: own", "a.yaml")
    [(file, pipeline)] = load_named(tmp_path, "own", {})
    assert isinstance(pipeline, Pipeline)
    assert (file.name, pipeline.name) == ("z.yaml", "own")


def test_of_two_files_with_one_name_a_task_gets_the_one_that_the_scheduler_has(write: Write, tmp_path: Path) -> None:
    write(GOOD, "b.yaml")
    write(GOOD, "a.yaml")
    assert [file.name for file, _ in load_named(tmp_path, "flights", {})] == ["a.yaml"]
    assert [isinstance(found, InvalidPipelines) for _, found in load_each(tmp_path, {})] == [False, True]
