"""Writes the rows of one Spark task to files in the attempt's staging folder; each file is for one folder of the lake.

Rows wait in memory until there are enough of them for a group, or too many in all; then they go to the file of their
folder, which stays open until it is full. The store gives a file its name when it is complete. ``task`` names the try
of the Spark task too, so that a task that runs twice writes other files. Nothing is synced to disk here: publishing
does that.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import SinkRefused, TidemarkError
from tidemark.event_time import EARLIEST, INSTANT
from tidemark.order import Order, SinkOrder
from tidemark.paths import Layout, dead_letter_folder, first_part
from tidemark.receipt import ObjectKind, final_key
from tidemark.sinks.files.formats import open_format
from tidemark.sinks.files.formatted_file import FormattedFile
from tidemark.sinks.files.repetition import SAMPLE_ROWS
from tidemark.sinks.staging.finished_files import FinishedFiles
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.held_rows import HeldRows
from tidemark.sinks.staging.staged_file import has_complete_file, staging_of
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

OPEN_FILES = 200  # of one task; systems allow 1,024 in a process


@dataclass(frozen=True)
class _Target:
    kind: ObjectKind
    topic: str
    partition: int
    folder: str


class FilesWriter:
    """Collects rows per (topic, partition, folder), and closes a file when it has ``max_file_bytes`` or rows.

    Each group of rows that goes to a file is sorted by ``sort_by``; a file of a single group is sorted as a whole.
    """

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._format = open_format(sink.options["format"], sink.options["compression"])
        self._name = sink.name
        self._layout = Layout(sink.options["layout"])
        self._pipeline_name = order.pipeline_name
        self._context = {"pipeline": order.pipeline_name, "manifest": order.manifest_id, "sink": sink.name}
        self._task = task
        self._ranges = {(covered.at.topic, covered.at.partition): covered for covered in order.ranges}
        self._order = order
        self._index = [other.name for other in order.sinks].index(sink.name)
        self._max_objects: int = sink.options["max_objects"]
        self._max_rows: int = sink.options["max_file_rows"]
        self._max_bytes: int = sink.options["max_file_bytes"]
        self._sort_by: list[str] = sink.options["sort_by"]
        self._store = _store(sink)
        self._folder = f"{order.staging}/{self._name}"
        self._held = HeldRows[_Target](file_rows=self._max_rows, file_bytes=self._max_bytes)
        self._open: dict[_Target, FormattedFile] = {}
        self._finished = FinishedFiles(self._store.at_once)
        self._names = 0

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        unit = self._layout.finest
        period = pa.nulls(len(event_time), INSTANT) if unit == "none" else pc.floor_temporal(event_time, unit=unit)
        for topic, partition, when, piece in grouped(rows, period):
            folder = self._layout.folder(self._pipeline_name, topic, when or EARLIEST)
            self._hold(_Target(ObjectKind.DATA, topic, partition, folder), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        nothing = pa.nulls(rows.num_rows, INSTANT)
        for topic, partition, _, piece in grouped(rows, nothing):
            self._hold(_Target(ObjectKind.DEAD_LETTER, topic, partition, dead_letter_folder(topic)), piece)

    def close(self) -> list[StagedPart]:
        for target, rows in self._held.rest():
            self._append(target, rows)
        for target in list(self._open):
            self._finish(target)
        return self._finished.parts()

    def abort(self) -> None:
        self._held.clear()
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._finished.abandon()
        with suppress(TidemarkError):  # files that stay do no harm: no receipt names them
            self._store.delete([*self._store.names(self._folder, beginning=f"{self._task}-")])

    def _hold(self, target: _Target, piece: pa.Table) -> None:
        for due, rows in self._held.add(target, piece):
            self._append(due, rows)

    def _append(self, target: _Target, rows: pa.Table) -> None:
        """Write rows, with the columns of ``HASH_COLUMNS``, into a file, and into further files when it is full."""
        if self._sort_by and target.kind is ObjectKind.DATA:
            rows = rows.sort_by([(name, "ascending") for name in self._sort_by])
        start = 0
        while start < rows.num_rows:
            with self._staging(target):
                file = self._open.get(target) or self._begin(target, rows)
                group = rows.slice(start, min(self._held.group_rows, self._max_rows - file.rows)).combine_chunks()
                before = file.bytes
                file.append(group)
            start += group.num_rows
            # Another group of this size would not fit any more.
            if file.rows >= self._max_rows or 2 * file.bytes - before > self._max_bytes:
                self._finish(target)

    def _begin(self, target: _Target, rows: pa.Table) -> FormattedFile:
        if len(self._open) >= OPEN_FILES:
            self._finish(max(self._open, key=lambda target: self._open[target].bytes))
        number = self._names
        self._names += 1
        if number >= self._max_objects:
            context = {**self._context, "topic": target.topic, "partition": target.partition}
            raise too_many_objects(f"one task has made {number:,} files", self._max_objects, context)
        sample = rows.slice(0, SAMPLE_ROWS).drop_columns(HASH_COLUMNS.names)
        self._open[target] = FormattedFile(
            self._store, self._key(number), self._final(target, number), self._format, sample.schema, sample
        )
        return self._open[target]

    def _finish(self, target: _Target) -> None:
        file = self._open.pop(target)
        self._finished.add(file.bytes, partial(self._part, target, file))

    def _part(self, target: _Target, file: FormattedFile) -> StagedPart:
        with self._staging(target):
            return file.part(
                self._name, target.kind, target.topic, target.partition,
                staged=f"{self._name}/{file.name}", folder=target.folder, suffix=self._format.suffix,
            )  # fmt: skip

    def _staging(self, target: _Target) -> AbstractContextManager[None]:
        file = f"{self._store.root}/{self._folder}"
        return staging_of(self._name, topic=target.topic, partition=target.partition, file=file)

    def _key(self, number: int) -> str:
        return f"{self._folder}/{self._file_name(number)}"

    def _final(self, target: _Target, number: int) -> str | None:
        """The key that a file gets if the store takes large ones there at once: then no receipt numbers it."""
        if self._store.uploads_from == inf:
            return None
        covered = self._ranges[target.topic, target.partition]
        part = first_part(self._index, int(self._task.partition("-")[0])) + number
        return final_key(self._order, covered, target.folder, part, self._format.suffix)

    def _file_name(self, number: int) -> str:
        return f"{self._task}-{number:05d}.{self._format.suffix}"


def too_many_objects(what: str, max_objects: int, context: Mapping[str, object]) -> SinkRefused:
    """The error for more objects than a manifest may have; ``context`` has its pipeline and manifest."""
    return SinkRefused(
        f"{what}, and at most {max_objects:,} are allowed (max_objects)",
        next_step="nothing was published; write a coarser layout (by day instead of by hour), or larger slices, "
        "or raise sinks.files.max_objects; then: tidemark retry {pipeline} --manifest {manifest}",
        **context,
    )


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"], sink.options.get("s3"))


def open_writer(order: Order, sink: SinkOrder, task: str) -> FilesWriter:
    return FilesWriter(order, sink, task)


def try_connection(conn_id: str) -> None:
    del conn_id  # it does not name the bucket, so there is nothing to try


def has_staged(order: Order, sink: SinkOrder) -> bool:
    return has_complete_file(_store(sink), f"{order.staging}/{sink.name}")
