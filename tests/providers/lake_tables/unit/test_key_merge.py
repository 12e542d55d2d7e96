"""The merge of a table of current rows, against a table in plain Python that takes one row after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.providers.lake_tables.merge import KeyedRows, Merge

COLUMNS = pa.schema(
    {
        "id": pa.int64(), "name": pa.string(), "seen": pa.int64(), "_log_generation": pa.int32(), "_topic": pa.string(),
        "_topic_partition": pa.int32(), "_offset": pa.int64(), "_attempt": pa.int32(),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row with a key (id, name) and a version."""

    id: int
    seen: int
    offset: int
    attempt: int = 1
    generation: int = 0
    topic: str = "t"
    partition: int = 0
    name: str = "a"

    @property
    def key(self) -> tuple[int, str]:
        return self.id, self.name

    @property
    def record(self) -> tuple[int, str, int, int]:
        return self.generation, self.topic, self.partition, self.offset

    def version(self, *, ordered: bool) -> tuple[Any, ...]:
        return (*((self.seen,) if ordered else ()), *self.record, self.attempt)


def as_rows(file: int, rows: Sequence[Row]) -> KeyedRows:
    content = [(row.id, row.name, row.seen, *row.record, row.attempt) for row in rows]
    columns = list(zip(*content, strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, COLUMNS.types, strict=True)]
    return KeyedRows(file, pa.array(range(len(rows)), pa.int64()), pa.RecordBatch.from_arrays(arrays, schema=COLUMNS))


@dataclass
class LakeTable:
    """Rows in files, of which some are deleted by their place; merged by the code under test."""

    ordered: bool
    files: list[list[Row]] = field(default_factory=list)
    deleted: set[tuple[int, int]] = field(default_factory=set)

    def merge(self, staged: Sequence[Sequence[Row]]) -> tuple[int, int]:
        standing = [as_rows(number, file) for number, file in enumerate(self.files)]
        with Merge(COLUMNS, ["id", "name"], "seen" if self.ordered else None) as merge:
            merge.stage(as_rows(number, file) for number, file in enumerate(staged))
            merge.touch(standing)
            dead = sorted(self.deleted)
            merge.drop_deleted(pa.table({"file": [file for file, _ in dead], "position": [at for _, at in dead]}))
            merged = merge.merged()
        kept = {(row["file"], row["position"]) for row in merged.kept.to_pylist()}
        dropped = {(row["file"], row["position"]) for row in merged.dropped.to_pylist()}
        places = {(file, at) for file, rows in enumerate(staged) for at in range(len(rows))}
        assert (kept | dropped, kept & dropped) == (places, set())
        self.deleted |= {(row["file"], row["position"]) for row in merged.replaced.to_pylist()}
        first = len(self.files)
        self.files += [list(rows) for rows in staged]
        self.deleted |= {(first + file, at) for file, at in dropped}
        assert len(kept) + merged.superseded + merged.stale == len(places)
        return merged.superseded, merged.stale

    @property
    def rows(self) -> dict[tuple[int, str], Row]:
        living = [
            row for number, file in enumerate(self.files) for at, row in enumerate(file)
            if (number, at) not in self.deleted
        ]  # fmt: skip
        by_key = {row.key: row for row in living}
        assert len(by_key) == len(living), "a key has two rows"
        return by_key


@dataclass
class PlainTable:
    """What PostgreSQL's statement ``merge`` says, row by row."""

    ordered: bool
    rows: dict[tuple[int, str], Row] = field(default_factory=dict)

    def merge(self, staged: Sequence[Sequence[Row]]) -> tuple[int, int]:
        rows = [row for file in staged for row in file]
        newest: dict[tuple[int, str], Row] = {}
        for row in rows:
            other = newest.get(row.key)
            if other is None or other.version(ordered=self.ordered) < row.version(ordered=self.ordered):
                newest[row.key] = row
        merged = 0
        for key, row in newest.items():
            standing = self.rows.get(key)
            if standing is None or self._is_older(standing, row) or self._is_made_again(standing, rows):
                self.rows[key] = row
                merged += 1
        return len(rows) - len(newest), len(newest) - merged

    def _is_older(self, standing: Row, row: Row) -> bool:
        if standing.record == row.record:
            return standing.attempt < row.attempt
        return standing.version(ordered=self.ordered) < row.version(ordered=self.ordered)

    def _is_made_again(self, standing: Row, rows: Sequence[Row]) -> bool:
        """Also when another record of the key is the newest now."""
        return any(
            (row.key, row.record) == (standing.key, standing.record) and standing.attempt < row.attempt for row in rows
        )


IDS, SEEN, NAMES = st.integers(0, 3), st.integers(0, 3), st.sampled_from(["a", "B", "é", ""])


@st.composite
def attempts(draw: st.DrawFn) -> list[list[list[Row]]]:
    """Attempts, each with the rows of its files. Each attempt makes rows of some records of its manifest, with the key
    and the version that its code gives them."""
    made = []
    for manifest in range(draw(st.integers(1, 4))):
        generation, topic = draw(st.integers(0, 1)), draw(st.sampled_from(["s", "t"]))
        for attempt in range(1, draw(st.integers(1, 3)) + 1):
            offsets = draw(st.lists(st.integers(manifest * 4, manifest * 4 + 3), unique=True))
            rows = [
                Row(draw(IDS), draw(SEEN), offset, attempt, generation, topic, offset % 2, draw(NAMES))
                for offset in offsets
            ]
            cut = draw(st.integers(0, len(rows)))
            made.append([rows[:cut], rows[cut:]])
    return made


@pytest.mark.thorough
@settings(max_examples=draws(100))
@given(made=attempts(), ordered=st.booleans(), data=st.data())
def test_any_sequence_of_attempts_gives_the_rows_and_the_counts_of_postgresql(
    made: list[list[list[Row]]], ordered: bool, data: st.DataObject
) -> None:
    lake, plain = LakeTable(ordered), PlainTable(ordered)
    for staged in data.draw(st.lists(st.sampled_from(made), max_size=8)):
        assert lake.merge(staged) == plain.merge(staged)
        assert lake.rows == plain.rows


@pytest.mark.thorough
@settings(max_examples=draws(50))
@given(made=attempts(), ordered=st.booleans(), data=st.data())
def test_the_table_is_the_same_in_whatever_order_and_however_often_manifests_are_merged(
    made: list[list[list[Row]]], ordered: bool, data: st.DataObject
) -> None:
    """Of attempts that give a record the same key and version."""
    first: dict[tuple[int, str, int, int], Row] = {}
    same_code = [
        [[replace(first.setdefault(row.record, row), attempt=row.attempt) for row in file] for file in staged]
        for staged in made
    ]
    expected = LakeTable(ordered)
    for staged in same_code:
        expected.merge(staged)
    lake = LakeTable(ordered)
    again = data.draw(st.lists(st.sampled_from(same_code), max_size=3))
    for staged in data.draw(st.permutations([*same_code, *again])):
        lake.merge(staged)
    assert lake.rows == expected.rows


def test_two_rows_that_another_program_gave_one_key_become_one() -> None:
    lake = LakeTable(ordered=False, files=[[Row(1, 0, 3), Row(2, 0, 1)], [Row(1, 0, 4)]])
    lake.merge([[Row(1, 0, 2)]])
    assert lake.rows == {(1, "a"): Row(1, 0, 4), (2, "a"): Row(2, 0, 1)}


def test_a_row_that_another_program_put_without_a_version_is_older_than_any() -> None:
    ours = as_rows(0, [Row(1, 0, 0)])
    foreign = ours.columns.set_column(5, COLUMNS.field("_topic_partition"), pa.nulls(1, pa.int32()))
    foreign = foreign.set_column(6, COLUMNS.field("_offset"), pa.nulls(1, pa.int64()))
    foreign = foreign.set_column(2, COLUMNS.field("seen"), pa.array([9]))
    with Merge(COLUMNS, ["id", "name"], "seen") as merge:
        merge.stage([ours]).touch([KeyedRows(0, ours.positions, foreign)])
        assert merge.merged().replaced.to_pylist() == [{"file": 0, "position": 0}]


@pytest.mark.parametrize(
    ("standing", "lacking"),
    [
        ([], 1),
        ([Row(1, 0, 5, attempt=1)], 0),
        ([Row(1, 0, 6, attempt=1)], 0),
        ([Row(1, 0, 4, attempt=9)], 1),
        ([Row(2, 0, 9, attempt=9)], 1),
    ],
)
def test_a_key_is_lacking_without_a_row_of_its_version_or_a_newer_one(standing: list[Row], lacking: int) -> None:
    with Merge(COLUMNS, ["id", "name"], None) as merge:
        merge.stage([as_rows(0, [Row(1, 0, 5, attempt=2)])]).touch([as_rows(0, standing)])
        assert merge.lacking() == lacking


def test_an_order_by_that_is_not_a_number_puts_it_above_all() -> None:
    """As in PostgreSQL."""
    columns = COLUMNS.set(2, pa.field("seen", pa.float64()))

    def seen(value: float, offset: int) -> KeyedRows:
        rows = as_rows(0, [Row(1, 0, offset)])
        return KeyedRows(0, rows.positions, rows.columns.set_column(2, columns.field("seen"), pa.array([value])))

    for standing, staged, stale in ((1e9, float("nan"), 0), (float("nan"), 1e9, 1)):
        with Merge(columns, ["id", "name"], "seen") as merge:
            merge.stage([seen(staged, 2)]).touch([seen(standing, 1)])
            assert merge.merged().stale == stale
