"""The size of an Arrow batch follows the size of records that was measured."""

import pytest

from tidemark.spark.batches import BATCH_BYTES, BATCH_ROWS, arrow_batches

ROWS, BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.mark.parametrize(
    ("record_bytes", "rows"),
    [
        (0.0, 50_000),  # records without key and value
        (20.0, 50_000),
        (335.5, 50_000),
        (336.0, 32_768),
        (1024.0, 16_384),
        (2.0 * BATCH_BYTES, 1),
    ],
)
def test_a_batch_holds_16_mib_of_records_of_a_known_size_and_spark_measures_none(
    record_bytes: float, rows: int
) -> None:
    assert arrow_batches(record_bytes) == {ROWS: str(rows), BYTES: "2147483647"}


def test_spark_measures_records_of_an_unknown_size() -> None:
    assert arrow_batches(None) == {ROWS: str(BATCH_ROWS), BYTES: str(4 * BATCH_BYTES)}
