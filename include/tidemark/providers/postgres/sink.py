"""Publishes into a PostgreSQL table with one row per key: staged rows are merged in one short transaction.

A row replaces another of its key if its version is greater: (``order_by``, log generation, topic, partition, offset,
attempt). So the table is the same in whatever order, and however often, manifests are merged. Of two rows of one record
the row of the higher attempt always wins, because newer code may give it a lower ``order_by``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from psycopg import sql

from tidemark.connections.lookup import Lookup
from tidemark.database.session import Session
from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Counts, Manifest, Publication
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.model.storable import Storable
from tidemark.providers.postgres.audit import differences_of_table
from tidemark.providers.postgres.columns import columns_for, names, staged_columns, type_of
from tidemark.providers.postgres.marked import MarkedOutput, TableLedger, TableStaging, row_count, tasks_of
from tidemark.providers.postgres.settings import Settings
from tidemark.providers.postgres.table_settings import DEAD_LETTERS
from tidemark.providers.postgres.target import Parts, PostgresTarget, TableSpec
from tidemark.providers.tables.located import newest_row, replaced_row
from tidemark.providers.tables.required import with_required
from tidemark.sinks.base import Contents, Expected, Sink, Work, WriteMode
from tidemark.sinks.located import Located, RecordStatus
from tidemark.transforms.sequence import columns_after

_ROWS: Final = {"table": "t", "staged": "s", "newest": "n", "new": "excluded"}  # aliases in the statement ``merge``


class PostgresOutput(MarkedOutput):
    """One table with one row per key."""

    write_mode = WriteMode.UPSERT

    def __init__(self, config: Settings, ledger: TableLedger, table: PostgresTarget) -> None:
        super().__init__(ledger, table)
        self.config = config
        self._data = pa.schema([])
        self._generations: list[tuple[str, int, int]] = []

    def storable(self, declared: Storable) -> Storable:
        """Declare the columns that may not be null, as the table defines them."""
        try:
            columns = self._table.columns()
        finally:
            self._table.forget_session()  # as in ``prepare``
        paths = [(column.name,) for column in columns if column.not_null and not column.name.startswith("_")]
        return with_required(declared, self.name, paths)

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        counts = super().counts(receipt, ranges)
        with self._table.translated(manifest=receipt.manifest_id):
            [marker] = self._table.execute(self._merging_session(), "marker", manifest=receipt.manifest_id)
        return replace(counts, superseded=marker["superseded"], stale=marker["stale"])

    def prepare(self, work: Work) -> None:
        """Check, or create, the table with its columns and key, and create the staging tables of the attempt."""
        columns = columns_after(work.decode, work.transforms)
        self._table.check(self._spec(columns.schema, columns.of_tombstones))
        self.know(work)
        self._table.create_staging(work.manifest_id, work.attempt, staged_columns(self._data, self.config.key_columns))
        self._table.forget_session()  # Spark works for longer than some servers and balancers keep an idle session

    def know(self, work: Work) -> None:
        columns = columns_after(work.decode, work.transforms)
        self._data = columns.schema
        self._generations = work.generations()
        self.written_columns = self._table.column_keys(self._spec(columns.schema, columns.of_tombstones))
        self._look_for_shared(work)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        columns = columns_after(decode, transforms)
        with self._table.undone():
            self._table.check(self._spec(columns.schema, columns.of_tombstones))
            self._table.create_staging(0, 0, staged_columns(columns.schema, self.config.key_columns))
        yield ok(self.name, "table, key and rights are what an attempt needs (tried, and rolled back)")

    def _spec(self, data: pa.Schema, tombstones: Sequence[str]) -> TableSpec:
        emptied = tuple(field.name for field in data if tombstones and field.name not in tombstones)
        return TableSpec(
            self.config.table, tuple(columns_for(data, self.config.key_columns)), self.config.key_columns, emptied
        )

    def _apply(self, session: Session, receipt: Receipt) -> None:
        """Merge the rows and insert the dead letters; their numbers must be those of the receipt."""
        [merged] = self._table.execute(
            session, "merge", self._parts(receipt), manifest=receipt.manifest_id, attempt=receipt.attempt,
            tasks=tasks_of(self.parts(receipt, ObjectKind.DATA)), **self._generations_as_arrays(),
        )  # fmt: skip
        self._refuse_lost(receipt, merged["staged"], self._write_dead_letters(session, receipt))
        superseded, stale = merged["staged"] - merged["newest"], merged["newest"] - merged["merged"]
        if stale or self._table.execute(session, "has_triggers", table=self.config.table)[0]["there"]:
            self._table.execute(session, "check_constraints")
            self._refuse_taken_away(session, receipt)
        counts = {"superseded": superseded, "stale": stale}
        self._table.execute(session, "note_merge", manifest=receipt.manifest_id, **counts)

    def _refuse_taken_away(self, session: Session, receipt: Receipt) -> None:
        """Raise ``SinkRefused`` unless the table has each staged key, in this version or a newer one."""
        lacking = self._lacking(session, receipt)
        if lacking:
            raise SinkRefused(
                f"the table lacks {lacking:,} rows right after they were put: a trigger, a rule or a policy of "
                f"{self.config.table} removes or changes them",
                next_step="nothing was applied; look at it with psql: \\d+ and its triggers; filter rows that are not "
                "wanted in the pipeline file (transform: filter) instead" + THEN_RETRY,
                **self._table.context(manifest=receipt.manifest_id),
            )

    def _lacking(self, session: Session, receipt: Receipt) -> int:
        """Count the staged rows whose key the table does not have, or has in an older version."""
        tasks = tasks_of(self.parts(receipt, ObjectKind.DATA))
        parts, generations = self._parts(receipt), self._generations_as_arrays()
        [row] = self._table.execute(session, "count_lacking", parts, **generations, tasks=tasks)
        return int(row["lacking"])

    def _generations_as_arrays(self) -> dict[str, Any]:
        topics, partitions, generations = zip(*self._generations, strict=True) if self._generations else ((), (), ())
        return {"topics": list(topics), "partitions": list(partitions), "generations": list(generations)}

    def _parts(self, receipt: Receipt) -> Parts:
        """Return the identifiers of the merge: table, staging, columns, and the version of staged, old and new rows."""
        columns = [column.name for column in columns_for(self._data, self.config.key_columns)]
        changed = [sql.Identifier(column) for column in columns if column not in self.config.key_columns]
        staged_version = self._version("s")
        return {
            **self._table.staging_parts(receipt.manifest_id, receipt.attempt),
            "table": self._table.identifier,
            "key": names(self.config.key_columns),
            "columns": names(columns),
            "assignments": sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(column) for column in changed),
            "staged_version_descending": sql.SQL(", ").join(
                sql.SQL("{} DESC").format(column) for column in staged_version
            ),
            "staged_version": sql.SQL(", ").join(staged_version),
            "table_version": sql.SQL(", ").join(self._version("t")),
            "new_version": sql.SQL(", ").join(self._version("excluded")),
            "newest_assignments": sql.SQL(", ").join(sql.SQL("{0} = n.{0}").format(column) for column in changed),
            **{f"{name}_key": _of(rows, self.config.key_columns) for name, rows in _ROWS.items()},
            **{f"{name}_record": _of(rows, self.config.record_columns) for name, rows in _ROWS.items()},
        }

    def _version(self, rows: str) -> list[sql.Composable]:
        """Return the columns of a version in their order. Text is compared by bytes, whatever the database's collation
        is."""
        texts = {"_topic", *(field.name for field in self._data if type_of(field.type) == "text")}
        columns = [self.config.order_by] if self.config.order_by else []
        columns += [*self.config.record_columns, "_attempt"]
        by_bytes = {True: sql.SQL(' COLLATE "C"'), False: sql.SQL("")}
        return [sql.SQL("{}{}").format(sql.Identifier(rows, column), by_bytes[column in texts]) for column in columns]

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether the table has every key that is staged now, in this version or a newer one."""
        del before
        with self._table.translated(manifest=now.manifest_id):
            lacking = self._lacking(self._table.connected(), now)
        dead = row_count(self.parts(now, ObjectKind.DEAD_LETTER))
        return lacking == 0 and self._table.dead_letters(now.manifest_id) == dead

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        emptied = list(self._differences_when_empty(expected))
        yield from emptied
        if deep and not emptied:
            yield from differences_of_table(expected, contents, self._table)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        del receipt
        place = (manifest.id, at.topic, at.partition, offset)
        row = newest_row(self._ledger, self.config.key_columns, self._table.rows_at(self.config.key_columns, *place))
        if row is not None:
            return row
        reason = self._table.dead_letter_at(*place)
        if reason is not None:
            what = f"a dead letter: {reason}"
            return Located(self.name, published.attempt, RecordStatus.HELD, what, ObjectKind.DEAD_LETTER, DEAD_LETTERS)
        return replaced_row(self._ledger, published)


def _of(rows: str, columns: Sequence[str]) -> sql.Composed:
    """Return columns of these rows, separated by commas."""
    return sql.SQL(", ").join(sql.Identifier(rows, column) for column in columns)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    table = PostgresTarget(pipeline_name, settings, lookup)
    ledger = TableLedger(table)
    return Sink(ledger, TableStaging(table), PostgresOutput(settings, ledger, table))
