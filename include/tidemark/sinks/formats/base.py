"""The protocol of a file format, and the registry: one module per format, imported when a file needs it.

A format writes rows to an open file, and reads three things from a file: the number of rows, the records they come
from, and their digest. This code runs on executors, so it imports the standard library and pyarrow only; the module of
a format may import its own library.
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
        """Append rows; their digest in the file, which is ``measured``, that of the rows, if the format keeps types."""
        ...

    def close(self) -> None:
        """Complete the file, and leave it open; may be repeated."""
        ...


class Format(ABC):
    """One format with one compression; ``suffix`` is the end of its file names, without the dot.

    Methods that read a file raise ``Unreadable`` when it is damaged.
    """

    def __init__(self, suffix: str, compression: str) -> None:
        self.suffix = suffix
        self._compression = compression

    def check(self, schema: pa.Schema) -> None:
        """Raise ``ConfigurationError`` unless rows of these columns can be written without loss."""
        del schema

    @abstractmethod
    def writer(self, out: BinaryIO, sample: pa.Table) -> "FormatWriter":
        """Begin a file of rows with the columns of ``sample``, which are its first rows, or some of them."""

    @abstractmethod
    def count(self, file: BinaryIO) -> int:
        """The number of rows, counted in the file itself."""

    @abstractmethod
    def digest(self, file: BinaryIO) -> Digest:
        """The same digest as from ``write``, computed from the file: reads all of it."""

    @abstractmethod
    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        """The rows of a file of dead letters with these columns, read ``page`` at a time where the format allows."""

    @abstractmethod
    def places(self, file: BinaryIO) -> pa.Table:
        """Topic, partition and offset of each row, with the columns of ``PLACES``."""


@contextmanager
def unreadable(*errors: type[Exception]) -> Iterator[None]:
    """Turns ``errors`` of a library about a damaged file into ``Unreadable``; errors of the store stay unchanged."""
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
    """The format that an order names; ``ConfigurationError`` for one that is not registered."""
    if name not in _MODULES:
        raise ConfigurationError(f"files of format {name} cannot be written",
                                 next_step=f"write format: {' | '.join(_MODULES)}")  # fmt: skip
    module, kind = _MODULES[name]
    loaded = import_for(name, module, command(name) if name in EXTRAS else "")
    opened: Format = getattr(loaded, kind)(_SUFFIXES.get((name, compression), name), compression)
    return opened


def format_of(path: str) -> Format:
    """The format of a file by its name; ``Unreadable`` for a name that Tidemark did not give."""
    name = ObjectName.parse(path)
    if name is None:
        raise Unreadable(f"the format of {path} is unknown: it has no name of Tidemark's")
    compressed = {suffix: pair for pair, suffix in _SUFFIXES.items()}
    return open_format(*compressed.get(name.format, (name.format, "none")))
