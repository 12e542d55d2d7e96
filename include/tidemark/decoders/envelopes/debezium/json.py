"""Reads Debezium's envelopes in JSON, with the schema beside each record (``schemas.enable``) or without it.

JSON has no dates, times and decimals. A schema beside the record says what a number or a text stands for; without one
the column's type and the settings say it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidemark.decoders.envelopes.debezium.encoded import (
    Days,
    EncodedDay,
    EncodedExact,
    EncodedInstant,
    Microseconds,
    unscaled,
)
from tidemark.decoders.envelopes.debezium.parts import PARTS, PLACEHOLDER
from tidemark.decoders.envelopes.debezium.placeholder import PlaceholderFinder
from tidemark.decoders.envelopes.debezium.units import NAMED, Unit
from tidemark.decoders.json_shapes.nested import Field, ListOf, MapOf, Struct
from tidemark.decoders.json_shapes.shapes import Day, Exact, Instant, Integer, Shape, Text, Undecodable
from tidemark.errors import ConfigurationError

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_IN_US: Final = {Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1}


class DebeziumJson:
    """``row`` is the pipeline file's schema: what ``after`` holds."""

    def __init__(self, config: Mapping[str, Any], row: Struct) -> None:
        times = {name: Unit(unit) for name, unit in config.get("times", {}).items()}
        for name in times:
            shape = next((field.shape for field in row.fields if field.name == name), None)
            if not isinstance(shape, Instant | Day):
                raise ConfigurationError(
                    f"decode.envelope.times names {name}, which is no DATE or TIMESTAMP of the schema",
                    next_step="correct its name, or its type in decode.schema",
                )
        texts = PlaceholderFinder(config.get("unavailable_value", PLACEHOLDER)).texts
        encoding = _Encoding(base64=config.get("decimals", "base64") == "base64", placeholders=texts)
        fields = [replace(field, shape=encoding.of(field.shape, times.get(field.name))) for field in row.fields]
        self.key = replace(row, fields=tuple(fields))
        self.row = pa.schema([field.arrow for field in fields])
        parts = _parts(config)
        self._inner = {part.name: part.shape.names for part in parts if isinstance(part.shape, Struct)}
        self._encoded = {field.name for field in fields if isinstance(field.shape, _ENCODED)}
        self.struct = Struct((*parts, Field("after", self.key, required=False, nullable=True)))

    def opened(self, record: dict[str, Any]) -> dict[str, Any]:
        """The envelope of a record; what has another content is named by its ``op``. Raises ``Undecodable``."""
        schema = None
        if record.keys() == {"schema", "payload"}:
            record, schema = record["payload"], record["schema"]
            if type(record) is not dict:
                raise Undecodable("payload is no object")
        if "op" not in record:
            return {"op": _kind_of(record)}
        opened = {name: self._of_part(name, record[name]) for name in self.struct.names & record.keys()}
        after = opened.get("after")
        if schema and type(after) is dict:
            opened["after"] = self._told(after, _fields_of(schema, "after"))
        return opened

    def _of_part(self, name: str, part: Any) -> Any:
        """What is read of a part: others of its fields are known too, though no column has them."""
        if name not in self._inner or type(part) is not dict:
            return part
        return {inner: part[inner] for inner in self._inner[name] & part.keys()}

    def opened_key(self, key: dict[str, Any]) -> dict[str, Any]:
        """The fields of a key, which may have a schema beside it as records have."""
        if key.keys() != {"schema", "payload"} or type(key["payload"]) is not dict:
            return key
        return self._told(key["payload"], _fields_of(key["schema"]))

    def _told(self, row: dict[str, Any], fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """The values of a row, as the ``fields`` of the schema beside them say what they stand for."""
        converted = {}
        for field in fields:
            name = field.get("field")
            if name not in self._encoded or row.get(name) is None:
                continue
            convert = _conversion(field)
            if convert is not None:
                converted[name] = convert(row[name])
        return {**row, **converted} if converted else row


@dataclass(frozen=True)
class _Encoding:
    """How dates, times and decimals are encoded where no schema says it."""

    base64: bool
    placeholders: tuple[str, ...]

    def of(self, shape: Shape, unit: Unit | None = None) -> Shape:
        """The shape of values that may be encoded."""
        match shape:
            case Instant():
                return EncodedInstant("UTC", unit)
            case Day():
                return EncodedDay()
            case Exact():
                return EncodedExact(shape.precision, shape.scale, base64=self.base64, placeholders=self.placeholders)
            case Struct():
                fields = tuple(replace(field, shape=self.of(field.shape)) for field in shape.fields)
                return replace(shape, fields=fields)
            case ListOf():
                return replace(shape, element=self.of(shape.element))
            case MapOf():
                return replace(shape, item=self.of(shape.item))
            case _:
                return shape


_ENCODED: Final = (EncodedInstant, EncodedDay, EncodedExact)


def _parts(config: Mapping[str, Any]) -> list[Field]:
    """The other parts that are read: for columns, and the table, which tells a signal."""
    paths = {"op", "source.table", *config.get("columns", {}).values()}
    parts = []
    for first in dict.fromkeys(path.partition(".")[0] for path in sorted(paths)):
        if first in PARTS:
            parts.append(Field(first, _scalar(first), required=False, nullable=True))
            continue
        inner = sorted(path for path in paths if path.startswith(f"{first}."))
        fields = tuple(Field(path.partition(".")[2], _scalar(path), required=False, nullable=True) for path in inner)
        parts.append(Field(first, Struct(fields), required=False, nullable=True))
    return parts


def _scalar(path: str) -> Shape:
    return Text() if PARTS[path] == "text" else Integer()


def _kind_of(record: Mapping[str, Any]) -> str:
    """The name of a record that is no change of a row."""
    if "ddl" in record or "tableChanges" in record:
        return "schema change"
    if "status" in record and "id" in record:
        return "transaction"
    if record.keys() == {"ts_ms"}:
        return "heartbeat"
    raise Undecodable("no op: not an envelope of Debezium (leave decode.envelope out where a connector unwraps it)")


def _fields_of(schema: object, part: str | None = None) -> list[dict[str, Any]]:
    """The fields of a schema beside a record, or of a part of it; none where it has another content."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    fields = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return (
        fields
        if part is None
        else [inner for field in fields if field.get("field") == part for inner in _fields_of(field)]
    )


def _conversion(field: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """What makes a value of a field's number or text, by the name of its type; None where it is one already."""
    name = field.get("name")
    if name == _DECIMAL:
        return _Decimal(field)
    unit = NAMED.get(name) if isinstance(name, str) else None
    return None if unit is None else _Time(unit)


class _Decimal:
    def __init__(self, field: Mapping[str, Any]) -> None:
        parameters = field.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        self._scale = (
            int(scale) if isinstance(scale, str) and scale.lstrip("-").isdecimal() and len(scale) < 6 else None
        )

    def __call__(self, value: Any) -> Any:
        if type(value) is not str or self._scale is None:
            return value
        made = unscaled(value, self._scale)
        return value if made is None else made


class _Time:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def __call__(self, value: Any) -> Any:
        if type(value) is not int:
            return value
        if self._unit is Unit.DAYS:
            return Days(value)
        if self._unit is Unit.NANOSECONDS:
            return Microseconds(value // 1_000)
        return Microseconds(value * _IN_US[self._unit])


def open_json(config: Mapping[str, Any], row: Struct) -> DebeziumJson:
    return DebeziumJson(config, row)


def row_inside(record: object) -> object:
    """What ``after`` holds; the record may have its schema beside it."""
    if isinstance(record, dict) and record.keys() == {"schema", "payload"}:
        record = record["payload"]
    return record.get("after") if isinstance(record, dict) else None
