"""What the page in Airflow draws and links, without Airflow."""

import pytest

from tidemark.airflow.page.lanes import NARROWEST, WIDTH, bars
from tidemark.airflow.page.render import log_path
from tidemark.views import LaneView, PartView


def lane(start: int, end: int, *parts: PartView) -> LaneView:
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
    )


def test_a_lane_is_done_from_its_anchor_on_but_for_its_parts_and_open_up_to_the_end_of_the_source() -> None:
    drawn = bars(lane(100, 200, PartView(150, 200, "failed", 7, 2)), last_stable=300)
    assert [(bar.state, bar.x, bar.width, bar.words) for bar in drawn] == [
        ("done", 0, 500, "done [100, 200)"),
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


def test_an_attempt_of_a_task_links_to_its_log_and_another_one_to_nothing() -> None:
    actor = "airflow demo manual__2026-01-01T10:00:00+00:00 process[3] try 2"
    run = "/dags/demo/runs/manual__2026-01-01T10%3A00%3A00%2B00%3A00"
    assert log_path(actor) == f"{run}/tasks/process/mapped/3?try_number=2"
    assert log_path("airflow demo a run plan try 1") == "/dags/demo/runs/a%20run/tasks/plan?try_number=1"
    assert log_path("python somebody") is None
