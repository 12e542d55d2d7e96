"""An hour that is complete is green only when nothing that was read is missing in it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tidemark.cli import output
from tidemark.model.json_values import json_value
from tidemark.model.manifest import WithoutRows
from tidemark.model.problem import Problem
from tidemark.operations.hours import Hour
from tidemark.operations.status import State

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
GREEN, RED = "\x1b[32m", "\x1b[31m"


@pytest.mark.parametrize(
    ("without_rows", "given_up", "lacks", "colour"),
    [
        (WithoutRows(), (), "", GREEN),
        (WithoutRows(filtered=2, deduplicated=1), (), "", GREEN),
        (WithoutRows(dead_lettered=1), (), " with dead letters", RED),
        (WithoutRows(dead_lettered=1, lost=5), (), " with losses", RED),
        (WithoutRows(lost=5), ("lake", "table"), ", damage accepted in lake, table", RED),
    ],
)
def test_a_complete_hour_is_green_only_when_it_lacks_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    without_rows: WithoutRows, given_up: tuple[str, ...], lacks: str, colour: str,
) -> None:  # fmt: skip
    hour = Hour(START, 7, 0, without_rows, (1,), given_up, START + timedelta(hours=1), 1, None)
    assert hour.lacks == lacks
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.hours([hour], False)
    printed = capsys.readouterr().out
    assert [each for each in (GREEN, RED) if each in printed] == [colour]


@pytest.mark.parametrize("output_state", [State.DAMAGED, State.UNKNOWN])
def test_an_hour_with_damaged_or_unknown_output_is_neither_complete_nor_green(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output_state: State
) -> None:
    damage = (Problem(1, "a file is missing", "tidemark repair demo"),) if output_state is State.DAMAGED else ()
    closed_at = START + timedelta(hours=1)
    hour = Hour(START, 7, 0, WithoutRows(), (1,), (), closed_at, 1, None, output_state, damage)
    assert json.loads(json.dumps(hour, default=json_value))["complete"] is False
    assert hour.state == output_state
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.hours([hour], False)
    printed = capsys.readouterr().out
    assert RED in printed
    assert GREEN not in printed
    assert (f"{output_state}: manifest 1: a file is missing" if damage else output_state.value) in printed
