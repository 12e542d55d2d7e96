"""Which rows a table shows of its manifests: all of them, or the newest of each key."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import PublishedObject, Receipt
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.iceberg.change import FileChanges
from tidemark.sinks.located import Located


@dataclass(frozen=True)
class Publishing:
    """What an attempt publishes: its files as they are staged, sizes by key.

    ``is_first``: no attempt may have put rows of the manifest yet, as far as anybody knows.
    """

    manifest_id: int
    attempt: int
    staged: Mapping[str, int]
    is_first: bool


class TableRows(ABC):
    @abstractmethod
    def refuse(self, table: Table, context: Mapping[str, Any]) -> None:
        """Raise ``SinkRefused`` for a table that cannot hold such rows."""

    @abstractmethod
    def changes(self, table: Table, publishing: Publishing, context: Mapping[str, Any]) -> FileChanges:
        """What the commit changes that publishes an attempt, on the table as it is now."""

    def withdraw(self, table: Table, changes: FileChanges) -> None:  # noqa: B027 - most write nothing before a commit
        """Remove what ``changes`` has written, when the catalog has refused its commit."""

    @abstractmethod
    def same(self, table: Table, now: Receipt, parts: Sequence[PublishedObject], columns: pa.Schema) -> bool:
        """Whether the table has all rows of ``now``, which is staged; ``parts`` are its files, with ``columns``."""

    @abstractmethod
    def named_files(self, table: Table) -> list[NamedFile]:
        """The files with all rows that the table shows; raises ``SinkRefused`` when files alone do not say it."""

    @abstractmethod
    def differences(self, table: Table, expected: Expected, ledger: Ledger) -> Iterator[Problem]:
        """The rows of published manifests that are missing, or too many; reads every row."""

    @abstractmethod
    def located(
        self, table: Table, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        """The row of a record; None when the table has none."""
