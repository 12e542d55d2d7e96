"""What writing and publishing files rely on in this Arrow, Parquet and the file system below."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs


def test_sorting_is_stable_with_several_keys_and_nulls() -> None:
    keys = pa.table({"topic": ["b", "a", "b", "a"] * 2_000, "hour": [None, 1, None, 1] * 2_000})
    order = pc.sort_indices(keys, [("topic", "ascending"), ("hour", "ascending")]).to_pylist()
    assert order == [*range(1, 8_000, 2), *range(0, 8_000, 2)]


def test_groups_come_in_no_order_to_rely_on_but_their_counts_are_right() -> None:
    values = [number * 7919 % 101 for number in range(10_000)]
    counted = pa.table({"one": values}).group_by(["one"], use_threads=False).aggregate([([], "count_all")])
    assert {row["one"]: row["count_all"] for row in counted.to_pylist()} == {
        value: values.count(value) for value in range(101)
    }


def test_null_is_a_group_of_its_own() -> None:
    counted = pa.table({"one": pa.array([None, 1, None], pa.int64())}).group_by(["one"]).aggregate([([], "count_all")])
    assert sorted(map(str, counted.to_pylist())) == ["{'one': 1, 'count_all': 1}", "{'one': None, 'count_all': 2}"]


@pytest.mark.parametrize(
    ("unit", "floor"),
    [
        ("hour", datetime(1969, 12, 31, 23, tzinfo=UTC)),
        ("day", datetime(1969, 12, 31, tzinfo=UTC)),
        ("month", datetime(1969, 12, 1, tzinfo=UTC)),
        ("year", datetime(1969, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_before_1970_are_floored_downwards(unit: str, floor: datetime) -> None:
    when = pa.array([datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert pc.floor_temporal(when, unit=unit).to_pylist() == [floor]


def test_a_taken_piece_is_a_copy_and_a_slice_is_not() -> None:
    rows = pa.table({"one": pa.array(range(100_000), pa.int64())})
    assert rows.take(pa.array([1, 2, 3])).get_total_buffer_size() < 1000
    assert rows.slice(1, 3).get_total_buffer_size() > 700_000, "why groups are taken: a slice keeps the whole batch"


def test_a_footer_counts_the_rows_of_all_row_groups(tmp_path: Path) -> None:
    path = str(tmp_path / "one.parquet")
    pq.write_table(pa.table({"one": range(1000)}), path, filesystem=fs.LocalFileSystem(), row_group_size=300)
    metadata = pq.read_metadata(path, filesystem=fs.LocalFileSystem())
    assert (metadata.num_rows, metadata.num_row_groups) == (1000, 4)


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_a_file_that_was_cut_anywhere_cannot_be_read(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"one": range(1000)}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept) if kept == 0.5 else int(kept)])
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(path)


def test_rows_come_back_in_the_order_they_were_written(tmp_path: Path) -> None:
    numbers = [number * 7919 % 10_007 for number in range(10_000)]
    pq.write_table(pa.table({"one": numbers}), tmp_path / "one.parquet", row_group_size=1000)
    assert pq.read_table(tmp_path / "one.parquet")["one"].to_pylist() == numbers


def test_folders_that_look_like_keys_add_columns_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "day=1" / "one.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"one": [1]}), path)
    assert pq.read_table(tmp_path).column_names == ["one", "day"]
    assert pq.read_table(tmp_path, partitioning=None).column_names == ["one"]


def test_a_move_replaces_and_a_link_refuses(tmp_path: Path) -> None:
    """`put_if_absent` is a link: of two who claim a lake at once one is told."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    new.write_text("new")
    with pytest.raises(FileExistsError):
        os.link(new, old)
    fs.LocalFileSystem().move(str(new), str(old))
    assert old.read_text() == "new"
    assert not new.exists()
