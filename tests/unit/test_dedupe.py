"""``dedupe`` with ``keep`` and ``within``, in the one pass: which row of a key stays, however the records are cut."""

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import Blocked, ConfigurationError
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SourceOrder, TransformOrder
from tidemark.model.receipt import receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.writer import StagedPart
from tidemark.transforms.sequence import Transforms

START = 1_700_000_000
MINUTE = 60


class Kept:
    """A sink that remembers offsets."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.letters: list[int] = []

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        self.rows += rows.column("_offset").to_pylist()

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self.letters += rows.column("_offset").to_pylist()

    def close(self) -> list[StagedPart]:
        return []

    def abort(self) -> None: ...


def dedupe(*, keep: str = "first", within: int | None = None) -> TransformOrder:
    """``within`` in minutes."""
    within_us = None if within is None else within * MINUTE * 1_000_000
    return TransformOrder("dedupe", {"keys": ["n"], "keep": keep, "within_us": within_us}, whole_partitions=True)


def records(*keys_at: tuple[Any, int]) -> list[dict[str, Any]]:
    """A record for each (key, minute); a text as key cannot be decoded, and -1 is filtered in most tests."""
    return [
        {
            "topic": "t", "partition": 0, "offset": at, "value": json.dumps({"n": key}).encode(),
            "timestamp": (START + minute * MINUTE) * 1_000_000,
        }
        for at, (key, minute) in enumerate(keys_at)
    ]  # fmt: skip


def order(*transforms: TransformOrder, start: int = 0, end: int = 100, first: int | None = None) -> Order:
    """The order for ``[start, end)``, which looks back to ``first``."""
    place = TopicPartition("t", "id", 0)
    before = () if first is None else (Range(place, first, start),)
    return Order(
        "demo", 1, 1, (Range(place, start, end),), SourceOrder("kafka", {}), {"format": "json", "schema": "n BIGINT"},
        {"on_invalid": "dead_letter"}, "dead_letter", (), transforms, before=before,
    )  # fmt: skip


def through(rows: list[dict[str, Any]], work: Order, cuts: tuple[int, ...] = ()) -> tuple[Kept, dict[str, Any]]:
    rows = [row for row in rows if work.read[0].start <= row["offset"] < work.read[0].end]
    ends = sorted({cut % (len(rows) + 1) for cut in cuts} | {0, len(rows)})
    batches = [pa.RecordBatch.from_pylist(rows[a:b], schema=INPUT) for a, b in pairwise(ends)]
    kept = Kept()
    report = BatchProcessor(work).process("0", batches, [kept])
    return kept, report["partitions"][0]


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 4, 5)])
def test_the_last_row_of_a_key_stays_where_it_stands(cuts: tuple[int, ...]) -> None:
    rows = records((1, 0), (2, 1), (1, 2), (None, 3), ("x", 4), (1, 5), (None, 6), (3, 7))
    kept, counts = through(rows, order(dedupe(keep="last")), cuts)
    assert (kept.rows, kept.letters, counts["deduplicated"]) == ([1, 3, 5, 6, 7], [4], 2)


def test_a_row_that_was_filtered_is_not_the_last() -> None:
    kept, counts = through(
        records((1, 0), (2, 0), (1, 9)),
        order(TransformOrder("filter", {"condition": "_offset < 2"}), dedupe(keep="last")),
    )
    assert (kept.rows, counts["filtered"], counts["deduplicated"]) == ([0, 1], 1, 0)


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 4, 5)])
def test_within_a_key_counts_again_when_it_has_not_come_for_so_long(cuts: tuple[int, ...]) -> None:
    rows = records((1, 0), (1, 10), (1, 20), (2, 20), (1, 31), (1, 41))
    kept, counts = through(rows, order(dedupe(within=10)), cuts)
    assert (kept.rows, counts["deduplicated"]) == ([0, 3, 4], 3)


def test_records_before_the_range_are_seen_and_make_nothing_else() -> None:
    rows = records(("x", 0), (1, 1), (-1, 1), (2, 2), (1, 3), (-1, 4), (3, 5))
    logic = (TransformOrder("filter", {"condition": "_offset <> 2"}), dedupe(within=10))
    kept, counts = through(rows, order(*logic, start=4, end=7, first=0))
    assert (kept.rows, kept.letters) == ([5, 6], []), "1 came before; -1 was filtered then, so it did not"
    assert (counts["read"], counts["first"], counts["last"], counts["decoded"]) == (3, 4, 6, 3)
    assert (counts["filtered"], counts["deduplicated"], counts["dead_lettered"]) == (0, 1, 0)


KEYS_AT = st.lists(st.tuples(st.sampled_from([1, 2, 3, None, "x"]), st.integers(0, 30)), min_size=1, max_size=30)
CUTS = st.lists(st.integers(1, 29), max_size=4).map(lambda cuts: tuple(sorted(set(cuts))))


@settings(max_examples=8)
@given(KEYS_AT, CUTS, CUTS)
def test_manifests_that_look_back_to_the_beginning_make_together_what_a_single_manifest_makes(
    keys_at: list[tuple[Any, int]], manifests: tuple[int, ...], batches: tuple[int, ...]
) -> None:
    rows = records(*keys_at)
    whole = through(rows, order(dedupe(within=5), end=len(rows)))[0]
    ends = [0, *(end for end in manifests if end < len(rows)), len(rows)]
    parts = [
        through(rows, order(dedupe(within=5), start=start, end=end, first=0 if start else None), batches)[0]
        for start, end in reversed(list(pairwise(ends)))  # any order of processing
    ]
    assert sorted(row for part in parts for row in part.rows) == whole.rows
    expected: list[int] = []
    for at, (key, minute) in enumerate(keys_at):
        earlier = [when for other, when in keys_at[:at] if other == key]
        if key != "x" and (key is None or not earlier or max(earlier) < minute - 5):
            expected.append(at)
    assert whole.rows == expected


@pytest.mark.parametrize("memory", [dedupe(within=5), dedupe(keep="last")])
def test_a_dedupe_with_a_memory_is_the_only_one(memory: TransformOrder) -> None:
    schema = pa.schema([("n", pa.int64())])
    Transforms([memory], schema)
    for transforms in ([memory, dedupe()], [dedupe(), memory]):
        with pytest.raises(ConfigurationError, match=r"it must be the only dedupe"):
            Transforms(transforms, schema)


def test_a_partition_of_which_another_task_has_the_records_before_it_is_refused() -> None:
    rows = records((1, 0), (1, 1))
    work = order(dedupe(within=5), start=1, end=2, first=0)
    reports = [
        BatchProcessor(work).process(str(task), [pa.RecordBatch.from_pylist([row], schema=INPUT)], [Kept()])
        for task, row in enumerate(rows)
    ]
    with pytest.raises(Blocked, match=r"2 tasks of Spark read one partition"):
        receipt_of_tasks(work, reports)


def test_an_order_keeps_the_ranges_before_its_ranges_as_json() -> None:
    work = order(dedupe(within=5), start=4, end=7, first=2)
    assert Order.from_json(work.to_json()) == work
    assert [(covered.start, covered.end) for covered in work.read] == [(2, 7)]
