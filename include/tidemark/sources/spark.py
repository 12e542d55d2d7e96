"""The protocol of a source that Spark itself reads: the ranges of an order as a DataFrame.

A source has this face, or that of ``range_reader.py``.
"""

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import TidemarkError
from tidemark.kinds import SOURCES
from tidemark.model.order import Order
from tidemark.sources.range_reader import RangeReader


class SparkReader(Protocol):
    """Reads the ranges of one order; its secrets were looked up when it was opened."""

    def read(self, session: SparkSession) -> DataFrame:
        """The committed records of ``order.read``, with the columns of ``processing/processor.py``.

        Headers of a record without any are empty, never null. A missing offset fails the job.
        """
        ...

    def masked(self, text: str) -> str:
        """The text with stars instead of this reader's secrets."""
        ...

    def instead(self, failed: Exception) -> RangeReader | None:
        """Return the reader to use after a failure of Spark on a record that it cannot hold; None for others."""
        ...

    def error_of(self, failed: Exception) -> TidemarkError | None:
        """The error for a failure of the source, which refuses or is silent; None when the source is not the cause."""
        ...


Reader = SparkReader | RangeReader


def open_reader(order: Order) -> Reader:
    """The reader for the source of an order; raises ``ConfigurationError`` when its connection is wrong or missing."""
    reader: Reader = SOURCES.module(order.source.kind, "spark").open_reader(order)
    return reader
