"""The interface of a file format, and the registry: one module per format, imported when a file needs it.

A format writes rows to an open file. It reads from a file the number of rows, the records that they come from, their
digest, and dead letters. This code runs on executors, so it imports only the standard library and pyarrow; the module
of a format may import its own library.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.extras import EXTRAS, command, import_for
from tidemark.model.digest import Digest
from tidemark.paths import ObjectName

PLACES = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])


class Unreadable(Exception):
    """A file is cut short, damaged, or of another format."""


class FormatWriter(Protocol):
    """A file that is being written."""

    def write(self, rows: pa.Table, measured: Digest) -> Digest:
        """Append rows; return the digest of what is in the file. If the format keeps types, that is ``measured``, the
        digest of the rows."""
        ...

    def close(self) -> None:
        """Write the end of the file, and leave it open; may be repeated."""
        ...


class Format(ABC):
    """One format with one compression; ``suffix`` is the end of its file names, without the dot.

    Methods that read a file raise ``Unreadable`` if it is damaged.
    """

    def __init__(self, suffix: str, compression: str) -> None:
        self.suffix = suffix
        self._compression = compression

    def check(self, schema: pa.Schema) -> None:
        """Raise ``ConfigurationError`` unless rows of these columns can be written without loss."""
        del schema

    @abstractmethod
    def writer(self, out: BinaryIO, sample: pa.Table) -> "FormatWriter":
        """Begin a file; return its writer. ``sample`` has the columns, and some or all of the first rows."""

    @abstractmethod
    def count(self, file: BinaryIO) -> int:
        """Return the number of rows, counted in the file itself."""

    @abstractmethod
    def digest(self, file: BinaryIO) -> Digest:
        """Read the whole file, and return the same digest as ``write`` did."""

    @abstractmethod
    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a file of dead letters with these columns, read ``page`` at a time if the format can."""

    @abstractmethod
    def places(self, file: BinaryIO) -> pa.Table:
        """Return topic, partition and offset of each row, in the columns of ``PLACES``."""


@contextmanager
def unreadable(*errors: type[Exception]) -> Iterator[None]:
    """Turn a library's ``errors`` about a damaged file into ``Unreadable``; errors of the store stay unchanged."""
    try:
        yield
    except TidemarkError:
        raise
    except errors as error:
        raise Unreadable(str(error) or type(error).__name__) from error


_MODULES = {
    "parquet": ("tidemark.sinks.formats.parquet", "Parquet"),
    "jsonl": ("tidemark.sinks.formats.json_lines", "JsonLines"),
    "avro": ("tidemark.sinks.formats.avro", "Avro"),
}
_SUFFIXES = {
    ("jsonl", "gzip"): "jsonl.gz",
    ("jsonl", "zstd"): "jsonl.zst",
}


def open_format(name: str, compression: str) -> Format:
    """Return the format that an order names; raises ``ConfigurationError`` for one that is not registered."""
    if name not in _MODULES:
        raise ConfigurationError(f"files of format {name} cannot be written",
                                 next_step=f"write format: {' | '.join(_MODULES)}")  # fmt: skip
    module, kind = _MODULES[name]
    loaded = import_for(name, module, command(name) if name in EXTRAS else "")
    opened: Format = getattr(loaded, kind)(_SUFFIXES.get((name, compression), name), compression)
    return opened


def format_of(path: str) -> Format:
    """Return the format of a file by its name; raises ``Unreadable`` for a name that Tidemark did not give."""
    name = ObjectName.parse(path)
    if name is None:
        raise Unreadable(f"the format of {path} is unknown, because Tidemark does not name files like this")
    compressed = {suffix: pair for pair, suffix in _SUFFIXES.items()}
    return open_format(*compressed.get(name.format, (name.format, "none")))
