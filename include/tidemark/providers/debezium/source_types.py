"""Makes columns by the source types in a schema, so that a source type becomes the same column in each format.

    io.debezium.time.Date, org.apache.kafka.connect.data.Date       DATE
    io.debezium.time.Timestamp, MicroTimestamp, NanoTimestamp       TIMESTAMP
    io.debezium.time.ZonedTimestamp                                 TIMESTAMP
    io.debezium.data.VariableScaleDecimal                           text: the number as it was written
    org.apache.kafka.connect.data.Decimal                           DECIMAL, of 38 digits without a precision; with
                                                                    more digits text
    org.apache.kafka.connect.data.Time                              INT: milliseconds
    int8, int16                                                     SMALLINT

They are also found inside lists, maps and structs. A column of another type stays as its format has read it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import MAX_PREC, Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.providers.debezium.times import of_another_unit, times_of_numbers, type_of
from tidemark.providers.debezium.units import NAMED, Unit
from tidemark.times.event_time import INSTANT, instants

ZONED: Final = "io.debezium.time.ZonedTimestamp"
VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
CONNECT_TIME: Final = "org.apache.kafka.connect.data.Time"
_PRECISION: Final = "connect.decimal.precision"
_DIGITS: Final = 38
_SCALE_LIMIT: Final = 1_000
_LONGEST: Final = 4_096  # bytes of a number, because the time to make its text grows with the square of their count
_WHOLE: Final = re.compile(r"-?[0-9]{1,4}")
_EXACT: Final = Context(prec=MAX_PREC)


def column_type(field: pa.Field, unit: Unit | None = None) -> pa.DataType:
    """Return the type of the column. ``unit`` is the unit of its numbers in the pipeline file."""
    unit = unit_of(field, unit)
    if unit is not None:
        return type_of(unit)
    kind = field.type
    if _is_zoned(field):
        return INSTANT
    if _is_variable_scale(field):
        return pa.string()
    if (digits := _digits(field)) is not None:
        return pa.decimal128(*digits)
    if _is_large_number(field):
        return pa.string()
    if _is_connect_time(field):
        return pa.int32()
    if _is_short(field):
        return pa.int16()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(inner.name, column_type(inner)) for inner in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, column_type(kind.value_field)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, column_type(kind.item_field))
    return kind


def unit_of(field: pa.Field, given: Unit | None) -> Unit | None:
    """Return the unit of a number that is a time: from its schema, or else from the file."""
    named = NAMED.get(_name(field))
    return (named or given) if pa.types.is_integer(field.type) else None


def column_of(values: pa.Array, field: pa.Field, unit: Unit | None = None) -> tuple[pa.Array, list[int]]:
    """Return the column, and the positions of values that it cannot hold: these are null, or contain null."""
    if (numbers := unit_of(field, unit)) is not None:
        made = times_of_numbers(values, numbers)
        wrong = _lost(values, made)
        if NAMED.get(_name(field)) is None:  # only the file says the unit
            wrong += of_another_unit(values.cast(pa.int64()), numbers)
        return made, wrong
    if column_type(field) == field.type:
        return values, []
    if _is_zoned(field):
        made = instants(values, "UTC")
        return made, _lost(values, made)
    if _is_variable_scale(field):
        made = pa.array([_text_of_number(value) for value in values.to_pylist()], pa.string())
        return made, _lost(values, made)
    if (digits := _digits(field)) is not None:
        made = _decimals(_numbers(values, field), *digits)
        return made, _lost(values, made)
    if _is_large_number(field):
        texts = [None if number is None else f"{number:f}" for number in _numbers(values, field)]
        made = pa.array(texts, pa.string())
        return made, _lost(values, made)
    if _is_connect_time(field):
        moments = pc.binary_join_element_wise("1970-01-01T", values, "").cast(pa.timestamp("us"))
        return pc.divide(moments.cast(pa.int64()), 1_000).cast(pa.int32()), []
    if _is_short(field):
        made = pc.if_else(pc.and_(pc.greater_equal(values, -(2**15)), pc.less(values, 2**15)), values, None)
        return made.cast(pa.int16()), _lost(values, made)
    return _column_of_parts(values, field)


def _column_of_parts(values: pa.Array, field: pa.Field) -> tuple[pa.Array, list[int]]:
    kind, made_type = field.type, column_type(field)
    if pa.types.is_struct(kind):
        parts = [column_of(part, inner) for part, inner in zip(values.flatten(), kind, strict=True)]
        mask = values.is_null()
        made = pa.StructArray.from_arrays([part for part, _ in parts], fields=list(made_type), mask=mask)
        return made, sorted({at for _, wrong in parts for at in wrong if values[at].is_valid})
    lists = values
    if pa.types.is_map(kind):
        lists = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    parts, offsets, mask = lists.flatten(), _offsets(lists), values.is_null()
    if pa.types.is_list(kind):
        inner, wrong = column_of(parts, kind.value_field)
        made = pa.ListArray.from_arrays(offsets, inner, type=made_type, mask=mask)
    else:
        names, items = parts.flatten()
        inner, wrong = column_of(items, kind.item_field)
        made = pa.MapArray.from_arrays(offsets, names, inner, type=made_type, mask=mask)
    owners = pc.list_parent_indices(lists)
    return made, sorted({owners[at].as_py() for at in wrong})


def _offsets(values: pa.Array) -> pa.Array:
    """Return the offsets of lists whose parts are flattened. A null list has no parts, whatever Arrow stores below
    it."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _lost(values: pa.Array, made: pa.Array) -> list[int]:
    positions: list[int] = pc.indices_nonzero(pc.and_(pc.is_null(made), pc.is_valid(values))).to_pylist()
    return positions


def _name(field: pa.Field) -> str:
    name: str = (field.metadata or {}).get(b"connect.name", b"").decode()
    return name


def _is_zoned(field: pa.Field) -> bool:
    return _name(field) == ZONED and pa.types.is_string(field.type)


def _is_variable_scale(field: pa.Field) -> bool:
    kind = field.type
    return (
        _name(field) == VARIABLE_SCALE
        and pa.types.is_struct(kind)
        and {part.name for part in kind} == {"scale", "value"}
    )


def _is_connect_time(field: pa.Field) -> bool:
    return _name(field) == CONNECT_TIME and pa.types.is_string(field.type)


def _is_short(field: pa.Field) -> bool:
    kind = (field.metadata or {}).get(b"connect.type")
    return kind in (b"int8", b"int16") and pa.types.is_int32(field.type)


def exact_digits(parameters: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (precision, scale) of the column for a decimal with these parameters; None if it needs more than 38
    digits.

    A ``numeric(3,5)`` has more digits behind the point than digits, and a ``numeric(5,-2)`` ends with zeros.
    """
    scale = _whole(parameters.get("scale"))
    if scale is None:
        return None
    written = _whole(parameters.get(_PRECISION))
    precision = _DIGITS if written is None else max(written, scale) - min(scale, 0)
    return (precision, max(scale, 0)) if max(precision, scale) <= _DIGITS else None


def _whole(text: object) -> int | None:
    return int(text) if isinstance(text, str) and _WHOLE.fullmatch(text) else None


def _parameters(field: pa.Field) -> Mapping[str, Any] | None:
    """Return the parameters of a decimal that a format reads as a text, or as bytes; None for other fields."""
    kind = field.type
    if _name(field) != DECIMAL or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return None
    parameters: Mapping[str, Any] = json.loads((field.metadata or {}).get(b"connect.parameters", b"{}"))
    return parameters if _whole(parameters.get("scale")) is not None else None


def _digits(field: pa.Field) -> tuple[int, int] | None:
    parameters = _parameters(field)
    return None if parameters is None else exact_digits(parameters)


def _is_large_number(field: pa.Field) -> bool:
    """Return whether the bytes are a number with more digits than a decimal of Arrow has. Avro's own types have no such
    number."""
    parameters = _parameters(field)
    return parameters is not None and pa.types.is_binary(field.type) and exact_digits(parameters) is None


def _numbers(values: pa.Array, field: pa.Field) -> list[Decimal | None]:
    if pa.types.is_string(field.type):
        return [None if text is None else Decimal(text) for text in values.to_pylist()]
    scale = _whole((_parameters(field) or {}).get("scale")) or 0
    return [None if value is None or len(value) > _LONGEST else _number(value, scale) for value in values.to_pylist()]


def _number(content: bytes, scale: int) -> Decimal:
    return _EXACT.scaleb(Decimal(int.from_bytes(content, "big", signed=True)), -scale)


def _text_of_number(value: Any) -> str | None:
    if value is None or value["scale"] is None or value["value"] is None or abs(value["scale"]) > _SCALE_LIMIT:
        return None
    if len(value["value"]) > _LONGEST:
        return None
    return f"{_number(value['value'], value['scale']):f}"


def _decimals(numbers: Sequence[Decimal | None], precision: int, scale: int) -> pa.Array:
    most = 10**precision
    fit = [None if number is None or abs(_EXACT.scaleb(number, scale)) >= most else number for number in numbers]
    return pa.array(fit, pa.decimal128(precision, scale))
