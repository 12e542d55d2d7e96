"""The task `process` of a group with `airflow: {bundle: N}`: several manifests in one Spark session, each of them with
attempts of its own. Airflow itself is not started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.definitions._internal.expandinput import DictOfListsExpandInput
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sandbox.services.spark_server import SparkServer
from tests.integration.test_groups_in_airflow import Run
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World
from tidemark.airflow import planned as planned_manifests
from tidemark.airflow import process
from tidemark.airflow.planned import PlannedManifests
from tidemark.database.client import ManifestDatabase
from tidemark.failpoints import FAILPOINTS
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt

MakeWorld = Callable[..., World]
NAMES = ("a", "b", "c", "d")
SPARK = '{"conn_type": "spark", "host": "local[1]"}'

# A try of the task in a process of its own, with a Spark of its own.
TRY = """
import json, sys
from types import SimpleNamespace
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.environment import Environment
from tidemark.pipeline.loader import find_file
group = find_file(Environment.from_variables().pipelines, "demo")
operator = ProcessManifestOperator(task_id="process", pipeline=group, manifest_id=json.loads(sys.argv[1]))
instance = SimpleNamespace(dag_id="demo", run_id="a run", task_id="process", map_index=0, try_number=1, max_tries=0,
                           task=operator)
operator.execute({"ti": instance, "params": {}, "dag_run": SimpleNamespace(start_date=None)})
"""


class Session:
    """In the place of a Spark session; counts those that were opened and the orders of each."""

    made: "list[Session]"

    def __init__(self, *_: Any) -> None:
        self.orders: list[int] = []
        self.dies_at: int | None = None
        self.closed = False
        self.made.append(self)

    @property
    def has_died(self) -> bool:
        return self.dies_at is not None and self.dies_at in self.orders

    def close(self) -> None:
        self.closed = True

    def __call__(self, order: Order) -> Receipt:
        self.orders.append(order.manifest_id)
        return arrow_stage(order)


@pytest.fixture
def world(make_world: MakeWorld, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    settings = {
        "kafka": {"topics": [], "topics_regex": rf"{prefix}-.*"},
        "decode": {"format": "json", "schema": "n BIGINT NOT NULL"},
        "event_time": {}, "on_error": "fail", "each_topic": True, "airflow": {"bundle": 3}, "unfinished": "retry",
    }  # fmt: skip
    made = make_world(settings=settings)
    for name in NAMES:
        made.add_topic(f"{prefix}-{name}", b'{"n": 1}')
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", SPARK)
    monkeypatch.setattr(Session, "made", [], raising=False)
    with mock.patch.object(process, "InSession", Session):
        yield made


def execute(world: World, manifests: list[int], *, cleared: bool = False, **params: Any) -> Session:
    """A try of the task, in this process; returns its session."""
    group = Run(world).group
    with mock.patch.dict(os.environ, world.environment()):
        operator = process.ProcessManifestOperator(task_id="process", pipeline=group, manifest_id=manifests)
        instance = SimpleNamespace(
            dag_id="demo", run_id="a run", task_id="process", map_index=0, try_number=1, max_tries=int(cleared),
            task=operator,
        )  # fmt: skip
        operator.execute({"ti": instance, "params": params, "dag_run": SimpleNamespace(start_date=None)})
    return Session.made[-1]


def attempts(world: World) -> dict[str, list[tuple[int, str]]]:
    """By topic's last letter, the attempts at its manifest."""
    shown = [world.json("show", str(each["id"])) for each in world.json("manifests", "demo")]
    return {
        each["pipeline"][-1]: [(attempt["attempt"], attempt["state"]) for attempt in each["attempts"]] for each in shown
    }


def test_a_plan_makes_bundles_and_close_knows_the_manifests_in_them(world: World, prefix: str) -> None:
    run = Run(world)
    planned = run.plan()
    assert [len(bundle) for bundle in planned if isinstance(bundle, list)] == [3, 1]
    labels = run.left["plan", "tidemark"]["labels"]
    assert labels[0] == f"manifests {planned[0][0]}, {planned[0][1]}, {planned[0][2]}: " + ", ".join(
        f"{prefix}-{name}" for name in NAMES[:3]
    )
    assert labels[1].startswith(f"manifest {planned[1][0]} {prefix}-d 0:[0, 1)")
    for bundle in planned:
        session = execute(world, bundle)
        assert session.orders == bundle, "one session does the bundle"
        assert session.closed
    members = {f"demo.{prefix}-{name}" for name in NAMES}
    assert run.close(planned) == (members, set())
    assert Run(world).close(None)[0] == members, "the history knows them when Airflow has removed the list"
    assert attempts(world) == {name: [(1, "published")] for name in NAMES}


def test_the_limit_of_lists_counts_bundles(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    [bundle] = Run(world).plan()
    assert isinstance(bundle, list)
    assert len(bundle) == 3, "one list of one task, and the oldest three of four manifests in it"
    assert bundle == [each["id"] for each in sorted(world.json("manifests", "demo"), key=lambda each: each["id"])[:3]]


def test_a_task_that_is_cleared_when_airflow_has_removed_the_list_gets_its_bundle_again(world: World) -> None:
    [bundle, _] = Run(world).plan()
    execute(world, bundle)
    given = PlannedManifests({"manifest_id": None}, "demo", bundled=True)
    instance = SimpleNamespace(dag_id="demo", run_id="a run", task_id="process", map_index=0)
    database = ManifestDatabase(world.dsn, "a test")
    with (
        mock.patch.object(planned_manifests, "database_of", return_value=database),
        mock.patch.object(DictOfListsExpandInput, "resolve", side_effect=KeyError),
    ):
        arguments, _ = given.resolve({"ti": instance})
    assert arguments == {"manifest_id": bundle}


def test_one_bad_topic_fails_the_task_by_name_and_a_cleared_one_does_what_is_not_done(
    world: World, prefix: str
) -> None:
    producer = world.broker.producer()
    producer.produce(f"{prefix}-b", b"{not json")
    assert producer.flush(30) == 0
    [bundle, _] = Run(world).plan()
    with pytest.raises(AirflowFailException) as failed:
        execute(world, bundle)
    message = str(failed.value)
    assert f"1 of 3 manifests of this task failed: manifest {bundle[1]} of demo.{prefix}-b: " in message
    assert "tidemark status demo has the next step of each" in message
    assert attempts(world) == {"a": [(1, "published")], "b": [(1, "failed")], "c": [(1, "published")], "d": []}
    [bad] = [each for each in world.status("demo") if each["pipeline"] == f"demo.{prefix}-b"]
    assert bad["state"] == "failed", "the step that the error names"
    assert bad["problems"][0]["next_step"].endswith(f"tidemark retry demo.{prefix}-b")

    world.settings["each_topic"] = {f"{prefix}-b": {"on_error": "dead_letter"}}
    world.write_pipeline()
    assert execute(world, bundle, cleared=True).orders == [bundle[1]]
    assert attempts(world)["a"] == [(1, "published")], "what is done is left alone"
    states = {each["pipeline"][-1]: each["state"] for each in world.status("demo")}
    assert [states[name] for name in "abc"] == ["ok", "dead letters", "ok"], "b has one good record and a bad one"
    assert execute(world, bundle, cleared=True).orders == bundle, "all is done: a person wants it again"
    assert {name: len(each) for name, each in attempts(world).items()} == {"a": 2, "b": 3, "c": 2, "d": 0}
    assert execute(world, bundle, replay=[bundle[2]]).orders == bundle


def test_a_session_that_has_died_ends_the_try_and_the_next_begins_with_the_others(world: World, prefix: str) -> None:
    """Else a manifest for which Spark has not enough memory keeps those behind it from ever being done."""
    [bundle, _] = Run(world).plan()

    class Dying(Session):
        def __call__(self, order: Order) -> Receipt:
            self.dies_at = bundle[0]
            if order.manifest_id == bundle[0]:
                self.orders.append(order.manifest_id)
                raise process.WorkFailed("its JVM was killed", next_step="look")
            return super().__call__(order)

    with mock.patch.object(process, "InSession", Dying):
        with pytest.raises(AirflowException, match=f"manifest {bundle[0]} of demo.{prefix}-a: its JVM was killed"):
            execute(world, bundle)
        assert Session.made[-1].orders == bundle[:1]
        with pytest.raises(AirflowException, match="its JVM was killed"):
            execute(world, bundle)
        assert Session.made[-1].orders == [*bundle[1:], bundle[0]]
    assert {name: states[-1:] for name, states in attempts(world).items()} == {
        "a": [(2, "failed")], "b": [(1, "published")], "c": [(1, "published")], "d": [],
    }  # fmt: skip


def test_a_source_that_is_gone_ends_the_try_at_once(world: World) -> None:
    [bundle, _] = Run(world).plan()

    class Silent(Session):
        def __call__(self, order: Order) -> Receipt:
            self.orders.append(order.manifest_id)
            raise process.Unavailable("the broker does not answer", next_step="start it")

    with mock.patch.object(process, "InSession", Silent), pytest.raises(AirflowException, match="1 of 3 manifests"):
        execute(world, bundle)
    assert Session.made[-1].orders == bundle[:1], "the others would wait for the same"


def tried(world: World, bundle: list[int], **more: str) -> "subprocess.CompletedProcess[str]":
    environment = world.environment(**{"AIRFLOW_CONN_SPARK_DEFAULT": SPARK, **more})
    command = [sys.executable, "-c", TRY, str(bundle)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, start_new_session=True)


IN_THE_DRIVER = [point for point in FAILPOINTS if point.startswith(("attempt.", "read.", "stage.done", "publish."))]
QUICK = ("stage.done", "publish.before_mark")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=pytest.mark.thorough if point in QUICK else pytest.mark.exhaustive)
        for point in IN_THE_DRIVER
    ],
)
def test_killed_within_a_bundle_what_is_done_stays_done_and_the_retry_does_the_rest(
    world: World, prefix: str, point: str
) -> None:
    [bundle, _] = Run(world).plan()
    killed = tried(world, bundle, TIDEMARK_FAILPOINT=f"{point}:kill9@2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    was_done = point in ("publish.marked", "publish.cleaned")
    assert attempts(world) == {
        "a": [(1, "published")], "b": [(1, "published" if was_done else "running")], "c": [], "d": [],
    }  # fmt: skip
    again = tried(world, bundle)
    assert again.returncode == 0, again.stderr
    tries = {name: len(each) for name, each in attempts(world).items()}
    assert tries == {"a": 1, "b": 1 if was_done else 2, "c": 1, "d": 0}
    states = {each["pipeline"][-1]: each["state"] for each in world.json("manifests", "demo")}
    assert states == {"a": "done", "b": "done", "c": "done", "d": "planned"}
    world.ok("retry", "demo")
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.exhaustive
def test_a_bundle_over_a_server_that_stays_up_is_done_like_another(world: World, spark_server: SparkServer) -> None:
    [bundle, _] = Run(world).plan()
    nowhere = {"AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "spark://127.0.0.1", "port": 1}'}
    server = {"TIDEMARK_SPARK_REMOTE": spark_server.remote, **nowhere}
    killed = tried(world, bundle, TIDEMARK_FAILPOINT="publish.before_mark:kill9@2", **server)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = tried(world, bundle, **server)
    assert again.returncode == 0, again.stderr
    assert {name: len(each) for name, each in attempts(world).items()} == {"a": 1, "b": 2, "c": 1, "d": 0}
    world.ok("retry", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
