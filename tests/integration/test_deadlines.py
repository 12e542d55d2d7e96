"""What the callback of a deadline tells people; Airflow itself calls it in ``tests/e2e/test_schedules_of_dags.py``."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tests.worlds.inbox import Inbox
from tidemark.airflow import deadline
from tidemark.errors import NotDone
from tidemark.lifecycle import attempt
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind

LATE = {"dag_run": {"dag_run_id": "late run"}}
TEXT = (
    "demo: late: DAG run late run was to be done 0:45:00 after it was queued, and is not; "
    "not published: manifest 2 of run by hand, a-0 [10, 20) (planned)\n"
    "next: look at the run in Airflow, or: tidemark status demo"
)


@pytest.fixture(autouse=True)
def world(postgres: Postgres, template: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelWorld]:
    """Of three manifests the late run has two, and one of these is published."""
    settings = ScheduleSettings(partitions=1, max_records=10, max_slices=100)
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        made.produce(30)
        plan(made.onlooker(), Tick("by hand", RunKind.MANUAL, None))
        made.database.manifests.hand_out(made.database.manifests.find(ids=[1, 2]), "late run")
        attempt.process(made.onlooker(), 1, made.stage)
        monkeypatch.setenv("TIDEMARK_DB", made.dsn)
        yield made


def test_people_are_told_which_run_is_late_and_what_it_has_not_published(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    deadline.missed("demo", 2700.0, context=LATE)
    [told] = inbox.got
    assert told["text"] == TEXT
    assert (told["pipeline"], told["kind"], told["manifest_id"], told["over"]) == ("demo", "late", None, False)
    assert TEXT in caplog.text


def test_without_an_address_the_log_tells_it_in_the_triggerer_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TIDEMARK_WEBHOOK", raising=False)
    asyncio.run(deadline.missed_in_triggerer("demo", 2700.0, context=LATE))
    assert TEXT in caplog.text


def test_what_the_address_does_not_take_is_in_the_log_and_the_callback_fails(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.status = 500
    with pytest.raises(NotDone, match="the webhook answered 500") as failed:
        deadline.missed("demo", 2700.0, context=LATE)
    assert failed.value.next_step.startswith("correct TIDEMARK_WEBHOOK; Airflow reports a missed deadline once")
    assert TEXT in caplog.text


def test_people_are_told_also_while_the_manifest_database_does_not_answer(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DB", "postgresql://nobody@127.0.0.1:1/none")
    deadline.missed("demo", 2700.0, context=LATE)
    [text] = inbox.texts()
    assert "DAG run late run was to be done 0:45:00 after it was queued, and is not; what it has published is" in text
