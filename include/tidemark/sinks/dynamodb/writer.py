"""Groups the rows of one Spark task by key, and stages the groups as Parquet; publishing combines the tasks'.

Dead letters are staged as Parquet too, a file for each partition of the source, and stay files.
"""

from contextlib import AbstractContextManager, suppress

import pyarrow as pa

from tidemark.errors import TidemarkError
from tidemark.model.digest import Digest, row_digest
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.aggregates.groups_writer import GroupsWriter
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.staged_file import has_complete_file, staging_of
from tidemark.sinks.staging.staged_parquet import StagedParquet
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

GROUPS, DEAD = "groups", "dead"  # the beginnings of the names of staged files
WITH_DIGEST = "#"  # in a receipt, between the name of a file of groups and their digest


class DynamoWriter(GroupsWriter):
    """Stages groups in one file, and the dead letters of each partition in one."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._folder = order.staging
        self._store = _store(sink)
        self._groups_file = f"{GROUPS}-{task}.parquet"
        self._staged: StagedParquet | None = None
        self._digest = Digest.zero()  # of the groups
        self._dead: dict[tuple[str, int], StagedParquet] = {}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), order.staging)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows):
            letters = piece.drop_columns(HASH_COLUMNS.names)
            with self._staging():
                if (topic, partition) not in self._dead:
                    key = f"{self._folder}/{DEAD}-{self._task}-{len(self._dead):05d}.parquet"
                    self._dead[topic, partition] = StagedParquet(self._store, key, letters.schema)
                self._dead[topic, partition].append(letters, piece)

    def close(self) -> list[StagedPart]:
        self._stage(self._groups.rest())
        with self._staging():
            if self._staged is not None:
                self._staged.finish()
            staged = f"{self._groups_file}{WITH_DIGEST}{self._digest}"
            parts = self._measures.parts(self._name, ObjectKind.DATA, "", staged)
            for place, file in self._dead.items():
                part = file.part(
                    self._name, ObjectKind.DEAD_LETTER, *place, staged=file.name, folder="", suffix="parquet"
                )
                parts.append(part)
            return parts

    def abort(self) -> None:
        files = [*([self._staged] if self._staged else []), *self._dead.values()]
        for file in files:
            file.abandon()
        with suppress(TidemarkError, OSError):  # files that stay do no harm: no receipt names them
            self._store.delete([file.key for file in files])

    def _stage(self, groups: pa.Table | None) -> None:
        if groups is None:
            return
        with self._staging():
            if self._staged is None:
                self._staged = StagedParquet(self._store, f"{self._folder}/{self._groups_file}", groups.schema)
            self._staged.append(groups)
            self._digest += row_digest(groups)

    def _staging(self) -> AbstractContextManager[None]:
        return staging_of(self._name, **self._context)


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["staging"], sink.options["store"])
