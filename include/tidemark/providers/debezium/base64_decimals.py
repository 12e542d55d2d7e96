"""Makes a column of decimals from their digits in base64, a column at a time.

Texts of one length are decoded together, as one text. Their bytes, the highest first, are written into numbers of 16
bytes, the lowest first: each step writes one byte of all numbers.
"""

from binascii import a2b_base64
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.positions import positions

_BYTES: Final = 16  # the size of a decimal in Arrow
_LONGEST: Final = 24  # the length of 16 bytes in base64
_SIGN: Final = bytes(0 if first < 128 else 255 for first in range(256))


def decimals_of_base64(texts: pa.Array, precision: int, scale: int) -> pa.Array:
    """Return the decimals; null for bytes that Java would not write for a number, or that do not fit. All texts must be
    base64."""
    places, parts = [], []
    lengths = pc.fill_null(pc.binary_length(texts), 0)
    padding = pc.add(pc.ends_with(texts, "=").cast(pa.int32()), pc.ends_with(texts, "==").cast(pa.int32()))
    for length in pc.unique(lengths).to_pylist():
        if not length or length % 4 or length > _LONGEST:
            continue
        for pads in range(3):
            chosen = pc.fill_null(pc.and_(pc.equal(lengths, length), pc.equal(padding, pads)), False)
            at = pc.indices_nonzero(chosen)
            if len(at) and length // 4 * 3 - pads <= _BYTES:
                places.append(at.cast(pa.int64()))
                parts.append(_of_one_length(texts.take(at), length, pads))
    if not parts:
        return pa.nulls(len(texts), pa.decimal128(precision, scale))
    numbers = pa.concat_arrays(parts).take(pc.index_in(positions(len(texts)), value_set=pa.concat_arrays(places)))
    limit = pa.scalar(Decimal(10**precision - 1), pa.decimal128(38, 0))
    fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, pc.negate(limit)))
    buffers = pc.if_else(fits, numbers, None).buffers()
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(texts), buffers)


def _of_one_length(texts: pa.Array, length: int, pads: int) -> pa.Array:
    """Return the numbers of texts that all have the same length and padding."""
    count, width = len(texts), length // 4 * 3
    start = pa.Array.from_buffers(pa.int32(), texts.offset + 1, [None, texts.buffers()[1]])[texts.offset].as_py()
    letters = texts.buffers()[2].slice(start, count * length).to_pybytes()
    content = a2b_base64(letters.replace(b"=", b"A"))
    size = width - pads
    sign = content[0::width].translate(_SIGN)
    numbers = bytearray(count * _BYTES)
    for at in range(_BYTES):
        numbers[at::_BYTES] = content[size - 1 - at :: width] if at < size else sign
    made = pa.Array.from_buffers(pa.decimal128(38, 0), count, [None, pa.py_buffer(bytes(numbers))])
    wrong = pa.repeat(False, count)
    if size > 1:  # Java writes no first byte that only repeats the sign of the second
        wrong = pc.equal(_bytes(sign), _bytes(content[0::width]))
        wrong = pc.and_(wrong, pc.equal(_bytes(sign), _bytes(content[1::width].translate(_SIGN))))
    for at in range(size, width):  # bits of the last letter that belong to no byte must be zero
        wrong = pc.or_(wrong, pc.not_equal(_bytes(content[at::width]), 0))
    return pc.if_else(wrong, None, made)


def _bytes(content: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), len(content), [None, pa.py_buffer(content)])
