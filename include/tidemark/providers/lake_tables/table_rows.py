"""The rows a table shows of its manifests: all of them, or the newest of each key."""

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

T = TypeVar("T")  # a state of the table, as the library of the format has loaded it
C = TypeVar("C")  # what a commit changes


@dataclass(frozen=True)
class StagedAttempt:
    """An attempt and its files with rows, as they were staged. ``is_first``: no attempt may have put rows of the
    manifest yet, as far as the table says. ``lost`` are the paths of files that a replay drops from the table."""

    manifest_id: int
    attempt: int
    parts: Sequence[PublishedObject]
    is_first: bool = False
    lost: frozenset[str] = frozenset()


class TableRows(ABC, Generic[T, C]):
    """The rows of one table, in the form of its format."""

    def properties(self) -> dict[str, str]:
        """Return what a table notes of the settings of such rows; with other ones it cannot hold them."""
        return {KEY: "[]"}

    def moves(self, staged: StagedAttempt) -> list[Move]:
        """The files that go to their places before the commit; none where they stay, or are merged into others."""
        del staged
        return []

    @abstractmethod
    def changes(self, table: T, staged: StagedAttempt, context: Mapping[str, Any]) -> C:
        """Return what the commit changes that publishes an attempt, on the table as it is now."""

    def withdraw(self, table: T, changes: C) -> None:
        """Remove what ``changes`` has written, when its commit was refused."""

    @abstractmethod
    def lost_files(self, table: T, store: ObjectStore, manifest_id: int | None = None) -> list[LostFile[Any]]:
        """The files that the table names and nobody can read: all, or those that may have rows of a manifest.

        ``store`` is the location of the table; it lists all that it has when all files are asked for.
        """

    @abstractmethod
    def same(self, table: T, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has all rows of an attempt; they have ``columns``."""

    @abstractmethod
    def named_files(self, table: T) -> list[NamedFile]:
        """The files with all rows that the table shows; raises ``SinkRefused`` when files alone do not say it."""

    @abstractmethod
    def differences(self, table: T, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """The rows of published manifests that are missing, or too many; ``deep`` reads every row."""

    @abstractmethod
    def located(
        self, table: T, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        """The row of a record; None when the table has none."""
