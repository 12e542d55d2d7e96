"""A digest of rows that does not depend on their order, nor on how they are cut into batches or files.

Each row is hashed to two independent 64-bit numbers; a digest adds them up modulo 2^64, beside the count. So digests
of parts add up to the digest of the whole, and a row that comes twice changes it (which xor would hide).

A row's hash covers every column's position, name, type and value. Null differs from empty and from zero; -0.0 equals
0.0; every NaN is the same NaN. It finds accidents, it does not stop a forger: the mixing is not cryptographic.
"""

import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WRAP = 1 << 64
_U64 = pa.uint64()
_NULL = 0x6E756C6C6E756C6C  # what a null adds to its column's seed


@dataclass(frozen=True)
class Digest:
    """``count`` rows whose two hashes sum to ``sum_a`` and ``sum_b`` modulo 2^64; ``+`` combines disjoint parts."""

    count: int = 0
    sum_a: int = 0
    sum_b: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        return Digest(self.count + other.count, (self.sum_a + other.sum_a) % _WRAP, (self.sum_b + other.sum_b) % _WRAP)

    def __str__(self) -> str:
        return f"{self.count:016x}{self.sum_a:016x}{self.sum_b:016x}"

    @classmethod
    def zero(cls) -> "Digest":
        """The digest of no rows."""
        return cls()

    @classmethod
    def of(cls, first: pa.Array | pa.ChunkedArray, second: pa.Array | pa.ChunkedArray) -> "Digest":
        """The digest of rows whose hashes (``row_hashes``) are given."""
        return cls(len(first), pc.sum(first).as_py() or 0, pc.sum(second).as_py() or 0)

    @classmethod
    def parse(cls, text: str) -> "Digest":
        """The digest that ``str`` wrote; ``ValueError`` when it is not 48 hexadecimal digits."""
        if len(text) != 48:
            raise ValueError(f"a digest has 48 hexadecimal digits, not {len(text)}")
        return cls(*(int(text[at : at + 16], 16) for at in (0, 16, 32)))


def row_digest(rows: pa.RecordBatch | pa.Table) -> Digest:
    """The digest of all rows over all columns, in schema order."""
    batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    return sum((Digest.of(*row_hashes(batch)) for batch in batches), Digest.zero())


def digest_of_texts(texts: Sequence[bytes]) -> Digest:
    """The digest of texts, such as the lines of a file; not that of rows which hold them."""
    halves = array("Q", b"".join([blake2b(text, digest_size=16).digest() for text in texts]))
    if sys.byteorder == "big":
        halves.byteswap()
    return Digest(len(texts), sum(halves[0::2]) % _WRAP, sum(halves[1::2]) % _WRAP)


def row_hashes(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The two hashes of each row, as ``uint64``; ``Digest.of`` sums those of any rows of the same schema."""
    rows = [pa.repeat(_scalar(0), batch.num_rows)] * 2
    for position, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        seed = f"{position} {field.name} {_type_name(field.type)}".encode()
        for stream, words in enumerate(_words(column)):
            rows[stream] = pc.add(rows[stream], _cell_hashes(words, _halves(seed)[stream]))
    return _mixed(rows[0]), _mixed(rows[1])


def _cell_hashes(words: pa.Array, seed: int) -> pa.Array:
    hashes = _mixed(pc.bit_wise_xor(words, _scalar(seed)))
    return pc.fill_null(hashes, _scalar(seed ^ _NULL)) if hashes.null_count else hashes


def _type_name(kind: pa.DataType) -> str:
    """A type without what a Parquet file may change: names of list items, nullability, the width of lengths."""
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_map(kind):
        return f"map<{_type_name(kind.key_type)}, {_type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_type_name(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    return str(kind).removeprefix("large_")


def _words(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two 64-bit words per value, null for null: equal values have equal words, and hashed ones are independent."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_nested(kind):
        return _hashed(column.to_pylist())
    fixed = _fixed_width(column)
    if fixed is not None:
        return fixed, fixed
    coded = column.dictionary_encode()
    first, second = _hashed_texts(coded.dictionary) if _is_text(kind) else _hashed(coded.dictionary.to_pylist())
    return first.take(coded.indices), second.take(coded.indices)


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _hashed_texts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """As ``_hashed`` of ``_canonical``, which costs a value three times as much; most columns are text."""
    letter = b"b" if pa.types.is_binary(values.type) else b"s"
    contents = values.cast(pa.large_binary()).to_pylist()
    hashes = b"".join([blake2b(b"%b%d:%b" % (letter, len(one), one), digest_size=16).digest() for one in contents])
    halves = pa.Array.from_buffers(_U64, 2 * len(contents), [None, pa.py_buffer(hashes)])
    first = pa.array(range(0, 2 * len(contents), 2), pa.int64())
    return halves.take(first), halves.take(pc.add(first, 1))


def _fixed_width(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_unsigned_integer(kind):
        return column.cast(_U64)
    if pa.types.is_signed_integer(kind):
        return column.cast(pa.int64()).view(_U64)
    if pa.types.is_floating(kind):
        number = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 + 0.0 is 0.0
        return pc.if_else(pc.is_nan(number), math.nan, number).view(_U64)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32()).cast(pa.int64()).view(_U64)
    if pa.types.is_temporal(kind) and kind.bit_width == 64:
        return column.view(_U64)
    return None


def _mixed(words: pa.Array) -> pa.Array:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every input bit reaches every output bit."""
    words = pc.multiply(pc.bit_wise_xor(words, pc.shift_right(words, _scalar(30))), _scalar(0xBF58476D1CE4E5B9))
    words = pc.multiply(pc.bit_wise_xor(words, pc.shift_right(words, _scalar(27))), _scalar(0x94D049BB133111EB))
    return pc.bit_wise_xor(words, pc.shift_right(words, _scalar(31)))


@lru_cache(maxsize=1_000)
def _scalar(number: int) -> pa.Scalar:
    return pa.scalar(number, _U64)


def _hashed(values: list[Any]) -> tuple[pa.Array, pa.Array]:
    pairs = [(None, None) if value is None else _halves(_canonical(value)) for value in values]
    return pa.array([pair[0] for pair in pairs], _U64), pa.array([pair[1] for pair in pairs], _U64)


def _halves(content: bytes) -> tuple[int, int]:
    digest = blake2b(content, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _canonical(value: Any) -> bytes:
    """A value as bytes, injective: a letter for its type, then its content; what has a length says it first."""
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return _sized(b"i", str(value).encode())
    if isinstance(value, float):
        return b"d" + struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return _sized(b"s", value.encode())
    if isinstance(value, bytes):
        return _sized(b"b", value)
    if isinstance(value, Decimal):
        return _sized(b"m", str(value).encode())
    if isinstance(value, datetime | date):
        return _sized(b"w", value.isoformat().encode())
    if isinstance(value, dict):
        return _sized(b"o", b"".join(_canonical(key) + _canonical(item) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return _sized(b"l", b"".join(map(_canonical, value)))
    raise TypeError(f"no digest for values of type {type(value).__name__}")


def _sized(letter: bytes, content: bytes) -> bytes:
    return letter + str(len(content)).encode() + b":" + content
