"""What a source promises to the Spark driver: the ranges of an order as a frame."""

from importlib import import_module
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import TidemarkError
from tidemark.order import Order
from tidemark.sources.kinds import SOURCES


class SparkReader(Protocol):
    """Reads the ranges of one order, whose secrets it looked up when it was opened."""

    def read(self, session: SparkSession) -> DataFrame:
        """The committed records of the order's ranges, with the columns of ``processing/processor.py``.

        Headers are empty, never null, where a record has none. An offset that is not there any more fails the job.
        """
        ...

    def masked(self, text: str) -> str:
        """A text without this reader's secrets."""
        ...

    def refusal(self, failed: Exception) -> TidemarkError | None:
        """The error for a failure that a person must mend at the source; None when it is not about the source."""
        ...


def open_reader(order: Order) -> SparkReader:
    """The reader of the kind of source that an order names; raises what its connection lacks."""
    reader: SparkReader = import_module(f"{SOURCES[order.source.kind]}.spark").open_reader(order)
    return reader
