"""``dags/``: a DAG per pipeline file, for a task its own DAG alone, and an import error while a file is wrong."""

import pkgutil
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import yaml
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG, AsyncCallback, DeadlineReference, SyncCallback
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID as PARSED_FOR
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.decoders import decode_deadline_alert
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.file import might_contain_dag

from tests.unit.pipeline_text import GOOD
from tidemark.airflow import run_conf, runs
from tidemark.airflow.dag import build_dag, pipeline_dag
from tidemark.airflow.deadline import missed, missed_in_triggerer
from tidemark.airflow.watcher import LagTrigger
from tidemark.errors import ConfigurationError, NotFound
from tidemark.model.manifest import RunKind
from tidemark.pipeline.deployed import deployed_named
from tidemark.pipeline.loader import load_each
from tidemark.pipeline.problems import InvalidPipelines

REPOSITORY = Path(__file__).parents[2]
DAGS = REPOSITORY / "dags"
Write = Callable[..., Path]
Read = Callable[..., dict[str, DAG]]


def named(name: str) -> str:
    return GOOD.replace("pipeline: flights", f"pipeline: {name}")


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The DAGs in the file, as the DAG processor or as a task of a DAG reads it."""
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))

    def dags(dag_id: str | None = None) -> dict[str, DAG]:
        with monkeypatch.context() as variables:
            if dag_id is not None:
                variables.setenv(PARSED_FOR, dag_id)
            module: dict[str, Any] = runpy.run_path(str(DAGS / "tidemark_dags.py"))
        return {key: value for key, value in module.items() if getattr(value, "dag_id", None) == key}

    return dags


def import_errors() -> dict[str, str]:
    """What Airflow's DAG processor says of the files in the folder of DAGs."""
    errors: dict[str, str] = {}
    for file in sorted(DAGS.glob("*.py")):
        errors |= BundleDagBag(str(file), bundle_path=DAGS, bundle_name="dags").import_errors
    return errors


@pytest.mark.parametrize("file", sorted(DAGS.glob("*.py")), ids=lambda path: path.name)
def test_airflow_reads_the_file_and_it_asks_the_package_alone(file: Path) -> None:
    assert might_contain_dag(str(file), safe_mode=True)
    lines = file.read_text().splitlines()
    assert [line for line in lines if "import " in line and '"' not in line] == [lines[2]]
    assert lines[2].startswith("from tidemark.airflow import ")
    assert lines[3:] in (["", "globals().update(dags())"], ["", "require_right_files()"]), (
        "there is one way, in one line"
    )


def test_the_page_shows_the_same_lines_and_airflow_would_read_them(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/operations.md").read_text()
    blocks = re.findall(r"```python\n(from tidemark\.airflow import .*?)```", page, re.DOTALL)
    files = sorted(DAGS.glob("*.py"))
    for block, file in zip(blocks, files, strict=True):
        assert block.replace("  # beside the dags", "") == file.read_text().partition("\n\n")[2]
        (tmp_path / "copied.py").write_text(block)
        assert might_contain_dag(str(tmp_path / "copied.py"), safe_mode=True)


def test_importing_the_folder_of_airflow_alone_imports_neither_airflow_nor_spark() -> None:
    program = "import sys, tidemark.airflow; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True)
    assert {"airflow", "pyspark", "pydantic"} & set(done.stdout.split()) == set()


def test_a_task_gets_its_own_pipeline_whatever_the_other_files_hold(write: Write, read: Read) -> None:
    write(GOOD, "a.yaml")
    write(named("flights-2"), "b.yaml")
    write("pipeline: [flights", "broken.yaml")
    write(b"\xff\xfe", "binary.yaml")
    assert list(read()) == ["flights", "flights-2"]
    assert list(read("flights")) == ["flights"]
    assert list(read("flights-2")) == ["flights-2"]


def test_what_the_trigger_form_asks_for_is_stored_with_the_dag_and_reaches_each_task(write: Write, read: Read) -> None:
    """A copy of it in each task would be most of what the DAG processor works for a DAG, and of what is stored."""
    write(GOOD, "a.yaml")
    [dag] = read().values()
    stored = comparable(dag)
    assert [name for name, _ in stored["params"]] == list(run_conf.PARAMS)
    assert [task["__var"].get("params") for task in stored["tasks"]] == [None, None, None]
    for task in dag.tasks:
        given = process_params(dag, task, {"retry": [7]}, suppress_exception=False)
        assert given == {name: param.value for name, param in run_conf.PARAMS.items()} | {"retry": [7]}
    assert run_conf.PARAMS["retry"].value == [], "what one run is given is not the other DAGs'"
    own = build_dag(load_each(write(GOOD, "a.yaml").parent)[0][1], params={"mine": 1})  # type: ignore[arg-type]
    assert dict(own.params) == {"mine": 1}


def test_what_is_appended_is_put_by_one_task_at_a_time_and_drivers_on_a_cluster_are_limited(
    write: Write, read: Read
) -> None:
    pipeline = yaml.safe_load(named("appends"))
    pipeline["sinks"].append({"topic": {"topic": "clean", "bootstrap_servers": "localhost:9092", "key": []}})
    write(GOOD, "a.yaml")
    write(yaml.safe_dump(pipeline), "b.yaml")
    for name, spark in {"many": {}, "few": {"parallel_drivers": 3}}.items():
        drivers = {"engine": "cluster", "orders": "orders", **spark}
        write(yaml.safe_dump({**yaml.safe_load(named(name)), "spark": drivers}), f"{name}.yaml")
    limits = {
        name: dag.get_task("process").partial_kwargs.get("max_active_tis_per_dag") for name, dag in read().items()
    }
    assert limits == {"flights": None, "appends": 1, "many": 16, "few": 3}


def test_a_task_whose_pipeline_no_text_shows_gets_its_dag_or_is_told_what_is_wrong(write: Write, read: Read) -> None:
    write(named("${UNSET_NAME:-flights}"), "a.yaml")
    write(named("other"), "b.yaml")
    write("pipeline: 7", "broken.yaml")
    assert list(read("flights")) == ["flights"]
    with pytest.raises(InvalidPipelines, match=r"broken\.yaml:1: pipeline: must be text"):
        read("broken")


@pytest.mark.parametrize(
    "text",
    [named("own"), named("'own'"), named('"own"   # comment'), named("own").replace("pipeline:", '"pipeline" :')],
)
def test_a_name_is_found_in_every_usual_way_to_write_it(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    write(text, "z.yaml")
    write("source: own", "a.yaml")
    monkeypatch.setattr("tidemark.pipeline.deployed._survey", None)  # all files would be parsed
    assert deployed_named(tmp_path, "own", {"TIDEMARK_HOME": str(tmp_path)}).pipeline.name == "own"


def test_of_two_files_with_one_name_a_task_gets_the_one_that_the_scheduler_has(write: Write, tmp_path: Path) -> None:
    env = {"TIDEMARK_HOME": str(tmp_path / "home")}
    write(named("flights\ndescription: second"), "b.yaml")
    write(named("flights\ndescription: first"), "a.yaml")
    assert deployed_named(tmp_path, "flights", env).pipeline.description == "first"
    assert [isinstance(pipeline, InvalidPipelines) for _, pipeline in load_each(tmp_path, env)] == [False, True]


def test_the_dag_of_a_wrong_file_is_as_before_but_plan_fails_and_airflow_shows_an_import_error(
    write: Write, read: Read, tmp_path: Path
) -> None:
    write(named("flights\nschedule: '@hourly'"), "a.yaml")
    write(named("other"), "b.yaml")
    before = read()
    assert import_errors() == {}

    write(named("flights\nschedule: '@hourly'").replace("topics:", "topcs:"), "a.yaml")
    for after in (read()["flights"], read("flights")["flights"]):
        changed = {"tags", "doc_md"}
        assert comparable(after, changed) == comparable(before["flights"], changed)
        assert after.tags == {"tidemark", "broken"}
        assert "a.yaml:6: source.kafka.topcs: unknown key" in str(after.doc_md)
        with _in_a_run() as database, pytest.raises(AirflowFailException) as failed:
            after.task_dict["plan"].python_callable()  # type: ignore[attr-defined]
        [((name, task, what, _), _)] = database.tasks.note_failed.call_args_list
        assert (name, task) == ("flights", "plan"), "whoever looks at the pipeline is told"
        assert "source.kafka.topcs: unknown key" in what
        assert f"{tmp_path}/a.yaml:6: source.kafka.topcs: unknown key; did you mean" in str(failed.value)
        assert (
            "[error=configuration pipeline=flights]\nnext: correct it and check again with: tidemark validate"
            in str(failed.value)
        )
    assert comparable(read()["other"]) == comparable(before["other"])

    errors = import_errors()
    assert list(errors) == ["tidemark_pipeline_files.py"], "an error of the file of the DAGs would stop all of them"
    assert f"{tmp_path}/a.yaml:6: source.kafka.topcs: unknown key" in errors["tidemark_pipeline_files.py"]

    write(named("flights\nschedule: '@hourly'"), "a.yaml")
    assert comparable(read()["flights"]) == comparable(before["flights"])
    assert import_errors() == {}


@contextmanager
def _in_a_run() -> Iterator[mock.MagicMock]:
    """A scheduled run, and the database that its tasks get; Airflow gives its context to workers only."""
    run = SimpleNamespace(
        run_id="a run", run_type=RunKind.SCHEDULED, data_interval_end=datetime(2026, 1, 1, tzinfo=UTC), conf={}
    )
    given = {"params": dict.fromkeys(run_conf.PARAMS), "dag_run": run, "ti": SimpleNamespace()}
    with (
        mock.patch.object(runs, "get_current_context", return_value=given),
        mock.patch.object(runs, "database_of") as opened,
    ):
        yield opened.return_value.__enter__.return_value


def comparable(dag: DAG, without: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """What Airflow stores of a DAG."""
    stored: dict[str, Any] = DagSerialization.to_dict(dag)["dag"]
    return {key: value for key, value in stored.items() if key not in {*without, "fileloc", "relative_fileloc"}}


def test_the_file_says_how_airflow_runs_the_tasks(write: Write, read: Read) -> None:
    write(GOOD, "a.yaml")
    settings = "airflow: {pool: spark, pool_slots: 2, priority_weight: 7, queue: big}"
    write(f"{named('flights-2')}\n{settings}\n", "b.yaml")
    plain, told = (dag.get_task("process") for dag in read().values())

    def execution(task: Any) -> tuple[object, ...]:
        return task.pool, task.pool_slots, task.priority_weight, task.queue

    assert execution(told) == ("spark", 2, 7, "big")
    assert execution(plain) == ("default_pool", 1, 1, "default")
    assert read()["flights-2"].get_task("plan").pool == "default_pool", "only what processes is heavy"


@pytest.mark.parametrize(
    ("settings", "pauses"),
    [
        ("", [10, 20, 40, 80, 160, 320, 600, 600]),
        ("airflow: {max_retry_delay: 1m}", [10, 20, 40, 60, 60]),
        ("retry_delay: 1h", [3600, 3600]),
        ("retry_delay: 1h\nairflow: {max_retry_delay: 3h}", [3600, 7200, 10800]),
        ("airflow: {max_retry_delay: null}", [10, 10, 10]),
    ],
)
def test_the_pauses_between_tries_double_up_to_a_bound_unless_the_file_says_otherwise(
    write: Write, read: Read, settings: str, pauses: list[int]
) -> None:
    """Airflow draws each pause from the one of the table up to twice that, or up to the bound."""
    write(f"{GOOD}\n{settings}\n", "a.yaml")
    [dag] = read().values()
    bound = pauses[-1]
    for task in DagSerialization.from_dict(DagSerialization.to_dict(dag)).tasks:
        for number, pause in enumerate(pauses, 1):
            ended = datetime.now(UTC)
            tried: Any = SimpleNamespace(task=task, try_number=number, end_date=ended, retry_delay_override=None,
                                         dag_id="flights", task_id=task.task_id, logical_date=None)  # fmt: skip
            waited = (TaskInstance.next_retry_datetime(tried) - ended).total_seconds()
            assert pause <= waited <= min(2 * pause, bound), (task.task_id, number)


@pytest.mark.parametrize(
    ("executor", "callback"),
    [
        ("LocalExecutor", SyncCallback(missed)),
        ("airflow.executors.local_executor.LocalExecutor,KubernetesExecutor", SyncCallback(missed)),
        ("KubernetesExecutor,LocalExecutor", AsyncCallback(missed_in_triggerer)),
    ],
)
def test_the_file_gives_the_dag_a_deadline_whose_callback_the_executor_can_run(
    write: Write, read: Read, monkeypatch: pytest.MonkeyPatch, executor: str, callback: SyncCallback | AsyncCallback
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    write(GOOD, "a.yaml")
    write(f"{named('flights-2')}\nairflow: {{deadline: 45m}}\n", "b.yaml")
    plain, told = read().values()
    assert plain.deadline is None
    [alert] = told.deadline  # type: ignore[misc, union-attr]
    assert alert.reference == DeadlineReference.DAGRUN_QUEUED_AT
    assert (type(alert.callback), alert.callback.path) == (type(callback), callback.path)
    [stored] = comparable(told)["deadline"]
    assert decode_deadline_alert(stored).interval == timedelta(minutes=45)


def test_a_trigger_is_a_watcher_beside_the_schedule_or_alone_and_always_the_same(write: Write, read: Read) -> None:
    """Airflow replaces a watcher whose arguments change from one parse to the next."""
    write(f"{GOOD}\ntrigger: {{lag: 10}}\n", "a.yaml")
    write(f"{named('flights-2')}\ntrigger: {{lag: 10}}\nschedule: '@daily'\n", "b.yaml")
    first, second = read(), read()
    assert [comparable(dag) for dag in first.values()] == [comparable(dag) for dag in second.values()]
    alone, beside = (DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable for dag in first.values())
    for name, timetable in (("flights", alone), ("flights-2", beside)):
        [(_, asset)] = timetable.asset_condition.iter_assets()
        [watcher] = asset.watchers
        assert asset.name == f"tidemark_{name}_lag"
        assert watcher.trigger["kwargs"] == {"pipeline_name": name}
        assert pkgutil.resolve_name(watcher.trigger["classpath"]) is LagTrigger
    assert (alone.summary, beside.summary) == ("Asset", "Asset or 0 0 * * *")


@pytest.mark.parametrize(
    ("run_type", "kind"),
    [("asset_triggered", "scheduled"), ("scheduled", "scheduled"), ("backfill", "backfill"), ("manual", "manual")],
)
def test_a_run_that_an_asset_has_started_is_not_by_hand_and_reads_what_there_is_now(run_type: str, kind: str) -> None:
    run = SimpleNamespace(
        run_id="r", run_type=SimpleNamespace(value=run_type), data_interval_end=None, logical_date=None
    )
    tick = runs.tick_of({"dag_run": run, "params": {}})
    assert (tick.run_key, tick.kind.value, tick.cut_at) == ("r", kind, None)


def test_a_dag_of_ones_own_passes_on_what_airflow_takes(write: Write, read: Read) -> None:
    """The DAG file is the one that docs/configuration.md shows."""
    page = (REPOSITORY / "docs/configuration.md").read_text()
    [text] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "pipeline_dag(" in block]
    write(GOOD, "a.yaml")
    with pytest.raises(ConfigurationError, match="Tidemark makes the DAG of this pipeline") as refused:
        exec(text, {})
    assert "airflow: {own_dag: true}" in str(refused.value)
    write(f"{GOOD}\nairflow: {{own_dag: true}}\nretries: 4\n", "a.yaml")
    assert read() == {}
    made: dict[str, Any] = {}
    exec(text, made)
    dag = made["dag"]
    assert (dag.dag_id, dag.dagrun_timeout, dag.tags) == ("flights", timedelta(hours=2), {"tidemark", "team-a"})
    assert {task.task_id: (task.owner, task.retries) for task in dag.tasks} == dict.fromkeys(
        ("plan", "process", "close"), ("team-a", 4)
    )
    assert dag.get_task("process").execution_timeout == timedelta(hours=1)
    [text] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "pipeline_tasks(" in block]
    exec(text, made)
    larger = made["dag"]
    assert {task.task_id: task.retries for task in larger.tasks if task.task_id != "compute"} == dict.fromkeys(
        ("flights.plan", "flights.process", "flights.close"), 4
    )
    assert larger.get_task("compute").upstream_task_ids == {"flights.close"}
    with pytest.raises(ConfigurationError, match="has the pipeline's name"):
        pipeline_dag("flights", dag_id="other")
    with pytest.raises(NotFound, match="there is no pipeline unknown"):
        pipeline_dag("unknown")
