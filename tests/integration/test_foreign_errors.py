"""An error of any kind, in any step of a plan, a process or a close: ``tidemark status`` says it until it is mended."""

import importlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tidemark
from tests.worlds.world import World
from tidemark.airflow.verdict import next_try
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, Unavailable, WorkFailed
from tidemark.lifecycle.failed_tasks import Task, watched, watched_process
from tidemark.operations.status import Status

MakeWorld = Callable[..., World]

# By step: where it is raised, and what says so.
STEPS = {
    "plan: the context": ("tidemark.cli.opened", "open_context", "plan has failed"),
    "plan: the cut": ("tidemark.lifecycle.plan", "_await_cut", "plan has failed"),
    "plan: the ledger": ("tidemark.lifecycle.plan", "refuse_gone_rows", "plan has failed"),
    "plan: the targets": ("tidemark.lifecycle.plan", "check_for_plan", "plan has failed"),
    "plan: the source": ("tidemark.lifecycle.plan", "observe", "plan has failed"),
    "plan: the published records": ("tidemark.lifecycle.logs.divergence", "checked_logs", "plan has failed"),
    "plan: the folders": ("tidemark.lifecycle.plan", "claim_folders", "plan has failed"),
    "plan: the ranges": ("tidemark.planner", "plan", "plan has failed"),
    "plan: the transaction": ("tidemark.lifecycle.plan", "_store", "plan has failed"),
    "process: what is older": ("tidemark.cli.run", "older_unfinished", "manifest 2 of run"),
    "process: Spark": ("tidemark.cli.run", "LoggedStage", "manifest 2 of run"),
    "process: the schema": ("tidemark.lifecycle.attempt", "pinned", "manifest 2 of run"),
    "process: the sinks": ("tidemark.lifecycle.attempt", "check_for_attempt", "manifest 2 of run"),
    "process: the number": ("tidemark.lifecycle.attempt", "start", "manifest 2 of run"),
    "process: the order": ("tidemark.lifecycle.attempt", "order_of", "manifest 2 of run"),
    "process: the counts": ("tidemark.lifecycle.attempt", "check_equations", "manifest 2 of run"),
    "process: the receipt": ("tidemark.lifecycle.publish", "confirmed", "manifest 2 of run"),
    "process: after its end": ("tidemark.lifecycle.attempt", "report_progress", "process has failed"),
    "close: what it stands for": ("tidemark.lifecycle.close", "require_done", "close has failed"),
    "close: what is staged": ("tidemark.lifecycle.close", "recent_manifests", "close has failed"),
    "close: the run": ("tidemark.lifecycle.close", "published_sums", "close has failed"),
    "close: the hours": ("tidemark.lifecycle.close", "close_hours", "close has failed"),
    "close: its end": ("tidemark.lifecycle.close", "forget_failed", "close has failed"),
}
ERRORS = (
    KeyError("return_value"),
    ImportError("No module named 'fastavro'"),
    ValueError("a text with \0 and \ud800"),
    type("TimedOut", (BaseException,), {})("Airflow's time limit is no Exception"),
)


def status_of(world: World) -> Status:
    [status] = tidemark.status("demo", dsn=world.dsn, pipelines=world.pipelines)
    return status


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    world = make_world(partitions=1, settings={"unfinished": "retry"})
    world.produce(10)
    world.ok("run", "demo")
    assert status_of(world).state == "ok"
    return world


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", STEPS)
def test_no_error_of_another_kind_leaves_a_pipeline_green_and_the_next_step_mends_it(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    module, name, told = STEPS[step]
    world.produce(10)

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(importlib.import_module(module), name, fails)
        with pytest.raises(type(error)):  # the command line prints its traceback, with exit status 1
            world.here("run", "demo")
    printed = world.here("status", "demo")
    [view] = world.status("demo")
    problem = view["problems"][0]
    assert (printed.exit_code, view["state"], view["healthy"]) == (1, "failed", False), printed.stdout
    assert problem["kind"] == "failed"
    assert told in problem["what"]
    assert type(error).__name__ in problem["what"]
    assert printed.stdout.startswith("demo: failed")
    command = problem["next_step"].rpartition("tidemark ")[2].split()
    assert command in (["run", "demo"], ["retry", "demo"])
    world.ok(*command)
    world.ok("run", "demo")
    assert status_of(world).state == "ok"
    assert {manifest["state"] for manifest in world.manifests()} == {"done"}


@pytest.mark.parametrize("words", [("run", "demo", "--until", "2100-01-01T00:00"), ("plan", "demo", "--dry-run")])
def test_a_run_like_no_other_tells_only_what_is_no_refusal_and_a_dry_run_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    for error, word in (
        (ConfigurationError("x"), "ok"), (KeyError("x"), "ok" if "--dry-run" in words else "failed"),
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr("tidemark.lifecycle.plan._await_cut", _raises(error))
            with suppress(KeyError):
                assert world.here(*words).exit_code != 0
        assert status_of(world).state == word


def test_what_fails_before_it_has_a_number_keeps_its_reason_until_an_attempt_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a topic without a subject in the registry."""
    world.produce(10)
    refusal = ConfigurationError("the registry has no subject t-value", next_step="register it")
    with monkeypatch.context() as patched:
        patched.setattr("tidemark.lifecycle.attempt.pinned", _raises(refusal))
        assert world.here("run", "demo").exit_code != 0
    manifest = world.manifests()[-1]
    assert (manifest["state"], manifest["attempt"]) == ("failed", 0)
    assert manifest["reason"].splitlines()[0].startswith("the registry has no subject t-value")
    [problem] = status_of(world).problems
    assert problem.next_step == "register it; then: tidemark retry demo"
    world.ok("retry", "demo")
    assert status_of(world).state == "ok"
    assert world.manifests()[-1]["reason"] is None


def _raises(error: BaseException) -> Callable[..., None]:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


class Instance:
    """A try of a task of Airflow."""

    class task:  # noqa: N801 - as Airflow names it
        retry_delay = timedelta(minutes=5)
        retry_exponential_backoff = 0
        max_retry_delay = None

    def __init__(self, try_number: int, max_tries: int = 2) -> None:
        self.try_number, self.max_tries = try_number, max_tries


def tried(world: World, task: Task, error: BaseException, try_number: int) -> None:
    """A task of Airflow ends with an error."""
    given: dict[str, Any] = {"ti": Instance(try_number)}

    def database() -> ManifestDatabase:
        return ManifestDatabase(world.dsn, "airflow demo")

    block = watched(database, "demo", task, next_try=next_try(given))
    if task is Task.PROCESS:
        block = watched_process(database, "demo", world.manifests()[-1]["id"], next_try=next_try(given))  # type: ignore
    with pytest.raises(type(error)), block:
        raise error


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("error", [Unavailable("Kafka does not answer"), KeyError("x")], ids=["ours", "foreign"])
def test_what_airflow_tries_again_is_retrying_and_its_last_try_is_failed(
    world: World, task: Task, error: BaseException
) -> None:
    world.produce(10)
    if task is Task.PROCESS:
        world.ok("plan", "demo")
    for try_number in (1, 2):
        tried(world, task, error, try_number)
        printed = world.here("status", "demo")
        [view] = world.status("demo")
        assert (printed.exit_code, view["state"], view["healthy"], view["problems"]) == (0, "retrying", True, [])
        [retry] = view["retries"]
        wait = datetime.fromisoformat(retry["at"]) - datetime.now(UTC)
        assert timedelta(minutes=4) < wait <= timedelta(minutes=5)
        assert "; Airflow tries again by 20" in printed.stdout
        assert 'tidemark_state{pipeline="demo",state="retrying"} 1' in world.ok("monitor", "metrics", "demo")
    tried(world, task, error, 3)
    assert (world.here("status", "demo").exit_code, status_of(world).state) == (1, "failed")
    if task is not Task.PROCESS:
        tried(world, task, error, 1)
        assert status_of(world).state == "failed", "the first try of the next run hides no failure"
    world.ok("run", "demo")
    assert status_of(world).state == "ok"


def test_what_waits_for_a_person_is_failed_at_once(world: World) -> None:
    tried(world, Task.PLAN, ConfigurationError("x"), 1)
    assert status_of(world).state == "failed"


def test_a_next_try_that_does_not_come_is_failed(world: World) -> None:
    tried(world, Task.CLOSE, WorkFailed("x"), 1)
    assert status_of(world).state == "retrying"
    with psycopg.connect(world.dsn) as connection:
        connection.execute("UPDATE tidemark.failed_task SET retry_at = now() - interval '11 minutes'")
    assert status_of(world).state == "failed"
