"""Which rows lie in which file, whatever Arrow's hash tables make of the names; which columns have a dictionary."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.sinks.formats.repetition import repeating_columns
from tidemark.sinks.staging.grouping import grouped

HOURS = [datetime(2024, 3, 1, number * 7 % 5, tzinfo=UTC) + timedelta(minutes=number) for number in range(20)]


def test_every_row_is_in_the_group_of_its_own_topic_partition_and_period() -> None:
    when = pa.array(HOURS, pa.timestamp("us", "UTC"))
    period = pc.floor_temporal(when, unit="hour")
    for number in range(400):  # Arrow numbers groups by hash, so some names come in another order than they are sorted
        rows = pa.record_batch(
            {
                "_topic": pa.array([f"t{number:x}a{at % 2}" for at in range(20)]),
                "_partition": pa.array([at % 3 for at in range(20)], pa.int32()),
                "at": when,
            }
        )
        seen = 0
        for topic, partition, hour, piece in grouped(rows, period):
            seen += piece.num_rows
            assert set(piece.column("_topic").to_pylist()) == {topic}
            assert set(piece.column("_partition").to_pylist()) == {partition}
            assert set(pc.floor_temporal(piece.column("at"), unit="hour").to_pylist()) == {hour}
        assert seen == 20


def test_columns_that_repeat_their_values_have_a_dictionary_and_no_others(tmp_path: Path) -> None:
    count = 3_000
    inner = pa.struct([("x", pa.string()), ("y", pa.list_(pa.int64()))])
    rows = pa.table(
        {
            "offset": pa.array(range(count), pa.int64()),
            "kind": pa.array([f"k{at % 7}" for at in range(count)]),
            "nothing": pa.nulls(count, pa.string()),
            "part": pa.array([{"x": "a", "y": [at % 3]} for at in range(count)], inner),
            "named": pa.array([[("k", "v")]] * count, pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(rows, tmp_path / "rows.parquet", use_dictionary=repeating_columns(rows))
    group = pq.read_metadata(tmp_path / "rows.parquet").row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert {column.path_in_schema for column in columns} - with_dictionary == {"offset"}
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows.to_pylist()
    assert repeating_columns(rows.slice(0, 0)) == rows.slice(0, 0).column_names[:3] + repeating_columns(rows)[2:]
