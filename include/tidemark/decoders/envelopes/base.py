"""The protocol of envelopes.

An envelope is a record about a change of a row: what was done, where, and the row as it is now. The decoder of the
format reads the record as it is; the envelope then makes rows of it. Executors open envelopes here, so this imports the
standard library and pyarrow, nothing else.
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

    ``row_name`` is the part that holds the row. Of the part ``unread`` only is read whether it is
    null.
    """

    row_name: str
    unread: str

    def is_other_record(self, name: str) -> bool:
        """Return whether records whose schema has this full name tell nothing about a row."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of rows."""
        ...

    def unwrap(self, records: pa.RecordBatch) -> Decoded:
        """``records`` has a column per part of the envelope, as the format has decoded it. Each of them is in exactly
        one of ``good``, ``deletions``, ``filtered`` and ``errors``. ``unknown`` has what the envelope itself counts
        beside the unknown fields of the format, by the paths in the row."""
        ...


class JsonEnvelope(Protocol):
    """Reads JSON that has an envelope: its parts have a schema too."""

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
        """The row inside the envelope; a key has some of its fields."""
        ...

    @property
    def reader(self) -> ColumnReader | None:
        """Return the reader of the columns of most records at once; None when each is parsed and opened."""
        ...

    def opened(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record that was parsed, as ``struct`` describes it; raises ``Undecodable``."""
        ...

    def opened_key(self, key: dict[str, Any], single: str | None) -> dict[str, Any]:
        """The fields of a key that was parsed; ``single`` is the only one, which may stand there as its value alone."""
        ...


def open_envelope(config: Mapping[str, Any], columns_of: Callable[[str], pa.Schema]) -> Envelope:
    """The envelope of an order's ``decode.envelope``.

    ``columns_of`` takes the name of a part, and gives the columns that the format has for it, with what may be null
    there, and as metadata what a schema says of a field's source type (``connect.name``, ``connect.type``).
    ``ConfigurationError`` when the envelope is not registered, the schema has no such part, or the settings do not fit
    the row.
    """
    envelope: Envelope = _module(config, "envelope").open_envelope(config, columns_of)
    return envelope


def open_json(config: Mapping[str, Any], row: Struct, key: Sequence[str]) -> JsonEnvelope:
    """The same for JSON, of which the pipeline file describes the row; ``key`` are the fields that keys of records
    have."""
    envelope: JsonEnvelope = _module(config, "json").open_json(config, row, key)
    return envelope


def json_row(config: Mapping[str, Any], record: object) -> object:
    """The row inside a record of JSON, as it was parsed; None where the record has no row."""
    row: object = _module(config, "json").row_inside(config, record)
    return row


def json_types(config: Mapping[str, Any], record: object) -> Mapping[str, str]:
    """The types of columns of the row in Spark DDL, as far as a record of JSON says them beside itself."""
    types: Mapping[str, str] = _module(config, "json").types_inside(config, record)
    return types


class JsonDoubt(Protocol):
    """A column that a record of JSON leaves open, as text."""

    @property
    def next_step(self) -> str: ...


def json_doubts(config: Mapping[str, Any], columns: pa.Schema, record: object) -> Sequence[JsonDoubt]:
    """The columns of the row that neither a record of JSON, as it was parsed, nor the file say all of; hashable."""
    columns_left_open: Sequence[JsonDoubt] = _module(config, "json").doubts_of(config, columns, record)
    return columns_left_open


def no_row_inside(schema: str, part: str) -> ConfigurationError:
    """A schema that a format has for records with an envelope lacks the part with the row."""
    return ConfigurationError(
        f"{schema} has no record {part}, which an envelope holds the row in",
        next_step="name the schema of the whole envelope, or leave decode.envelope out",
    )


def _module(config: Mapping[str, Any], name: str) -> ModuleType:
    return ENVELOPES.module(config.get("kind", ""), name)
