"""What every decoder promises; ``tests/behaviours/test_decoders.py`` holds each registered one to it."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
REASON_LIMIT = 200  # characters of a reason; it names fields and positions, it does not repeat the data


@dataclass(frozen=True)
class Decoded:
    """One batch, decoded: ``rows`` holds the data columns of the good records, in their order.

    ``good`` are the indices of those records in the batch (``int64``, ascending); ``errors`` are index and reason of
    every other record, ascending too. Each record of the batch is in exactly one of the two. ``deleted`` (``bool``) is
    true for a row made from a tombstone; None when the decoder knows no tombstones.
    """

    rows: pa.RecordBatch
    good: pa.Array
    errors: tuple[tuple[int, str], ...]
    deleted: pa.Array | None = None


class Decoder(Protocol):
    """Turns records into columns; opened once per Spark task from the ``decode`` of an order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``Decoded.rows``; no name begins with ``_`` (those are the metadata columns)."""
        ...

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records with the columns of ``processing/processor.py``; never raises for what is in a record."""
        ...
