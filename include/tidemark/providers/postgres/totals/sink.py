"""Publishes totals per key into PostgreSQL: contributions, not increments.

A *contribution* is what one manifest adds to one key. A total is the combination of the contributions of all manifests.
So a replay replaces its own contributions, and nothing is counted twice. Contributions and totals change in one
transaction:

- A manifest that provably never had contributions adjusts each of its totals. This costs the same, however many
  manifests contribute to a total.
- Any other manifest replaces the contributions that it has. Then one statement locks its totals, and the next one
  combines them again. So contributions that were deleted by hand are not counted a second time.

Readers may find a copy elsewhere (``served.py``), which is updated after COMMIT and before the mark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from tidemark.connections.lookup import Lookup
from tidemark.database.session import Session
from tidemark.errors import SinkRefused
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Manifest, Publication, count_of
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.providers.postgres.marked import MarkedOutput, TableLedger, TableStaging, tasks_of
from tidemark.providers.postgres.table_settings import DEAD_LETTERS
from tidemark.providers.postgres.totals.audit import differences_of_totals
from tidemark.providers.postgres.totals.copies import open_copy
from tidemark.providers.postgres.totals.served import ServedTotals
from tidemark.providers.postgres.totals.settings import Settings
from tidemark.providers.postgres.totals.tables import QUERIES, Totals, staged_columns, tables_for
from tidemark.sinks.base import Contents, Expected, Position, Sink, Work, WriteMode
from tidemark.sinks.capabilities import DerivesTotals, ServesCopy
from tidemark.sinks.located import Located, RecordStatus
from tidemark.transforms.sequence import columns_after


class TotalsLedger(TableLedger):
    """Markers, and a note of what the table adds up. The note has the name of the pipeline too."""

    def __init__(self, table: Totals, served: ServedTotals | None) -> None:
        super().__init__(table)
        self._served = served

    def claim(self, database_id: str) -> None:
        """Claim the target. If the place of the copy cannot hold it, raise before anything is changed."""
        if self._served is not None:
            self._served.check()
        super().claim(database_id)

    def position(self) -> Position | None:
        """Return the position. Its identity includes the copy.

        So the target counts as another one if its copy is in another place, or was restored or created again.
        """
        position = super().position()
        moved = self._served.moved() if position is not None and self._served is not None else None
        if position is None or moved is None:
            return position
        return replace(position, identity=f"{position.identity} with the copy in {moved}")

    def rename_pipeline(self, old: str) -> None:
        super().rename_pipeline(old)
        self._table.kept("rename_pipeline", old=old)


class TotalsOutput(MarkedOutput, DerivesTotals, ServesCopy):
    """The totals of one pipeline, and the contributions of its manifests."""

    write_mode = WriteMode.UPSERT
    _table: Totals

    def __init__(self, settings: Settings, ledger: TableLedger, table: Totals, served: ServedTotals | None) -> None:
        super().__init__(ledger, table)
        self.settings = settings
        self._served = served
        self._had_none: int | None = None  # the manifest that provably never contributed, found by ``know``

    def note_settings(self) -> None:
        """Note what this sink adds up, and claim the place of its copy; ``SinkRefused`` if either belongs to others."""
        self._note_definition()
        if self._served is not None:
            self._served.claim()

    def _note_definition(self) -> None:
        if not self._table.rows("definition"):
            self._refuse_undefined(self.settings.aggregate.definition())
            self._table.rows("define", definition=self.settings.aggregate.definition())
        self.refuse_other_definition()

    def refuse_other_definition(self) -> None:
        """Raise ``SinkRefused`` if the table has totals with another definition, or those of another pipeline."""
        definition = self.settings.aggregate.definition()
        rows = self._table.kept("definition")
        if not rows:
            self._refuse_undefined(definition)
            return
        held = rows[0]["pipeline"], rows[0]["definition"]
        self.settings.aggregate.refuse_other_totals(self.pipeline_name, *held, **self._table.context())

    def _refuse_undefined(self, definition: str) -> None:
        """Raise ``SinkRefused`` if the table holds totals, but nothing says any longer what they add up, or for which
        manifests."""
        if self._ledger.records(own=False):
            values = {"target": self.settings.table, "pipeline": self.pipeline_name, "definition": definition}
            literals = {name: sql.Literal(value) for name, value in values.items()}
            statement = sql.SQL(QUERIES["put_back"]).format(**literals).as_string()
            raise SinkRefused(
                "the table holds totals, but tidemark_target.aggregate no longer says what they add up",
                next_step="nothing was applied; if the pipeline file has the aggregate that they were made by, run in "
                f"its database: {statement} Else give this sink another table and another name",
                **self._table.context(),
            )
        if not self._table.are_empty() and not self._table.kept("definition"):
            tables = ", ".join(sorted(self.settings.tables()))
            raise SinkRefused(
                f"there are rows in {tables}, but nothing says any longer which manifests they come from: new totals "
                "would be added to them",
                next_step="nothing was applied; restore the schema tidemark_target from a copy of the same moment; or, "
                "when the records of all rows are to be read again, remove the rows (DELETE, or TRUNCATE) from each of "
                f"{tables} that exists, then: tidemark retry {self.pipeline_name}; or give this sink another table and "
                "another name",
                **self._table.context(),
            )

    def prepare(self, work: Work) -> None:
        """Check, or create, both tables, and create the staging tables of the attempt."""
        data = columns_after(work.decode, work.transforms).schema
        for spec in tables_for(self.settings, data):
            self._table.check(spec)
        if self._served is not None:
            self._served.number()
        self.know(work)
        self._table.create_staging(work.manifest_id, work.attempt, staged_columns(self.settings, data))
        self._table.forget_session()  # Spark works for longer than some servers and balancers keep an idle session

    def know(self, work: Work) -> None:
        specs = tables_for(self.settings, columns_after(work.decode, work.transforms).schema)
        self.written_columns = {key for spec in specs for key in self._table.column_keys(spec)}
        if self._served is None:
            self._look_for_shared(work)  # not with a copy, because the mark must follow the update of the copy
        self._had_none = None if work.may_have_put() else work.manifest_id

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        data = columns_after(decode, transforms).schema
        with self._table.undone():
            self._note_definition()
            for spec in tables_for(self.settings, data):
                self._table.check(spec)
            self._table.create_staging(0, 0, staged_columns(self.settings, data))
            if self._served is not None:
                self._table.make_copies_support()
                self._table.make_numbered()
        yield ok(self.name, "tables, keys and rights are what an attempt needs (tried, and rolled back)")
        if self._served is not None:
            yield ok(self.name, self._served.rehearse())

    def _apply(self, session: Session, receipt: Receipt) -> None:
        manifest, parts = receipt.manifest_id, self._table.parts
        values = {"manifest": manifest, "attempt": receipt.attempt}
        staging = self._table.staging_parts(manifest, receipt.attempt)
        tasks = tasks_of(self.parts(receipt, ObjectKind.DATA))
        [emptied] = self._table.execute(session, "empty_contributions", parts, **values)
        [made] = self._table.execute(session, "contribute", parts | staging, **values, tasks=tasks)
        self._refuse_lost(receipt, made["rows"], self._write_dead_letters(session, receipt))
        if made["keys"] > self.settings.max_keys:
            raise SinkRefused(
                f"the manifest contributes to {made['keys']:,} keys, and max_keys is {self.settings.max_keys:,}",
                next_step="nothing was applied; group by fewer values, or raise max_keys of the sink, then: "
                f"tidemark retry {self.pipeline_name}; smaller slices make fewer keys for later manifests",
                **self._table.context(manifest=manifest),
            )
        steps = ["add"]
        if emptied["contributions"] or self._had_none != manifest:
            steps = ["lock_totals", "combine", "drop_empty_totals", "drop_empty_contributions"]
        for query in (*steps, "note_checksum"):
            self._table.execute(session, query, parts, **values)
        if self._served is not None:
            self._served.refuse_what_has_no_room(manifest)

    def _committed(self) -> None:
        self.serve()

    def serve(self) -> None:
        if self._served is not None and self.exists() and self._table.are_numbered():
            self._served.put_rest()

    def derive_again(self, *, dry_run: bool) -> Iterator[str]:
        if not self.exists():
            return
        parts = self._table.parts
        with self._table.translated(), self._table.connected().transaction(force_rollback=dry_run):
            self._table.rows("lock_both", parts)
            changed = sum(
                row["totals"] for query in ("combine_all", "empty_strays") for row in self._table.rows(query, parts)
            )
            self._table.rows("drop_emptied", parts)
        if changed:
            yield f"{self.target}: {count_of(changed, 'total')} combined again from what the manifests have contributed"
        if self._served is not None and (line := self._served.derive_again(dry_run=dry_run)):
            yield line

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether the contributions match the marker's checksum, and the totals of their keys match the
        contributions."""
        del before
        if not self.exists():
            return False
        manifest_id = now.manifest_id
        held = {row["checksum"] for row in self._table.ask("contributions", manifest_id)} or {"0"}
        expected = {row["checksum"] for row in self._table.ask("checksums", manifest_id)}
        dead = sum(part.rows for part in self.parts(now, ObjectKind.DEAD_LETTER))
        return (
            held == expected
            and not self._table.ask("wrong_totals", manifest_id)
            and self._table.dead_letters(manifest_id) == dead
            and (self._served is None or self._served.has_totals_of(manifest_id))
        )

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        del contents  # the audit of totals reports contributions of unknown manifests, with its own next step
        emptied = list(self._differences_when_empty(expected))
        yield from emptied
        if deep and not emptied:
            yield from differences_of_totals(expected, self._ledger, self._table)
            if self._served is not None and self.exists() and self._table.are_numbered():
                yield from self._served.differences()

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """Return that the record is part of totals; the table of contributions says which manifests a total is
        made of."""
        del receipt
        reason = self._table.dead_letter_at(manifest.id, at.topic, at.partition, offset)
        if reason is not None:
            what = f"a dead letter: {reason}"
            return Located(self.name, published.attempt, RecordStatus.HELD, what, ObjectKind.DEAD_LETTER, DEAD_LETTERS)
        rows = self._table.ask("contributions", manifest.id) if self.exists() else []
        if not rows:
            what = f"{self.settings.contributions} has no contribution of the manifest"
            return Located(self.name, published.attempt, RecordStatus.MISSING, what, place=self.target)
        what = (
            f"one of the {rows[0]['rows']:,} records that the manifest has contributed to {rows[0]['keys']:,} totals; "
            f"they are the rows of {self.settings.contributions} with _manifest_id = {manifest.id}"
        )
        return Located(self.name, published.attempt, RecordStatus.HELD, what, ObjectKind.DATA, self.target)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    table = Totals(pipeline_name, settings, lookup)
    copy = settings.served_in
    served = ServedTotals(table, open_copy(copy, lookup, table.context())) if copy is not None else None
    ledger = TotalsLedger(table, served)
    return Sink(ledger, TableStaging(table), TotalsOutput(settings, ledger, table, served))
