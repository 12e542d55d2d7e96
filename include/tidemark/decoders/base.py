"""The protocol of decoders; ``tests/behaviours/test_decoders.py`` holds each registered one to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol, Self, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.names import key_column

NONE: Final = pa.nulls(0, pa.int64())  # no record
# Beside the columns of rows, where a decoder knows tombstones: whether a row marks its key as deleted.
DELETED: Final = pa.field("_is_deleted", pa.bool_(), nullable=False)
REASON_LIMIT = 200  # characters of a reason; it names fields and positions, it does not repeat the data


class ErrorClass(StrEnum):
    """The part of a record that is bad; dead letters are grouped by it."""

    VALUE = "value"  # its value cannot be decoded
    KEY = "key"
    SCHEMA = "schema"  # its schema is not known, or does not fit the reader's
    TRANSFORM = "transform"
    EVENT_TIME = "event_time"
    EXPECTATION = "expectation"


@dataclass(frozen=True, order=True)
class BadRecord:
    """A record that cannot be used: its index in the batch, and why. ``schemas`` names those it was read with.

    ``fails``: whether it fails its manifest; None: as ``on_error`` says.
    """

    index: int
    reason: str
    error: ErrorClass = ErrorClass.VALUE
    schemas: str = ""
    fails: bool | None = None

    def at(self, index: int) -> Self:
        """The same in a larger batch."""
        return replace(self, index=index)

    def read_with(self, schemas: str) -> Self:
        """The same, with the schemas behind the reason."""
        return replace(self, reason=f"{self.reason} ({schemas})"[:REASON_LIMIT], schemas=schemas) if schemas else self


@dataclass(frozen=True)
class UnknownFields:
    """Fields that the schema has not: the path of each, and the index of the record in the batch (``int64``).

    By path and record; a record comes once for each path.
    """

    paths: pa.Array
    records: pa.Array

    def at(self, indices: pa.Array) -> "UnknownFields":
        """The same in a larger batch, of which ``indices`` are the records of this one."""
        return UnknownFields(self.paths, indices.take(self.records))

    def of_keys(self) -> "UnknownFields":
        """With the paths that fields of keys have."""
        return UnknownFields(pc.binary_join_element_wise(key_column(""), self.paths, ""), self.records)

    def inside(self, part: str) -> "UnknownFields":
        """With the paths that fields of a part have in the row that it holds."""
        return UnknownFields(pc.replace_substring_regex(self.paths, rf"^{part}\.", ""), self.records)

    def of(self, records: pa.Array) -> "UnknownFields | None":
        """Those of some records alone."""
        chosen = pc.is_in(self.records, value_set=records)
        some = UnknownFields(self.paths.filter(chosen), self.records.filter(chosen))
        return some if len(some.records) else None


def unknown_at(places: Mapping[str, pa.Array]) -> UnknownFields | None:
    """By path the indices of the records, ascending."""
    ordered = sorted(places.items())
    paths = [pa.repeat(path, len(records)) for path, records in ordered]
    return UnknownFields(pa.concat_arrays(paths), pa.concat_arrays([at for _, at in ordered])) if paths else None


def together(parts: Iterable[UnknownFields | None]) -> UnknownFields | None:
    """The unknown fields of several parts, whose records have their indices in the whole batch."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    paths, records = ([getattr(part, name) for part in known] for name in ("paths", "records"))
    table = pa.table({"path": pa.concat_arrays(paths), "record": pa.concat_arrays(records)})
    table = table.sort_by([("path", "ascending"), ("record", "ascending")]).combine_chunks()
    return UnknownFields(*(column.combine_chunks() for column in table.columns))


@dataclass(frozen=True)
class NamedRows:
    """The rows that deletions take away, as their records tell them: the fields of the key, or null where not told.

    ``records`` are the indices of these records in the batch (``int64``).
    """

    records: pa.Array
    rows: pa.RecordBatch

    def at(self, indices: pa.Array) -> "NamedRows":
        """The same with other indices, one for each record."""
        return NamedRows(indices.cast(pa.int64()), self.rows)


@dataclass(frozen=True)
class Decoded:
    """One batch, decoded: ``rows`` holds the data columns of the good records, in their order.

    ``good`` are the indices of those records in the batch (``int64``, ascending); ``errors`` are others, ascending too.
    Each record of the batch is in exactly one of the two, unless it has an envelope. Then it may also be in
    ``filtered``, when it tells nothing about a row, or in ``deletions``, when it tells that a row is gone: what decodes
    whole records makes a row of it, by its key. ``deleted`` (``bool``) is true for a row that was made from a deletion;
    None when the decoder knows none. ``unknown`` are the fields that records have and the schema has not; None when
    there are none.
    """

    rows: pa.RecordBatch
    good: pa.Array
    errors: tuple[BadRecord, ...]
    deleted: pa.Array | None = None
    unknown: UnknownFields | None = None
    filtered: pa.Array = field(default_factory=lambda: NONE)
    deletions: pa.Array = field(default_factory=lambda: NONE)
    named: NamedRows | None = None  # the rows of some deletions

    def at(self, indices: pa.Array) -> "Decoded":
        """The same in a larger batch, of which ``indices`` are the records of this one."""
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
        """Return for each record the schemas that it is read with, as errors name them; empty for one without."""
        ...


@runtime_checkable
class WithNullText(Protocol):
    """A decoder of a format that can write a record without a value as a text."""

    @property
    def null_text(self) -> bytes | None:
        """The text that stands for null; None when no text means null."""
        ...


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
