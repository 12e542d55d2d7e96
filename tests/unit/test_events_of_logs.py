"""The structured lines of task logs, and the table of docs/operations.md that names their keys."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidemark.airflow import events
from tidemark.airflow.events import Event
from tidemark.errors import DataLost
from tidemark.lifecycle.plan import PlannedRun
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.manifest import Counts
from tidemark.offsets import Range, TopicPartition
from tidemark.order import Order, SinkOrder, SourceOrder

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
AT = TopicPartition("flights", "id", 0)
ORDER = Order(
    "demo", 7, 2, (Range(AT, 0, 50),), SourceOrder("kafka", {}), {}, {}, "fail", (SinkOrder("lake", "files", {}),)
)
LOST = DataLost("it is gone", next_step="decide", pipeline="demo", topic="flights", partition=3, offsets=range(5))
TOLD: dict[Event, Callable[[], None]] = {
    Event.PLANNED: lambda: events.planned("demo", PlannedRun("daily", (7, 8), (6,), reached=True, notes=())),
    Event.ATTEMPT_BEGINS: lambda: events.attempt_begins(ORDER),
    Event.ATTEMPT_ENDS: lambda: events.attempt_ends(
        "demo", Outcome(7, 2, Ending.UNCHANGED, Counts(read=50, written=49))
    ),
    Event.HOURS_COMPLETE: lambda: events.tell(Event.HOURS_COMPLETE, pipeline="demo", hours=[["a", "b"]]),
    Event.FAILED: lambda: events.failed(LOST),
}


def line(event: Event) -> dict[str, object]:
    with capture_logs() as lines:
        TOLD[event]()
    [told] = lines
    assert told.pop("log_level") == "info"
    assert json.loads(json.dumps(told)) == told, "Airflow writes it as JSON"
    return dict(told)


@pytest.mark.parametrize("event", Event)
def test_each_line_has_the_keys_of_the_table(event: Event) -> None:
    [(task, keys)] = re.findall(rf"^\| `{event}` \| (.*?) \| (.*) \|$", OPERATIONS.read_text(), re.MULTILINE)
    told = line(event)
    assert told.pop("event") == event
    assert task
    named = re.findall(r"`(\w+)`", keys)
    assert [*told] == named if event is not Event.FAILED else {*named} - {"manifest"} <= {*told}


def test_the_values_are_plain() -> None:
    assert line(Event.PLANNED)["manifests"] == [7, 8]
    begins = line(Event.ATTEMPT_BEGINS)
    assert (begins["offsets"], begins["ranges"], begins["sinks"]) == (50, ["flights-0 [0, 50)"], ["lake"])
    ends = line(Event.ATTEMPT_ENDS)
    assert (ends["manifest"], ends["attempt"], ends["ending"], ends["written"]) == (7, 2, "unchanged", 49)


def test_a_failure_has_its_code_the_next_step_and_what_the_message_has_in_brackets() -> None:
    failed = line(Event.FAILED)
    assert failed["error"] == "data-lost"
    assert (failed["what"], failed["next_step"]) == ("it is gone", "decide")
    assert (failed["pipeline"], failed["topic"], failed["partition"]) == ("demo", "flights", 3)
    assert failed["offsets"] == "range(0, 5)"
