"""Rows of one Spark task to files in the attempt's staging folder, one folder of the lake per file.

A file is written as ``.<task>-<n>.<ending>`` and renamed when complete: what has its final name is whole. ``task``
names the try of the Spark task too, so a task that runs twice never meets its own files. Nothing is synced to disk
here; publishing does that before it says anything to anybody.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from tidemark.digest import Digest
from tidemark.errors import AccessDenied, Unavailable
from tidemark.event_time import EARLIEST, INSTANT
from tidemark.layout import Layout, dead_letter_folder
from tidemark.model import ObjectKind, Order, SinkOrder
from tidemark.sinks.contract import StagedPart
from tidemark.sinks.formats import open_format
from tidemark.sinks.grouping import BESIDE, digest_of, grouped

MIB = 1024 * 1024
TASK_BYTES = 256 * MIB  # Arrow bytes held by one task, all folders together
FILE_BYTES = 128 * MIB  # Arrow bytes of one file: every format is smaller once compressed, so this bounds the file too
FILE_ROWS = 2_000_000
_PIECE_OVERHEAD = 256  # bytes that a column of a small piece costs beside its values (alignment, Python objects)


@dataclass(frozen=True)
class _Target:
    kind: ObjectKind
    topic: str
    partition: int
    folder: str


@dataclass
class _Held:
    """What waits in memory for one file: rows, and beside them what the report needs to know of them."""

    pieces: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class FilesWriter:
    """Collects rows per (topic, partition, folder) and stages a file when a limit is reached, the largest first."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._format = open_format(sink.options["format"], sink.options["compression"])
        self._name = sink.name
        self._layout = Layout(sink.options["layout"])
        self._pipeline = order.pipeline
        self._task = task
        self._files, root = _opened(sink.options["root"])
        self._folder = f"{root}/{order.staging}/{self._name}"
        self._held: dict[_Target, _Held] = {}
        self._bytes = 0
        self._staged: list[StagedPart] = []
        self._names = 0

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        unit = self._layout.finest
        period = pa.nulls(len(event_time), INSTANT) if unit == "none" else pc.floor_temporal(event_time, unit=unit)
        for topic, partition, when, piece in grouped(rows, period):
            folder = self._layout.folder(self._pipeline, topic, when or EARLIEST)
            self._hold(_Target(ObjectKind.DATA, topic, partition, folder), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        nothing = pa.nulls(rows.num_rows, INSTANT)
        for topic, partition, _, piece in grouped(rows, nothing):
            self._hold(_Target(ObjectKind.DEAD_LETTER, topic, partition, dead_letter_folder(topic)), piece)

    def close(self) -> list[StagedPart]:
        for target in list(self._held):
            self._flush(target)
        return self._staged

    def abort(self) -> None:
        self._held.clear()
        for number in range(self._names):
            for path in (self._path(number), self._path(number, ".")):
                try:
                    self._files.delete_file(path)
                except OSError:
                    continue  # never written, or the storage is gone: no receipt names it either way

    def _hold(self, target: _Target, piece: pa.Table) -> None:
        held = self._held.setdefault(target, _Held())
        size = piece.nbytes + piece.num_columns * _PIECE_OVERHEAD
        held.pieces.append(piece)
        held.rows += piece.num_rows
        held.bytes += size
        self._bytes += size
        if held.rows >= FILE_ROWS or held.bytes >= FILE_BYTES:
            self._flush(target)
        while self._bytes > TASK_BYTES:
            self._flush(max(self._held, key=lambda one: self._held[one].bytes))

    def _flush(self, target: _Target) -> None:
        held = self._held.pop(target)
        self._bytes -= held.bytes
        measured = pa.concat_tables(held.pieces).combine_chunks()
        table = measured.drop_columns(BESIDE.names)
        number = self._names
        self._names += 1
        try:
            rows, size, digest = self._write_file(number, table, digest_of(measured))
        except OSError as error:
            kind = AccessDenied if isinstance(error, PermissionError) else Unavailable
            raise kind(
                f"the sink {self._name} cannot stage a file: {error}",
                next_step="free space or give this user the right to write, then: tidemark retry PIPELINE",
                topic=target.topic, partition=target.partition, file=self._path(number),
            ) from error  # fmt: skip
        offsets = pc.min_max(table.column("_offset")).as_py()
        self._staged.append(
            StagedPart(
                sink=self._name,
                kind=target.kind,
                staged=f"{self._name}/{self._file_name(number)}",
                folder=target.folder,
                format=self._format.ending,
                topic=target.topic,
                partition=target.partition,
                rows=rows,
                bytes=size,
                digest=str(digest),
                first_offset=offsets["min"],
                last_offset=offsets["max"],
            )
        )

    def _write_file(self, number: int, table: pa.Table, measured: Digest) -> tuple[int, int, Digest]:
        """Write, look at what lies there, rename; the rows counted in it, its size in bytes, its digest."""
        partial = self._path(number, ".")
        self._files.create_dir(self._folder, recursive=True)
        with self._files.open_output_stream(partial) as out:
            digest = self._format.write(table, measured, out)
        with self._files.open_input_file(partial) as written:
            rows = self._format.count(written)
        size = self._files.get_file_info(partial).size
        self._files.move(partial, self._path(number))
        return rows, size, digest

    def _path(self, number: int, prefix: str = "") -> str:
        return f"{self._folder}/{prefix}{self._file_name(number)}"

    def _file_name(self, number: int) -> str:
        return f"{self._task}-{number:05d}.{self._format.ending}"


def _opened(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a root and the root's path in it: the one place to add another storage."""
    return fs.LocalFileSystem(), str(Path(root).absolute())


def has_staged(order: Order, sink: SinkOrder) -> bool:
    """Whether a file of the attempt is complete."""
    folder = Path(sink.options["root"], order.staging, sink.name)
    return folder.is_dir() and any(not one.name.startswith(".") for one in folder.iterdir())
