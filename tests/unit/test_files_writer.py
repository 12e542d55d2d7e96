"""Which rows lie in which file, whatever Arrow's hash tables make of the names."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.sinks.grouping import grouped

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
