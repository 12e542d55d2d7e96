"""A file of an attempt while a task writes it, in any format: it grows, and gets its name when it is finished.

Standard library and pyarrow only: executors stage with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, Protocol

import pyarrow as pa

from tidemark.errors import AccessDenied, TidemarkError, Unavailable
from tidemark.model.digest import Digest
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.local import disk_error


class _Abandoned(Exception):
    """Tells the store not to give the file its name."""


class _Writer(Protocol):
    def close(self) -> None: ...


class StagedFile(ABC):
    """A file to which rows are appended; then it is finished or abandoned, also after an error.

    ``rows``, ``digest`` and ``offsets`` are those of the appended rows; ``offsets`` has the lowest and the highest
    offset of each partition.
    """

    _writer: _Writer

    def __init__(self, store: ObjectStore, key: str, final: str | None = None) -> None:
        """Create the file. ``final``: the key to which the store may upload it directly, if it is large."""
        self.key = key
        self._final = final
        self._uploads_from = store.uploads_from
        self.rows = 0
        self.digest = Digest.zero()
        self.offsets: dict[int, tuple[int, int]] = {}
        self._stack = ExitStack()
        self._file = self._stack.enter_context(store.create(key, final))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def bytes(self) -> int:
        """Return the size so far, without what the format adds at the end."""
        return self._file.tell()

    def _measure(self, rows: pa.Table, digest: Digest) -> None:
        """Add rows, which have the columns ``_partition`` and ``_offset``, to the measures."""
        self.rows += rows.num_rows
        self.digest += digest
        for partition, lowest, highest in spans_of(rows):
            before = self.offsets.get(partition, (lowest, highest))
            self.offsets[partition] = min(before[0], lowest), max(before[1], highest)

    @abstractmethod
    def _counted(self, file: BinaryIO) -> int:
        """Return the number of rows, counted in the file itself."""

    def finish(self) -> tuple[int, int]:
        """Finish the file; return its (rows, bytes). The rows are counted in the file before it gets its name."""
        with self._stack:
            self._writer.close()
            size = self._file.seek(0, 2)
            self._file.seek(0)
            return self._counted(self._file), size

    def part(
        self, sink: str, kind: ObjectKind, topic: str, *, staged: str, folder: str, suffix: str | None
    ) -> StagedPart:
        """Finish the file, and return what it holds."""
        rows, size = self.finish()
        return StagedPart(
            sink=sink, kind=kind, staged=staged, folder=folder, format=suffix, topic=topic,
            spans=tuple((partition, *self.offsets[partition]) for partition in sorted(self.offsets)),
            rows=rows, bytes=size, digest=str(self.digest), path=self._final if size >= self._uploads_from else None,
        )  # fmt: skip

    def abandon(self) -> None:
        """Remove the file, if possible; never raises."""
        with suppress(Exception):
            self._writer.close()
        with suppress(_Abandoned, OSError, TidemarkError), self._stack:
            raise _Abandoned


def spans_of(rows: pa.Table) -> list[tuple[int, int, int]]:
    """Return (partition, lowest offset, highest offset) of each partition in the rows."""
    groups = rows.select(["_partition", "_offset"]).group_by("_partition", use_threads=False)
    spans = groups.aggregate([("_offset", "min"), ("_offset", "max")]).to_pylist()
    return [(span["_partition"], span["_offset_min"], span["_offset_max"]) for span in spans]


@contextmanager
def staging_of(sink: str, /, **context: object) -> Iterator[None]:
    """Turn ``OSError`` of the disk into ``AccessDenied`` or ``Unavailable`` that names the sink."""
    try:
        yield
    except OSError as error:
        problem = disk_error(error)
        kind = AccessDenied if isinstance(problem, AccessDenied) else Unavailable
        raise kind(
            f"the sink {sink} cannot stage a file: {problem.what}",
            next_step=problem.next_step,
            **{"sink": sink, **context},
        ) from error


def has_complete_file(store: ObjectStore, folder: str) -> bool:
    """Return whether a folder has a complete file; names of incomplete files begin with a dot. An upload counts as
    soon as it begins."""
    return any(not key.rpartition("/")[2].startswith(".") for key, _ in store.list(folder))
