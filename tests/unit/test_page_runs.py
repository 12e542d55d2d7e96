"""The newest runs of a pipeline as the page draws them, and the library that draws."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest

from tidemark.airflow.page.runs import (
    COUNTABLE,
    LagPoint,
    LagWindow,
    RunFigures,
    countable,
    drawn_runs,
    figures_of,
    lag_line,
    strip_words,
)
from tidemark.airflow.page.state_words import ManifestWords
from tidemark.model.problem import Problem
from tidemark.operations.known_damage import Damage
from tidemark.operations.status import State

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NO_FINDINGS = ManifestWords({}, {}, Damage({}))


def run(number: int, *states: str, lag: int | None = None) -> dict[str, Any]:
    """A run of manifests in these states, as the database has it."""
    ids = list(range(10 * number, 10 * number + len(states)))
    undone = [manifest for manifest, state in zip(ids, states, strict=True) if state != "done"]
    return {
        "id": number, "planned_at": NOON, "lag": lag, "ids": ids, "states": [*states],
        "first_undone": next(iter(undone), None), "done_at": NOON + timedelta(seconds=90),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("states", "word", "sign", "manifest"),
    [
        ((), "nothing new", "·", None),
        (("done", "done"), "ok", "✓", 10),
        (("done", "planned"), "waiting", "○", 11),
        (("done", "planned", "running"), "working", "▶", 12),
        (("running", "abandoned"), "failed", "✕", 11),
        (("failed", "blocked", "done"), "blocked", "✕", 11),
    ],
)
def test_a_run_has_the_worst_word_of_its_manifests_and_leads_to_the_first_with_it(
    states: tuple[str, ...], word: str, sign: str, manifest: int | None
) -> None:
    [drawn] = drawn_runs([run(1, *states)], NO_FINDINGS)
    assert (drawn.word, drawn.sign, drawn.manifest_id, drawn.manifests) == (word, sign, manifest, len(states))


def test_a_run_is_never_ok_when_its_manifest_is_damaged_or_nobody_could_look() -> None:
    rows = [run(1, "done"), run(2, "done"), run(3, "failed")]
    findings = ManifestWords(
        {10: State.LATE}, {30: NOON}, Damage({20: Problem(20, "a file is missing", "")}, unnamed=True)
    )
    assert [drawn.word for drawn in drawn_runs(rows, findings)] == ["late", "damaged", "retrying"]
    [unknown] = drawn_runs([run(4, "done")], findings)
    assert (unknown.word, unknown.sign) == ("unknown", "?")


def test_a_strip_is_told_in_one_sentence_the_worst_first() -> None:
    rows = [run(1, "done"), run(2), run(3, "done"), run(4, "failed")]
    assert strip_words(drawn_runs(rows, NO_FINDINGS)) == "the last 4 runs: 1 failed, 2 ok, 1 nothing new"
    assert strip_words(drawn_runs(rows[:1], NO_FINDINGS)) == "the last 1 run: 1 ok"


def test_figures_of_a_run_are_known_as_far_as_it_is_done_and_its_files_were_counted() -> None:
    rows = [run(1, "done"), run(2, "done", "failed"), run(3), run(4, "done")]
    assert figures_of(rows, {1: 500, 2: 20, 4: 0}, {1: (3, 1_000), 2: (1, 7)}) == {
        1: RunFigures(500, 90, 3, 333),
        2: RunFigures(20, None, 1, 7),
        3: RunFigures(None, None, None, None),
        4: RunFigures(0, 90, None, None),
    }
    assert figures_of([], {}, {}) == {}
    assert countable([run(1, *["done"] * COUNTABLE), run(2, *["done"] * (COUNTABLE + 1)), run(3)]) == [1, 3]


@pytest.mark.parametrize("lags", [[], [5], [None], [None, 5]])
def test_fewer_than_two_lags_are_no_line(lags: list[int | None]) -> None:
    assert lag_line([run(number, lag=lag) for number, lag in enumerate(lags)]) is None


def test_a_line_of_lags_is_drawn_to_its_own_scale_without_those_that_nobody_knows() -> None:
    line = lag_line([run(number, lag=lag) for number, lag in enumerate([1_000, None, 4_000, 0])])
    assert line is not None
    assert line.points == "0,15 50,0 100,20"
    assert line.words == "lag when the last 3 runs were planned, in offsets: 1,000 first, at most 4,000, 0 last"
    flat = lag_line([run(number, lag=0) for number in range(20)])
    assert flat is not None
    assert {point.partition(",")[2] for point in flat.points.split()} == {"20"}


def test_an_age_is_never_below_zero_and_may_be_unknown() -> None:
    hour = timedelta(hours=1)
    assert LagPoint.of(NOON, 7, NOON - hour) == LagPoint(NOON, 7, 3_600)
    assert LagPoint.of(NOON, 7, NOON + hour).age_s == 0
    assert LagPoint.of(NOON, None, None) == LagPoint(NOON, None, None)


@pytest.mark.parametrize("window", LagWindow)
def test_a_window_has_a_few_points_for_each_hour_of_a_day_and_one_for_each_of_a_week(window: LagWindow) -> None:
    assert window.length / window.step in (144, 168)


def test_the_library_is_the_file_that_its_maker_has_published() -> None:
    folder = files("tidemark.airflow.page") / "uplot"
    origin = (folder / "ORIGIN.txt").read_text()
    hashes = {name: number for number, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", origin, re.MULTILINE)}
    assert {*hashes, "LICENSE.txt", "ORIGIN.txt"} == {path.name for path in folder.iterdir()}
    for name, number in hashes.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == number, name
    assert "MIT" in (folder / "LICENSE.txt").read_text()
