"""Reads Debezium's envelopes in JSON, with the schema beside each record (``schemas.enable``) or without it.

JSON has no dates, times and decimals. A schema beside the record says what a number or a text means; without one the
column's type and the settings say it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from tidemark.decoders.json_shapes.nested import Field, ListOf, MapOf, Struct
from tidemark.decoders.json_shapes.shapes import ABSENT, Day, Exact, Instant, Integer, Number, Shape, Text
from tidemark.decoders.one_by_one import Undecodable
from tidemark.errors import ConfigurationError
from tidemark.providers.debezium import flat
from tidemark.providers.debezium.columns_at_once import EnvelopeReader
from tidemark.providers.debezium.encoded import (
    AnyId,
    Days,
    EncodedDay,
    EncodedExact,
    EncodedInstant,
    EncodedNumber,
    EncodedText,
    Microseconds,
    NoNumber,
    NoTime,
    decimal_of_text,
    number_as_text,
    unscaled,
)
from tidemark.providers.debezium.envelope import SIGNAL_TABLE, can_be_large
from tidemark.providers.debezium.kinds_of_record import is_envelope, kind_of_other
from tidemark.providers.debezium.parts import BEFORE, LACKS, PARTS, PLACEHOLDER, UNSENT
from tidemark.providers.debezium.placeholder import PlaceholderFinder
from tidemark.providers.debezium.proposed import type_by
from tidemark.providers.debezium.source_types import DECIMAL
from tidemark.providers.debezium.times import microseconds
from tidemark.providers.debezium.units import NAMED, Decimals, Unit

_NO_ENVELOPE: Final = (
    "no op: not an envelope of Debezium (flattened: true under decode.envelope is for records that a connector unwraps)"
)
_SCALE: Final = re.compile(r"-?[0-9]{1,4}")


class DebeziumJson:
    """Reads envelopes in JSON; ``row`` is the pipeline file's schema of ``after``."""

    def __init__(self, config: Mapping[str, Any], row: Struct, key: Sequence[str]) -> None:
        times = {name: Unit(unit) for name, unit in config.get("times", {}).items()}
        shapes = {field.name: field.shape for field in row.fields}
        for name, unit in times.items():
            if name not in shapes or not _has_times(shapes[name]):
                raise ConfigurationError(
                    f"decode.envelope.times names {name}, which neither is nor contains a DATE or TIMESTAMP of the "
                    "schema",
                    next_step="correct its name, or its type in decode.schema",
                )
            if isinstance(shapes[name], Day) and unit is not Unit.DAYS:
                raise ConfigurationError(
                    f"decode.envelope.times says {unit.value} for {name}, but a number in a DATE always counts days",
                    next_step="give it the type TIMESTAMP in decode.schema, or leave it out of times",
                )
        texts = PlaceholderFinder(config.get("unavailable_value", PLACEHOLDER)).texts
        decimals = Decimals(config["decimals"]) if "decimals" in config else None
        encoding = _Encoding(decimals, placeholders=texts)
        fields = [replace(field, shape=encoding.of(field.shape, times.get(field.name))) for field in row.fields]
        self.key = replace(row, fields=tuple(fields))
        self.row = pa.schema([field.arrow for field in fields])
        self._columns = {field.name: None for field in fields if field.nullable}
        self._large = tuple(field.name for field in fields if can_be_large(field.shape.arrow))
        if config.get("unavailable") == "keep_null":
            self._large = ()
        self._flattened = config.get("flattened", False)
        parts = _parts(config)
        of_key = tuple(replace(field, required=False, nullable=True) for field in fields if field.name in key)
        if of_key:
            parts.append(Field(BEFORE, Struct(of_key), required=False, nullable=True))
        self._inner = {part.name: part.shape.names for part in parts if isinstance(part.shape, Struct)}
        self._encoded = Struct(tuple(field for field in fields if _has_encoded(field.shape)))
        self._signal_table = config.get("signal_table", SIGNAL_TABLE)
        self.struct = Struct((*parts, Field("after", self.key, required=False, nullable=True)))
        self.reader = None if self._flattened else EnvelopeReader.of(self.struct, self._large, texts)
        self._parts = tuple(field.name for field in self.struct.fields if field.name not in (UNSENT, LACKS))

    def opened(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the envelope of a record. A record of another kind has only an ``op`` that names it. Raises
        ``Undecodable``."""
        opened = self._opened(record)
        after = opened.get("after")
        if type(after) is dict and not self._columns.keys() <= after.keys():
            opened[LACKS] = json.dumps([name for name in self._columns if name not in after])
        return opened

    def _opened(self, record: dict[str, Any]) -> dict[str, Any]:
        schema = None
        if record.keys() == {"schema", "payload"}:
            payload, schema = record["payload"], record["schema"]
            if self._flattened and payload is None:
                return {"op": "d"}
            if type(payload) is not dict:
                raise Undecodable("payload is no object")
            record = payload
        if self._flattened:
            return self._told_row(flat.envelope_of(record, self._inner), {"after": schema, BEFORE: schema})
        if not is_envelope(record):
            if (kind := kind_of_other(record)) is not None:
                return {"op": kind}
            raise Undecodable(_NO_ENVELOPE)
        opened = self._parts_of(record)
        if opened.get("source", {}).get("table") == self._signal_table:
            return {**opened, "after": None, BEFORE: None}  # its columns are those of the table of signals
        if schema:
            return self._told_row(
                opened,
                {field["field"]: field for field in reversed(_fields_of(schema)) if type(field.get("field")) is str},
            )
        return opened

    def _parts_of(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of an envelope that are needed, and the column whose null may be a value that was not
        sent."""
        opened = {name: record[name] for name in self._parts if record.get(name) is not None}
        if record["op"] != "d":
            opened.pop(BEFORE, None)
        for name, inner in self._inner.items():  # without this, fields that no column needs would count as unknown
            if type(part := opened.get(name)) is dict:
                opened[name] = {field: part[field] for field in inner if field in part}
        after = opened.get("after")
        if record["op"] == "u" and after is not None and record.get(BEFORE) is None:
            unsent = next((name for name in self._large if after.get(name, ABSENT) is None), None)
            if unsent is not None:
                opened[UNSENT] = unsent
        return opened

    def _told_row(self, opened: dict[str, Any], schemas: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the same envelope, with numbers and texts of the row read as the schemas beside them say."""
        told = {name: _told(self._encoded, opened[name], schemas.get(name)) for name in ("after", BEFORE)
                if type(opened.get(name)) is dict}  # fmt: skip
        return {**opened, **told}

    def opened_key(self, key: dict[str, Any], single: str | None) -> dict[str, Any]:
        """Return the fields of a key, which may have a schema beside it as records have."""
        if key.keys() == {"scale", "value"} and single is not None:  # the key is one number, not a row
            return {single: key}
        if key.keys() != {"schema", "payload"}:
            return key
        payload, schema = key["payload"], key["schema"]
        if type(payload) is not dict or (single is not None and payload.keys() == {"scale", "value"}):
            if single is None or type(schema) is not dict:
                return key
            payload, schema = {single: payload}, {"fields": [{**schema, "field": single}]}
        told: dict[str, Any] = _told(self._encoded, payload, schema)
        return told


@dataclass(frozen=True)
class _Encoding:
    """The encoding of dates, times and decimals if no schema says it."""

    decimals: Decimals | None
    placeholders: tuple[str, ...]

    def of(self, shape: Shape, unit: Unit | None = None) -> Shape:
        """Return the shape of values that may be encoded; ``unit`` is that of all times in it."""
        match shape:
            case Instant():
                return EncodedInstant("UTC", unit)
            case Day():
                return EncodedDay()
            case Exact():
                return EncodedExact(shape.precision, shape.scale, self.decimals, placeholders=self.placeholders)
            case Number():
                return EncodedNumber(shape.bits)
            case Text():
                return EncodedText()
            case Struct():
                fields = tuple(replace(field, shape=self.of(field.shape, unit)) for field in shape.fields)
                return replace(shape, fields=fields)
            case ListOf():
                return replace(shape, element=self.of(shape.element, unit))
            case MapOf():
                return replace(shape, item=self.of(shape.item, unit))
            case _:
                return shape


def _has_times(shape: Shape) -> bool:
    return any(isinstance(part, Instant | Day) for part in _scalars(shape))


def _has_encoded(shape: Shape) -> bool:
    return any(isinstance(part, EncodedInstant | EncodedDay | EncodedExact | EncodedText) for part in _scalars(shape))


def _scalars(shape: Shape) -> Iterator[Shape]:
    """Yield the shapes without parts inside a shape."""
    match shape:
        case Struct():
            for field in shape.fields:
                yield from _scalars(field.shape)
        case ListOf(element=part) | MapOf(item=part):
            yield from _scalars(part)
        case _:
            yield shape


def _parts(config: Mapping[str, Any]) -> list[Field]:
    """Return the further parts that are needed: for columns, and the table's name, by which a signal is recognized."""
    parts = [Field(name, Text(), required=False, nullable=True) for name in (UNSENT, LACKS)]
    paths = {"op", "source.table", *config.get("columns", {}).values()}
    for first in dict.fromkeys(path.partition(".")[0] for path in sorted(paths)):
        if first in PARTS:
            parts.append(Field(first, _scalar(first), required=False, nullable=True))
            continue
        inner = sorted(path for path in paths if path.startswith(f"{first}."))
        fields = tuple(Field(path.partition(".")[2], _scalar(path), required=False, nullable=True) for path in inner)
        parts.append(Field(first, Struct(fields), required=False, nullable=True))
    return parts


def _scalar(path: str) -> Shape:
    if path == "source.txId":
        return AnyId()
    return Text() if PARTS[path] == "text" else Integer()


def _fields_of(schema: object) -> list[dict[str, Any]]:
    """Return the fields of a schema beside a record; empty if it is not such a schema."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _told(shape: Shape, value: Any, schema: Any) -> Any:
    """Return a value whose numbers and texts are read as the schema beside it says."""
    if value is None or type(schema) is not dict:
        return value
    match shape:
        case Struct() if type(value) is dict:
            shapes = {field.name: field.shape for field in shape.fields}
            told = {
                name: _told(shapes[name], value[name], field)
                for field in _fields_of(schema)
                if type(name := field.get("field")) is str and name in shapes and name in value
            }
            return {**value, **told}
        case ListOf(element=part) if type(value) is list:
            return [_told(part, element, schema.get("items")) for element in value]
        case MapOf(item=part) if type(value) is dict:
            return {name: _told(part, item, schema.get("values")) for name, item in value.items()}
        case EncodedExact() if type(value) is str and value not in shape.placeholders:
            return _decimal(value, schema)
        case EncodedText() if type(value) is str and schema.get("name") == DECIMAL:
            scale = _scale(schema.get("parameters"))
            return value if scale is None else number_as_text(value, scale)
        case EncodedInstant() | EncodedDay() if type(value) is int:
            return _moment(value, schema)
        case _:
            return value


def _decimal(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the decimal that a text means by its schema; the text itself if the schema does not say."""
    if schema.get("name") == DECIMAL:
        scale = _scale(schema.get("parameters"))
        number = None if scale is None else unscaled(text, scale)
    elif schema.get("type") == "string":
        number = decimal_of_text(text)
    elif isinstance(schema.get("type"), str):
        number = None  # the schema says another type, such as a double that is not finite
    else:
        return text
    return NoNumber(text) if number is None else number


def _scale(parameters: object) -> int | None:
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    return int(scale) if isinstance(scale, str) and _SCALE.fullmatch(scale) else None


def _moment(number: int, schema: Mapping[str, Any]) -> int:
    """Return the moment or the date that a number means by its schema; the number itself if the schema does not say."""
    name = schema.get("name")
    if not isinstance(name, str):
        return number
    unit = NAMED.get(name)
    if unit is None:
        return NoTime(number)
    return Days(number) if unit is Unit.DAYS else Microseconds(microseconds(number, unit))


def open_json(config: Mapping[str, Any], row: Struct, key: Sequence[str]) -> DebeziumJson:
    return DebeziumJson(config, row, key)


def row_inside(config: Mapping[str, Any], record: object) -> object:
    """Return the row in ``after`` of a record, which may have its schema beside it."""
    if isinstance(record, dict) and record.keys() == {"schema", "payload"}:
        record = record["payload"]
    if not isinstance(record, dict):
        return None
    return flat.row_of(record) if config.get("flattened", False) else record.get("after")


@dataclass(frozen=True)
class ScaleUnsaid:
    """A DECIMAL column in base64 without a schema: neither the record nor the file says the scale of its numbers."""

    column: str
    next_step: ClassVar[str] = (
        "let the connector write decimal.handling.mode=string, and write decimals: text; or, if the scale never "
        "changes, decimals: base64"
    )

    def __str__(self) -> str:
        return (
            f"column {self.column}: its numbers are base64 without a schema; if their scale changes in the source, "
            "Tidemark reads wrong numbers, and nothing in a record shows it"
        )


def doubts_of(config: Mapping[str, Any], columns: pa.Schema, record: object) -> Sequence[ScaleUnsaid]:
    """Return the columns whose decimals are base64 although neither the file nor a schema says so."""
    if "decimals" in config or (isinstance(record, dict) and record.keys() == {"schema", "payload"}):
        return ()
    row = row_inside(config, record)
    values = row if isinstance(row, dict) else {}
    return [
        ScaleUnsaid(field.name)
        for field in columns
        if pa.types.is_decimal(field.type)
        and isinstance(text := values.get(field.name), str)
        and unscaled(text, field.type.scale) is not None
    ]


def types_inside(config: Mapping[str, Any], record: object) -> Mapping[str, str]:
    """Return the types of columns in DDL, from the schema beside the record."""
    if not isinstance(record, dict) or record.keys() != {"schema", "payload"}:
        return {}
    row = record["schema"]
    if not config.get("flattened", False):
        row = next((field for field in _fields_of(row) if field.get("field") == "after"), None)
    types = {field["field"]: type_by(field) for field in _fields_of(row) if type(field.get("field")) is str}
    return {name: kind for name, kind in types.items() if kind is not None}
