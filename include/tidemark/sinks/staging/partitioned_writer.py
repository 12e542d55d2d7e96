"""Writes the rows of one Spark task to files: one file after the other for each partition of a lake or a table,
independent of the partitions of the source.

Rows wait in memory until there are enough of them for a group, or too many in all. Then they go to the file of their
partition, which stays open until it is full. The store gives a file its name when it is complete. ``task`` contains the
number of the try of the Spark task, so that a task that runs twice writes other files. Files are not synced to disk
here: publishing does that.

Standard library and pyarrow only: executors stage with it.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidemark.errors import SinkRefused, TidemarkError
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.staging.finished_files import FinishedFiles
from tidemark.sinks.staging.held_rows import HeldRows
from tidemark.sinks.staging.staged_file import StagedFile, has_complete_file
from tidemark.sinks.writer import SinkWriter, StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

OPEN_FILES = 200  # open files of one task; systems usually allow 1,024 per process
ANY_ROWS = 2**62


@dataclass(frozen=True)
class Target:
    """The key of rows that share a file.

    ``place`` is a partition of the sink, not of the topic: a folder, or the values of a table's partition as JSON.
    """

    kind: ObjectKind
    topic: str
    place: str


class PartitionedWriter(SinkWriter):
    """A writer that collects rows by target, and closes a file when it reaches ``max_file_bytes`` or ``max_rows``."""

    def __init__(self, order: Order, sink: SinkOrder, task: str, *, max_rows: int = ANY_ROWS) -> None:
        super().__init__(order, sink, task)
        self._store = store_of(sink)
        self._folder = f"{order.staging}/{sink.name}"
        self._max_objects: int = sink.options["max_objects"]
        self._max_bytes: int = sink.options["max_file_bytes"]
        self._max_rows = max_rows
        self._held = HeldRows[Target](file_rows=max_rows, file_bytes=self._max_bytes)
        self._open: dict[Target, StagedFile] = {}
        self._finished = FinishedFiles(self._store.at_once)
        self._keys: list[str] = []

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(store_of(sink), f"{order.staging}/{sink.name}")

    @abstractmethod
    def _key(self, target: Target, number: int) -> str:
        """Return the staged key of the file with this number in the task."""

    @abstractmethod
    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> StagedFile:
        """Begin a file; ``rows`` are its first rows, with the columns of ``HASH_COLUMNS``."""

    @abstractmethod
    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        """Write a group of rows, which have the columns of ``HASH_COLUMNS`` too."""

    @abstractmethod
    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        """Finish a file, and return what it holds."""

    @abstractmethod
    def _too_many(self, number: int, target: Target) -> SinkRefused:
        """Return the error for a task that would make more than ``max_objects`` files."""

    @abstractmethod
    def _translated(self, target: Target) -> AbstractContextManager[None]:
        """Turn errors of the store, and of rows that do not fit, into ours."""

    def _sorted(self, target: Target, rows: pa.Table) -> pa.Table:
        del target
        return rows

    def close(self) -> list[StagedPart]:
        for target, rows in self._held.rest():
            self._stage(target, rows)
        for target in list(self._open):
            self._finish(target)
        return self._finished.parts()

    def abort(self) -> None:
        self._held.clear()
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._finished.abandon()
        with suppress(TidemarkError):  # remaining files do no harm: no receipt names them
            self._store.delete(self._made())

    def _made(self) -> list[str]:
        """Return the keys of all that this task may have staged."""
        return self._keys

    def _hold(self, target: Target, piece: pa.Table) -> None:
        for due, rows in self._held.add(target, piece):
            self._stage(due, rows)

    def _stage(self, target: Target, rows: pa.Table) -> None:
        """Write rows into a file, and into further files if it is full."""
        rows = self._sorted(target, rows)
        start = 0
        while start < rows.num_rows:
            with self._translated(target):
                file = self._open.get(target) or self._begin(target, rows)
                group = rows.slice(start, min(self._held.group_rows, self._max_rows - file.rows)).combine_chunks()
                before = file.bytes
                self._append(file, target, group)
            start += group.num_rows
            # Close the file if another group of this size would not fit.
            if file.rows >= self._max_rows or 2 * file.bytes - before > self._max_bytes:
                self._finish(target)

    def _begin(self, target: Target, rows: pa.Table) -> StagedFile:
        if len(self._open) >= OPEN_FILES:
            self._finish(max(self._open, key=lambda target: self._open[target].bytes))
        number = len(self._keys)
        if number >= self._max_objects:
            raise self._too_many(number, target)
        self._keys.append(self._key(target, number))
        self._open[target] = self._create(target, number, self._keys[-1], rows)
        return self._open[target]

    def _finish(self, target: Target) -> None:
        file = self._open.pop(target)
        self._finished.add(file.bytes, partial(self._finished_part, target, file))

    def _finished_part(self, target: Target, file: StagedFile) -> StagedPart:
        with self._translated(target):
            return self._part(file, target)


def store_of(sink: SinkOrder) -> ObjectStore:
    """Return the store in which the tasks of a lake or a table stage."""
    return open_store(sink.options["root"], sink.options.get("store"))
