"""Avro's binary form: functions that read, or skip, a value of each type.

Both take the bytes of a record and the position of the value, and return the position after it. A record that ends too
early raises ``IndexError``, ``EOFError`` or ``struct.error``.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final

from tidemark.decoders.one_by_one import Undecodable
from tidemark.providers.avro.schema import PARTS, kind_of, parts_of, takes_no_bytes

Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]
DEEPEST: Final = 32  # nested types up to this depth are skipped by nested functions, deeper ones by a loop
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise Undecodable("it holds a number of more than 64 bits")
    if number >> 64:
        raise Undecodable("it holds a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(data, at)
    if not -(2**31) <= number < 2**31:
        raise Undecodable("it holds an int of more than 32 bits")
    return number, at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    begin, end = _extent(data, at)
    return data[begin:end], end


def read_string(data: bytes, at: int) -> tuple[str, int]:
    size = data[at]
    if size & 129:  # not one byte, or below zero
        at, end = _extent(data, at)
        return data[at:end].decode(), end
    at += 1
    end = at + (size >> 1)
    if end > len(data):
        raise EOFError
    return data[at:end].decode(), end


def read_items(item: Read, data: bytes, at: int) -> tuple[list[Any], int]:
    """Read the items of an array. Each item takes at least one byte."""
    items: list[Any] = []
    while True:
        count, at = _count(data, at)
        if not count:
            return items, at
        for _ in range(count):
            value, at = item(data, at)
            items.append(value)


def read_entries(item: Read, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    entries: dict[str, Any] = {}
    while True:
        count, at = _count(data, at)
        if not count:
            return entries, at
        for _ in range(count):
            key, at = read_string(data, at)
            entries[key], at = item(data, at)


def read_index(count: int, data: bytes, at: int) -> tuple[int, int]:
    """Read the index of a union's branch or an enum's symbol, of which there are ``count``."""
    byte = data[at]
    if not byte & 129 and byte >> 1 < count:  # one byte, not below zero
        return byte >> 1, at + 1
    index, at = read_long(data, at)
    if not 0 <= index < count:
        raise Undecodable(f"it holds the index {index} for an enum or a union that has {count}")
    return index, at


def read_fixed(size: int, data: bytes, at: int) -> tuple[bytes, int]:
    end = _end(data, at, size)
    return data[at:end], end


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise Undecodable(f"it holds a boolean that is {byte}")
    return byte == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def read_null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


READS: Final[dict[str, Read]] = {
    "null": read_null, "boolean": _read_boolean, "int": read_int, "long": read_long, "float": _read_float,
    "double": _read_double, "bytes": read_bytes, "string": read_string,
}  # fmt: skip


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Return where bytes with a length before them begin and end."""
    byte = data[at]
    if byte & 129:  # not one byte, or below zero
        size, at = read_long(data, at)
        return at, _end(data, at, size)
    end = at + 1 + (byte >> 1)
    if end > len(data):
        raise EOFError
    return at + 1, end


def _end(data: bytes, at: int, size: int) -> int:
    end = at + size
    if size < 0:
        raise Undecodable(f"it holds a length of {size}")
    if end > len(data):
        raise EOFError
    return end


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return (number of items in a block, position of the first). A block's size in bytes helps only to skip it."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at


def skip(schema: Any) -> Skip:
    """Return a function that skips values of a schema of any depth. Items that take no bytes are not walked, however
    many."""
    return _Skips().of(schema)


class _Skips:
    def __init__(self) -> None:
        self._known: dict[int, Skip] = {}
        self._empty: dict[int, bool] = {}
        self._entries: dict[int, Any] = {}

    def of(self, schema: Any) -> Skip:
        kind = kind_of(schema)
        if kind in _SKIPS:
            return _SKIPS[kind]
        if id(schema) not in self._known:
            deep = self._depth(schema) > DEEPEST
            self._known[id(schema)] = partial(self._deep, schema) if deep else self._flat(schema, kind)
        return self._known[id(schema)]

    def _depth(self, schema: Any) -> int:
        """Return how many levels deep the types are nested; more than ``DEEPEST`` for a recursive schema."""
        level: dict[int, Any] = {id(schema): schema}
        for depth in range(DEEPEST + 1):
            level = {
                id(part): part for above in level.values() for part in parts_of(above) if not isinstance(part, str)
            }
            if not level:
                return depth
        return DEEPEST + 1

    def _flat(self, schema: Any, kind: str) -> Skip:
        if takes_no_bytes(schema, self._empty):
            return _skip_nothing
        match kind:
            case "record":
                return partial(_skip_record, [self.of(part) for part in parts_of(schema)])
            case "union":
                return partial(_skip_union, [self.of(branch) for branch in schema])
            case "array" | "map":
                item = self._item(schema)
                return partial(_skip_blocks, self.of(item), takes_no_bytes(item, self._empty))
            case "fixed":
                return partial(_skip_fixed, schema["size"])
            case _:
                return partial(_skip_symbol, len(schema["symbols"]))

    def _item(self, schema: Any) -> Any:
        """Return the item type of an array, or that of a map's entries as a record of a text and a value."""
        if kind_of(schema) == "array":
            return schema["items"]
        fields = [{"type": "string"}, {"type": schema["values"]}]
        return self._entries.setdefault(id(schema), {"type": "record", "name": "", "fields": fields})

    def _deep(self, schema: Any, data: bytes, at: int) -> int:
        """Skip a value with a loop in place of recursive calls, because a recursive type may be as deep as its record
        is long."""
        waiting = [(schema, 1)]
        while waiting:
            part, times = waiting.pop()
            if times > 1:
                waiting.append((part, times - 1))
            kind = kind_of(part)
            if kind == "union":
                index, at = read_index(len(part), data, at)
                waiting.append((part[index], 1))
            elif takes_no_bytes(part, self._empty):
                continue
            elif kind == "record":
                waiting += [(inner, 1) for inner in reversed(parts_of(part))]
            elif kind in PARTS:
                count, size, at = _block(data, at)
                item = self._item(part)
                if count:
                    waiting.append((part, 1))
                if size is not None:
                    at = _end(data, at, size)
                elif count and not takes_no_bytes(item, self._empty):
                    waiting.append((item, count))
            else:
                at = self.of(part)(data, at)
        return at


def _block(data: bytes, at: int) -> tuple[int, int | None, int]:
    """Return (number of items in a block, its size in bytes or None if it is not written, position of the first
    item)."""
    count, at = read_long(data, at)
    if count >= 0:
        return count, None, at
    size, at = read_long(data, at)
    return -count, size, at


def _skip_blocks(item: Skip, takes_no_bytes: bool, data: bytes, at: int) -> int:
    while True:
        count, size, at = _block(data, at)
        if size is not None:
            at = _end(data, at, size)
        elif not takes_no_bytes:
            for _ in range(count):
                at = item(data, at)
        if not count:
            return at


def _skip_record(parts: list[Skip], data: bytes, at: int) -> int:
    for part in parts:
        at = part(data, at)
    return at


def _skip_union(branches: list[Skip], data: bytes, at: int) -> int:
    index, at = read_index(len(branches), data, at)
    return branches[index](data, at)


def _skip_symbol(count: int, data: bytes, at: int) -> int:
    return read_index(count, data, at)[1]


def _skip_long(data: bytes, at: int) -> int:
    return read_long(data, at)[1]


def _skip_bytes(data: bytes, at: int) -> int:
    return _extent(data, at)[1]


def _skip_fixed(size: int, data: bytes, at: int) -> int:
    return _end(data, at, size)


def _skip_nothing(_: bytes, at: int) -> int:
    return at


_SKIPS: Final[dict[str, Skip]] = {
    "null": _skip_nothing, "boolean": partial(_skip_fixed, 1), "int": _skip_long, "long": _skip_long,
    "float": partial(_skip_fixed, 4), "double": partial(_skip_fixed, 8), "bytes": _skip_bytes, "string": _skip_bytes,
}  # fmt: skip
