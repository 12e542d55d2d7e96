"""JSON lines: one object per record, with its place in the source, its key, and its fields under ``data``.

    {"topic":"t","partition":0,"offset":17,"timestamp":"2024-03-01T11:00:00.000000Z","key":"azE=","data":{"n":17}}

A dead letter has ``value``, ``headers``, ``error_class``, ``reason`` and ``schemas`` instead of ``data``; a tombstone
has ``"is_deleted":true`` before ``data``. JSON does not keep types (a date, a decimal and a string are all text), so
the digest of a file is that of its lines. Each ``CHUNK_ROWS`` lines are one member (gzip) or frame (zstd) of the file.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.digest import Digest, digest_of_texts
from tidemark.sinks.encoding.json_text import json_lines, refuse_unwritable
from tidemark.sinks.formats.base import PLACES, Format, FormatWriter, Unreadable, unreadable

CHUNK_ROWS = 16_384
READ_BYTES = 8 * 1024 * 1024
GZIP_LEVEL = 6  # pyarrow's own default is 9, which takes 2.5 times as long for 1 % less
_PLACE = r'^\{"topic":"(?P<topic>[^"\\]*)","partition":(?P<partition>\d+),"offset":(?P<offset>\d+),'


class _Writer:
    def __init__(self, out: BinaryIO, codec: pa.Codec | None) -> None:
        self._out = out
        self._codec = codec

    def write(self, rows: pa.Table, measured: Digest) -> Digest:
        del measured  # it is a digest of columns; the digest of the file is that of its lines
        total = Digest.zero()
        for batch in rows.to_batches(CHUNK_ROWS):
            content = _content(pc.binary_join_element_wise(json_lines(batch), "\n", ""))
            total += digest_of_texts(content.to_pybytes().split(b"\n")[:-1])
            self._out.write(self._codec.compress(content) if self._codec else content)
        return total

    def close(self) -> None:
        pass


class JsonLines(Format):
    def check(self, schema: pa.Schema) -> None:
        refuse_unwritable(schema)

    def writer(self, out: BinaryIO, sample: pa.Table) -> FormatWriter:
        del sample
        return _Writer(out, self._codec())

    def count(self, file: BinaryIO) -> int:
        return sum(len(lines) for lines in self._lines(file))

    def digest(self, file: BinaryIO) -> Digest:
        return sum((digest_of_texts(lines) for lines in self._lines(file)), Digest.zero())

    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        del page
        for lines in self._lines(file):
            for line in lines:
                yield {name: _READ.get(name, _same)(value) for name, value in _row(line).items() if name in columns}

    def places(self, file: BinaryIO) -> pa.Table:
        tables = [pa.table(PLACES.empty_table())]
        for lines in self._lines(file):
            places = pc.extract_regex(pa.array(lines, pa.binary()), _PLACE)
            if places.null_count:
                raise Unreadable("a line does not begin with the place of a record")
            tables.append(pa.Table.from_arrays(places.flatten(), names=PLACES.names).cast(PLACES))
        return pa.concat_tables(tables)

    def _codec(self) -> pa.Codec | None:
        match self._compression:
            case "none":
                return None
            case "gzip":
                return pa.Codec("gzip", compression_level=GZIP_LEVEL)
            case name:
                return pa.Codec(name)

    def _lines(self, file: BinaryIO) -> Iterator[list[bytes]]:
        """Yield the lines without line ends, some megabytes at a time. Raises ``Unreadable`` if the last line has no
        end, because the file was cut short."""
        with unreadable(pa.ArrowException, OSError):
            stream = file
            if self._compression != "none":
                stream = pa.CompressedInputStream(pa.PythonFile(_LeftOpen(file), mode="r"), self._compression)
            rest = b""
            while read := stream.read(READ_BYTES):
                lines, end, rest = (rest + read).rpartition(b"\n")
                if end:
                    yield lines.split(b"\n")
        if rest:
            raise Unreadable("the last line has no end")


class _LeftOpen:
    """A wrapper of a file that stays open when Arrow closes it after reading: a store may still have to send it."""

    def __init__(self, file: BinaryIO) -> None:
        self.closed = False
        self.read = file.read

    def close(self) -> None:
        self.closed = True


def _row(line: bytes) -> dict[str, Any]:
    """Return the values of a line by the names of columns."""
    try:
        return {f"_{name}": value for name, value in json.loads(line).items()}
    except (ValueError, AttributeError) as error:
        raise Unreadable(f"a line is not a JSON object: {error}") from error


def _same(value: Any) -> Any:
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _headers(headers: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{**header, "value": _bytes(header["value"])} for header in headers]


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


_READ: dict[str, Callable[[Any], Any]] = {
    "_key": _bytes, "_value": _bytes, "_headers": _headers, "_timestamp": _time,
}  # fmt: skip


def _content(lines: pa.Array) -> pa.Buffer:
    """Return the characters of all values one after the other, without a copy."""
    _, offsets, characters = lines.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    return characters.slice(ends[0].as_py(), ends[-1].as_py() - ends[0].as_py())
