"""The classes of sinks that publish into PostgreSQL tables: one short transaction takes the marker of a manifest and
applies its staged rows.

The marker is the fence: it has the attempt that was applied, and only a higher attempt may replace it.
"""

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from tidemark.database.postgres_errors import CANCELLED
from tidemark.database.session import Session
from tidemark.errors import AccessDenied, Fenced, Unavailable, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.manifest import count_of
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.paths import RecordName
from tidemark.providers.postgres.columns import headers_of
from tidemark.providers.postgres.target import QUERIES, PostgresTarget
from tidemark.sinks.base import (
    Expected,
    Fence,
    Ledger,
    Mark,
    MarkSession,
    Output,
    Owner,
    Position,
    Record,
    Staging,
    Work,
    mended_by_replay,
)
from tidemark.sinks.dead_letters import DeadLetter, dead_letter

IDLE_TIMEOUT_S = 10  # shorter than the lock timeout (30 s): a paused process loses its locks before others give up
MERGES = 5  # tries of a merge that PostgreSQL cancels to resolve a deadlock
PAUSE_S = 0.2  # before the second try, so that the other session gets the locks; longer before each further try


class TableLedger(Ledger):
    """Markers in Tidemark's own tables, in the database of the sink's table: one row for each manifest."""

    def __init__(self, table: PostgresTarget) -> None:
        super().__init__(table.pipeline_name, table.config.name, table.config.target)
        self._table = table

    def owner(self) -> Owner | None:
        rows = self._table.kept("owner")
        return Owner(rows[0]["database"], tuple(rows[0]["before"])) if rows else None

    def claim(self, database_id: str) -> None:
        if not self._table.has_support():
            self._table.make_support()
        self._table.rows("claim", database=database_id)

    def hand_over(self, owner: Owner) -> None:
        self._table.rows("hand_over", database=owner.database, before=list(owner.before))

    def position(self) -> Position | None:
        rows = self._table.kept("owner")
        if not rows:
            return None
        ids = self._table.table_id(), self._table.column_ids()
        return Position(rows[0]["identity"], rows[0]["position"], "", *ids)

    def forget_lost_rows(self) -> None:
        """Remove the markers if the table was dropped or emptied, because the markers lie beside the table."""
        if not self._table.exists() or self._table.empty_tables():
            self._table.kept("forget_markers")

    def registered_targets(self) -> set[str]:
        return {row["target"] for row in self._table.kept("registered_targets", of=f", table {self._table.table}")}

    def note_target(self) -> None:
        self._table.kept("note_target", noted=self.target)

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        rows = self._table.kept("records", pipeline=self.pipeline_name if own else None, above=above)
        return [RecordName(row["pipeline"], row["manifest"], row["attempt"]) for row in rows]

    def record(self, name: RecordName) -> dict[str, Any] | None:
        marker = self._table.marker(name.manifest_id)
        return marker["record"] if marker and marker["attempt"] == name.attempt else None

    def recorded_attempt(self, manifest_id: int) -> int | None:
        marker = self._table.marker(manifest_id)
        return None if marker is None else int(marker["attempt"])

    def rename(self, old: str) -> None:
        """Change the sink's name in the keys of its markers."""
        self._table.kept("rename_markers", from_pipeline=self.pipeline_name, from_sink=old)

    def rename_pipeline(self, old: str) -> None:
        """Change the pipeline's name in the markers of all sinks that ever wrote the table."""
        self._table.kept("rename_markers", from_pipeline=old, from_sink=None)


class TableStaging(Staging):
    """Two staging tables for each attempt, beside the table: one for rows, one for dead letters."""

    def __init__(self, table: PostgresTarget) -> None:
        self._table = table

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        return {"staging": self._table.staging(manifest_id, attempt)}

    def manifests(self) -> list[int]:
        return sorted({manifest for manifest, _ in self._table.staged()})

    def attempts(self, manifest_id: int) -> list[int]:
        return sorted(attempt for of, attempt in self._table.staged() if of == manifest_id)

    def clear(self, manifest_id: int, attempt: int) -> None:
        self._table.drop_staging(manifest_id, attempt)

    def rename(self, pipeline_name: str, sink_name: str, owner: Owner) -> None:
        """Drop the staging tables of dead attempts, whose tag contains the old names; ``Unavailable`` while a task
        still uses one."""
        del owner
        before = self._table.by_name(pipeline_name, sink_name)
        for manifest_id, attempt in list(before.staged()):
            before.drop_staging(manifest_id, attempt)
        used = list(before.staged())
        if used:
            again = f"tidemark rename sink {pipeline_name} {sink_name} {self._table.config.name} --why TEXT"
            if pipeline_name != self._table.pipeline_name:
                again = f"tidemark rename pipeline {pipeline_name} {self._table.pipeline_name} --why TEXT"
            raise Unavailable(
                f"a task still uses the staging of manifest {used[0][0]} attempt {used[0][1]}",
                next_step=f"find it in pg_stat_activity and end it; then repeat: {again}",
                **self._table.context(manifest=used[0][0]),
            )


class MarkedOutput(Output):
    """A table of one pipeline, in the database of a connection. ``_apply`` puts the staged rows into it."""

    def __init__(self, ledger: TableLedger, table: PostgresTarget) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self.target = ledger.target
        self._ledger = ledger
        self._table = table
        self._shared: MarkSession | None = None  # set if the table lies in the manifest database itself

    @abstractmethod
    def _apply(self, session: Session, receipt: Receipt) -> None:
        """Do step 3 in the open transaction: apply the staged rows and dead letters."""

    def dataset(self) -> Dataset:
        info = self._table.connected().info
        return Dataset(f"postgres://{info.host}:{info.port}", f"{info.dbname}.{self._table.table}")

    def exists(self) -> bool:
        return self._table.exists()

    def has(self, receipt: Receipt) -> bool:
        """Return whether the table exists, and has rows if the receipt has some: they were committed together with the
        marker."""
        rows = row_count(self.parts(receipt, ObjectKind.DATA))
        return self.exists() and not (rows and self._table.empty_tables())

    def _differences_when_empty(self, expected: Expected) -> Iterator[Problem]:
        """Yield a problem for each published manifest with rows, if a table has no rows any longer, as after
        TRUNCATE."""
        for table in self._table.empty_tables()[:1]:
            for manifest, publication in expected.published():
                rows = publication.counts.written
                if rows and not expected.given_up(manifest.id, publication.attempt):
                    what = f"table {table} is empty, and {count_of(rows, 'row')} of it had been published there"
                    yield mended_by_replay(manifest, what)

    def _look_for_shared(self, work: Work) -> None:
        """Find out whether the table lies in the manifest database. Then rows and mark are one transaction."""
        [row] = self._table.rows("same_database", lock=work.marks.lock())
        self._shared = work.marks if row["same"] and row["user"] == work.marks.user() else None

    def wait_for_lower(self, manifest_id: int) -> None:
        if self._table.has_support():
            self._table.rows("lock_manifest", manifest=manifest_id)

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Do the steps 2 to 4: one transaction takes the marker and merges the rows. The mark is part of it, or
        follows."""
        fence()
        for number in range(1, MERGES + 1):
            try:
                self._put(receipt, record, fence, mark)
            except _Cancelled as cancelled:
                if number == MERGES:
                    raise cancelled.error from None
                time.sleep(PAUSE_S * number)
            except Unavailable:
                if self._shared is not None or not self._was_committed(receipt):
                    raise
                break  # only the answer to COMMIT was lost
            else:
                break
        if self._shared is None:
            self._committed()
            failpoint("publish.before_mark")
            mark()

    def _committed(self) -> None:
        """Do what readers need after COMMIT and before the mark. Subclasses may override it."""

    def _put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        with self._transaction(receipt) as session:
            self._table.execute(session, "lock_manifest", manifest=receipt.manifest_id)
            if self._take_marker(session, receipt, record):
                failpoint("publish.mid")
                self._apply(session, receipt)
                self._table.execute(session, "advance")
                fence()  # the merge may take long, and a newer attempt may have started meanwhile
            failpoint("publish.before_record")
            if self._shared is not None:
                failpoint("publish.before_mark")
                mark()

    def _merging_session(self) -> Session:
        return self._shared.session if self._shared else self._table.connected()

    @contextmanager
    def _transaction(self, receipt: Receipt) -> Iterator[Session]:
        context = self._table.context(manifest=receipt.manifest_id, attempt=receipt.attempt)
        session = self._merging_session()
        transaction = self._shared.transaction() if self._shared else session.transaction()
        with self._table.translated(manifest=receipt.manifest_id, attempt=receipt.attempt), transaction:
            try:
                name, limit = "idle_in_transaction_session_timeout", f"{IDLE_TIMEOUT_S}s"
                self._table.execute(session, "set_local", name=name, value=limit)
                yield session
            except CANCELLED as error:
                raise _Cancelled(context) from error

    def _take_marker(self, session: Session, receipt: Receipt, record: Record) -> bool:
        """Do step 2, the fence. Return False if this attempt has the marker already; raise ``Fenced`` if a higher one
        took it."""
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        if self._table.execute(session, "fence", manifest=manifest_id, attempt=attempt, record=Jsonb(record)):
            return True
        [marker] = self._table.execute(session, "marker", manifest=manifest_id)
        if marker["attempt"] == attempt and marker["record"]["digest"] == record["digest"]:
            return False
        context = self._table.context(manifest=manifest_id)
        raise Fenced.by_a_higher(attempt, marker["attempt"], "rows in the table", **context)

    def _write_dead_letters(self, session: Session, receipt: Receipt) -> int:
        """Replace the dead letters of earlier attempts by those of this one; return their number."""
        self._table.execute(session, "forget_dead_letters", manifest=receipt.manifest_id)
        parts = self._table.staging_parts(receipt.manifest_id, receipt.attempt)
        statement = sql.SQL(QUERIES["bury"]).format(**parts)
        values = {"manifest": receipt.manifest_id, "tasks": tasks_of(self.parts(receipt, ObjectKind.DEAD_LETTER))}
        return session.execute(statement, {**self._table.names, **values}).rowcount

    def _refuse_lost(self, receipt: Receipt, rows: int, buried: int) -> None:
        """Raise ``WorkFailed`` unless staging held as many rows and dead letters as the receipt says."""
        expected = tuple(row_count(self.parts(receipt, kind)) for kind in (ObjectKind.DATA, ObjectKind.DEAD_LETTER))
        if (rows, buried) != expected:
            raise WorkFailed(
                f"staging holds {rows:,} rows and {buried:,} dead letters, the receipt says {expected[0]:,} and "
                f"{expected[1]:,}",
                next_step="the server may have crashed, which empties staging; nothing was applied: "
                f"tidemark retry {self.pipeline_name}",
                **self._table.context(manifest=receipt.manifest_id),
            )

    def _was_committed(self, receipt: Receipt) -> bool:
        """Look for the marker in a new session, because without an answer it is unknown whether COMMIT succeeded."""
        self._table.forget_session()
        with suppress(Unavailable, AccessDenied):
            return self._ledger.has(receipt)
        return False

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        for row in self._table.each_dead_letter(receipt.manifest_id, values=values):
            yield dead_letter({**row, "_headers": headers_of(row.get("_headers"))})


class _Cancelled(Exception):
    """PostgreSQL cancelled a merge; the same merge may be tried again."""

    def __init__(self, context: dict[str, Any]) -> None:
        self.error = Unavailable(
            f"PostgreSQL cancelled the merge {MERGES} times to resolve a deadlock",
            next_step="nothing was applied; another session changes these rows, wait for it. Then: "
            f"tidemark retry {context['pipeline']}",
            **context,
        )
        super().__init__()


def tasks_of(parts: Sequence[PublishedObject]) -> list[str]:
    return sorted({part.staged for part in parts})


def row_count(parts: Sequence[PublishedObject]) -> int:
    return sum(part.rows for part in parts)
