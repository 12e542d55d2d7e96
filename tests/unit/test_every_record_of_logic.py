"""Any records through all transforms: each is written, dead-lettered, filtered or deduplicated, once."""

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.model.order import Order, SourceOrder, TransformOrder
from tidemark.model.record_schema import INPUT
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.writer import StagedPart

SCHEMA = "n BIGINT, name STRING, tags ARRAY<BIGINT>"
CODE = {
    "logic.py": """
import pyarrow.compute as pc

def odd(batch):
    if 13 in batch["n"].to_pylist():
        raise ValueError("thirteen")
    return batch.filter(pc.equal(pc.bit_wise_and(pc.fill_null(batch["n"], 1), 1), 1))
"""
}
TRANSFORMS = (
    TransformOrder("filter", {"condition": "name <> 'out' OR name IS NULL"}),
    TransformOrder("sql", {"file": "", "text": "SELECT *, CAST(name AS BIGINT) AS number FROM batch WHERE n <> 4"}),
    TransformOrder(
        "python", {"function": "logic:odd", "code": CODE, "columns": None, "limit_s": 60, "max_bytes": 2**30}
    ),
    TransformOrder("dedupe", {"keys": ["n"], "keep": "first", "within_us": None}, whole_partitions=True),
    TransformOrder("explode", {"column": "tags", "keep_empty": False}, fans_out=True),
    TransformOrder("filter", {"condition": "tags <> 3 AND CASE WHEN tags = 5 THEN error('five') ELSE true END"}),
    TransformOrder("select", {"columns": ["n", "tags", "coalesce(number, 0) + 9223372036854775000 AS high"]}),
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(
        lambda n, name, tags: json.dumps({"n": n, "name": name, "tags": tags}).encode(),
        st.one_of(st.none(), st.integers(0, 15), st.integers(-(2**70), 2**70)),
        st.one_of(st.none(), st.sampled_from(["out", "1", "900", "", "x", "\x00"]), st.text(max_size=3)),
        st.one_of(st.none(), st.lists(st.sampled_from([None, 1, 3, 3, 5, 2**62]), max_size=4)),
    ),
)


@dataclass
class Kept:
    """A sink that remembers what it got: offsets and data of rows, offsets and reasons of dead letters."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    letters: list[tuple[Any, ...]] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        names = ("_partition", "_offset", "_row", "n", "tags", "high")
        self.rows += [tuple(row[name] for name in names) for row in rows.to_pylist()]

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self.letters += [(row["_partition"], row["_offset"], row["_reason"]) for row in rows.to_pylist()]

    def close(self) -> list[StagedPart]:
        return []

    def abort(self) -> None: ...


def through(values: list[bytes | None], cuts: list[int]) -> tuple[Kept, list[dict[str, Any]]]:
    rows = [
        {"topic": "t", "partition": at % 2, "offset": at // 2, "value": value, "timestamp": 1_700_000_000_000_000}
        for at, value in enumerate(values)
    ]
    order = Order(
        "demo", 1, 1, (), SourceOrder("kafka", {}), {"format": "json", "schema": SCHEMA},
        {"on_invalid": "dead_letter"}, "dead_letter", (), TRANSFORMS,
    )  # fmt: skip
    ends = sorted({cut % (len(rows) + 1) for cut in cuts} | {0, len(rows)})
    batches = [pa.RecordBatch.from_pylist(rows[start:end], schema=INPUT) for start, end in pairwise(ends)]
    kept = Kept()
    report = BatchProcessor(order).process("0", batches, [kept])
    return kept, report["partitions"]


BATCHES = st.lists(VALUES, max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=4)


@pytest.mark.thorough
@settings(max_examples=draws(24), suppress_health_check=[HealthCheck.too_slow])
@given(BATCHES, CUTS)
def test_each_record_ends_in_one_place_and_the_bounds_of_batches_change_nothing(
    values: list[bytes | None], cuts: list[int]
) -> None:
    ends_in_one_place(values, cuts)


@pytest.mark.exhaustive
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(BATCHES, CUTS)
def test_each_of_many_records_does(values: list[bytes | None], cuts: list[int]) -> None:
    ends_in_one_place(values, cuts)


def ends_in_one_place(values: list[bytes | None], cuts: list[int]) -> None:
    kept, counts = through(values, [])
    for count in counts:
        written = sum(row[0] == count["partition"] for row in kept.rows)
        gone = count["dead_lettered"] + count["filtered"] + count["deduplicated"]
        assert count["read"] + count["exploded"] == written + gone, "I12 accounted"
        records = {row[1] for row in kept.rows if row[0] == count["partition"]}
        assert count["exploded"] == written - len(records)
    assert sum(count["dead_lettered"] for count in counts) == len(kept.letters)
    places = [*{row[:2] for row in kept.rows}, *(letter[:2] for letter in kept.letters)]
    assert len(set(places)) == len(places), "in one place, once"
    assert len({row[:3] for row in kept.rows}) == len(kept.rows), "each row has a number of its own in its record"
    again, counts_again = through(values, cuts)
    assert sorted(again.rows, key=repr) == sorted(kept.rows, key=repr)
    assert sorted(again.letters) == sorted(kept.letters)
    assert counts_again == counts
