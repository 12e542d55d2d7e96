"""Reads the columns of envelopes in JSON at once, with Arrow's parser: some five times as fast as record by record.

As in ``decoders/json/plain.py`` it reads only records that match a pattern. It learns patterns from records that were
read one by one: the names of the envelope, of its source and of its row in their order, each once, each value of the
right type. The schema beside the records is parsed once, and then cut off as a constant beginning. A record that does
not match, or that holds a value which needs a reason of its own, is read one by one: the result is the same.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import UnknownFields, unknown_at
from tidemark.decoders.json_shapes.nested import Field, Struct
from tidemark.decoders.json_shapes.patterns import (
    BYTES_LIMIT,
    INSTANT,
    TEXT,
    exact_pattern,
    is_plain_name,
    parsed,
    read_as,
    shaped,
    value_pattern,
)
from tidemark.decoders.json_shapes.shapes import Boolean, Content, Integer, Number, Shape, Text
from tidemark.decoders.names import joined_path
from tidemark.decoders.one_by_one import Misfit
from tidemark.model.positions import positions
from tidemark.providers.debezium.base64_decimals import decimals_of_base64
from tidemark.providers.debezium.encoded import EncodedDay, EncodedExact, EncodedInstant
from tidemark.providers.debezium.kinds_of_record import STAMPS
from tidemark.providers.debezium.parts import BEFORE, LACKS, UNSENT
from tidemark.providers.debezium.source_types import DECIMAL, ZONED
from tidemark.providers.debezium.times import of_another_unit, times_of_numbers
from tidemark.providers.debezium.units import NAMED, Decimals, Unit
from tidemark.times.event_time import instants

LAYOUTS: Final = 4  # remembered at once; records of other layouts are read one by one
NAMES_LIMIT: Final = 300
_WHOLE: Final = r"(?:0|-?[1-9][0-9]{0,17})"
_LONG: Final = r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?"
_ANY: Final = rf"(?:{TEXT}|{_LONG}|true|false|null)"  # a value that no column needs
_NUMBER_TOO: Final = r"(?i)^\+?(?:[0-9]+(?:e\+?[0-9]+)?|inf(?:inity)?|s?nan[0-9]*)$"  # base64 that is also a decimal
_DATE_DIGITS: Final = 6
_TRANSACTION: Final = ("id", "total_order", "data_collection_order")


@dataclass(frozen=True)
class _Column:
    """One column: the pattern of its texts, the type as which Arrow reads them, and their meaning."""

    field: Field
    pattern: str
    raw: pa.DataType
    unit: Unit | None = None  # the unit of a number that is a time
    from_file: bool = False  # true if only the pipeline file says that unit
    is_base64: bool = False


@dataclass(frozen=True)
class _Layout:
    """Records with one order of names; ``beginning`` is the text before the payload."""

    beginning: bytes
    pattern: str
    read: pa.Schema
    columns: Mapping[str, _Column]
    unknown: tuple[str, ...]  # names in the row that the schema does not have
    absent: str | None  # columns of the schema that the row does not have, as JSON


class EnvelopeReader:
    """Reads the parts of envelopes; ``parts`` describes them, with the row in ``after``. Picklable; each task has its
    own."""

    def __init__(self, parts: Struct, large: tuple[str, ...], placeholders: tuple[str, ...]) -> None:
        self._parts = {field.name: field for field in parts.fields}
        self._large = large
        self._placeholders = pa.array(placeholders, pa.string())
        self._layouts: list[_Layout] = []
        self._read: list[pa.Array] = []  # the columns of the last call of ``fitting``
        self._unknown: UnknownFields | None = None

    @classmethod
    def of(cls, parts: Struct, large: tuple[str, ...], placeholders: tuple[str, ...]) -> "EnvelopeReader | None":
        """Return a reader; None if a column of the row has no pattern."""
        after = next(field.shape for field in parts.fields if field.name == "after")
        known = isinstance(after, Struct) and all(_is_readable(field.shape) for field in after.fields)
        return cls(parts, large, placeholders) if known else None

    def learn(self, record: Mapping[str, Any], value: bytes) -> None:
        del record
        if len(self._layouts) == LAYOUTS:
            return
        try:
            layout = self._layout_of(value.decode())
        except ValueError:  # the record has spaces, or is otherwise not in the compact form
            return
        if layout is not None and layout not in self._layouts:
            self._layouts.append(layout)

    def fitting(self, values: pa.Array) -> pa.Array | None:
        """Return which of the values it could read. It keeps their columns until ``columns`` is called."""
        if not self._layouts or not pa.types.is_binary(values.type) or values.nbytes > BYTES_LIMIT:
            return None
        fits: pa.Array = pa.repeat(False, len(values))
        parts: list[tuple[pa.Array, list[pa.Array], UnknownFields | None]] = []
        for layout in self._layouts:
            made = self._of_layout(values, layout, fits)
            if made is not None:
                fits = pc.or_(fits, made[0])
                parts.append(made)
            if made is not None and pc.all(fits).as_py():
                break
        self._keep(parts, fits)
        return fits if parts else None

    def columns(self, values: pa.Array) -> list[pa.Array]:
        if not self._read or len(self._read[0]) != len(values):
            raise Misfit
        return self._read

    def unknown(self, values: pa.Array) -> UnknownFields | None:
        del values
        return self._unknown

    def _keep(self, parts: list[tuple[pa.Array, list[pa.Array], UnknownFields | None]], fits: pa.Array) -> None:
        self._read, self._unknown = [], None
        if not parts:
            return
        if len(parts) == 1:
            _, self._read, self._unknown = parts[0]
            return
        places = [pc.indices_nonzero(mask).cast(pa.int64()) for mask, _, _ in parts]
        whole = pc.indices_nonzero(fits).cast(pa.int64())
        order = pc.index_in(whole, value_set=pa.concat_arrays(places))
        self._read = [
            pa.concat_arrays([made[at] for _, made, _ in parts]).take(order) for at in range(len(self._parts))
        ]
        by_path: dict[str, list[int]] = {}
        for place, (_, _, unknown) in zip(places, parts, strict=True):
            if unknown is not None:
                records = pc.index_in(place.take(unknown.records), value_set=whole).to_pylist()
                for path, record in zip(unknown.paths.to_pylist(), records, strict=True):
                    by_path.setdefault(path, []).append(record)
        self._unknown = unknown_at({path: pa.array(sorted(at), pa.int64()) for path, at in by_path.items()})

    def _of_layout(
        self, values: pa.Array, layout: _Layout, taken: pa.Array
    ) -> tuple[pa.Array, list[pa.Array], UnknownFields | None] | None:
        """Return (which values it reads, their columns, their unknown fields); None if it can read no value."""
        matched = self._matched(values, layout)
        if matched is None:
            return None
        fits = pc.and_not(matched, taken) if pc.any(taken).as_py() else matched
        everything = pc.all(fits).as_py()
        fitting = values if everything else values.filter(fits)
        if not len(fitting):
            return None
        if layout.beginning:
            fitting = _payloads(fitting, layout)
        try:
            read = parsed(fitting, layout.read)
        except (Misfit, pa.ArrowInvalid):
            return None
        op = read.column("op").combine_chunks()
        after, right = self._struct(read.column("after").combine_chunks(), self._parts["after"].shape, layout)
        made: dict[str, pa.Array] = {"op": op, "after": after}
        before = read.column(BEFORE).combine_chunks() if BEFORE in layout.read.names else None
        if BEFORE in self._parts and before is not None:
            only_deletions = pc.equal(op, "d")
            of_key, of_before = self._struct(before, self._parts[BEFORE].shape, layout)
            right = pc.and_(right, pc.or_(of_before, pc.invert(only_deletions)))
            made[BEFORE] = pc.if_else(only_deletions, of_key, None)
        made[UNSENT] = self._unsent(op, before, after, layout)
        made[LACKS] = pc.if_else(pc.is_valid(after), pa.scalar(layout.absent, pa.string()), None)
        for name, part in self._parts.items():
            if name not in made:
                has_part = name in layout.read.names
                made[name] = read.column(name).combine_chunks() if has_part else pa.nulls(len(op), part.arrow.type)
        columns = [made[name].cast(part.arrow.type) for name, part in self._parts.items()]
        unknown = pc.is_valid(after) if layout.unknown else None
        if not pc.all(right).as_py():
            columns = [column.filter(right) for column in columns]
            unknown = None if unknown is None else unknown.filter(right)
            places = pc.indices_nonzero(fits).filter(right)
            fits = pc.is_in(positions(len(values)), value_set=places.cast(pa.int64()))
        return fits, columns, self._unknown_of(layout, unknown)

    def _unknown_of(self, layout: _Layout, having: pa.Array | None) -> UnknownFields | None:
        if having is None:
            return None
        records = pc.indices_nonzero(having).cast(pa.int64())
        return unknown_at({joined_path("after", name): records for name in layout.unknown}) if len(records) else None

    def _matched(self, values: pa.Array, layout: _Layout) -> pa.Array | None:
        try:
            if not layout.beginning:
                return pc.fill_null(pc.match_substring_regex(values.cast(pa.string()), layout.pattern), False)
            framed = pc.and_(pc.starts_with(values, layout.beginning), pc.ends_with(values, b"}"))
            if not pc.any(framed).as_py():
                return None
            payloads = _payloads(values, layout).cast(pa.string())
            return pc.fill_null(pc.and_(framed, pc.match_substring_regex(payloads, layout.pattern)), False)
        except pa.ArrowInvalid:  # bytes that are not UTF-8, or a pattern that is too large
            return None

    def _struct(self, read: pa.Array, shape: Shape, layout: _Layout) -> tuple[pa.Array, pa.Array]:
        """Return (the structs of a row, which of them are right)."""
        assert isinstance(shape, Struct), "a row has fields"
        right = pa.repeat(True, len(read))
        made = []
        for field in shape.fields:
            column = layout.columns.get(field.name)
            if column is None:
                made.append(pa.nulls(len(read), field.shape.arrow))
                continue
            raw = pc.struct_field(read, field.name)
            values, wrong = self._values(raw, column)
            right = right if wrong is None else pc.and_not(right, wrong)
            made.append(values)
        return pa.StructArray.from_arrays(made, fields=list(shape.arrow), mask=pc.is_null(read)), right

    def _values(self, raw: pa.Array, column: _Column) -> tuple[pa.Array, pa.Array | None]:
        """Return (values of a column, which of them must be read one by one)."""
        shape = column.field.shape
        if isinstance(shape, EncodedExact):
            return self._decimals(raw, shape, column)
        if column.unit is not None:
            made = times_of_numbers(raw, column.unit)
            wrong = pc.and_(pc.is_null(made), pc.is_valid(raw))
            if column.from_file and (other := of_another_unit(raw, column.unit)):
                wrong = pc.or_(wrong, pc.is_in(positions(len(raw)), value_set=pa.array(other, pa.int64())))
            return made, wrong
        if isinstance(shape, EncodedInstant):
            made = instants(raw, "UTC")
            return made, pc.and_(pc.is_null(made), pc.is_valid(raw))
        return shaped(shape, raw), None

    def _decimals(self, raw: pa.Array, shape: EncodedExact, column: _Column) -> tuple[pa.Array, pa.Array | None]:
        if not column.is_base64:
            return raw.cast(shape.arrow), None
        numbers = decimals_of_base64(raw, shape.precision, shape.scale)
        wrong = pc.and_(pc.is_null(numbers), pc.is_valid(raw))
        wrong = pc.or_(wrong, pc.fill_null(pc.is_in(raw, value_set=self._placeholders), False))
        if shape.decimals is None:
            wrong = pc.or_(wrong, pc.fill_null(pc.match_substring_regex(raw, _NUMBER_TOO), False))
        return numbers, wrong

    def _unsent(self, op: pa.Array, before: pa.Array | None, after: pa.Array, layout: _Layout) -> pa.Array:
        """For each update without ``before``, return the name of the column whose null may be a value that was not
        sent."""
        unsent = pa.nulls(len(op), pa.string())
        named = [name for name in self._large if name in layout.columns]
        blind = pc.and_(pc.equal(op, "u"), pc.is_valid(after))
        blind = blind if before is None else pc.and_(blind, pc.is_null(before))
        if not named or not pc.any(blind).as_py():
            return unsent
        for name in reversed(named):
            unsent = pc.if_else(pc.and_(blind, pc.is_null(pc.struct_field(after, name))), name, unsent)
        return unsent

    def _layout_of(self, text: str) -> _Layout | None:
        """Return the layout of a good record; None if it is no envelope as connectors write them."""
        beginning, schema = "", None
        if text.startswith('{"schema":'):
            schema, end = json.JSONDecoder().raw_decode(text, len('{"schema":'))
            if not text.startswith(',"payload":', end):
                return None
            beginning = text[: end + len(',"payload":')]
        payload, end = json.JSONDecoder().raw_decode(text, len(beginning))
        if text[end:] != ("}" if beginning else "") or type(payload) is not dict:
            return None
        after, source = payload.get("after"), payload.get("source")
        names = [*payload, *(after or {}), *(source or {})]
        if type(after) is not dict or type(source) is not dict or len(names) > NAMES_LIMIT:
            return None
        if "op" not in payload or not all(map(is_plain_name, names)):
            return None
        columns = self._columns(after, schema)
        row = self._row_pattern(after, columns)
        if columns is None or row is None:
            return None
        transaction = _object({name: self._scalar("transaction", name) for name in _TRANSACTION})
        patterns = {"op": '"[crud]"', "after": f"(?:null|{row})", BEFORE: f"(?:null|{row})",
                    "source": _object({name: self._scalar("source", name) for name in source}),
                    "transaction": f"(?:null|{transaction})",
                    **{name: self._stamp(name) for name in STAMPS}}  # fmt: skip
        if not payload.keys() <= patterns.keys():
            return None
        pattern = f"^{_object({name: patterns[name] for name in payload})}$"
        read = self._read_schema(payload, columns)
        unknown = tuple(name for name in after if name not in columns)
        return _Layout(beginning.encode(), pattern, read, columns, unknown, self._absent_in(after))

    def _absent_in(self, after: Mapping[str, Any]) -> str | None:
        """Return, as JSON, the columns of the schema that a row does not have."""
        shape = self._parts["after"].shape
        assert isinstance(shape, Struct), "a row has fields"
        absent = [field.name for field in shape.fields if field.nullable and field.name not in after]
        return json.dumps(absent) if absent else None

    def _columns(self, after: Mapping[str, Any], schema: object) -> dict[str, _Column] | None:
        shape = self._parts["after"].shape
        assert isinstance(shape, Struct), "a row has fields"
        beside = _fields_beside(schema)
        columns = {}
        for field in shape.fields:
            if field.name in after:
                column = _column(field, None if schema is None else beside.get(field.name, {}))
                if column is None:
                    return None
                columns[field.name] = column
        return columns

    def _row_pattern(self, after: Mapping[str, Any], columns: Mapping[str, _Column] | None) -> str | None:
        if columns is None:
            return None
        for name, value in after.items():
            if name not in columns and type(value) in (dict, list):
                return None
        return _object({name: columns[name].pattern if name in columns else _ANY for name in after})

    def _scalar(self, part: str, name: str) -> str:
        wanted = self._parts.get(part)
        fields = (
            {field.name: field for field in wanted.shape.fields} if wanted and isinstance(wanted.shape, Struct) else {}
        )
        return f"(?:null|{value_pattern(fields[name].shape) or TEXT})" if name in fields else _ANY

    def _stamp(self, name: str) -> str:
        return f"(?:null|{_WHOLE})" if name in self._parts else _ANY

    def _read_schema(self, payload: Mapping[str, Any], columns: Mapping[str, _Column]) -> pa.Schema:
        """Return the schema for Arrow's parser.

        Of ``before`` it has the fields of the key, or else any one column, which shows whether ``before`` is null.
        """
        rows = {"after": columns, BEFORE: self._of_before(columns)}
        fields: list[tuple[str, pa.DataType]] = []
        for name in payload:
            if name in rows:
                fields.append((name, pa.struct([(field, column.raw) for field, column in rows[name].items()])))
            elif name in self._parts:
                fields.append((name, self._parts[name].arrow.type))
        return pa.schema(fields)

    def _of_before(self, columns: Mapping[str, _Column]) -> Mapping[str, _Column]:
        before = self._parts[BEFORE].shape if BEFORE in self._parts else None
        of_key = before.names if isinstance(before, Struct) else frozenset()
        return {name: column for name, column in columns.items() if name in of_key} or dict([*columns.items()][:1])


def _is_readable(shape: Shape) -> bool:
    return isinstance(shape, Text | Content | Boolean | Integer | Number | EncodedDay | EncodedInstant | EncodedExact)


def _column(field: Field, beside: Mapping[str, Any] | None) -> _Column | None:
    """Return how a column is read. ``beside`` is its schema beside the records; None if the records have no schema."""
    shape = field.shape
    name = (beside or {}).get("name")
    match shape:
        case EncodedExact():
            return _decimal_column(field, shape, beside)
        case EncodedDay():
            unit = Unit.DAYS if beside is None or name is None else NAMED.get(name)
            return (
                _nullable(field, rf"0|-?[1-9][0-9]{{0,{_DATE_DIGITS}}}", pa.int64(), unit)
                if unit is Unit.DAYS
                else None
            )
        case EncodedInstant(unit=given):
            unit = NAMED.get(name) if isinstance(name, str) else given
            if unit is Unit.DAYS or (unit is None and name not in (None, ZONED)):
                return None
            if unit is None:
                return _nullable(field, INSTANT, pa.string())
            return _nullable(field, _WHOLE, pa.int64(), unit, from_file=name is None)
        case Text() if name == DECIMAL:  # the column needs the number as text, and the record has base64
            return None
        case _:
            pattern = value_pattern(shape)
            return None if pattern is None else _nullable(field, pattern, read_as(shape))


def _decimal_column(field: Field, shape: EncodedExact, beside: Mapping[str, Any] | None) -> _Column | None:
    most = (10**shape.precision).bit_length() // 8 + 1
    base64 = (
        rf'"(?:[A-Za-z0-9+/]{{4}}){{0,{most // 3}}}(?:[A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=|[A-Za-z0-9+/]{{4}})"'
    )
    if shape.precision == shape.scale:
        return None
    text = f'"{exact_pattern(shape.precision, shape.scale)}"'
    if beside is None:
        if shape.decimals is Decimals.TEXT:
            return _nullable(field, text, pa.string())
        return _nullable(field, base64, pa.string(), is_base64=True)
    if beside.get("name") == DECIMAL:
        parameters = beside.get("parameters")
        same = isinstance(parameters, dict) and parameters.get("scale") == str(shape.scale)
        return _nullable(field, base64, pa.string(), is_base64=True) if same else None
    return _nullable(field, text, pa.string()) if beside.get("type") == "string" else None


def _nullable(field: Field, pattern: str, raw: pa.DataType, unit: Unit | None = None, *, from_file: bool = False,
              is_base64: bool = False) -> _Column:  # fmt: skip
    pattern = f"(?:{pattern}|null)" if field.nullable else f"(?:{pattern})"
    return _Column(field, pattern, raw, unit, from_file, is_base64)


def _fields_beside(schema: object) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each column of ``after``, from the schema beside a record."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    after = next((each for each in fields or () if isinstance(each, dict) and each.get("field") == "after"), {})
    inner = after.get("fields")
    return {each["field"]: each for each in inner or () if isinstance(each, dict) and type(each.get("field")) is str}


def _object(members: Mapping[str, str]) -> str:
    named = (f"{re.escape(json.dumps(name, ensure_ascii=False))}:{pattern}" for name, pattern in members.items())
    return rf"\{{{','.join(named)}\}}"


def _payloads(values: pa.Array, layout: _Layout) -> pa.Array:
    """Return the text between the constant beginning and the last bracket of each value.

    The end is given because ``binary_slice`` of pyarrow 25 fails without one.
    """
    return pc.binary_slice(values, len(layout.beginning), -1)
