"""Digests: of rows, whatever their order and wherever they are cut."""

import math
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.digest import SHORT, Digest, row_digest, row_hashes

ROWS = pa.table(
    {
        "flag": pa.array([True, False, None]),
        "small": pa.array([-1, 0, None], pa.int8()),
        "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "number": pa.array([0.5, math.nan, None], pa.float64()),
        "half": pa.array([0.5, -0.0, None], pa.float32()),
        "text": pa.array(["", "é", None], pa.string()),
        "bytes": pa.array([b"", b"\xff", None], pa.binary()),
        "day": pa.array([date(2013, 1, 1), date(1, 1, 1), None], pa.date32()),
        "when": pa.array([datetime(2013, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "money": pa.array([Decimal("2.50"), Decimal("-0.01"), None], pa.decimal128(10, 2)),
        "list": pa.array([["a", None], [], None], pa.list_(pa.string())),
        "struct": pa.array(
            [{"x": 1, "y": None}, {"x": None, "y": 2.5}, None], pa.struct({"x": "int32", "y": "float64"})
        ),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)
GOLDEN = "00000000000000035152a66b7efbb4e6b2be8d832db58622"
GOLDEN_COLUMNS = {
    "flag": "0000000000000003aa466dbb76d2c02b0f0b0c5273f5b719",
    "small": "0000000000000003ebcda14f9fde8918e0c127caffd1a542",
    "long": "0000000000000003b229f6ebf299dfe0afb0a63b5cadb62f",
    "number": "0000000000000003b2c26287206e7b57e7f899fbaf30a7e9",
    "half": "00000000000000035b059963050a878501d5923adf535bfb",
    "text": "000000000000000364e42da1fab5b49981de3734ff15a871",
    "bytes": "0000000000000003d5cc468a89a127e5a1554b03a3168c02",
    "day": "0000000000000003249fe88ccc32b98a791ec864a9ce063f",
    "when": "00000000000000037734f1dd50162b1bb4bef1ff52330adf",
    "money": "0000000000000003c42f7e7e14f4f30b15a9863cb804045a",
    "list": "0000000000000003bd5a8c82da38ef8bb134ff978b01b352",
    "struct": "000000000000000342dc951b57a53745f7812b6f501a673e",
    "map": "000000000000000327d8978d839d733529f631a9627bcb6f",
}


def test_the_digest_of_known_rows_never_changes() -> None:
    assert str(row_digest(ROWS)) == GOLDEN


@pytest.mark.parametrize("name", ROWS.column_names)
def test_the_digest_of_each_type_never_changes(name: str) -> None:
    assert str(row_digest(ROWS.select([name]))) == GOLDEN_COLUMNS[name]


def test_no_rows_have_the_zero_digest() -> None:
    assert row_digest(ROWS.slice(0, 0)) == Digest.zero() == Digest()


def test_text_of_a_digest_parses_back() -> None:
    digest = row_digest(ROWS)
    assert Digest.parse(str(digest)) == digest
    for wrong in ("", "12", "g" * 48):
        with pytest.raises(ValueError, match=r"48 hex|invalid literal"):
            Digest.parse(wrong)


cells = st.tuples(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.floats()),
)


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.int64(), pa.string(), pa.float64())
    return pa.table({name: pa.array(column, kind) for name, column, kind in zip("abc", columns, types, strict=True)})


@given(st.lists(cells, max_size=20), st.randoms(), st.integers(1, 7))
def test_order_and_cuts_do_not_matter(rows: list[tuple[object, ...]], random: object, size: int) -> None:
    whole = row_digest(table(rows))
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = [shuffled[at : at + size] for at in range(0, len(shuffled), size)]
    assert sum((row_digest(table(part)) for part in parts), Digest.zero()) == whole
    assert row_digest(pa.concat_tables([table(part) for part in parts] or [table([])])) == whole


@given(st.lists(cells, min_size=1, max_size=5), st.lists(cells, min_size=1, max_size=5))
def test_different_rows_have_different_digests(
    first: list[tuple[object, ...]], second: list[tuple[object, ...]]
) -> None:
    def canonical(rows: list[tuple[object, ...]]) -> list[str]:
        return sorted(
            repr(tuple(0.0 if cell == 0.0 and isinstance(cell, float) else cell for cell in row)) for row in rows
        )

    assert (row_digest(table(first)) == row_digest(table(second))) == (canonical(first) == canonical(second))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_texts_of_every_length_differ_whatever_is_beside_them(kind: pa.DataType) -> None:
    lengths = [0, 1, 7, 8, 9, 15, 16, 17, SHORT - 1, SHORT, SHORT + 1, 3 * SHORT]
    texts = [fill * length for length in lengths for fill in "a\0"] + ["a" * 7 + "\0", "\0" * 8 + "a", None]
    values = pa.array(texts, pa.string()).cast(kind)
    together = row_hashes(pa.record_batch({"x": values}))
    alone = [row_hashes(pa.record_batch({"x": values[at : at + 1]})) for at in range(len(values))]
    for stream in (0, 1):
        assert together[stream].to_pylist() == [digests[stream][0].as_py() for digests in alone]
        assert len(set(together[stream].to_pylist())) == len(set(texts))


def test_a_row_that_comes_twice_counts_twice() -> None:
    once, twice, thrice = (row_digest(table([(1, "a", 1.0)] * times)) for times in (1, 2, 3))
    assert len({(digest.sum_a, digest.sum_b) for digest in (once, twice, thrice, Digest())}) == 4


def test_cells_swapped_between_rows_are_other_rows() -> None:
    assert row_digest(table([(1, "a", 0.0), (2, "b", 0.0)])) != row_digest(table([(1, "b", 0.0), (2, "a", 0.0)]))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([None], pa.int64()), pa.array([0], pa.int64())),
        (pa.array([None], pa.string()), pa.array([""], pa.string())),
        (pa.array([""], pa.string()), pa.array([b""], pa.binary())),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
        (pa.array([[None]], pa.list_(pa.string())), pa.array([[]], pa.list_(pa.string()))),
        (pa.array([["ab"]], pa.list_(pa.string())), pa.array([["a", "b"]], pa.list_(pa.string()))),
    ],
)
def test_values_that_look_alike_differ(first: pa.Array, second: pa.Array) -> None:
    assert row_digest(pa.table({"x": first})) != row_digest(pa.table({"x": second}))


def test_position_and_name_of_a_column_matter() -> None:
    ab = pa.table({"a": [1], "b": [2]})
    assert len({row_digest(rows) for rows in (ab, ab.select(["b", "a"]), ab.rename_columns(["a", "c"]))}) == 3


def test_zeros_and_nans_have_one_form() -> None:
    odd_nan = pa.array([0xFFF8000000000001], pa.uint64()).view(pa.float64())
    for first, second in ((pa.array([0.0]), pa.array([-0.0])), (pa.array([math.nan]), odd_nan)):
        assert row_digest(pa.table({"x": first})) == row_digest(pa.table({"x": second}))
        nested = [pa.table({"x": pa.ListArray.from_arrays([0, 1], values)}) for values in (first, second)]
        assert row_digest(nested[0]) == row_digest(nested[1])


def test_how_values_are_held_in_memory_does_not_matter(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    assert row_digest(pq.read_table(tmp_path / "rows.parquet")) == row_digest(ROWS)
    coded = ROWS.set_column(5, "text", ROWS.column("text").dictionary_encode())
    wide = ROWS.set_column(5, "text", ROWS.column("text").cast(pa.large_string()))
    assert row_digest(coded) == row_digest(wide) == row_digest(ROWS)
    padded = pa.concat_tables([ROWS, ROWS, ROWS]).combine_chunks()
    assert row_digest(padded.slice(3, 3)) == row_digest(ROWS)


@pytest.mark.parametrize("nested", [False, True])
def test_large_values_are_in_memory_once_beside_those_of_arrow(nested: bool) -> None:
    texts = ["x" * 1_000_000] * 20
    values = pa.array([[text] for text in texts] if nested else texts)
    tracemalloc.start()
    row_hashes(pa.record_batch([values], names=["value"]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * values.nbytes
