"""The protocol of decoders; ``tests/behaviours/test_decoders.py`` holds each registered one to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol, Self, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.names import key_column

NONE: Final = pa.nulls(0, pa.int64())  # no record
# If a decoder knows tombstones, this column stands beside those of the rows: true if a row marks its key as deleted.
DELETED: Final = pa.field("_is_deleted", pa.bool_(), nullable=False)
REASON_LIMIT = 200  # characters of a reason; it names fields and positions, it does not repeat the data


class ErrorClass(StrEnum):
    """The part of a record that is bad; dead letters are grouped by it."""

    VALUE = "value"  # its value cannot be decoded
    KEY = "key"
    SCHEMA = "schema"  # its schema is unknown, or the reader's schema cannot read it
    TRANSFORM = "transform"
    EVENT_TIME = "event_time"
    EXPECTATION = "expectation"


@dataclass(frozen=True, order=True)
class BadRecord:
    """A record that cannot be used: its index in the batch, and the reason. ``schemas`` names the schemas that it was
    read with.

    ``fails`` is true if the record fails its manifest, false if it becomes a dead letter; None leaves this to
    ``on_error``.
    """

    index: int
    reason: str
    error: ErrorClass = ErrorClass.VALUE
    schemas: str = ""
    fails: bool | None = None

    def at(self, index: int) -> Self:
        """Return the same error with the record's index in a larger batch."""
        return replace(self, index=index)

    def read_with(self, schemas: str) -> Self:
        """Return the same error, with the schemas appended to the reason."""
        return replace(self, reason=f"{self.reason} ({schemas})"[:REASON_LIMIT], schemas=schemas) if schemas else self


@dataclass(frozen=True)
class UnknownFields:
    """Fields that the schema does not have: the path of each, and the index of the record in the batch (``int64``).

    Sorted by path, then by record. A record has one entry for each of its paths.
    """

    paths: pa.Array
    records: pa.Array

    def at(self, indices: pa.Array) -> "UnknownFields":
        """Return the same fields with indices of a larger batch. ``indices`` are the places of these records in it."""
        return UnknownFields(self.paths, indices.take(self.records))

    def of_keys(self) -> "UnknownFields":
        """Return the same fields as fields of keys: each path gets the prefix of the key's columns."""
        return UnknownFields(pc.binary_join_element_wise(key_column(""), self.paths, ""), self.records)

    def inside(self, part: str) -> "UnknownFields":
        """Return the same fields with the paths that they have in the row inside ``part``: without the prefix
        ``part.``."""
        return UnknownFields(pc.replace_substring_regex(self.paths, rf"^{part}\.", ""), self.records)

    def of(self, records: pa.Array) -> "UnknownFields | None":
        """Return only the fields of these records; None if they have no unknown field."""
        chosen = pc.is_in(self.records, value_set=records)
        some = UnknownFields(self.paths.filter(chosen), self.records.filter(chosen))
        return some if len(some.records) else None


def unknown_at(places: Mapping[str, pa.Array]) -> UnknownFields | None:
    """Return the unknown fields; ``places`` has for each path the indices of its records, in ascending order."""
    ordered = sorted(places.items())
    paths = [pa.repeat(path, len(records)) for path, records in ordered]
    return UnknownFields(pa.concat_arrays(paths), pa.concat_arrays([at for _, at in ordered])) if paths else None


def together(parts: Iterable[UnknownFields | None]) -> UnknownFields | None:
    """Join the unknown fields of several parts of a batch. Their indices are already those of the whole batch."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    paths, records = ([getattr(part, name) for part in known] for name in ("paths", "records"))
    table = pa.table({"path": pa.concat_arrays(paths), "record": pa.concat_arrays(records)})
    table = table.sort_by([("path", "ascending"), ("record", "ascending")]).combine_chunks()
    return UnknownFields(*(column.combine_chunks() for column in table.columns))


@dataclass(frozen=True)
class NamedRows:
    """The rows that some deletions remove, as their records describe them: the fields of the key, null if not given.

    ``records`` are the indices of these records in the batch (``int64``).
    """

    records: pa.Array
    rows: pa.RecordBatch

    def at(self, indices: pa.Array) -> "NamedRows":
        """Return the same rows with other indices, one for each record."""
        return NamedRows(indices.cast(pa.int64()), self.rows)


@dataclass(frozen=True)
class Decoded:
    """One decoded batch: ``rows`` holds the data columns of the good records, in their order.

    ``good`` are the indices of those records in the batch (``int64``, ascending). ``errors`` are other records,
    ascending too. Each record of the batch is in exactly one of the two, unless it has an envelope. Then it may also be
    in ``filtered``, if it says nothing about a row, or in ``deletions``, if it says that a row was deleted. The decoder
    of whole records makes a row of a deletion from its key. ``deleted`` (``bool``) is true for a row that was made from
    a deletion; None if the decoder knows no deletions. ``unknown`` are the fields that records have and the schema does
    not have; None if there are none.
    """

    rows: pa.RecordBatch
    good: pa.Array
    errors: tuple[BadRecord, ...]
    deleted: pa.Array | None = None
    unknown: UnknownFields | None = None
    filtered: pa.Array = field(default_factory=lambda: NONE)
    deletions: pa.Array = field(default_factory=lambda: NONE)
    named: NamedRows | None = None  # the rows that some of the deletions describe

    def at(self, indices: pa.Array) -> "Decoded":
        """Return the same with indices of a larger batch. ``indices`` are the places of these records in it."""
        return replace(
            self,
            good=indices.take(self.good),
            errors=tuple(bad.at(indices[bad.index].as_py()) for bad in self.errors),
            unknown=self.unknown and self.unknown.at(indices),
            filtered=indices.take(self.filtered),
            deletions=indices.take(self.deletions),
            named=self.named and self.named.at(indices.take(self.named.records)),
        )


@runtime_checkable
class WithNamedSchemas(Protocol):
    """A decoder of records that name the schema they were written with."""

    def named_schemas(self, batch: pa.RecordBatch) -> list[str]:
        """Return for each record the names of the schemas that it is read with, for errors; empty if it names none."""
        ...


@runtime_checkable
class WithNullText(Protocol):
    """A decoder of a format in which a text can stand for a record without a value."""

    @property
    def null_text(self) -> bytes | None:
        """The text that stands for null; None if no text does."""
        ...


class Decoder(Protocol):
    """Turns records into columns. Each Spark task opens one from the ``decode`` of its order."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of ``Decoded.rows``; no name begins with ``_`` (those are the metadata columns)."""
        ...

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records with the columns of ``processing/processor.py``. The content of a record never makes it
        raise."""
        ...


@runtime_checkable
class WithSchemas(Protocol):
    """A decoder that reads schemas from a registry."""

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        """The schemas of all batches so far, as ``Schemas.used`` returns them. The receipt stores them."""
        ...


def schemas_of(decoder: Decoder | None) -> dict[str, Any]:
    return dict(decoder.schemas_used) if isinstance(decoder, WithSchemas) else {}
