"""The structured lines of logs, in Airflow and of commands, and the table of docs/operations.md with their keys."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidemark.airflow import event_log
from tidemark.cli import log
from tidemark.cli.log_format import LogFormat, choose_format
from tidemark.errors import DataLost
from tidemark.lifecycle import events
from tidemark.lifecycle.events import Event, LogLine
from tidemark.lifecycle.plan import PlannedRun
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.model.manifest import Counts, Decision, Manifest, ManifestState
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SinkOrder, SourceOrder

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
OPERATIONS = CHECKOUT / "docs" / "operations.md"
AT = TopicPartition("flights", "id", 0)
ORDER = Order(
    "demo", 7, 2, (Range(AT, 0, 50),), SourceOrder("kafka", {}), {}, {}, "fail", (SinkOrder("lake", "files", {}),)
)
LOST = DataLost("it is gone", next_step="decide", pipeline="demo", topic="flights", partition=3, offsets=range(5))
MANIFEST = Manifest(
    7, "demo", "daily", 0, ManifestState.RUNNING, 2, None, datetime(2013, 1, 1, tzinfo=UTC), None,
    alive=True, retired=False, ranges=(), publications=(),
)  # fmt: skip
TOLD: dict[Event, LogLine] = {
    Event.PLANNED: events.planned("demo", PlannedRun("daily", (7, 8), (6,), reached=True, notes=())),
    Event.ATTEMPT_BEGINS: events.attempt_begins(ORDER),
    Event.ATTEMPT_ENDS: events.attempt_ends("demo", Outcome(7, 2, Ending.UNCHANGED, Counts(read=50, written=49))),
    Event.LEFT_OUT: events.left_out(MANIFEST),
    Event.HOURS_COMPLETE: events.hours_complete("demo", [datetime(2013, 1, 1, 10, tzinfo=UTC)]),
    Event.DECIDED: events.decided("demo", "accept-loss", Decision(("it is gone",), (7,))),
    Event.NOTE: events.note("[1/2] manifest 7"),
    Event.FAILED: events.failed(LOST),
}
DOCUMENTED = re.findall(r"^\| `(tidemark_\w+)` \| (.*?) \| (.*) \|$", OPERATIONS.read_text(), re.MULTILINE)
CONSTRUCTORS = [node.name for node in ast.parse(inspect.getsource(events)).body if isinstance(node, ast.FunctionDef)]


@pytest.fixture
def as_json() -> Iterator[None]:
    choose_format(LogFormat.JSON)
    yield
    choose_format(LogFormat.TEXT)


def test_every_word_is_in_the_docs_and_every_word_of_the_docs_is_written() -> None:
    assert sorted(word for word, _, _ in DOCUMENTED) == sorted(Event)
    assert sorted(TOLD) == sorted(Event)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_every_line_is_written_by_airflow_or_the_command_line(name: str) -> None:
    writers = [path for room in ("airflow", "cli") for path in (PACKAGE / room).rglob("*.py")]
    assert any(f"events.{name}(" in path.read_text() for path in writers)


@pytest.mark.parametrize("event", Event)
def test_each_line_has_the_keys_of_the_table(event: Event) -> None:
    [(where, keys)] = [(where, keys) for word, where, keys in DOCUMENTED if word == event]
    values = TOLD[event].values
    assert where
    assert TOLD[event].event == event
    named = re.findall(r"`(\w+)`", keys)
    assert [*values] == named if event is not Event.FAILED else {*named} - {"manifest"} <= {*values}


@pytest.mark.parametrize("event", Event)
def test_airflow_writes_the_word_as_the_event_and_its_values_as_json(event: Event) -> None:
    with capture_logs() as lines:
        event_log.emit(TOLD[event])
    [line] = lines
    assert json.loads(json.dumps(line)) == line == {"event": event.value, "log_level": "info", **TOLD[event].values}


@pytest.mark.parametrize("event", Event)
@pytest.mark.usefixtures("as_json")
def test_a_command_writes_the_same_line(event: Event, capsys: pytest.CaptureFixture[str]) -> None:
    log.emit(TOLD[event])
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert (out, err.count("\n")) == ("", 1)
    assert datetime.fromisoformat(line.pop("timestamp")).tzinfo is not None
    assert line.pop("level") == ("error" if event is Event.FAILED else "info")
    assert line == {"event": event.value, **TOLD[event].values}


def test_a_log_for_people_has_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    for line in TOLD.values():
        log.emit(line)
    assert capsys.readouterr() == ("", "")


def test_the_values_are_plain() -> None:
    assert TOLD[Event.PLANNED].values["manifests"] == [7, 8]
    begins = TOLD[Event.ATTEMPT_BEGINS].values
    assert (begins["offsets"], begins["ranges"], begins["sinks"]) == (50, ["flights-0 [0, 50)"], ["lake"])
    ends = TOLD[Event.ATTEMPT_ENDS].values
    assert (ends["manifest"], ends["attempt"], ends["ending"], ends["written"]) == (7, 2, "unchanged", 49)


def test_a_failure_has_its_code_the_next_step_and_what_the_message_has_in_brackets() -> None:
    failed = TOLD[Event.FAILED].values
    assert failed["error"] == "data-lost"
    assert (failed["what"], failed["next_step"]) == ("it is gone", "decide")
    assert (failed["pipeline"], failed["topic"], failed["partition"]) == ("demo", "flights", 3)
    assert failed["offsets"] == "range(0, 5)"
