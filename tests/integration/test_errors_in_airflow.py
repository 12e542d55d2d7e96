"""What Airflow does with an error of ours: every class of the tree in errors.py takes a side here."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import structlog

from tidemark import errors
from tidemark.errors import TidemarkError

TRIED_AGAIN = [errors.Unavailable, errors.WorkFailed]
FAILED_AT_ONCE = [
    errors.TidemarkError,
    errors.ConfigurationError,
    errors.NotFound,
    errors.AccessDenied,
    errors.PlanRefused,
    errors.DataLost,
    errors.TopicChanged,
    errors.CutConflict,
    errors.LakeConflict,
    errors.ForeignLake,
    errors.DatabaseBehindLake,
    errors.SinkRefused,
    errors.NotPublished,
    errors.UndecodableRecord,
    errors.TooManyDeadLetters,
    errors.Fenced,
    errors.Blocked,
    errors.IllegalTransition,
    errors.NotDone,
]


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Airflow's exceptions, and our verdict beside them."""
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))  # importing Airflow writes a configuration there
    return importlib.import_module("airflow.sdk.exceptions")


def verdict_on(error: Exception) -> None:
    """Raises what Airflow gets of an error."""
    with importlib.import_module("tidemark.airflow.verdict").airflow_verdict():
        raise error


def test_every_class_of_error_takes_a_side() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TidemarkError)}
    assert {*TRIED_AGAIN, *FAILED_AT_ONCE} == classes


@pytest.mark.parametrize("kind", TRIED_AGAIN, ids=lambda kind: kind.__name__)
def test_airflow_tries_again_what_may_end_differently(airflow: Any, kind: type[TidemarkError]) -> None:
    with pytest.raises(airflow.AirflowException, match="it happened") as raised:
        verdict_on(kind("it happened"))
    assert not isinstance(raised.value, airflow.AirflowFailException)


@pytest.mark.parametrize("kind", FAILED_AT_ONCE, ids=lambda kind: kind.__name__)
def test_airflow_never_tries_again_what_is_fenced_or_waits_for_a_person(
    airflow: Any, kind: type[TidemarkError]
) -> None:
    with pytest.raises(airflow.AirflowFailException, match="it happened"):
        verdict_on(kind("it happened"))


def test_the_task_says_where_it_happened_and_what_to_do(airflow: Any) -> None:
    with pytest.raises(airflow.AirflowException) as raised:
        verdict_on(errors.Fenced("it happened", next_step="nothing", pipeline="demo", manifest=7))
    assert str(raised.value) == "it happened [error=fenced pipeline=demo manifest=7]\nnext: nothing"


def test_it_links_to_the_page_of_the_manifest_or_the_pipeline_when_airflow_knows_its_address(
    airflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_line(error: TidemarkError) -> str:
        with pytest.raises(airflow.AirflowException) as raised:
            verdict_on(error)
        return str(raised.value).split("\n")[-1]

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/team/")
    pages = "page: https://example.org/team/tidemark/pipelines"
    assert last_line(errors.WorkFailed("it happened", pipeline="demo", manifest=7)) == f"{pages}/demo/manifests/7"
    assert last_line(errors.DataLost("it happened", next_step="wait", pipeline="a demo")) == f"{pages}/a%20demo"
    assert last_line(errors.NotFound("no such", next_step="look", pipeline="demo", manifest=9)) == "next: look"
    assert last_line(errors.Unavailable("it happened", next_step="wait")) == "next: wait"


@pytest.mark.parametrize(
    ("error", "entry"),
    [
        (errors.WorkFailed("it happened", next_step="wait"), {"event": "it happened [error=work-failed]\nnext: wait"}),
        (errors.Blocked("it happened"), {"event": "it happened [error=blocked]"}),
        (ZeroDivisionError(), {"event": "Task failed with exception", "exc_info": True}),
    ],
)
def test_the_log_has_an_error_of_ours_as_its_message_and_any_other_with_its_traceback(
    airflow: Any, error: Exception, entry: dict[str, Any]
) -> None:
    entries: list[dict[str, Any]] = []

    def keep(_logger: object, _method: str, made: Any) -> Any:
        entries.append(dict(made))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    try:
        log = structlog.get_logger("task").bind()  # as Airflow's task runner, which made it before we are imported
        try:
            verdict_on(error)
        except Exception:
            log.exception("Task failed with exception")
    finally:
        structlog.configure(**before)
    of_the_error = [entry for entry in entries if entry["event"] != "tidemark_failed"]
    assert of_the_error == [entry]
    assert len(entries) - len(of_the_error) == isinstance(error, TidemarkError), "an event, for whoever counts"


def test_what_is_no_error_of_ours_goes_to_airflow_as_it_is(airflow: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        verdict_on(ZeroDivisionError())
