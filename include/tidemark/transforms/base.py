"""What every transform promises; ``tests/behaviours/test_transforms.py`` holds each registered one to it."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Transformed:
    """What became of a batch of rows, told by the transform itself; nobody derives one number from another.

    ``rows`` holds the data columns of the rows that stay; ``kept`` says which rows of the batch they come from.
    ``filtered`` and ``deduplicated`` are the rows that were taken away. All three are indices in the batch (``int64``,
    ascending), and each row of the batch is in exactly one of them: a row that is in none blocks the manifest.
    """

    rows: pa.RecordBatch
    kept: pa.Array
    filtered: pa.Array
    deduplicated: pa.Array


class Transform(Protocol):
    """Changes or takes away decoded rows; opened once per Spark task from one entry of an order's ``transforms``."""

    def schema(self, given: pa.Schema) -> pa.Schema:
        """The data columns it makes of those given; ``ConfigurationError`` when it cannot work on them.

        No name begins with ``_`` (those are the metadata columns).
        """
        ...

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        """Work through rows as a sink would get them now: metadata, ``_deleted`` where the decoder knows tombstones,
        data columns. The result must not depend on where one batch ends and the next begins.
        """
        ...
