"""The protocol of a source that Spark itself reads: the ranges of an order as a DataFrame.

A source implements this protocol, or that of ``range_reader.py``.
"""

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import TidemarkError
from tidemark.kinds import SOURCES
from tidemark.model.order import Order
from tidemark.sources.range_reader import RangeReader


class SparkReader(Protocol):
    """Reads the ranges of one order. Its secrets were looked up when it was opened."""

    def read(self, session: SparkSession) -> DataFrame:
        """Return the committed records of ``order.read``, with the columns of ``processing/processor.py``.

        The headers of a record without headers are empty, never null. A missing offset fails the job.
        """
        ...

    def masked(self, text: str) -> str:
        """Return the text with stars in place of this reader's secrets."""
        ...

    def instead(self, failed: Exception) -> RangeReader | None:
        """Return the reader to use after Spark failed on a record that it cannot represent; None after other
        failures."""
        ...

    def error_of(self, failed: Exception) -> TidemarkError | None:
        """Return the error for a source that refuses or does not answer; None if the source is not the cause of the
        failure."""
        ...


Reader = SparkReader | RangeReader


def open_reader(order: Order) -> Reader:
    """Open the reader for the source of an order; raises ``ConfigurationError`` if its connection is wrong or
    missing."""
    reader: Reader = SOURCES.module(order.source.kind, "spark").open_reader(order)
    return reader
