"""One table in a lake as one sink of a pipeline sees it, whatever its format."""

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

TRIES: Final = 20  # of a commit, while others commit to the same table
PAUSE_S: Final = 0.2  # after a refused commit; grows with each try


class LakeTable(ABC, Generic[T]):
    """``keyed``: whether rows have a version, by which the newest of each key stands. Then ``generations`` has topic,
    partition and log generation of each range of the attempt that is prepared."""

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
        """The newest state of the table; None when it is not there."""

    def loaded(self) -> T:
        table = self.load()
        if table is None:
            raise no_table(self.context())
        return table

    @contextmanager
    def reading(self, **more: object) -> Iterator[T]:
        """The table, while its rows are read; ``more`` is context of errors."""
        del more
        yield self.loaded()

    @abstractmethod
    def store_of(self, table: T) -> ObjectStore:
        """The location of the table."""

    def store_if_known(self) -> ObjectStore | None:
        """The same; None when nobody knows it, since there is no table."""
        table = self.load()
        return None if table is None else self.store_of(table)

    @abstractmethod
    def columns_of(self, table: T) -> pa.Schema:
        """The columns of the table as Arrow fields."""

    def evidence(self) -> TableEvidence:
        table = self.load()
        return TableEvidence() if table is None else self.evidence_of(table)

    @abstractmethod
    def evidence_of(self, table: T) -> TableEvidence:
        """Return what the table says of itself; ``number`` is 0 when nobody can tell."""

    @abstractmethod
    def manifests_without_evidence(self, table: T) -> set[int]:
        """The manifests with rows in the table that the evidence does not name, where this is known at little cost."""

    @abstractmethod
    def check(self, columns: pa.Schema, *, change: bool = True) -> T | None:
        """The table with all ``columns``; creates it and what it lacks. Raises ``SinkRefused`` when it cannot be used.

        Without ``change`` nothing is created, and None means that an attempt would create the table.
        """

    @abstractmethod
    def fence(self) -> None:
        """Commit nothing new: what was built on an older state of the table is refused from now on."""

    def tries(self, **more: object) -> Iterator[None]:
        """One for each try of a commit, with a pause behind it; raises ``Unavailable`` after the last."""
        for number in range(1, TRIES + 1):
            yield
            time.sleep(PAUSE_S * number)
        raise Unavailable(
            f"others committed to the table {TRIES} times while this commit was tried",
            next_step="nothing was published; wait until the other writers of the table are done" + THEN_RETRY,
            **self.context(**more),
        )
