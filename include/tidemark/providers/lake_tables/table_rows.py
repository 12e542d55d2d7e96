"""The rows that a table shows of its manifests: all of them, or the newest of each key."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import PublishedObject
from tidemark.providers.lake_tables.lost_files import LostFile
from tidemark.providers.lake_tables.properties import KEY
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.located import Located
from tidemark.storage.base import Move, ObjectStore

T = TypeVar("T")  # the class of a loaded table in the library of the format
C = TypeVar("C")  # the changes of a commit


@dataclass(frozen=True)
class StagedAttempt:
    """An attempt and its staged files with rows.

    ``is_first`` is true if, by the table's evidence, no attempt can have put rows of the manifest yet. ``lost`` are the
    paths of files that a replay drops from the table.
    """

    manifest_id: int
    attempt: int
    parts: Sequence[PublishedObject]
    is_first: bool = False
    lost: frozenset[str] = frozenset()


class TableRows(ABC, Generic[T, C]):
    """The rows of one table. Each format has its own subclasses."""

    def properties(self) -> dict[str, str]:
        """Return the properties in which a table notes the settings of such rows; with other settings it cannot hold
        them."""
        return {KEY: "[]"}

    def moves(self, staged: StagedAttempt) -> list[Move]:
        """Return the files to move to their final paths before the commit; none if files are staged there, or merged
        into others."""
        del staged
        return []

    @abstractmethod
    def changes(self, table: T, staged: StagedAttempt, context: Mapping[str, Any]) -> C:
        """Return the changes of the commit that publishes an attempt, based on the current table."""

    def withdraw(self, table: T, changes: C) -> None:
        """Remove the files that ``changes`` has written, after its commit was refused."""

    @abstractmethod
    def lost_files(self, table: T, store: ObjectStore, manifest_id: int | None = None) -> list[LostFile[Any]]:
        """Return the files that the table names and nobody can read: all, or those that may have rows of a manifest.

        ``store`` is at the location of the table. If all files are checked, the store lists all that it has.
        """

    @abstractmethod
    def same(self, table: T, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has all rows of an attempt; they have ``columns``."""

    @abstractmethod
    def named_files(self, table: T) -> list[NamedFile]:
        """Return the files with all rows that the table shows; raises ``SinkRefused`` if files alone do not show
        them."""

    @abstractmethod
    def differences(self, table: T, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """Yield the rows of published manifests that are missing, or too many; ``deep`` reads every row."""

    @abstractmethod
    def located(
        self, table: T, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        """Return where the row of a record is; None if the table has no row of it."""
