"""The protocol of envelopes.

An envelope is a record about a change of a row: the operation, the source, and the new values of the row. First the
decoder of the format decodes the whole record; then the envelope makes rows of it. Executors open envelopes here, so
this imports only the standard library and pyarrow.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa

from tidemark.decoders.base import Decoded
from tidemark.decoders.json_shapes.nested import Struct
from tidemark.decoders.json_shapes.patterns import ColumnReader
from tidemark.errors import ConfigurationError
from tidemark.kinds import ENVELOPES


class Envelope(Protocol):
    """One envelope of a format, with its settings.

    ``row_name`` is the part that holds the row. ``unread`` is a part of which only matters if it is null.
    """

    row_name: str
    unread: str

    def is_other_record(self, name: str) -> bool:
        """Return whether records whose schema has this full name say nothing about a row."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of rows."""
        ...

    def unwrap(self, records: pa.RecordBatch) -> Decoded:
        """Make rows of ``records``, which have a column for each part of the envelope, as the format decoded it.

        Each record is in exactly one of ``good``, ``deletions``, ``filtered`` and ``errors``. ``unknown`` has the
        unknown fields that the envelope itself finds, by their paths in the row; those of the format are not in it.
        """
        ...


class JsonEnvelope(Protocol):
    """Reads JSON records that have an envelope, of which each part has a schema too."""

    @property
    def struct(self) -> Struct:
        """The parts of the envelope, with the row inside it."""
        ...

    @property
    def row(self) -> pa.Schema:
        """The columns of the row, in the order of ``struct``."""
        ...

    @property
    def key(self) -> Struct:
        """The row inside the envelope, because the fields of a key are fields of the row."""
        ...

    @property
    def reader(self) -> ColumnReader | None:
        """The reader that gets the columns of most records at once; None if each record is parsed on its own."""
        ...

    def opened(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a parsed record in the form that ``struct`` describes; raises ``Undecodable``."""
        ...

    def opened_key(self, key: dict[str, Any], single: str | None) -> dict[str, Any]:
        """Return the fields of a parsed key. ``single`` is the name of its only field, if it has one: then the key may
        be the bare value."""
        ...


def open_envelope(config: Mapping[str, Any], columns_of: Callable[[str], pa.Schema]) -> Envelope:
    """Open the envelope of an order's ``decode.envelope``.

    ``columns_of`` takes the name of a part and returns the columns that the format has for it, with their nullability.
    Their metadata hold what a schema says about the type in the source (``connect.name``, ``connect.type``).

    Raises ``ConfigurationError`` if the envelope is not registered, the schema has no such part, or the settings do not
    fit the row.
    """
    envelope: Envelope = _module(config, "envelope").open_envelope(config, columns_of)
    return envelope


def open_json(config: Mapping[str, Any], row: Struct, key: Sequence[str]) -> JsonEnvelope:
    """Open the envelope for JSON. ``row`` is the row as the pipeline file describes it, ``key`` the fields of the
    keys."""
    envelope: JsonEnvelope = _module(config, "json").open_json(config, row, key)
    return envelope


def json_row(config: Mapping[str, Any], record: object) -> object:
    """Return the row inside a parsed JSON record; None if the record has no row."""
    row: object = _module(config, "json").row_inside(config, record)
    return row


def json_types(config: Mapping[str, Any], record: object) -> Mapping[str, str]:
    """Return the types of the row's columns in Spark DDL, as far as the schema beside a JSON record says them."""
    types: Mapping[str, str] = _module(config, "json").types_inside(config, record)
    return types


class JsonDoubt(Protocol):
    """A column whose type or unit a JSON record does not fully say, as text."""

    @property
    def next_step(self) -> str: ...


def json_doubts(config: Mapping[str, Any], columns: pa.Schema, record: object) -> Sequence[JsonDoubt]:
    """Return the columns of the row that neither the parsed JSON record nor the pipeline file fully describes;
    hashable."""
    columns_left_open: Sequence[JsonDoubt] = _module(config, "json").doubts_of(config, columns, record)
    return columns_left_open


def no_row_inside(schema: str, part: str) -> ConfigurationError:
    """Return the error for a format's schema that lacks the part of the envelope in which the row lies."""
    return ConfigurationError(
        f"{schema} is not the schema of an envelope: it has no record {part}, which holds the row",
        next_step="name the schema of the whole envelope, or leave decode.envelope out",
    )


def _module(config: Mapping[str, Any], name: str) -> ModuleType:
    return ENVELOPES.module(config.get("kind", ""), name)
