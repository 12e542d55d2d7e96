"""What a plan promises, as tables of inputs and outputs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tidemark.errors import DataLost, PlanRefused, TopicChanged
from tidemark.model.offsets import Range, TopicPartition
from tidemark.planner import Chain, Limits, OnDataLoss, PartitionState, Plan, Refused, SpanStarts, plan

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
WIDE = Limits(max_records=10**9, max_bytes=10**15, max_slices=1000)


def at(partition: int = 0, topic_id: str = "A") -> TopicPartition:
    return TopicPartition("flights", topic_id, partition)


def kafka(
    partition: int = 0,
    start: int = 0,
    stable: int = 100,
    end: int | None = None,
    begin: int | None = None,
    cut: tuple[int, datetime] | None = None,
    topic_id: str = "A",
) -> PartitionState:
    return PartitionState(
        at(partition, topic_id), start, stable, stable if end is None else end, start if begin is None else begin, cut
    )


def chain(end: int, partition: int = 0, blocked: str | None = None) -> Chain:
    return Chain(partition + 1, at(partition), 1, 0, end, blocked)


def planned(
    partitions: list[PartitionState],
    chains: list[Chain],
    limits: Limits = WIDE,
    on_data_loss: OnDataLoss = OnDataLoss.FAIL,
    ended: dict[TopicPartition, int] | None = None,
    span_starts: SpanStarts = SpanStarts(),  # noqa: B008 - it is frozen
) -> Plan:
    return plan(
        "flights", partitions, chains, limits, on_data_loss, NOW, first_plan=not chains, ended=ended or {},
        span_starts=span_starts,
    )  # fmt: skip


def ranges(new_plan: Plan) -> list[tuple[int, int, int]]:
    return [(range_.at.partition, range_.start, range_.end) for part in new_plan.slices for range_ in part]


@pytest.mark.parametrize(
    ("partition", "end", "expected"),
    [
        (kafka(stable=100), 40, [(0, 40, 100)]),
        (kafka(stable=100, cut=(70, NOW)), 40, [(0, 40, 70)]),
        (kafka(stable=60, end=100, cut=(70, NOW)), 40, [(0, 40, 60)]),  # an open transaction caps the cut
        (kafka(stable=60, end=100), 40, [(0, 40, 60)]),  # never the high watermark
        (kafka(stable=100, cut=(30, NOW)), 40, []),  # a cut behind the chain's end plans nothing
        (kafka(stable=100), 100, []),
        (kafka(stable=100, cut=(70, NOW + timedelta(minutes=59))), 40, [(0, 40, 70)]),
    ],
)
def test_a_range_goes_from_the_chains_end_to_the_cut(
    partition: PartitionState, end: int, expected: list[tuple[int, int, int]]
) -> None:
    assert ranges(planned([partition], [chain(end)])) == expected


def test_a_record_stamped_in_the_far_future_does_not_cut() -> None:
    new_plan = planned([kafka(stable=100, cut=(70, NOW + timedelta(days=400)))], [chain(40)])
    assert ranges(new_plan) == [(0, 40, 100)]
    assert "offset 70 has the timestamp 2025-02-04" in new_plan.notes[0]


def test_the_first_plan_anchors_every_partition_also_empty_ones() -> None:
    new_plan = planned([kafka(0, stable=100, begin=10), kafka(1, stable=0)], [])
    assert new_plan.anchors == ((at(0), 10), (at(1), 0))
    assert ranges(new_plan) == [(0, 10, 100)]
    assert new_plan.lost == ()


def test_a_partition_that_appears_later_is_anchored_at_0_and_what_retention_took_of_it_is_lost() -> None:
    new_plan = planned([kafka(0), kafka(1, start=30, begin=100)], [chain(100)])
    assert new_plan.anchors == ((at(1), 0),)
    assert new_plan.lost == (Range(at(1), 0, 30),)
    assert ranges(new_plan) == [(1, 30, 100)]


def test_a_first_start_that_retention_took_fails_by_default_and_names_a_remedy_that_helps() -> None:
    with pytest.raises(DataLost) as refused:
        planned([kafka(start=60, begin=40)], [])
    assert "[40, 60) of flights-0" in str(refused.value)
    assert "on_data_loss: record in the pipeline file" in refused.value.next_step
    assert "accept loss" not in refused.value.next_step, "there is no chain to accept it on"


def test_a_first_start_that_retention_took_is_recorded_as_lost_when_the_pipeline_says_so() -> None:
    new_plan = planned([kafka(start=60, begin=40)], [], on_data_loss=OnDataLoss.RECORD)
    assert (new_plan.anchors, new_plan.lost, ranges(new_plan)) == (
        ((at(), 40),),
        (Range(at(), 40, 60),),
        [(0, 60, 100)],
    )


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        (kafka(stable=60, end=100, begin=61), "plan again when it has ended"),
        (kafka(stable=60, end=100, begin=100), "plan again when it has ended"),
        (kafka(stable=60, end=100, begin=101), "correct starting_offsets"),
        (kafka(stable=0, begin=1), "correct starting_offsets"),
    ],
)
def test_a_first_start_past_the_last_stable_offset_is_refused(partition: PartitionState, words: str) -> None:
    with pytest.raises(PlanRefused, match=f"points to offset {partition.start_offset} of flights-0") as refused:
        planned([partition], [])
    assert words in refused.value.next_step


def test_a_first_start_at_the_last_stable_offset_reads_what_comes_then() -> None:
    new_plan = planned([kafka(stable=60, end=100, begin=60)], [])
    assert (new_plan.anchors, ranges(new_plan)) == (((at(), 60),), [])


def test_a_start_means_nothing_once_the_pipeline_was_planned() -> None:
    new_plan = planned([kafka(0, begin=1000), kafka(1, begin=1000)], [chain(40)])
    assert ranges(new_plan) == [(0, 40, 100), (1, 0, 100)]


def test_retention_past_the_chains_end_fails_by_default_and_names_the_offsets() -> None:
    with pytest.raises(DataLost) as refused:
        planned([kafka(start=60)], [chain(40)])
    assert "[40, 60) of flights-0" in str(refused.value)
    assert "on_data_loss: record" in refused.value.next_step


def test_retention_past_the_chains_end_is_recorded_as_lost_when_the_pipeline_says_so() -> None:
    new_plan = planned([kafka(start=60)], [chain(40)], on_data_loss=OnDataLoss.RECORD)
    assert new_plan.lost == (Range(at(), 40, 60),)
    assert ranges(new_plan) == [(0, 60, 100)]


@pytest.mark.parametrize(
    ("partitions", "chains", "words"),
    [
        ([kafka(topic_id="B")], [chain(40)], "was recreated, or is of another cluster: its id was A and is B now"),
        ([], [chain(40)], "no longer exists"),
        ([kafka(0)], [chain(40, 0), chain(40, 1)], "partition 1 of topic flights no longer exists"),
        ([kafka(stable=30, end=30)], [chain(40)], "truncated: it ends at 30, the chain at 40"),
    ],
)
def test_a_topic_that_is_not_what_the_chain_was_started_on_is_refused_and_the_refusal_kept(
    partitions: list[PartitionState], chains: list[Chain], words: str
) -> None:
    with pytest.raises(Refused) as refused:
        planned(partitions, chains)
    assert words in str(refused.value.cause)
    assert isinstance(refused.value.cause, TopicChanged)
    assert {each.chain_id for each in refused.value.refusals} <= {each.id for each in chains}
    assert refused.value.refusals


@pytest.mark.parametrize(
    ("end", "diverged", "generation_end", "words"),
    [
        (30, None, 30, "was truncated: it ends at 30, the chain at 50"),
        (30, 25, 25, "it ends at 30, the chain at 50 and has grown again: from offset 25 on it holds other records"),
        (40, 40, 40, "was truncated: it ends at 40, the chain at 50"),
        (40, 45, 40, "was truncated: it ends at 40, the chain at 50"),
        (50, 30, 30, "was truncated and has grown again: from offset 30 on it holds other records"),
        (90, 30, 30, "was truncated and has grown again: from offset 30 on it holds other records"),
    ],
)
def test_a_log_that_was_cut_is_refused_from_the_first_offset_on_that_may_differ(
    end: int, diverged: int | None, generation_end: int, words: str
) -> None:
    with pytest.raises(Refused) as refused:
        planned([replace(kafka(stable=end), diverged=diverged)], [chain(50)])
    assert words in refused.value.cause.what
    assert [refusal.generation_end for refusal in refused.value.refusals] == [generation_end]


def test_a_refusal_stands_although_kafka_looks_well_again() -> None:
    with pytest.raises(TopicChanged, match="nobody has decided yet: it was truncated"):
        planned([kafka()], [chain(40, blocked="it was truncated")])


def test_slices_join_to_the_ranges_and_stay_below_the_limit() -> None:
    partitions = [kafka(0, stable=1000), kafka(1, stable=10), kafka(2, stable=333)]
    new_plan = planned(partitions, [], Limits(max_records=100, max_bytes=10**15, max_slices=1000))
    assert len(new_plan.slices) == 14
    # With one offset of rounding per partition.
    assert all(sum(range_.span for range_ in part) <= 102 for part in new_plan.slices)
    for partition, end in ((0, 1000), (1, 10), (2, 333)):
        pieces = [(start, stop) for where, start, stop in ranges(new_plan) if where == partition]
        assert pieces[0][0] == 0
        assert pieces[-1][1] == end
        assert all(a[1] == b[0] for a, b in pairwise(pieces))


def test_bytes_limit_a_slice_by_the_measured_record_size() -> None:
    limits = Limits(max_records=10**9, max_bytes=1000, max_slices=1000, record_bytes=50.0)
    assert len(planned([kafka(stable=100)], [], limits).slices) == 5


def test_more_slices_than_allowed_end_the_plan_before_the_cut() -> None:
    new_plan = planned([kafka(stable=1000)], [], Limits(max_records=100, max_bytes=10**15, max_slices=3))
    assert (len(new_plan.slices), new_plan.reached) == (3, False)
    assert ranges(new_plan) == [(0, 0, 100), (0, 100, 200), (0, 200, 300)]
    assert new_plan.ends == ((at(), 300),), "there it ends, and what it stands for"


def test_a_run_ends_at_its_cut_also_where_the_chain_goes_on() -> None:
    new_plan = planned([kafka(0, cut=(30, NOW)), kafka(1), kafka(2)], [chain(40), chain(100, 1), chain(70, 2)])
    assert new_plan.ends == ((at(0), 30), (at(1), 100), (at(2), 100))


@pytest.mark.parametrize(
    ("partition", "by_time", "reached"),
    [
        (kafka(stable=60, end=100, cut=(70, NOW)), True, False),  # records of before the cut may be behind it
        (kafka(stable=60, end=100), True, False),
        (kafka(stable=60, end=100, cut=(40, NOW)), True, True),  # the transaction began after the cut
        (kafka(stable=100), True, True),  # nothing is stamped at or after the cut: all of it was before
        (kafka(stable=60, end=100), False, True),  # up to what is there is reached, whatever is open
        (kafka(stable=60, end=100, cut=(40, NOW + timedelta(days=400))), True, False),  # no cut: the clock is mad
    ],
)
def test_a_cut_by_time_that_an_open_transaction_holds_back_is_not_reached(
    partition: PartitionState, by_time: bool, reached: bool
) -> None:
    assert planned([replace(partition, by_time=by_time)], [chain(0)]).reached is reached


@pytest.mark.parametrize(
    ("partition", "seen"),
    [
        (kafka(stable=100), True),
        (kafka(stable=60, end=100), False),  # open when it was looked at, whatever is seen later
        (kafka(stable=60, end=100, cut=(60, NOW)), True),  # all before the cut may be read
        (kafka(stable=60, end=100, cut=(61, NOW)), False),
        (kafka(stable=60, cut=(61, NOW)), False),  # offset 60 came when the ends were known, and before the cut
        (kafka(stable=100, cut=(20, NOW + timedelta(days=30))), True),
        (kafka(stable=60, end=100, cut=(20, NOW + timedelta(days=30))), False),
    ],
)
def test_a_plan_stands_for_a_time_only_where_all_before_it_could_be_read(partition: PartitionState, seen: bool) -> None:
    assert planned([partition, kafka(1)], [chain(0), chain(0, 1)]).seen is seen


def test_a_topic_that_comes_back_is_read_on_from_where_its_chain_ended() -> None:
    new_plan = planned([kafka(0), kafka(1)], [chain(100, partition=1)], ended={at(0): 40})
    assert (new_plan.anchors, ranges(new_plan)) == (((at(0), 40),), [(0, 40, 100)])
    assert "the topic is back with its old id" in new_plan.notes[0]


def test_a_topic_that_comes_back_shorter_is_read_from_its_end_on_and_what_it_lost_meanwhile_is_refused() -> None:
    others = [chain(100, partition=1)]
    assert planned([kafka(0, stable=30), kafka(1)], others, ended={at(0): 40}).anchors == ((at(0), 30),)
    with pytest.raises(DataLost, match="took offsets \\[40, 60\\)"):
        planned([kafka(0, start=60), kafka(1)], others, ended={at(0): 40})


def test_a_topic_that_comes_back_cut_is_read_from_where_its_log_holds_other_records_on() -> None:
    cut = replace(kafka(0, stable=30), diverged=25)
    assert planned([cut, kafka(1)], [chain(100, partition=1)], ended={at(0): 40}).anchors == ((at(0), 25),)


def spans(new_plan: Plan) -> list[list[tuple[int, int, int]]]:
    return [[(range_.at.partition, range_.start, range_.end) for range_ in part] for part in new_plan.slices]


TWO = [kafka(0, stable=100), kafka(1, stable=50)]
HOURS = ({at(0): 30, at(1): 0}, {at(0): 60, at(1): 20}, {at(0): 60, at(1): 20}, {at(0): 90})


def test_slices_end_where_a_span_of_time_ends_and_no_offset_is_left_out() -> None:
    new_plan = planned(TWO, [], span_starts=SpanStarts(HOURS))
    assert spans(new_plan) == [[(0, 0, 30)], [(0, 30, 60), (1, 0, 20)], [(0, 60, 90), (1, 20, 50)], [(0, 90, 100)]]
    assert new_plan.reached


def test_a_span_of_many_records_is_cut_by_their_number_too() -> None:
    new_plan = planned(TWO, [], replace(WIDE, max_records=20), span_starts=SpanStarts(HOURS[:1]))
    assert spans(new_plan)[:2] == [[(0, 0, 15)], [(0, 15, 30)]]
    assert sum(end - start for part in spans(new_plan) for _, start, end in part) == 150
    assert all(sum(end - start for _, start, end in part) <= 22 for part in spans(new_plan))


def test_what_lies_behind_marks_that_are_not_complete_is_for_the_next_plan() -> None:
    new_plan = planned(TWO, [], span_starts=SpanStarts(HOURS[:2], complete=False))
    assert spans(new_plan) == [[(0, 0, 30)], [(0, 30, 60), (1, 0, 20)]]
    assert not new_plan.reached
    assert dict(new_plan.ends) == {at(0): 60, at(1): 20}
    behind = planned(TWO, [chain(60), chain(20, 1)], span_starts=SpanStarts(HOURS[1:2], complete=False))
    assert (behind.slices, behind.reached) == ((), False)


def test_marks_outside_of_a_range_do_not_move_its_ends() -> None:
    span_starts = SpanStarts(({at(0): 5, at(1): 900}, {at(0): 900, at(1): 900}))
    new_plan = planned(TWO, [chain(40), chain(45, 1)], span_starts=span_starts)
    assert spans(new_plan) == [[(1, 45, 50)], [(0, 40, 100)]]
