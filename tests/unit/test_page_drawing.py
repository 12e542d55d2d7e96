"""What the page in Airflow draws and links, without Airflow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemark.airflow.addresses import TaskTry
from tidemark.airflow.page.calendar import calendar_hour, calendar_of
from tidemark.airflow.page.lanes import NARROWEST, WIDTH, bars, letter_bars
from tidemark.airflow.page.timeline import HEIGHT, LOWEST, drawn
from tidemark.model.manifest import WithoutRows
from tidemark.operations.hours import Hour
from tidemark.operations.timeline import PERIODS, Period, Step, Timeline
from tidemark.views.lanes import LaneView, LettersPartView, PartView


def lane(start: int, end: int, *parts: PartView, dead_letters: tuple[LettersPartView, ...] = ()) -> LaneView:
    return LaneView(
        "orders",
        "id",
        0,
        1,
        retired=False,
        blocked=None,
        cut=False,
        start=start,
        end=end,
        last_record_at=None,
        parts=parts,
        dead_letters=dead_letters,
    )


def test_a_lane_is_done_from_its_anchor_on_but_for_its_parts_and_open_up_to_the_end_of_the_source() -> None:
    drawn = bars(lane(100, 200, PartView(150, 200, "failed", 7, 2)), last_stable=300)
    assert [(bar.state, bar.x, bar.width, bar.words) for bar in drawn] == [
        ("done", 0, 500, "ok [100, 200)"),
        ("failed", 250, 250, "failed [150, 200), manifest 7 and 1 more"),
        ("not planned", 500, 500, "not planned [200, 300)"),
    ]


@pytest.mark.parametrize("start", [0, 500_000_000, 999_999_999])
def test_a_single_offset_among_a_billion_is_seen_and_stays_within_the_lane(start: int) -> None:
    *_, part = bars(lane(0, 1_000_000_000, PartView(start, start + 1, "lost", None, 0)))
    assert part.width == NARROWEST
    assert 0 <= part.x <= WIDTH - part.width


def test_a_lane_without_offsets_draws_nothing() -> None:
    assert bars(lane(5, 5), last_stable=5) == []


def test_dead_letters_are_drawn_on_the_scale_of_their_lane_and_together_where_they_are_near() -> None:
    parts = LettersPartView(0, 100, 2, 3), LettersPartView(500, 501, 1, 7), LettersPartView(503, 510, 4, 9)
    drawn = letter_bars(lane(0, 1000, dead_letters=parts), last_stable=2000)
    assert [(bar.x, bar.width, bar.words) for bar in drawn] == [
        (0, 50, "2 dead letters in [0, 100), manifest 3"),
        (250, NARROWEST, "5 dead letters in [500, 510), manifest 7 and 1 more"),
    ]


def test_the_dead_letters_of_ten_thousand_manifests_are_a_few_bars() -> None:
    many = tuple(LettersPartView(number * 100, number * 100 + 100, 1, number) for number in range(10_000))
    [bar] = letter_bars(lane(0, 1_000_000, dead_letters=many))
    assert (bar.width, bar.records, bar.manifests) == (WIDTH, 10_000, 10_000)


def test_an_attempt_of_a_task_links_to_its_log_and_another_one_to_nothing() -> None:
    actor = "airflow demo manual__2026-01-01T10:00:00+00:00 process[3] try 2"
    run = "/dags/demo/runs/manual__2026-01-01T10%3A00%3A00%2B00%3A00"
    assert log_path(actor) == f"{run}/tasks/process/mapped/3?try_number=2"
    assert log_path("airflow demo a run plan try 1") == "/dags/demo/runs/a%20run/tasks/plan?try_number=1"
    in_a_group = "airflow nightly a copy.process[0] try 1"
    assert log_path(in_a_group) == "/dags/nightly/runs/a/tasks/copy.process/mapped/0?try_number=1"
    assert log_path("python somebody") is None


def log_path(actor: str) -> str | None:
    task = TaskTry.of(actor)
    return task and task.log_path


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def hours(**states: dict[str, int]) -> Timeline:
    """The 48 hours up to noon, with the manifests of those that are named by their number: ``_47`` is the newest."""
    periods = []
    for number in range(PERIODS):
        start = NOON - (PERIODS - number) * timedelta(hours=1)
        manifests = states.get(f"_{number}")
        runs = 0 if manifests is None else 1
        undone = None if not manifests or set(manifests) == {"done"} else number
        read = 1000 if manifests and "done" in manifests else 0
        periods.append(Period(start, start + timedelta(hours=1), runs, manifests or {}, undone, read))
    return Timeline(Step.HOUR, tuple(periods), 0, None)


def test_a_column_has_the_states_of_its_manifests_by_their_share_and_words_that_say_the_same() -> None:
    drawing = drawn(hours(_46={"done": 3, "failed": 1}, _47={"done": 2}), NOON)
    before, failed, done = drawing.columns[45:]
    assert (before.blocks, before.words) == ((), "03-01 09:00: no run")
    assert failed.words == "03-01 10:00: 3 ok, 1 failed, 1,000 records"
    assert [(block.state, block.x, block.y, block.height) for block in failed.blocks] == [
        ("done", 920, 12, 36),
        ("failed", 920, 0, 12),
    ]
    assert [(block.state, block.y, block.height) for block in done.blocks] == [("done", 0, HEIGHT)]
    assert drawing.undone == [failed]
    assert drawing.words == (
        "48 hours from 02-27 12:00 to 03-01 11:00 UTC: 1 with failed manifests, 1 all ok, 46 without a run"
    )


def test_one_failed_manifest_among_a_thousand_is_seen_and_a_column_is_never_too_high() -> None:
    every = {"done": 9999, "planned": 1, "running": 1, "abandoned": 1, "failed": 1, "blocked": 1}
    *_, column = drawn(hours(_47=every), NOON).columns
    assert column.worst == "blocked"
    assert [block.state for block in column.blocks] == list(every)
    assert {block.height for block in column.blocks[1:]} == {LOWEST}
    assert sum(block.height for block in column.blocks) == pytest.approx(HEIGHT)
    assert all(block.y >= 0 for block in column.blocks)


def test_a_run_with_nothing_new_is_told_from_no_run() -> None:
    drawing = drawn(hours(_47={}), NOON)
    assert [(column.worst, bool(column.blocks)) for column in drawing.columns[46:]] == [
        ("no run", False),
        ("nothing new", True),
    ]
    assert drawing.labels == ("02-27 12:00", "02-28 00:00", "02-28 12:00", "03-01 00:00", "03-01 12:00")


def test_windows_follow_one_another_and_the_newest_ends_now() -> None:
    view = hours()
    newest, older = drawn(view, NOON), drawn(view, NOON + timedelta(hours=50))
    assert (newest.older, newest.newer) == (NOON - timedelta(hours=48), None)
    assert older.newer == NOON + timedelta(hours=48)
    assert drawn(view, NOON + timedelta(hours=3)).newer == NOON + timedelta(hours=3)


@pytest.mark.parametrize("step", Step)
def test_a_moment_between_two_periods_belongs_to_the_earlier_one(step: Step) -> None:
    end = step.end(NOON)
    assert step.end(end) == end
    assert step.end(end + timedelta(microseconds=1)) == end + step.length
    assert NOON <= end < NOON + step.length
    assert step is not Step.WEEK or end.isoweekday() == 1


def event_hour(start: datetime, *, given_up: tuple[str, ...] = (), **values: Any) -> Hour:
    """Complete, with rows, unless the values say otherwise."""
    known = {"rows": 9, "late": 0, "without_rows": WithoutRows(), "complete_at": NOON, "revision": 1}
    return Hour(start=start, manifests=(), given_up=given_up, waits_for=None, **{**known, **values})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, "complete"),
        ({"rows": 0}, "empty"),
        ({"revision": 2}, "revised"),
        ({"revision": 2, "late": 3}, "late"),
        ({"complete_at": None, "late": 3}, "open"),
        ({"complete_at": None, "without_rows": WithoutRows(dead_lettered=1)}, "dead letters"),
        ({"without_rows": WithoutRows(dead_lettered=1, lost=1)}, "lacking"),
        ({"given_up": ("lake",)}, "lacking"),
        ({"without_rows": WithoutRows(filtered=9)}, "complete"),
    ],
)
def test_a_cell_of_the_calendar_shows_the_worst_of_its_hour(values: dict[str, Any], kind: str) -> None:
    assert calendar_hour(event_hour(NOON, **values)).kind == kind


def test_the_words_of_a_cell_say_all_that_is_known_of_its_hour() -> None:
    without = WithoutRows(dead_lettered=2, filtered=1)
    cell = calendar_hour(event_hour(NOON, rows=1_200, late=3, revision=2, without_rows=without))
    assert cell.words == (
        "2026-03-01 12:00: complete with dead letters, 1,200 rows, 3 late, 2 dead letters, 1 filtered, revision 2"
    )


def test_a_calendar_has_its_newest_days_and_names_what_is_open_before_them() -> None:
    days = [event_hour(NOON - timedelta(days=number)) for number in range(20)]
    old = event_hour(NOON - timedelta(days=30), complete_at=None), event_hour(NOON - timedelta(days=31))
    view = calendar_of([*days, *old])
    assert [day.day.isoformat() for day in view.days][::13] == ["2026-03-01", "2026-02-16"]
    assert [number for number, hour in enumerate(view.days[0].hours) if hour] == [12]
    assert [hour.words for hour in view.still_open] == ["2026-01-30 12:00: open, 9 rows"]
    assert view.kinds == ["complete"]
    assert calendar_of([]).days == ()
