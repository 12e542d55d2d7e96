"""The parts of Delta rows that other formats do not have: a partition column, evidence in a partition, and
properties."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.providers.delta.files import TableFile, files_of
from tidemark.providers.lake_tables.evidence import CountedMerge
from tidemark.providers.lake_tables.lost_files import LostFile, wrong_files
from tidemark.providers.lake_tables.table_rows import TableRows
from tidemark.sinks.capabilities import NamedFile
from tidemark.storage.base import ObjectStore

Action = AddAction | RemoveAction


@dataclass(frozen=True)
class TableChanges:
    """The changes of a commit to the files of rows.

    ``written`` has the sizes of the files that it adds. ``own`` are those among them that were written for this try
    alone.
    """

    actions: list[Action]
    written: Mapping[str, int]
    own: list[str] = field(default_factory=list)
    merge: CountedMerge | None = None


class PublishedRows(TableRows[DeltaTable, TableChanges]):
    """The rows of one table.

    The table is partitioned by the column ``partition``. No row has the value ``evidence_value`` in it.
    """

    partition: ClassVar[str]
    evidence_value: ClassVar[int]

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def files(self, table: DeltaTable) -> list[TableFile]:
        """Return the files with rows."""
        return [file for file in files_of(table, self.partition) if file.value != self.evidence_value]

    def evidence_files(self, table: DeltaTable) -> list[TableFile]:
        """Return the files in the partition of the evidence."""
        return [file for file in files_of(table, self.partition) if file.value == self.evidence_value]

    def named_files(self, table: DeltaTable) -> list[NamedFile]:
        files = sorted(self.files(table), key=lambda file: (file.value or 0, file.path))
        return [NamedFile(f"{self.store.root}/{file.path}", file.rows or 0, file.bytes) for file in files]

    @abstractmethod
    def manifests_of(self, file: TableFile) -> tuple[int, int]:
        """Return the lowest and the highest manifest that may have rows in a file."""

    def lost_files(
        self, table: DeltaTable, store: ObjectStore, manifest_id: int | None = None
    ) -> list[LostFile[TableFile]]:
        files = [LostFile(file, "", self.manifests_of(file)) for file in self.files(table)]
        chosen = [file for file in files if manifest_id is None or file.may_have_rows_of(manifest_id)]
        wrong = wrong_files(store, {file.file.path: file.file.bytes for file in chosen}, listed=manifest_id is None)
        return [replace(file, what=wrong[file.file.path]) for file in chosen if file.file.path in wrong]

    @abstractmethod
    def manifests(self, table: DeltaTable) -> set[int]:
        """Return the manifests with rows in the table."""

    def columns(self, stored: pa.Schema) -> pa.Schema:
        """Return the columns of the table for the columns of its rows."""
        return stored

    def order(self) -> dict[str, Any]:
        """Return the settings that executors need to stage rows for this kind of table, such as its key. By default
        there are no such settings."""
        return {}
