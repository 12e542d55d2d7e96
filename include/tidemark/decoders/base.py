"""The protocol of decoders; ``tests/behaviours/test_decoders.py`` holds each registered one to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol, Self, runtime_checkable

import pyarrow as pa

NONE: Final = pa.nulls(0, pa.int64())  # no record
REASON_LIMIT = 200  # characters of a reason; it names fields and positions, it does not repeat the data


class ErrorClass(StrEnum):
    """What of a record is bad; dead letters are grouped by it."""

    VALUE = "value"  # its value cannot be decoded
    KEY = "key"
    SCHEMA = "schema"  # its schema is not known, or does not fit the reader's
    TRANSFORM = "transform"
    EVENT_TIME = "event_time"


@dataclass(frozen=True, order=True)
class BadRecord:
    """A record that cannot be used: its index in the batch, and why. ``schemas`` names those it was read with."""

    index: int
    reason: str
    error: ErrorClass = ErrorClass.VALUE
    schemas: str = ""

    def at(self, index: int) -> Self:
        """The same in a larger batch."""
        return replace(self, index=index)


@dataclass(frozen=True)
class Decoded:
    """One batch, decoded: ``rows`` holds the data columns of the good records, in their order.

    ``good`` are the indices of those records in the batch (``int64``, ascending); ``errors`` are others, ascending too.
    Each record of the batch is in exactly one of the two, unless it has an envelope. Then it may also be in
    ``filtered``, when it tells nothing about a row, or in ``deletions``, when it tells that a row is gone: what decodes
    whole records makes a row of it, by its key. ``deleted`` (``bool``) is true for a row that was made from a deletion;
    None when the decoder knows none.
    """

    rows: pa.RecordBatch
    good: pa.Array
    errors: tuple[BadRecord, ...]
    deleted: pa.Array | None = None
    filtered: pa.Array = field(default_factory=lambda: NONE)
    deletions: pa.Array = field(default_factory=lambda: NONE)


class Decoder(Protocol):
    """Turns records into columns; opened once per Spark task from the ``decode`` of an order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``Decoded.rows``; no name begins with ``_`` (those are the metadata columns)."""
        ...

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records with the columns of ``processing/processor.py``; never raises for what is in a record."""
        ...


@runtime_checkable
class WithSchemas(Protocol):
    """A decoder that reads schemas from a registry."""

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        """Those of all batches so far, as ``Schemas.used`` gives them: the receipt holds them."""
        ...


def schemas_of(decoder: Decoder | None) -> dict[str, Any]:
    return dict(decoder.schemas_used) if isinstance(decoder, WithSchemas) else {}
