"""What every decoder promises; ``tests/behaviours/test_decoders.py`` holds each registered one to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

REASON_LIMIT = 200  # characters of a reason: it names fields and places, it does not repeat the data


class DecoderKind(StrEnum):
    """The ``format`` of a pipeline's ``decode``."""

    RAW = "raw"
    JSON = "json"


@dataclass(frozen=True)
class Decoded:
    """One batch, decoded: ``rows`` holds the data columns of the good records, in their order.

    ``good`` are the indices of those records in the batch (``int64``, ascending); ``errors`` are index and reason of
    every other one, ascending too. Each record of the batch is in exactly one of the two. ``deleted`` (``bool``) says
    of each row whether it stands for a tombstone; None from a decoder that has none.
    """

    rows: pa.RecordBatch
    good: pa.Array
    errors: tuple[tuple[int, str], ...]
    deleted: pa.Array | None = None


class Decoder(Protocol):
    """Turns Kafka records into columns; made once per Spark task from the ``decode`` of an order.

    A wrong ``config`` is a ``ConfigurationError`` when the decoder is made.
    """

    def __init__(self, config: Mapping[str, Any]) -> None: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``Decoded.rows``; no name begins with ``_`` (those are the metadata columns)."""
        ...

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records as Spark's Kafka source gives them; never raises for what is in a record."""
        ...
