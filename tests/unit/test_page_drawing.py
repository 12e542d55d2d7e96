"""What the page in Airflow draws and links, without Airflow."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemark.airflow.addresses import TaskTry
from tidemark.airflow.page.calendar import calendar_hour, calendar_of
from tidemark.airflow.page.lanes import CELLS, SHOWN, TAKEN, coverage, covered_lane
from tidemark.airflow.page.legend import legend
from tidemark.airflow.page.runs import DrawnRun
from tidemark.airflow.page.timeline import HEIGHT, LOWEST, drawn
from tidemark.model.manifest import WithoutRows
from tidemark.model.problem import Problem
from tidemark.operations.hours import Hour
from tidemark.operations.known_damage import Damage
from tidemark.operations.lag import Lag
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


def log(log_start: int, planned: int, last_stable: int, **more: Any) -> Lag:
    values = {"log_end": last_stable, "unpublished": 0, "open_transaction": None}
    return Lag("orders", 0, log_start=log_start, planned=planned, last_stable=last_stable, **(values | more))


def test_a_lane_is_done_from_its_anchor_on_but_for_its_parts_and_open_up_to_the_end_of_the_source() -> None:
    covered = covered_lane(lane(100, 200, PartView(150, 200, "failed", 7, 2, 50)), log(0, 200, 300))
    assert [(bar.state, bar.offsets, bar.words) for bar in covered.bars] == [
        ("done", 50, "ok 50 in [100, 200)"),
        ("failed", 50, "failed [150, 200), manifest 7 and 1 more"),
        ("not planned", 100, "not planned [200, 300)"),
    ]
    assert covered.cells == (("done", CELLS // 4), ("failed", CELLS // 4), ("not planned", CELLS // 2))
    assert covered.words == "orders-0: 50 failed, 100 not planned, 50 ok"


@pytest.mark.parametrize("start", [0, 500_000_000, 999_999_999])
def test_a_single_offset_among_a_billion_is_seen_and_stays_within_the_lane(start: int) -> None:
    covered = covered_lane(lane(0, 1_000_000_000, PartView(start, start + 1, "lost", None, 0, 1)))
    assert ("lost", 1) in covered.cells
    assert sum(count for _, count in covered.cells) == CELLS


def test_a_lane_without_offsets_draws_nothing() -> None:
    covered = covered_lane(lane(5, 5), log(0, 5, 5))
    assert (covered.bars, covered.cells, covered.complete) == ((), (), True)


def test_what_retention_took_before_it_was_read_is_told_apart_from_what_was_planned() -> None:
    covered = covered_lane(lane(0, 100, PartView(60, 100, "planned", 7, 2, 40)), log(80, 100, 130))
    assert [(bar.state, bar.start, bar.end, bar.offsets) for bar in covered.bars] == [
        ("done", 0, 100, 60),
        (TAKEN, 60, 80, 20),
        ("planned", 80, 100, 20),
        ("not planned", 100, 130, 30),
    ]
    beyond = covered_lane(lane(0, 100), log(120, 100, 130))
    assert [bar.words for bar in beyond.bars] == [
        "ok [0, 100)", "taken by retention [100, 120)", "not planned [120, 130)"
    ]  # fmt: skip
    assert not beyond.complete
    all_of_it = covered_lane(lane(0, 100, PartView(60, 100, "failed", 7, 1, 40)), log(100, 100, 100))
    assert [bar.state for bar in all_of_it.bars] == ["done", TAKEN]
    under_work = covered_lane(lane(0, 100, PartView(60, 100, "running", 7, 1, 40)), log(100, 100, 100))
    assert [bar.state for bar in under_work.bars] == ["done", "running"], "its process may have read them"


def test_parts_that_were_put_together_say_how_many_offsets_are_in_their_state() -> None:
    [_, part] = covered_lane(lane(0, 100, PartView(10, 20, "failed", 3, 2, 4))).bars
    assert part.words == "failed 4 in [10, 20), manifest 3 and 1 more"


def test_a_damaged_part_is_no_ok_offset_and_is_named_before_what_only_waits() -> None:
    covered = covered_lane(lane(0, 10, PartView(0, 2, "planned", 4, 1, 2), PartView(4, 8, "damaged", 7, 1, 4)))
    assert covered.words == "orders-0: 4 damaged, 2 waiting, 4 ok"
    assert [bar.words for bar in covered.undone] == ["damaged [4, 8), manifest 7", "waiting [0, 2), manifest 4"]
    assert not covered.complete
    unsure = covered_lane(lane(0, 10, PartView(4, 8, "damaged", 7, 1, 4), PartView(0, 10, "unknown", None, 0, 6)))
    assert unsure.words == "orders-0: 4 damaged, 6 unknown", "nothing is ok while nobody knows"
    assert unsure.cells == (("unknown", 48), ("damaged", 48), ("unknown", 24))


def test_complete_partitions_are_folded_and_of_the_others_the_worst_are_shown_first() -> None:
    failed, planned = PartView(0, 5, "failed", 1, 1, 5), PartView(5, 10, "planned", 2, 1, 5)
    lanes = [
        lane(0, 10),
        lane(0, 10, planned),
        lane(0, 10, failed, planned),
        replace(lane(0, 10), blocked="its log was cut"),
        lane(0, 10, dead_letters=(LettersPartView(0, 5, 1, 1),)),
    ]
    covered = coverage(lanes, {})
    assert (covered.partitions, covered.complete, covered.more) == (5, 1, 0)
    assert [each.lane for each in covered.shown] == [lanes[3], lanes[2], lanes[1], lanes[4]]
    assert [each.lane for each in covered.folded] == [lanes[0]]
    many = coverage([lane(0, 10, failed)] * 1000, {})
    assert (len(many.shown), many.more, many.complete) == (SHOWN, 1000 - SHOWN, 0)


def test_what_is_not_planned_yet_makes_no_partition_incomplete_but_an_open_transaction_and_another_log_do() -> None:
    assert covered_lane(lane(0, 10), log(0, 10, 30)).complete
    assert not covered_lane(lane(0, 10), log(0, 10, 30, open_transaction="since 10:00")).complete
    assert not covered_lane(lane(0, 10), log(0, 10, 30, changed="it is another topic")).complete


def test_dead_letters_are_drawn_on_the_scale_of_their_lane_and_together_where_they_are_near() -> None:
    parts = LettersPartView(0, 100, 2, 3), LettersPartView(500, 501, 1, 7), LettersPartView(503, 510, 4, 9)
    covered = covered_lane(lane(0, 1000, dead_letters=parts), log(0, 1000, 2000))
    assert [bar.words for bar in covered.letters] == [
        "2 dead letters in [0, 100), manifest 3",
        "5 dead letters in [500, 510), manifest 7 and 1 more",
    ]
    shares = dict(covered.letter_cells)
    assert tuple(shares) == (*range(CELLS // 20), CELLS // 4)
    assert shares[0] == 0.02, "2 of 100 records are dead letters, so the foot of the cells of all 100 is low"
    assert shares[CELLS // 4] == 1, "one of the manifests there has nothing else"


def test_the_dead_letters_of_ten_thousand_manifests_are_a_few_bars() -> None:
    many = tuple(LettersPartView(number * 100, number * 100 + 100, 1, number) for number in range(10_000))
    covered = covered_lane(lane(0, 1_000_000, dead_letters=many))
    assert len(covered.letters) <= CELLS
    assert sum(bar.records for bar in covered.letters) == sum(bar.manifests for bar in covered.letters) == 10_000
    assert covered.letter_cells == tuple((cell, 0.01) for cell in range(CELLS))


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
    return Hour(start=start, given_up=given_up, waits_for=None, **{"manifests": (), **known, **values})


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


def test_an_hour_with_a_damaged_manifest_is_damaged_whatever_else_is_known_of_it() -> None:
    damage = Damage({4: Problem(4, "a file is missing", "tidemark replay")}, unnamed=True)
    output, problems = damage.output((3, 4)), damage.problems((3, 4))
    assert [problem.manifest_id for problem in problems] == [4]
    lacking = WithoutRows(dead_lettered=1, lost=1)
    hour = event_hour(NOON, manifests=(3, 4), without_rows=lacking, output=output, damage=problems)
    assert not hour.complete, "though the ledger has closed it"
    cell = calendar_hour(hour)
    assert (cell.kind, cell.sign) == ("damaged", "✕")
    assert cell.words.startswith("2026-03-01 12:00: damaged, ")
    [day] = calendar_of([event_hour(NOON, manifests=(3,), without_rows=lacking)]).days
    assert [cell.kind for cell in day.hours if cell] == ["lacking"]


def test_an_hour_of_which_an_audit_may_have_found_more_than_it_kept_is_unknown_and_never_complete() -> None:
    damage = Damage({}, unnamed=True)
    cell = calendar_hour(event_hour(NOON, manifests=(3,), output=damage.output((3,))))
    assert (cell.kind, cell.sign) == ("unknown", "?")
    assert cell.words.startswith("2026-03-01 12:00: unknown, ")
    assert damage.output(()) == "ok", "no manifest has rows of it"


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
    assert [hour.words for hour in view.incomplete] == ["2026-01-30 12:00: open, 9 rows"]
    assert calendar_of([]).days == ()


def test_a_legend_has_what_the_pictures_show_and_nothing_else() -> None:
    runs = [DrawnRun(number, NOON, word, 1, number) for number, word in enumerate(("ok", "retrying"))]
    quiet = drawn(hours(_47={"done": 1}), NOON), coverage([lane(0, 10)], {}), calendar_of([event_hour(NOON)])
    assert [(entry.words, entry.sign, entry.fill, entry.mark) for entry in legend(runs, *quiet)] == [
        (("ok", "complete"), "✓", "done", ""),
        (("retrying",), "↻", "", ""),
    ]
    lost = lane(0, 10, PartView(2, 4, "lost", None, 0, 2), dead_letters=(LettersPartView(5, 6, 1, 1),))
    worse = (
        drawn(hours(_46={"blocked": 1}, _47={}), NOON),
        coverage([lost], {("orders", 0): log(0, 10, 30)}),
        calendar_of([event_hour(NOON, given_up=("lake",)), event_hour(NOON - timedelta(days=1), rows=0)]),
    )
    assert [(entry.words, entry.sign, entry.fill, entry.mark) for entry in legend([], *worse)] == [
        (("ok",), "", "done", ""),
        (("blocked", "with losses"), "✕", "failed", ""),
        (("dead letters",), "", "", "dead"),
        (("nothing new", "no rows"), "·", "open", ""),
        (("not planned",), "", "", "not-planned"),
        (("lost",), "", "", "taken"),
    ]
    assert legend([], drawn(hours(), NOON), coverage([], {}), calendar_of([])) == []
