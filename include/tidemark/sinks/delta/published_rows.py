"""Which rows a table shows of its manifests: all of them, or the newest of each key."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import PublishedObject
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.delta.evidence import TableEvidence
from tidemark.sinks.delta.files import TableFile, files_of
from tidemark.sinks.lake_tables.merges import CountedMerge
from tidemark.sinks.located import Located
from tidemark.storage.base import Move, ObjectStore

Action = AddAction | RemoveAction


@dataclass(frozen=True)
class StagedAttempt:
    """An attempt and its files with rows, as they were staged."""

    manifest_id: int
    attempt: int
    parts: Sequence[PublishedObject]


@dataclass(frozen=True)
class TableChanges:
    """What a commit does to the files of rows; ``written`` has the sizes of those that it adds, and ``own`` the ones
    that were made for this try alone."""

    actions: list[Action]
    written: Mapping[str, int]
    own: list[str] = field(default_factory=list)
    merge: CountedMerge | None = None


class PublishedRows(ABC):
    """The rows of one table. ``partition`` is the column that it is partitioned by, and ``evidence_value`` the value of
    it that no row has."""

    partition: ClassVar[str]
    evidence_value: ClassVar[int]

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def files(self, table: DeltaTable) -> list[TableFile]:
        """The files with rows."""
        return [file for file in files_of(table, self.partition) if file.value != self.evidence_value]

    def evidence_files(self, table: DeltaTable) -> list[TableFile]:
        """The files in the partition of the evidence."""
        return [file for file in files_of(table, self.partition) if file.value == self.evidence_value]

    @abstractmethod
    def manifests(self, table: DeltaTable) -> set[int]:
        """The manifests with rows in the table."""

    @abstractmethod
    def columns(self, stored: pa.Schema) -> pa.Schema:
        """The columns of the table for those of its rows."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """What a new table notes of these settings."""

    @abstractmethod
    def refuse(self, table: DeltaTable, context: Mapping[str, Any]) -> None:
        """Raise ``SinkRefused`` for a table that cannot hold such rows."""

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What executors need to stage such rows."""

    @abstractmethod
    def moves(self, publishing: StagedAttempt) -> list[Move]:
        """The files that go to their places before the commit."""

    @abstractmethod
    def changes(
        self, table: DeltaTable, evidence: TableEvidence, publishing: StagedAttempt, context: Mapping[str, Any]
    ) -> TableChanges:
        """What the commit changes that publishes an attempt, on the table as it is now."""

    @abstractmethod
    def same(self, table: DeltaTable, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Whether the table has all rows of an attempt that is staged; they have ``columns``."""

    @abstractmethod
    def differences(self, table: DeltaTable, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """The rows of published manifests that are missing, or too many; ``deep`` reads every row."""

    @abstractmethod
    def located(
        self, table: DeltaTable, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition,
        offset: int,
    ) -> Located | None:  # fmt: skip
        """The row of a record; None when the table has none."""
