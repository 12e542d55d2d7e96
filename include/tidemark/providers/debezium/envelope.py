"""Makes rows of Debezium's envelopes in any format: a decoder has read ``op``, ``after`` and the other parts.

op r, c, u               the row, from ``after``
op d                     a deletion; the key names the row, because ``before`` may be absent or hold only the key
op t                     the table was truncated: an error, unless the settings say skip
op m, and other records  no row: a message, a heartbeat, a border of a transaction, a schema change, a signal

PostgreSQL does not send a large value that an update did not change. Debezium writes a placeholder for some types, and
null for others. So null in an update without the row before it may be a value that was not sent.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, NamedRows, UnknownFields, unknown_at
from tidemark.decoders.names import check_names, label
from tidemark.errors import ConfigurationError
from tidemark.model.positions import positions
from tidemark.providers.debezium.kinds_of_record import OTHERS
from tidemark.providers.debezium.parts import BEFORE, LACKS, PARTS, PLACEHOLDER, UNSENT
from tidemark.providers.debezium.placeholder import UNTOLD, PlaceholderFinder
from tidemark.providers.debezium.source_types import column_of, column_type, unit_of
from tidemark.providers.debezium.times import BEYOND, times_of_numbers
from tidemark.providers.debezium.units import Unit
from tidemark.times.event_time import INSTANT

OF_ROWS: Final = ("r", "c", "u")
OTHER_RECORDS: Final = ("m", *OTHERS)
OTHER_SCHEMAS: Final = ("Heartbeat", "MessageValue", "SchemaChangeValue", "TransactionMetadataValue")
SIGNAL_TABLE: Final = "debezium_signal"
_NULL_UNSENT: Final = (
    "null in an update without before: PostgreSQL may not have sent it; give the table REPLICA IDENTITY FULL, or write "
    "unavailable: keep_null under decode.envelope"
)
_TYPES: Final = {"text": pa.string(), "number": pa.int64(), "milliseconds": INSTANT}


class DebeziumEnvelope:
    """Makes rows with the columns of ``after``, which ``row`` describes. A number with a known unit becomes a date or a
    time."""

    row_name = "after"
    unread = BEFORE

    def __init__(self, config: Mapping[str, Any], row: pa.Schema) -> None:
        self._further: dict[str, str] = config.get("columns", {})
        self._placeholders = PlaceholderFinder(config.get("unavailable_value", PLACEHOLDER))
        self._skips_truncate = config.get("truncate") == "skip"
        self._signal_table = config.get("signal_table", SIGNAL_TABLE)
        self._keeps_null = config.get("unavailable") == "keep_null"
        self._units = _units(row, config.get("times", {}))
        fields = [field.with_type(column_type(field, self._units.get(field.name))) for field in row]
        further = [pa.field(name, _TYPES[PARTS[path]]) for name, path in self._further.items()]
        check_names([field.name for field in (*fields, *further)], lambda name: f"decode.envelope: column {name}")
        self.schema = pa.schema([field.remove_metadata() for field in (*fields, *further)])
        self._row = row

    def is_other_record(self, name: str) -> bool:
        of_debezium = name.startswith("io.debezium.connector.") and name.rpartition(".")[2] in OTHER_SCHEMAS
        return of_debezium or name.endswith(f".{self._signal_table}.Envelope")

    def unwrap(self, records: pa.RecordBatch) -> Decoded:
        op = pc.fill_null(_typed(_part(records, "op"), "op"), "")
        after = records.column("after")
        filtered = pc.or_(_in(op, OTHER_RECORDS), self._is_signal(records))
        if self._skips_truncate:
            filtered = pc.or_(filtered, pc.equal(op, "t"))
        of_table = pc.invert(filtered)
        is_row = pc.and_(of_table, _in(op, OF_ROWS))
        has_row = pc.and_(is_row, pc.is_valid(after))
        deletion = pc.and_(of_table, pc.equal(op, "d"))
        neither = pc.indices_nonzero(pc.invert(pc.or_(pc.or_(filtered, deletion), has_row))).to_pylist()
        errors = {at: _reason(op[at].as_py()) for at in neither}
        at = pc.indices_nonzero(has_row).cast(pa.int64())
        rows, wrong = self._rows(records.filter(has_row))
        errors |= {at[position].as_py(): reason[:REASON_LIMIT] for position, reason in wrong.items()}
        if wrong:
            good = pc.invert(pc.is_in(positions(rows.num_rows), value_set=pa.array(wrong, pa.int64())))
            rows, at = rows.filter(good), at.filter(good)
        return Decoded(
            rows,
            at,
            deletions=pc.indices_nonzero(deletion).cast(pa.int64()),
            named=self._named(records, deletion),
            filtered=pc.indices_nonzero(filtered).cast(pa.int64()),
            errors=tuple(BadRecord(position, errors[position]) for position in sorted(errors)),
            unknown=_absent(records, at),
        )

    def _rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return all rows, and for the positions of bad ones the reason."""
        values = dict(zip(self._row.names, records.column("after").flatten(), strict=True))
        wrong: dict[int, str] = {}
        for name, column in values.items():
            for position in self._placeholders.rows_with_it(column):
                wrong.setdefault(position, f"field after.{name}: {UNTOLD}")
        for position, name in self._unsent(records, values).items():
            wrong.setdefault(position, f"field after.{name}: {_NULL_UNSENT}")
        for field in self._row:
            values[field.name], cannot = column_of(values[field.name], field, self._units.get(field.name))
            for position in cannot:
                wrong.setdefault(position, f"field after.{field.name}: {_beyond(self.schema.field(field.name).type)}")
        further = []
        for path in self._further.values():
            part = _part(records, path)
            made = _typed(part, path)
            for position in pc.indices_nonzero(pc.and_(pc.is_null(made), pc.is_valid(part))).to_pylist():
                wrong.setdefault(position, f"field {path}: its value does not have the type {_TYPES[PARTS[path]]}")
            further.append(made)
        return pa.RecordBatch.from_arrays([*values.values(), *further], names=self.schema.names), wrong

    def _named(self, records: pa.RecordBatch, deletion: pa.Array) -> NamedRows | None:
        """Return the deleted rows as ``before`` describes them. The reader of JSON has kept only the fields of the
        key."""
        if UNSENT not in records.schema.names or BEFORE not in records.schema.names:
            return None
        before = records.column(BEFORE).filter(deletion)
        names = [field.name for field in before.type]
        rows = pa.RecordBatch.from_arrays(before.flatten(), names=names)
        return NamedRows(pc.indices_nonzero(deletion).cast(pa.int64()), rows)

    def _unsent(self, records: pa.RecordBatch, values: Mapping[str, pa.Array]) -> dict[int, str]:
        """Return, for each update in which a null may be a value that was not sent, its position and the name of the
        column."""
        if self._keeps_null:
            return {}
        if UNSENT in records.schema.names:
            names = records.column(UNSENT)
            return {at: names[at].as_py() for at in pc.indices_nonzero(pc.is_valid(names)).to_pylist()}
        blind = pc.and_(_in(_typed(_part(records, "op"), "op"), ("u",)), pc.is_null(_part(records, BEFORE)))
        unsent: dict[int, str] = {}
        for field in self._row:
            if can_be_large(self.schema.field(field.name).type):
                for at in pc.indices_nonzero(pc.and_(blind, pc.is_null(values[field.name]))).to_pylist():
                    unsent.setdefault(at, field.name)
        return unsent

    def _is_signal(self, records: pa.RecordBatch) -> pa.Array:
        table = _typed(_part(records, "source.table"), "source.table")
        return pc.fill_null(pc.equal(table, self._signal_table), False)


def _absent(records: pa.RecordBatch, good: pa.Array) -> UnknownFields | None:
    """Return the columns of the schema that rows do not have, such as dropped ones, as unknown fields.

    Without this they would silently become null.
    """
    if LACKS not in records.schema.names:
        return None
    lacking = records.column(LACKS).take(good)
    places: dict[str, list[pa.Array]] = {}
    for text in pc.unique(lacking.drop_null()).to_pylist():
        having = good.filter(pc.fill_null(pc.equal(lacking, text), False))
        for name in json.loads(text):
            places.setdefault(f"{label(name)} {LACKS}", []).append(having)
    joined = {path: pa.concat_arrays(parts) for path, parts in places.items()}
    return unknown_at({path: at.take(pc.sort_indices(at)) for path, at in joined.items()})


def _typed(part: pa.Array, path: str) -> pa.Array:
    """Return a part of the envelope with its type; null also for a value that cannot have the type."""
    kind = _TYPES[PARTS[path]]
    if kind == INSTANT and pa.types.is_integer(part.type):
        return times_of_numbers(part, Unit.MILLISECONDS)
    try:
        return part.cast(kind)
    except pa.ArrowException:
        return pa.array([_cast(value, kind) for value in part], kind)


def _cast(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(kind)
    except pa.ArrowException:
        return None


def _part(records: pa.RecordBatch, path: str) -> pa.Array:
    """Return a part of the envelope as it was read; null if it is missing."""
    first, _, second = path.partition(".")
    part = records.column(first) if first in records.schema.names else None
    if part is not None and second:
        inner = pa.types.is_struct(part.type) and part.type.get_field_index(second) >= 0
        part = pc.struct_field(part, second) if inner else None
    return pa.nulls(records.num_rows) if part is None else part


def _units(row: pa.Schema, given: Mapping[str, str]) -> dict[str, Unit]:
    """Return the unit of each column of numbers that is a date or a time: from the field's schema, or else from the
    file."""
    for name in given:
        if name not in row.names:
            raise ConfigurationError(
                f"decode.envelope.times names {name}, which is no column of the row", next_step="correct its name"
            )
    units = {}
    for field in row:
        unit = unit_of(field, Unit(given[field.name]) if field.name in given else None)
        if unit is not None:
            units[field.name] = unit
        elif field.name in given and not _holds_times(column_type(field)):
            raise ConfigurationError(
                f"decode.envelope.times names {field.name}, which is {field.type} and no number",
                next_step="leave it out, or correct its name",
            )
    return units


def can_be_large(kind: pa.DataType) -> bool:
    """Return whether PostgreSQL may store values of this type apart (TOAST): true for all types without a fixed
    size."""
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
                or pa.types.is_temporal(kind))  # fmt: skip


def _beyond(kind: pa.DataType) -> str:
    return BEYOND if _holds_times(kind) else f"it does not fit {kind}"


def _holds_times(kind: pa.DataType) -> bool:
    """Return whether a column is of dates or times, or contains some."""
    return pa.types.is_temporal(kind) or any(_holds_times(kind.field(at).type) for at in range(kind.num_fields))


def _in(op: pa.Array, words: tuple[str, ...]) -> pa.Array:
    return pc.is_in(op, value_set=pa.array(words, pa.string()))


def _reason(op: str) -> str:
    if op in OF_ROWS:
        return f"op {op} without after"
    if op == "t":
        return "op t: the table was truncated; write truncate: skip under decode.envelope to leave its rows as they are"
    return "no op: not an envelope of Debezium" if not op else f"op {op[:20]!r} is not known"


def open_envelope(config: Mapping[str, Any], columns_of: Callable[[str], pa.Schema]) -> DebeziumEnvelope:
    return DebeziumEnvelope(config, columns_of(DebeziumEnvelope.row_name))
