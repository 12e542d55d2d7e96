"""Reads Avro records with records inside, one field of all records at a time: some four times as fast as one by one.

An array holds a position in each record, which moves over the fields; each step reads one byte of all records. A step
that finds an error moves the position beyond all bytes, where it stays. So a record is right exactly if its position is
at its end after the last field. ``reading.py`` reads the other records again: it says what is wrong, or reads numbers
that take more bytes than they need. Values are made only of right records.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded
from tidemark.decoders.batch_parts import joined
from tidemark.decoders.one_by_one import Misfit
from tidemark.model.positions import positions
from tidemark.providers.avro.reading import RecordReader, within_years
from tidemark.providers.avro.resolution import default_of
from tidemark.providers.avro.schema import aliases_of, kind_of, parts_of, without_null
from tidemark.providers.avro.types import AvroRows, Convert, column, logical_of

SMALLEST: Final = 256  # batches with fewer records are read one by one
MOST_TYPES: Final = 1_000
_LAST_BYTE: Final = 9  # index of the tenth and last byte of a 64-bit number, with seven bits in a byte
_DECIMAL_BYTES: Final = 16


class RecordBytes:
    """The bytes of all records. Positions are counted in bytes; ``beyond`` is a position after all of them."""

    def __init__(self, data: pa.Array) -> None:
        _, offsets, content = data.buffers()
        ends = pa.Array.from_buffers(pa.int32(), data.offset + len(data) + 1, [None, offsets])
        self.starts = ends[data.offset : -1].cast(pa.int64())
        self.ends = ends[data.offset + 1 :].cast(pa.int64())
        self.size: int = ends[-1].as_py()
        self.buffer = content
        self.beyond = 2 * self.size + 1
        self._bytes = pa.Array.from_buffers(pa.uint8(), self.size, [None, content])

    def byte(self, at: pa.Array) -> pa.Array:
        """Return the byte at each position; any byte for positions that are beyond."""
        return pc.take(self._bytes, pc.min_element_wise(at, self.size - 1), boundscheck=False)

    def moved(self, at: pa.Array, right: pa.Array) -> pa.Array:
        """Return the positions; those where ``right`` is false are moved beyond all bytes."""
        return at if pc.all(right, min_count=0).as_py() else pc.if_else(right, at, self.beyond)

    def number(self, at: pa.Array, step: int = 0) -> tuple[pa.Array, pa.Array]:
        """Return (unsigned numbers as they are written, the positions after them)."""
        byte = self.byte(at)
        at = pc.add(at, 1)
        more = pc.greater_equal(byte, 128)
        part = pc.shift_left(pc.bit_wise_and(byte, 127).cast(pa.uint64()), pa.scalar(7 * step, pa.uint64()))
        if step == _LAST_BYTE:
            return part, self.moved(at, pc.less_equal(byte, 1))
        count = pc.sum(more, min_count=0).as_py()
        if not count:
            return part, at
        if count == len(at):
            rest, at = self.number(at, step + 1)
            return pc.bit_wise_or(part, rest), at
        rest, after = self.number(at.filter(more), step + 1)
        rest = pc.bit_wise_or(part.filter(more), rest)
        return pc.replace_with_mask(part, more, rest), pc.replace_with_mask(at, more, after)

    def long(self, at: pa.Array) -> tuple[pa.Array, pa.Array]:
        number, at = self.number(at)
        half = pc.shift_right(number, pa.scalar(1, pa.uint64())).cast(pa.int64())
        sign = pc.negate(pc.bit_wise_and(number, pa.scalar(1, pa.uint64())).cast(pa.int64()))
        return pc.bit_wise_xor(half, sign), at

    def behind_number(self, at: pa.Array, step: int = 0) -> pa.Array:
        byte = self.byte(at)
        at = pc.add(at, 1)
        if step == _LAST_BYTE:
            return self.moved(at, pc.less_equal(byte, 1))
        more = pc.greater_equal(byte, 128)
        count = pc.sum(more, min_count=0).as_py()
        if not count:
            return at
        if count == len(at):
            return self.behind_number(at, step + 1)
        return pc.replace_with_mask(at, more, self.behind_number(at.filter(more), step + 1))

    def span(self, at: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return (where bytes with a length before them begin, where they end)."""
        length, at = self.long(at)
        right = pc.and_(pc.greater_equal(length, 0), pc.less_equal(length, self.size))
        at = self.moved(at, right)
        return at, pc.add(at, pc.if_else(right, length, 0))

    def pieces(self, starts: pa.Array, ends: pa.Array) -> pa.Array:
        """Return the bytes between two positions of each right record.

        The positions become the offsets of an array in which pieces and gaps alternate; every second element is a
        piece.
        """
        if not len(starts):
            return pa.array([], pa.binary())
        count = len(starts)
        both = positions(2 * count)
        order = pc.add(pc.multiply(pc.bit_wise_and(both, 1), count), pc.shift_right(both, 1))
        offsets = pa.concat_arrays([starts, ends]).take(order).cast(pa.int32())
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, offsets.buffers()[1], self.buffer])
        return pieces.take(pc.multiply(positions(count), 2))

    def little_endian(self, starts: pa.Array, width: int) -> pa.Buffer:
        numbers = bytearray(len(starts) * width)
        for at in range(width):
            numbers[at::width] = _raw(self.byte(pc.add(starts, at)))
        return pa.py_buffer(bytes(numbers))

    def decimals(self, starts: pa.Array, ends: pa.Array, precision: int, scale: int) -> pa.Array:
        """Return decimals from signed numbers, highest byte first. Raises ``Misfit`` for one that does not fit."""
        lengths = pc.subtract(ends, starts)
        longest = pc.max(lengths).as_py() or 0
        if longest > _DECIMAL_BYTES:
            raise Misfit
        negative = pc.and_(pc.greater(lengths, 0), pc.greater_equal(self.byte(starts), 128))
        sign = pc.if_else(negative, pa.scalar(255, pa.uint8()), pa.scalar(0, pa.uint8()))
        numbers = bytearray(len(starts) * _DECIMAL_BYTES)
        for at in range(_DECIMAL_BYTES):
            byte = sign
            if at < longest:
                place = pc.subtract(ends, at + 1)
                inside = pc.greater_equal(place, starts)
                byte = pc.if_else(inside, self.byte(pc.if_else(inside, place, 0)), sign)
            numbers[at::_DECIMAL_BYTES] = _raw(byte)
        made = pa.Array.from_buffers(pa.decimal128(38, 0), len(starts), [None, pa.py_buffer(bytes(numbers))])
        limit = pa.scalar(10**precision - 1, pa.decimal128(38, 0))
        fits = pc.and_(pc.less_equal(made, limit), pc.greater_equal(made, pc.negate(limit)))
        if not pc.all(fits, min_count=0).as_py():
            raise Misfit
        return pa.Array.from_buffers(pa.decimal128(precision, scale), len(starts), made.buffers())


Make = Callable[[pa.Array | None], pa.Array]
"""Makes the values of the records that are marked; None means all records."""
Read = Callable[[RecordBytes, pa.Array], tuple[Make, pa.Array]]
"""Returns the function that makes the values, and the positions after them."""
Skip = Callable[[RecordBytes, pa.Array], pa.Array]


class NotListed(Exception):
    """A type that this module cannot read; ``reading.py`` reads its records one by one."""


class NestedReader:
    """Reads records of one writer as rows of one reader. ``of`` returns None if this module cannot read one of the
    types."""

    def __init__(self, read: Read, rows: AvroRows, slow: RecordReader) -> None:
        self._read, self._rows, self._slow = read, rows, slow

    @classmethod
    def of(cls, writer: Any, rows: AvroRows, slow: RecordReader) -> "NestedReader | None":
        """Return a reader, or None. ``slow`` reads what this one cannot; the caller has resolved the two schemas."""
        if kind_of(writer) != "record" or not rows.is_record or _is_large(writer):
            return None
        try:
            return cls(_record(writer, rows.schema), rows, slow)
        except NotListed:
            return None

    def read(self, data: pa.Array) -> Decoded:
        """Decode as ``RecordReader.read`` does, with the same result."""
        if len(data) < SMALLEST or not pa.types.is_binary(data.type):
            return self._slow.read(data.to_pylist())
        content = RecordBytes(data)
        if not content.size:
            return self._slow.read(data.to_pylist())
        make, at = self._read(content, content.starts)
        right = pc.equal(at, content.ends)
        everything = pc.all(right).as_py()
        try:
            rows = pa.RecordBatch.from_struct_array(make(None if everything else right)).cast(self._rows.arrow)
        except (Misfit, ValueError, ArithmeticError):  # pa.ArrowInvalid is a ValueError
            return self._slow.read(data.to_pylist())
        if everything:
            return within_years(rows)
        wrong = pc.indices_nonzero(pc.invert(right)).cast(pa.int64())
        again = self._slow.read(data.take(wrong).to_pylist())
        return joined(
            self._rows.arrow, [within_years(rows).at(pc.indices_nonzero(right).cast(pa.int64())), again.at(wrong)]
        )


def _is_large(schema: Any) -> bool:
    """Return whether a schema has too many types, or is recursive. A type counts at each place where it is used."""
    waiting, count = [schema], 0
    while waiting and count <= MOST_TYPES:
        waiting += parts_of(waiting.pop())
        count += 1
    return count > MOST_TYPES


def _record(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Read:
    """Return a reader of structs with the fields of the reader's schema."""
    written = {field["name"]: field for field in writer["fields"]}
    wanted = {field["name"]: field for field in reader["fields"]}
    if any(aliases_of(field) for field in reader["fields"]):
        raise NotListed
    steps: list[tuple[str | None, Any]] = [
        (name, _value(field["type"], wanted[name]["type"])) if name in wanted else (None, _skip(field["type"]))
        for name, field in written.items()
    ]
    absent = {name: _default(field) for name, field in wanted.items() if name not in written}
    fields = [column(name, field["type"]).field.with_nullable(True) for name, field in wanted.items()]

    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        makes: dict[str, Make] = {}
        count = len(at)
        for name, step in steps:
            if name is None:
                at = step(content, at)
            else:
                makes[name], at = step(content, at)

        def make(right: pa.Array | None) -> pa.Array:
            number = count if right is None else pc.sum(right, min_count=0).as_py()
            parts = [
                makes[field.name](right)
                if field.name in makes
                else pa.repeat(pa.scalar(absent[field.name], field.type), number)
                for field in fields
            ]
            return pa.StructArray.from_arrays(parts, fields=fields)

        return make, at

    return read


def _default(field: Mapping[str, Any]) -> Any:
    default = default_of(field["type"], field["default"], field["name"])  # exists, because the schemas resolve
    if default is not None and not isinstance(default, bool):
        raise NotListed
    return default


def _value(writer: Any, reader: Any) -> Read:
    given, was_null = without_null(writer)
    kind, may_be_null = without_null(reader)
    if was_null and not may_be_null:
        raise NotListed
    if kind_of(given) != kind_of(kind) or logical_of(given) != logical_of(kind):
        raise NotListed
    read = _record(given, kind) if kind_of(kind) == "record" else _scalar(given, kind)
    return _optional(writer, read, column("value", kind).field.type) if isinstance(writer, list) else read


def _null_of(union: Sequence[Any]) -> int:
    """Return the byte that stands for null in a union of null and one type; the other byte stands for that type."""
    kinds = [kind_of(branch) for branch in union]
    if len(kinds) != 2 or kinds.count("null") != 1:
        raise NotListed
    return 2 * kinds.index("null")


def _optional(union: Sequence[Any], inner: Read, kind: pa.DataType) -> Read:
    null = _null_of(union)

    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        is_value, at = _branch(content, at, null)
        if pc.all(is_value, min_count=0).as_py():
            return inner(content, at)
        if not pc.any(is_value, min_count=0).as_py():
            count = len(at)
            return lambda right: pa.nulls(count if right is None else pc.sum(right, min_count=0).as_py(), kind), at
        make_inner, after = inner(content, at.filter(is_value))

        def make(right: pa.Array | None) -> pa.Array:
            values = make_inner(None if right is None else right.filter(is_value))
            marks = is_value if right is None else is_value.filter(right)
            place = pc.subtract(pc.cumulative_sum(marks.cast(pa.int64())), 1)
            return values.take(pc.if_else(marks, place, None))

        return make, pc.replace_with_mask(at, is_value, after)

    return read


def _branch(content: RecordBytes, at: pa.Array, null: int) -> tuple[pa.Array, pa.Array]:
    """Return (which records have a value, the positions after the byte of the branch)."""
    byte = content.byte(at)
    is_value = pc.equal(byte, 2 - null)
    return is_value, content.moved(pc.add(at, 1), pc.or_(is_value, pc.equal(byte, null)))


def _scalar(writer: Any, reader: Any) -> Read:
    made = column("value", reader)
    kind, convert = made.field.type, made.convert
    match kind_of(writer):
        case "int" | "long" as whole:
            return _whole(whole, reader, kind, convert)
        case "string":
            return _spans(pa.string(), convert)
        case "bytes" if (logical := logical_of(reader)) and logical[0] == "decimal" and pa.types.is_decimal(kind):
            return _decimal(kind)
        case "bytes":
            return _spans(pa.binary(), convert)
        case "float" | "double" | "boolean" as fixed:
            return _of_a_size({"float": 4, "double": 8, "boolean": 1}[fixed], kind)
        case "enum" if writer["symbols"] == reader["symbols"]:
            return _symbol(writer["symbols"])
        case _:
            raise NotListed


def _whole(whole: str, reader: Any, kind: pa.DataType, convert: Convert | None) -> Read:
    is_millis = logical_of(reader) == ("timestamp-millis", 0)
    if convert is not None and not is_millis and not pa.types.is_string(kind):
        raise NotListed

    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        numbers, at = content.long(at)
        if whole == "int":
            at = content.moved(at, pc.and_(pc.greater_equal(numbers, -(2**31)), pc.less(numbers, 2**31)))

        def make(right: pa.Array | None) -> pa.Array:
            values = numbers if right is None else numbers.filter(right)
            if is_millis:
                values = pc.multiply_checked(values, 1_000)
            elif convert is not None:
                return _converted(values, convert, kind)
            return values.cast(pa.int32()).cast(kind) if kind == pa.date32() else values.cast(kind)

        return make, at

    return read


def _converted(values: pa.Array, convert: Convert, kind: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in values.to_pylist()], kind)


def _spans(kind: pa.DataType, convert: Convert | None) -> Read:
    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        starts, ends = content.span(at)

        def make(right: pa.Array | None) -> pa.Array:
            first, last = (each if right is None else each.filter(right) for each in (starts, ends))
            values = content.pieces(first, last).cast(kind)  # raises for a text that is not UTF-8
            return values if convert is None else _converted(values, convert, pa.string())

        return make, ends

    return read


def _decimal(kind: pa.Decimal128Type) -> Read:
    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        starts, ends = content.span(at)

        def make(right: pa.Array | None) -> pa.Array:
            first, last = (each if right is None else each.filter(right) for each in (starts, ends))
            return content.decimals(first, last, kind.precision, kind.scale)

        return make, ends

    return read


def _of_a_size(size: int, kind: pa.DataType) -> Read:
    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        behind = pc.add(at, size)
        if size == 1:
            behind = content.moved(behind, pc.less_equal(content.byte(at), 1))

        def make(right: pa.Array | None) -> pa.Array:
            starts = at if right is None else at.filter(right)
            if size == 1:
                return pc.equal(content.byte(starts), 1)
            return pa.Array.from_buffers(kind, len(starts), [None, content.little_endian(starts, size)])

        return make, behind

    return read


def _symbol(symbols: Sequence[str]) -> Read:
    known = pa.array(symbols, pa.string())

    def read(content: RecordBytes, at: pa.Array) -> tuple[Make, pa.Array]:
        index, at = content.long(at)
        at = content.moved(at, pc.and_(pc.greater_equal(index, 0), pc.less(index, len(symbols))))
        return lambda right: known.take(index if right is None else index.filter(right)), at

    return read


def _skip(schema: Any) -> Skip:
    match kind_of(schema):
        case "record":
            return _skip_all([_skip(field["type"]) for field in schema["fields"]])
        case "union":
            return _skip_optional(schema)
        case "null":
            return lambda _, at: at
        case "int" | "long":
            return _skip_whole  # an int of more than 32 bits is skipped by reading.py too
        case "string" | "bytes":
            return lambda content, at: content.span(at)[1]
        case "float" | "double" | "fixed" as kind:
            size = {"float": 4, "double": 8}.get(kind) or schema["size"]
            return lambda _, at: pc.add(at, size)
        case "boolean" | "enum" as kind:
            return _skip_read(_of_a_size(1, pa.bool_()) if kind == "boolean" else _symbol(schema["symbols"]))
        case _:
            raise NotListed


def _skip_whole(content: RecordBytes, at: pa.Array) -> pa.Array:
    return content.behind_number(at)


def _skip_read(read: Read) -> Skip:
    return lambda content, at: read(content, at)[1]


def _skip_all(skips: Sequence[Skip]) -> Skip:
    def skip(content: RecordBytes, at: pa.Array) -> pa.Array:
        for each in skips:
            at = each(content, at)
        return at

    return skip


def _skip_optional(union: Sequence[Any]) -> Skip:
    null = _null_of(union)
    [inner] = [_skip(branch) for branch in union if kind_of(branch) != "null"]

    def skip(content: RecordBytes, at: pa.Array) -> pa.Array:
        is_value, at = _branch(content, at, null)
        if not pc.any(is_value, min_count=0).as_py():
            return at
        return pc.replace_with_mask(at, is_value, inner(content, at.filter(is_value)))

    return skip


def _raw(values: pa.Array) -> bytes:
    """Return the bytes of an array of 8-bit numbers without nulls."""
    return values.buffers()[1].slice(values.offset, len(values)).to_pybytes()  # type: ignore[no-any-return]
