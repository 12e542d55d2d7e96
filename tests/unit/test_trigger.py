"""``trigger``: when a run is due by the offsets that wait and by the time since the last plan."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.pipeline.trigger import POLL, Trigger

S, M, H = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TRIGGER = Trigger(lag=100, at_most_every=M, at_least_every=H)


@pytest.mark.parametrize(
    ("lag", "planned_ago", "fired_ago", "unanswered", "due"),
    [
        (99, 2 * M, None, 0, False), (100, 2 * M, None, 0, True), (10**12, 2 * M, None, 0, True),
        (100, M - S, None, 0, False), (100, M, None, 0, True),
        (0, H - S, None, 0, False), (0, H, None, 0, True), (1, H, None, 0, True),
        (0, None, None, 0, True), (None, None, None, 0, True),
        (None, 2 * M, None, 0, False), (None, H, None, 0, True),
        (100, 9 * M, M - S, 1, False), (100, 9 * M, M, 1, True),
        (100, 9 * M, 2 * M - S, 2, False), (100, 9 * M, 2 * M, 2, True),
        (100, 9 * H, H - S, 999, False), (100, 9 * H, H, 999, True),
        (0, None, M - S, 1, False), (99, 9 * M, M, 1, False),
    ],
)  # fmt: skip
def test_a_run_is_due_by_what_waits_or_by_the_time_and_not_too_soon_after_a_plan_or_a_start(
    lag: int | None, planned_ago: timedelta | None, fired_ago: timedelta | None, unanswered: int, due: bool
) -> None:
    assert TRIGGER.is_due(lag, planned_ago, fired_ago, unanswered) is due


durations = st.integers(10, 600).map(lambda seconds: timedelta(seconds=seconds))


@given(
    st.integers(1, 50),
    durations,
    durations,
    st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=200),
    st.lists(st.booleans(), max_size=50),
)
def test_whatever_arrives_runs_are_never_too_close_nor_too_far_apart(
    lag: int, shortest: timedelta, more: timedelta, arrivals: list[int | None], answered: list[bool]
) -> None:
    """A look each ten seconds; None: the source did not answer. Of the starts, some are followed by no plan."""
    trigger = Trigger(lag=lag, at_most_every=shortest, at_least_every=shortest + more)
    waiting, planned_at, fired_at, unanswered, now = 0, timedelta(), timedelta(), 0, timedelta()
    follows = iter(answered)
    for arrived in arrivals:
        now += POLL
        waiting += arrived or 0
        known = None if arrived is None else waiting
        due = trigger.is_due(known, now - planned_at, now - fired_at, unanswered)
        if due:
            assert now - planned_at >= trigger.at_most_every
            assert (known or 0) >= lag or now - planned_at >= trigger.at_least_every
            assert not unanswered or now - fired_at >= trigger.at_most_every
            fired_at, unanswered = now, unanswered + 1
            if next(follows, True):
                waiting, planned_at, unanswered = 0, now, 0
        elif not unanswered:
            assert now - planned_at < trigger.at_least_every
            assert (known or 0) < lag or now - planned_at < trigger.at_most_every
        else:
            assert now - fired_at < trigger.at_least_every or (known or 0) < lag
