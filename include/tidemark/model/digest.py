"""A digest of rows. It does not depend on their order, or on how they are cut into batches or files.

Each row is hashed to two independent 64-bit numbers; a digest holds their sums modulo 2^64 and the count of rows. So
the digests of parts add up to the digest of the whole, and a repeated row changes it (xor would hide that).

The hash of a row covers the position, name, type and value of every column. Null differs from empty and from zero;
-0.0 equals 0.0; all NaNs are equal. It is not cryptographic: it finds accidents, not forgeries.
"""

import math
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
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
SHORT = 64  # bytes: up to this length the texts of a column are hashed together, eight bytes at a time
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_FORMER_NAMES = {"_is_deleted": "_deleted"}  # digests use the name of release 0.2.0, so that stored ones stay valid
_NULL = 0x6E756C6C6E756C6C  # combined with the seed of a column for a null; the bytes spell "nullnull"


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
        """Return the digest of no rows."""
        return cls()

    @classmethod
    def of(cls, first: pa.Array | pa.ChunkedArray, second: pa.Array | pa.ChunkedArray) -> "Digest":
        """Return the digest of rows from their two hashes, as ``row_hashes`` returns them."""
        return cls(len(first), pc.sum(first).as_py() or 0, pc.sum(second).as_py() or 0)

    @classmethod
    def parse(cls, text: str) -> "Digest":
        """Return the digest that ``str`` wrote; raises ``ValueError`` if the text is not 48 hexadecimal digits."""
        if len(text) != 48:
            raise ValueError(f"a digest has 48 hexadecimal digits, not {len(text)}")
        return cls(*(int(text[at : at + 16], 16) for at in (0, 16, 32)))


def row_digest(rows: pa.RecordBatch | pa.Table) -> Digest:
    """Return the digest of all rows over all columns, in schema order."""
    batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    return sum((Digest.of(*row_hashes(batch)) for batch in batches), Digest.zero())


def digest_of_texts(texts: Sequence[bytes]) -> Digest:
    """Return the digest of texts, such as the lines of a file. Rows with these texts have another digest."""
    halves = array("Q", b"".join([blake2b(text, digest_size=16).digest() for text in texts]))
    if sys.byteorder == "big":
        halves.byteswap()
    return Digest(len(texts), sum(halves[0::2]) % _WRAP, sum(halves[1::2]) % _WRAP)


def record_digest(key: bytes | None, value: bytes | None) -> str:
    """Return the digest of one record as it is in the source, as 32 hexadecimal digits."""
    return blake2b(_canonical([key, value]), digest_size=16).hexdigest()


def row_hashes(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Return the two hashes of each row as ``uint64``. ``Digest.of`` sums the hashes of rows of one schema."""
    rows = [pa.repeat(_scalar(0), batch.num_rows)] * 2
    for position, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
        name = _FORMER_NAMES.get(field.name, field.name)
        seed = f"{position} {name} {_type_name(field.type)}".encode()
        for stream, words in enumerate(_words(column)):
            rows[stream] = pc.add(rows[stream], _cell_hashes(words, _halves(seed)[stream]))
    return _mixed(rows[0]), _mixed(rows[1])


def _cell_hashes(words: pa.Array, seed: int) -> pa.Array:
    hashes = _mixed(pc.bit_wise_xor(words, _scalar(seed)))
    return pc.fill_null(hashes, _scalar(seed ^ _NULL)) if hashes.null_count else hashes


def _type_name(data_type: pa.DataType) -> str:
    """Return the name of a type without what a Parquet file may change: names of list items, nullability, width of
    lengths."""
    if pa.types.is_dictionary(data_type):
        return _type_name(data_type.value_type)
    if pa.types.is_map(data_type):
        return f"map<{_type_name(data_type.key_type)}, {_type_name(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {_type_name(field.type)}' for field in data_type)}>"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"list<{_type_name(data_type.value_type)}>"
    return str(data_type).removeprefix("large_")


def _words(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return two 64-bit words per value, null for null. Equal values have equal words. The two words of a hashed value
    are independent."""
    data_type = column.type
    if pa.types.is_dictionary(data_type):
        return _words(column.dictionary_decode())
    if pa.types.is_nested(data_type):
        first, second = _hashed(map(_canonical, column.to_pylist()))
        valid = column.is_valid()
        return pc.if_else(valid, first, None), pc.if_else(valid, second, None)
    fixed = _fixed_width(column)
    if fixed is not None:
        return fixed, fixed
    if any(is_type(data_type) for is_type in _TEXTS):
        return _text_words(column)
    coded = column.dictionary_encode()
    first, second = _hashed(map(_canonical, coded.dictionary.to_pylist()))
    return first.take(coded.indices), second.take(coded.indices)


def _text_words(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the words of text or bytes: short values are hashed all at once, long ones one by one."""
    valid = pc.is_valid(column)
    texts = pc.fill_null(column.cast(pa.large_binary()), b"")
    short = pc.less_equal(pc.binary_length(texts), SHORT)
    if pc.all(short).as_py() is not False:
        streams = _short_text_words(texts)
    else:
        parts = (_short_text_words(texts.filter(short)), _long_text_words(texts.filter(pc.invert(short))))
        nothing = pa.repeat(_scalar(0), len(texts))
        streams = [
            pc.replace_with_mask(pc.replace_with_mask(nothing, short, short_words), pc.invert(short), long_words)
            for short_words, long_words in zip(*parts, strict=True)
        ]
    first, second = (pc.if_else(valid, words, None) for words in streams) if column.null_count else streams
    return first, second


def _short_text_words(texts: pa.Array) -> list[pa.Array]:
    """Return the two words of each text: its length and its bytes, eight at a time as a number, mixed and summed up.

    Each position has its own factors, and zeros mix to zero. So the padding of a text, which depends on the longest
    text of the column, does not change its words.
    """
    lengths = pc.binary_length(texts).cast(_U64)
    count = -(-(pc.max(lengths).as_py() or 0) // 8)
    zeros, separator = pa.scalar(bytes(8 * count), texts.type), pa.scalar(b"", texts.type)
    padded = pc.binary_join_element_wise(texts, zeros, separator)
    sums = [_mixed(pc.bit_wise_xor(lengths, _scalar(seed))) for seed in _halves(b"length")]
    for place in range(count):
        eight = pc.binary_slice(padded, 8 * place, 8 * place + 8)
        words = pa.Array.from_buffers(_U64, len(eight), [None, eight.buffers()[2]])
        factors = _halves(b"place %d" % place)
        sums = [
            pc.add(total, _mixed(pc.multiply(words, _scalar(factor | 1))))
            for total, factor in zip(sums, factors, strict=True)
        ]
    return sums


def _long_text_words(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    return _hashed(b"b%d:%b" % (len(text), text) for text in texts.to_pylist())  # as _canonical, in half the time


def _fixed_width(column: pa.Array) -> pa.Array | None:
    data_type = column.type
    if pa.types.is_boolean(data_type) or pa.types.is_unsigned_integer(data_type):
        return column.cast(_U64)
    if pa.types.is_signed_integer(data_type):
        return column.cast(pa.int64()).view(_U64)
    if pa.types.is_floating(data_type):
        number = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 + 0.0 is 0.0
        return pc.if_else(pc.is_nan(number), math.nan, number).view(_U64)
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return column.view(pa.int32()).cast(pa.int64()).view(_U64)
    if pa.types.is_temporal(data_type) and data_type.bit_width == 64:
        return column.view(_U64)
    return None


def _mixed(words: pa.Array) -> pa.Array:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood, 2014): every input bit reaches every output bit."""
    words = pc.multiply(pc.bit_wise_xor(words, pc.shift_right(words, _scalar(30))), _scalar(0xBF58476D1CE4E5B9))
    words = pc.multiply(pc.bit_wise_xor(words, pc.shift_right(words, _scalar(27))), _scalar(0x94D049BB133111EB))
    return pc.bit_wise_xor(words, pc.shift_right(words, _scalar(31)))


@lru_cache(maxsize=1_000)
def _scalar(number: int) -> pa.Scalar:
    return pa.scalar(number, _U64)


def _hashed(contents: Iterable[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return two 64-bit words for each content: the halves of its 128-bit hash. Only one content is in memory at a
    time.
    """
    digests = b"".join([blake2b(content, digest_size=16).digest() for content in contents])
    words = pa.Array.from_buffers(_U64, len(digests) // 8, [None, pa.py_buffer(digests)])
    places = pa.array(range(0, len(words), 2), pa.int64())
    return words.take(places), words.take(pc.add(places, 1))


def _halves(content: bytes) -> tuple[int, int]:
    digest = blake2b(content, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _canonical(value: Any) -> bytes:
    """Return a value as bytes: a letter for its type, the length if it varies, the content. Different values give
    different bytes."""
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
