"""The Spark face: JSON lines as a frame."""

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, lit, timestamp_millis

from tests.toys.toy_source.log import COMMITTED, PartitionLog
from tidemark.errors import TidemarkError, WorkFailed
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.sources.spark import SparkReader

_LINE = "offset long, timestamp long, key string, value string, fate string"


class ToyReader:
    """Reads each range from its file."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def read(self, session: SparkSession) -> DataFrame:
        return reduce(DataFrame.union, [self._range(session, covered) for covered in self._order.read])

    def _range(self, session: SparkSession, covered: Range) -> DataFrame:
        log = PartitionLog(Path(self._order.source.options["folder"], covered.at.topic), covered.at.partition)
        if log.start > covered.start:
            raise WorkFailed(f"offset {covered.start} of {covered.at.topic}-{covered.at.partition} is not there")
        inside = (col("offset") >= covered.start) & (col("offset") < covered.end) & (col("fate") == COMMITTED)
        return (
            session.read.schema(_LINE)
            .json(str(log.lines_file))
            .where(inside)
            .select(
                col("key").cast("binary"),
                col("value").cast("binary"),
                lit(covered.at.topic).alias("topic"),
                lit(covered.at.partition).alias("partition"),
                "offset",
                timestamp_millis("timestamp").alias("timestamp"),
                array().cast("array<struct<key: string, value: binary>>").alias("headers"),
            )
        )

    def masked(self, text: str) -> str:
        return text

    def error_of(self, failed: Exception) -> TidemarkError | None:
        return None


def open_reader(order: Order) -> SparkReader:
    return ToyReader(order)
