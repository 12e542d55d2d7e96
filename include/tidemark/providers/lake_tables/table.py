"""One lake table as one sink of a pipeline sees it, whatever its format."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic

import pyarrow as pa

from tidemark.errors import THEN_RETRY, Unavailable
from tidemark.providers.lake_tables.evidence import TableEvidence
from tidemark.providers.lake_tables.refusals import no_table
from tidemark.providers.lake_tables.table_rows import T, TableRows
from tidemark.storage.base import ObjectStore

TRIES: Final = 20  # tries of a commit while others commit to the same table
PAUSE_S: Final = 0.2  # pause after a refused commit; grows with each try


class LakeTable(ABC, Generic[T]):
    """One table of one sink.

    ``keyed`` is true if rows have a version, of which the newest of each key is kept. Then ``generations`` has topic,
    partition and log generation of each range of the attempt that was prepared.
    """

    rows: TableRows[T, Any]

    def __init__(self, pipeline_name: str, sink_name: str, place: str, *, keyed: bool) -> None:
        self.pipeline_name = pipeline_name
        self.keyed = keyed
        self.generations: list[tuple[str, int, int]] = []
        self._context = {"pipeline": pipeline_name, "sink": sink_name, "table": place}

    def context(self, **more: object) -> dict[str, Any]:
        return {**self._context, **more}

    @abstractmethod
    def load(self) -> T | None:
        """Return the newest state of the table; None if the table does not exist."""

    def loaded(self) -> T:
        table = self.load()
        if table is None:
            raise no_table(self.context())
        return table

    @contextmanager
    def reading(self, **more: object) -> Iterator[T]:
        """Yield the table, while its rows are read; ``more`` is context of errors."""
        del more
        yield self.loaded()

    @abstractmethod
    def store_of(self, table: T) -> ObjectStore:
        """Return the store at the location of the table."""

    def store_if_known(self) -> ObjectStore | None:
        """Return the store at the location of the table; None if the table does not exist, so that its location is
        unknown."""
        table = self.load()
        return None if table is None else self.store_of(table)

    @abstractmethod
    def columns_of(self, table: T) -> pa.Schema:
        """Return the columns of the table as Arrow fields."""

    def evidence(self) -> TableEvidence:
        table = self.load()
        return TableEvidence() if table is None else self.evidence_of(table)

    @abstractmethod
    def evidence_of(self, table: T) -> TableEvidence:
        """Return the evidence in the table; its ``number`` is 0 if the table shows none."""

    @abstractmethod
    def manifests_without_evidence(self, table: T) -> set[int]:
        """Return the manifests with rows in the table that the evidence does not name, as far as this can be found
        cheaply."""

    @abstractmethod
    def check(self, columns: pa.Schema, *, change: bool = True) -> T | None:
        """Return the table with all ``columns``; create it, or what it lacks. Raises ``SinkRefused`` if it cannot be
        used.

        Without ``change`` nothing is created, and None means that an attempt would create the table.
        """

    @abstractmethod
    def fence(self) -> None:
        """Make a commit without changes, so that commits based on an older state of the table fail from now on."""

    def tries(self, **more: object) -> Iterator[None]:
        """Yield once for each try of a commit, with a pause after each; raise ``Unavailable`` after the last."""
        for number in range(1, TRIES + 1):
            yield
            time.sleep(PAUSE_S * number)
        raise Unavailable(
            f"others committed to the table {TRIES} times while this commit was tried",
            next_step="nothing was published; wait until the other writers of the table are done" + THEN_RETRY,
            **self.context(**more),
        )
