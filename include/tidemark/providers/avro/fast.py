"""Reads Avro records with pyruhvro, some 10 times as fast as ``reading.py``, but only for a tested list of types.

pyruhvro gets schemas without logical types (it loses the zone of timestamps, and panics on others). It does not report
bytes that follow a record. So this module compares the length that was read with the length of the values in Avro's
shortest form: no encoding is shorter, so equal lengths mean that nothing follows. ``reading.py`` reads again what
pyruhvro refuses, and records with different lengths. pyruhvro's panics are no subclass of ``Exception``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro  # type: ignore[import-untyped]

from tidemark.decoders.base import Decoded
from tidemark.decoders.batch_parts import joined
from tidemark.model.positions import positions
from tidemark.providers.avro.reading import RecordReader, within_years
from tidemark.providers.avro.resolution import default_of
from tidemark.providers.avro.schema import aliases_of, kind_of, without_null
from tidemark.providers.avro.types import TIMESTAMP, AvroRows, logical_of

SMALLEST = 256  # a part of so few records that pyruhvro refuses is not halved again, but read one by one
TRIES = 32  # most calls of pyruhvro for one batch; the remaining records are read one by one
_NUMBERS: Final = ("int", "long", "float", "double")
_SCALARS: Final = ("boolean", "string", *_NUMBERS)
_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("int", "long", "double"),
    "long": ("long",),
    "float": ("float", "double"),
}
_MILLIS: Final = 1_000


@dataclass(frozen=True)
class _Origin:
    """The place from which the fast path takes a column: a field of the writer's schema, or, if ``field`` is None, the
    reader's default. Numbers of the field are multiplied by ``multiplied``, so that milliseconds become microseconds.
    """

    field: str | None
    default: Any
    multiplied: int


class FastReader:
    """Reads records of one writer's schema as rows of one reader's schema, with pyruhvro. ``of`` returns None if
    pyruhvro cannot read a type."""

    def __init__(self, writer: Any, rows: AvroRows, origins: list[_Origin], slow: RecordReader) -> None:
        self._writer, self._rows, self._origins, self._slow = writer, rows, origins, slow
        self._text = json.dumps(_bare_record(writer))
        self._ints = [at for at, field in enumerate(writer["fields"]) if _is_of_ints(field["type"])]

    @classmethod
    def of(cls, writer: Any, rows: AvroRows, slow: RecordReader) -> "FastReader | None":
        """Return a reader; None if the fast path cannot read a column. ``slow`` reads the records that pyruhvro
        refuses. The caller has resolved the two schemas."""
        if not (
            kind_of(writer) == "record" and rows.is_record and all(_is_listed(f["type"]) for f in writer["fields"])
        ):
            return None
        written = {field["name"]: field for field in writer["fields"]}
        origins = [_origin(field, written) for field in rows.schema["fields"]]
        known = [origin for origin in origins if origin is not None]
        return cls(writer, rows, known, slow) if written and len(known) == len(origins) else None

    def read(self, data: pa.Array) -> Decoded:
        """Decode as ``RecordReader.read`` does, with the same result."""
        return self._read(_as_bytes(data), data, [TRIES])

    def _read(self, records: list[bytes], data: pa.Array, tries: list[int]) -> Decoded:
        if not records:
            return self._slow.read([])
        tries[0] -= 1
        written = self._call(records) if tries[0] >= 0 else None
        if written is not None:
            return self._checked(written, records, data)
        if len(records) <= SMALLEST or tries[0] <= 0:
            return self._slow.read(records)
        half = len(records) // 2
        first = self._read(records[:half], data.slice(0, half), tries)
        second = self._read(records[half:], data.slice(half), tries)
        return joined(self._rows.arrow, [first, second.at(positions(len(records))[half:])])

    def _call(self, records: list[bytes]) -> pa.RecordBatch | None:
        """Return the records as columns of the writer; None if pyruhvro cannot read one of them."""
        try:
            batch = pyruhvro.deserialize_array(records, self._text)
            if batch.num_rows != len(records):
                return None
            batch.validate(full=True)
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except BaseException:  # a panic of Rust
            return None
        return None if self._has_long_int(batch) else batch

    def _has_long_int(self, batch: pa.RecordBatch) -> bool:
        """Return whether a field of Avro type ``int``, or a list of them, holds a number of more than 32 bits.

        pyruhvro gets such fields as ``long``, so it does not refuse the number.
        """
        for at in self._ints:
            column = batch.column(at)
            ends = pc.min_max(column.flatten() if pa.types.is_list(column.type) else column).as_py()
            if ends["min"] is not None and not -(2**31) <= ends["min"] <= ends["max"] < 2**31:
                return True
        return False

    def _checked(self, written: pa.RecordBatch, records: list[bytes], data: pa.Array) -> Decoded:
        """Return the rows. Records that are longer than their values are read again, one by one."""
        lengths = pc.cast(pc.binary_length(data), pa.int64())
        fields = zip(written.columns, self._writer["fields"], strict=True)
        sizes = reduce(pc.add, [_size(column, field["type"]) for column, field in fields])
        same = pc.equal(lengths, sizes)
        if pc.all(same, min_count=0).as_py():
            try:
                rows = self._as_rows(written)
            except pa.ArrowException:  # milliseconds beyond all microseconds
                return self._slow.read(records)
            return within_years(rows)
        right, wrong = (pc.indices_nonzero(which).cast(pa.int64()) for which in (same, pc.invert(same)))
        again = self._slow.read([records[at] for at in wrong.to_pylist()])
        rest = self._checked(written.take(right), [records[at] for at in right.to_pylist()], data.filter(same))
        return joined(self._rows.arrow, [rest.at(right), again.at(wrong)])

    def _as_rows(self, written: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for origin, column in zip(self._origins, self._rows.columns, strict=True):
            kind = column.field.type
            if origin.field is None:
                array = pa.repeat(pa.scalar(origin.default, kind), written.num_rows)
            else:
                array = written.column(origin.field)
                array = pc.multiply_checked(array, origin.multiplied) if origin.multiplied != 1 else array
                through = pa.int64() if kind == TIMESTAMP else pa.int32() if kind == pa.date32() else None
                array = array.cast(kind) if through is None else array.cast(through).cast(kind)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows.arrow)


def _is_listed(schema: Any) -> bool:
    if isinstance(schema, list):
        return len(schema) == 2 and "null" in schema and _is_listed(without_null(schema)[0])
    kind = kind_of(schema)
    if kind == "array":
        return kind_of(schema["items"]) in _SCALARS and not isinstance(schema["items"], Mapping)
    if kind == "enum":
        return len(schema["symbols"]) <= 64  # its index is one byte
    return kind in _SCALARS


def _origin(field: Mapping[str, Any], written: Mapping[str, Mapping[str, Any]]) -> _Origin | None:
    """Return where the fast path takes a column from: a field of the writer's schema, or the reader's default. None if
    the fast path cannot read it, so that its records must be decoded one by one."""
    if not _is_listed(field["type"]) or not _is_arrow(field["type"]):
        return None
    name = next((name for name in (field["name"], *aliases_of(field)) if name in written), None)
    kind, may_be_null = without_null(field["type"])
    if name is None:
        default = default_of(field["type"], field["default"], field["name"])  # exists, because the schemas resolve
        simple = default is None or (isinstance(default, str | bool | int | float) and isinstance(kind, str))
        return _Origin(None, default, 1) if simple else None
    given, was_null = without_null(written[name]["type"])
    if was_null and not may_be_null:
        return None
    multiplied = _MILLIS if logical_of(kind) == ("timestamp-millis", 0) else 1
    if _bare(given) != _bare(kind) and kind_of(kind) not in _WIDER.get(kind_of(given), ()):
        return None
    return _Origin(name, None, multiplied)


def _is_arrow(schema: Any) -> bool:
    """Return whether Arrow stores the same numbers as Avro, except for the unit of a timestamp."""
    logical = logical_of(without_null(schema)[0])
    return logical is None or logical[0] in ("date", "timestamp-millis", "timestamp-micros", "timestamp-nanos")


def _bare_record(writer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema that pyruhvro gets: a record with bare types."""
    fields = enumerate(writer["fields"])
    bare = [{"name": field["name"], "type": _bare(field["type"], f"e{at}")} for at, field in fields]
    return {"type": "record", "name": "r", "fields": bare}


def _is_of_ints(schema: Any) -> bool:
    inner, _ = without_null(schema)
    return kind_of(inner["items"] if kind_of(inner) == "array" else inner) == "int"


def _bare(schema: Any, name: str = "") -> Any:
    """Return a type without logical types, names and whatever else does not affect the length of its values.

    An int becomes a long, because pyruhvro cuts a number that is too long for an int, and some writers write such
    numbers.
    """
    if isinstance(schema, list):
        return [_bare(branch, name) for branch in schema]
    kind = kind_of(schema)
    if kind == "array":
        return {"type": "array", "items": _bare(schema["items"])}
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": schema["symbols"]}
    return "long" if kind == "int" else kind


def _size(array: pa.Array, schema: Any) -> pa.Array:
    """Return the bytes that each value takes in Avro's shortest form."""
    inner, may_be_null = without_null(schema)
    if may_be_null:
        return pc.add(pc.if_else(pc.is_valid(array), _size(array, inner), 0), 1)
    match kind_of(inner):
        case "boolean" | "enum":
            return _constant(1, array)
        case "float":
            return _constant(4, array)
        case "double":
            return _constant(8, array)
        case "int" | "long":
            number = array.cast(pa.int64())
            return _varint(pc.bit_wise_xor(pc.shift_left(number, 1), pc.shift_right(number, 63)))
        case "string":
            length = pc.binary_length(array).cast(pa.int64())
            return pc.add(length, _varint(pc.shift_left(length, 1)))
        case _:
            return _size_of_list(array, inner["items"])


def _size_of_list(array: pa.Array, items: Any) -> pa.Array:
    sizes = _size(array.values, items)
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    starts, ends = array.offsets[:-1], array.offsets[1:]
    total = pc.subtract(sums.take(ends), sums.take(starts))
    count = pc.subtract(ends, starts).cast(pa.int64())
    with_head = pc.add(total, _varint(pc.shift_left(count, 1)))
    return pc.if_else(pc.equal(count, 0), 1, pc.add(with_head, 1))


def _varint(zigzag: pa.Array) -> pa.Array:
    """Return how many bytes a number takes in groups of seven bits. A negative one uses all 64 bits."""
    size = _constant(1, zigzag)
    for bits in range(7, 63, 7):
        size = pc.add(size, pc.cast(pc.greater_equal(zigzag, 1 << bits), pa.int64()))
    return pc.if_else(pc.less(zigzag, 0), 10, size)


def _constant(size: int, array: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(size, pa.int64()), len(array))


def _as_bytes(data: pa.Array) -> list[bytes]:
    """Return the values, of which none is null. Four times as fast as ``to_pylist``."""
    _, offsets, content = data.buffers()
    if offsets is None or not len(data):
        return []
    ends = memoryview(offsets).cast("i")[data.offset : data.offset + len(data) + 1].tolist()
    content_bytes = b"" if content is None else content.slice(ends[0], ends[-1] - ends[0]).to_pybytes()
    first = ends[0]
    return [content_bytes[start - first : end - first] for start, end in pairwise(ends)]
