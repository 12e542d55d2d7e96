"""Writes the rows of one Spark task to files in the staging folder; each file is for one folder of the lake."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import inf

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.model.offsets import Range
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind, final_key
from tidemark.paths import Layout, dead_letter_folder, first_part
from tidemark.sinks.formats.base import open_format
from tidemark.sinks.formats.formatted_file import FormattedFile
from tidemark.sinks.formats.repetition import SAMPLE_ROWS
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.partitioned_writer import PartitionedWriter, Target
from tidemark.sinks.staging.staged_file import StagedFile, staging_of
from tidemark.sinks.writer import StagedPart
from tidemark.text import column_of_arrow
from tidemark.times.event_time import EARLIEST


class Writer(PartitionedWriter):
    """A writer that collects rows by topic and folder.

    Each group of rows that goes to a file is sorted by ``sort_by``; a file of a single group is sorted as a whole.
    """

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._format = open_format(sink.options["format"], sink.options["compression"])
        super().__init__(order, sink, task, max_rows=sink.options["max_file_rows"])
        self._layout = Layout(sink.options["layout"])
        self._order = order
        self._ranges: dict[str, list[Range]] = {}
        for covered in order.ranges:
            self._ranges.setdefault(covered.at.topic, []).append(covered)
        self._index = [other.name for other in order.sinks].index(sink.name)
        self._sort_by: list[str] = sink.options["sort_by"]

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        unit = self._layout.finest
        period = None if unit == "none" else pc.floor_temporal(event_time, unit=unit)
        for topic, _, when, piece in grouped(rows, period):
            folder = self._layout.folder(self._order.pipeline_name, topic, when or EARLIEST)
            self._hold(Target(ObjectKind.DATA, topic, folder), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, _, _, piece in grouped(rows):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, dead_letter_folder(topic)), piece)

    def _sorted(self, target: Target, rows: pa.Table) -> pa.Table:
        if not self._sort_by or target.kind is not ObjectKind.DATA:
            return rows
        return rows.sort_by([(column_of_arrow(name), "ascending") for name in self._sort_by])

    def _key(self, target: Target, number: int) -> str:
        del target
        return f"{self._folder}/{self._task}-{number:05d}.{self._format.suffix}"

    def _made(self) -> list[str]:
        """Return the keys of all that this task may have staged, also the files that stand for uploads."""
        return [*self._store.names(self._folder, beginning=f"{self._task}-")]

    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> FormattedFile:
        sample = rows.slice(0, SAMPLE_ROWS).drop_columns(HASH_COLUMNS.names)
        return FormattedFile(self._store, key, self._final(target, number), self._format, sample)

    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        del target
        assert isinstance(file, FormattedFile)
        file.append(rows)

    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        return file.part(
            self._name, target.kind, target.topic,
            staged=f"{self._name}/{file.name}", folder=target.place, suffix=self._format.suffix,
        )  # fmt: skip

    def _too_many(self, number: int, target: Target) -> SinkRefused:
        context = {**self._context, "topic": target.topic}
        return too_many_objects(f"one task has made {number:,} files", self._max_objects, context)

    def _translated(self, target: Target) -> AbstractContextManager[None]:
        file = f"{self._store.root}/{self._folder}"
        return staging_of(self._name, topic=target.topic, file=file)

    def _final(self, target: Target, number: int) -> str | None:
        """Return the final key of a file for a store that uploads large files directly to it, else None. The receipt
        gives such a file no number."""
        if self._store.uploads_from == inf:
            return None
        [first, *others] = self._ranges[target.topic]
        covered = None if others else first  # the key is needed before it is known which ranges the rows are of
        part = first_part(self._index, int(self._task.partition("-")[0])) + number
        return final_key(self._order, covered, target.place, part, self._format.suffix)


def too_many_objects(what: str, max_objects: int, context: Mapping[str, object]) -> SinkRefused:
    """Return the error for more objects than a manifest may have; ``context`` has its pipeline and manifest."""
    return SinkRefused(
        f"{what}, and at most {max_objects:,} are allowed (max_objects)",
        next_step="nothing was published; write a coarser layout (by day instead of by hour), or larger slices, "
        "or raise sinks.files.max_objects" + THEN_RETRY,
        **context,
    )
