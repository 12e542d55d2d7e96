"""An hour that is complete is green only when nothing that was read is missing in it."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.cli import output
from tidemark.model.manifest import WithoutRows
from tidemark.operations.hours import Hour

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
GREEN, RED = "\x1b[32m", "\x1b[31m"


@pytest.mark.parametrize(
    ("without_rows", "given_up", "lacks", "colour"),
    [
        (WithoutRows(), (), "", GREEN),
        (WithoutRows(filtered=2, deduplicated=1), (), "", GREEN),
        (WithoutRows(dead_lettered=1), (), " with dead letters", RED),
        (WithoutRows(dead_lettered=1, lost=5), (), " with losses", RED),
        (WithoutRows(lost=5), ("lake", "table"), ", given up in lake, table", RED),
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
