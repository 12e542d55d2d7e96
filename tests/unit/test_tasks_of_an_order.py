"""How the ranges of an order are shared among tasks of Spark."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import TASK_RANGES, Order, SourceOrder

SPANS = st.lists(st.integers(1, 3_000), min_size=1, max_size=120)


def order(spans: Sequence[int], task_records: int) -> Order:
    ranges = tuple(Range(TopicPartition("t", "id", at), 5, 5 + span) for at, span in enumerate(spans))
    return Order("demo", 1, 1, ranges, SourceOrder("kafka", {}), {}, {}, "fail", (), task_records=task_records)


@given(SPANS, st.integers(1, 2_000))
@example([999] + [1] * 49, 1_000)
@example([1_000] * 3 + [10] * 100, 1_000)
@example([1] * 60, 1_000)
def test_each_range_is_in_one_task_and_no_task_has_too_much(spans: list[int], task_records: int) -> None:
    this = order(spans, task_records)
    assert sorted(covered for task in this.tasks for covered in task) == sorted(this.read)
    for task in this.tasks:
        assert 1 <= len(task) <= TASK_RANGES
        assert list(task) == sorted(task)
        assert len(task) == 1 or all(covered.span < task_records for covered in task)
        assert len(task) == 1 or sum(covered.span for covered in task) < 2 * task_records
    sizes = [sum(covered.span for covered in task) for task in this.tasks]
    assert sizes == sorted(sizes, reverse=True), "Spark begins with the largest"
    assert this.tasks == order(spans, task_records).tasks == Order.from_json(this.to_json()).tasks


@given(SPANS)
def test_small_ranges_share_as_few_tasks_as_they_may(spans: list[int]) -> None:
    tasks = order(spans, sum(spans) + 1).tasks
    assert len(tasks) == -(-len(spans) // TASK_RANGES)


def test_a_task_for_each_range_is_what_one_record_per_task_gives() -> None:
    this = order([3, 1, 2], 1)
    assert [[covered.at.partition for covered in task] for task in this.tasks] == [[0], [2], [1]]


def test_what_is_read_before_a_range_counts_too() -> None:
    this = order([10, 10], 12)
    place = this.ranges[0].at
    wider = Order(**{**vars(this), "before": (Range(place, 0, 5),)})
    assert [len(task) for task in this.tasks] == [2]
    assert [[covered.at.partition for covered in task] for task in wider.tasks] == [[0], [1]]
