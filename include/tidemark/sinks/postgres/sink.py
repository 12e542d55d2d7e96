"""Publishes into a PostgreSQL table with one row per key: staged rows are merged in one short transaction.

The marker of a manifest is the fence: it has the attempt whose rows are in the table, and only a higher attempt may
replace it. A row replaces another of its key when its version is greater: (``order_by``, incarnation, topic, partition,
offset, attempt). So the table is the same in whatever order, and however often, manifests are merged.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from tidemark.connections import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced, Unavailable, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.findings import Finding, ok
from tidemark.manifest import Counts, Manifest, Publication
from tidemark.offsets import Range, TopicPartition
from tidemark.order import TransformOrder
from tidemark.paths import RecordName
from tidemark.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.base import Fence, Mark, Owner, Position, Sink, Way
from tidemark.sinks.dead_letters import DeadLetter, dead_letter
from tidemark.sinks.difference import Difference
from tidemark.sinks.located import Located, Standing
from tidemark.sinks.postgres.audit import differences_of_table
from tidemark.sinks.postgres.columns import columns_for, headers_of, names, type_of
from tidemark.sinks.postgres.connection import Connection, translated
from tidemark.sinks.postgres.settings import DEAD_LETTERS, Settings
from tidemark.sinks.postgres.target import QUERIES, Parts, PostgresTarget, execute
from tidemark.transforms.chain import columns_after

IDLE_TIMEOUT_S = 10  # PostgreSQL ends the transaction of a paused process before others give up on its locks (30 s)
MERGES = 3  # tries of a merge that PostgreSQL cancels to resolve a deadlock


class PostgresSink(Sink):
    """One table of one pipeline, in the database that a connection names."""

    way = Way.MERGES

    def __init__(self, pipeline_name: str, config: Settings, lookup: Lookup) -> None:
        super().__init__(pipeline_name, config.name)
        self.config = config
        self.target = config.target
        self._lookup = lookup
        self._table = self._named(config.name)
        self._data = pa.schema([])
        self._lives: list[tuple[str, int, int]] = []
        self._shared: ManifestDatabase | None = None  # when the table lies in the manifest database itself

    def _named(self, name: str) -> PostgresTarget:
        """The table as a sink of this name sees it: with its own markers and staging tables."""
        tag = sha256(f"{self.pipeline_name}/{name}/{self.config.table}".encode()).hexdigest()[:12]
        config = self.config.model_copy(update={"name": name})
        return PostgresTarget(self.pipeline_name, config, tag, self._lookup)

    def claim(self, database_id: str) -> None:
        if not self._table.has_support():
            self._table.make_support()
        self._table.rows("claim", database=database_id)
        self.refuse_foreign(database_id)

    def owner(self) -> Owner | None:
        rows = self._table.kept("owner")
        return Owner(rows[0]["database"], tuple(rows[0]["before"])) if rows else None

    def position(self) -> Position | None:
        rows = self._table.kept("owner")
        return Position(rows[0]["identity"], rows[0]["position"]) if rows else None

    def hand_over(self, owner: Owner) -> None:
        self._table.rows("hand_over", database=owner.database, before=list(owner.before))

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        rows = self._table.kept("records", pipeline=self.pipeline_name if own else None, above=above)
        return [RecordName(row["pipeline"], row["manifest"], row["attempt"]) for row in rows]

    def record(self, name: RecordName) -> dict[str, Any] | None:
        marker = self._table.marker(name.manifest_id)
        return marker["record"] if marker and marker["attempt"] == name.attempt else None

    def recorded_attempt(self, manifest_id: int) -> int | None:
        marker = self._table.marker(manifest_id)
        return None if marker is None else int(marker["attempt"])

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        counts = super().counts(receipt, ranges)
        values = {**self._table.names, "manifest": receipt.manifest_id}
        with translated(**self._table.context(manifest=receipt.manifest_id)):
            [marker] = execute(self._merging_connection(), "marker", None, values)
        return replace(counts, superseded=marker["superseded"], stale=marker["stale"])

    def has_objects(self, receipt: Receipt) -> bool:
        """Whether the table exists: its rows were committed together with the marker."""
        del receipt
        return self._table.exists()

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        return {"staging": self._table.staging(manifest_id, attempt)}

    def prepare(
        self,
        manifest_id: int,
        attempt: int,
        decode: Mapping[str, Any],
        transforms: Sequence[TransformOrder],
        database: ManifestDatabase,
    ) -> None:
        """Checks, or creates, the table with its columns and key, and creates the staging tables of the attempt."""
        columns = columns_after(decode, transforms)
        self._data = columns.schema
        self._lives = database.incarnations(manifest_id)
        self._table.check(self._data, columns.of_tombstones)
        lock = database.attempt_lock(manifest_id, attempt)
        [row] = self._table.rows("same_database", lock=lock)
        self._shared = database if row["same"] and row["user"] == database.user() else None
        self._table.create_staging(manifest_id, attempt, self._data)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        columns = columns_after(decode, transforms)
        with self._table.undone():
            if not self._table.has_support():
                self._table.make_support()
            self._table.check(columns.schema, columns.of_tombstones)
            self._table.create_staging(0, 0, columns.schema)
        yield ok(self.name, "table, key and rights are what an attempt needs (tried, and rolled back)")

    def staged_manifests(self) -> list[int]:
        return sorted({manifest for manifest, _ in self._table.staged()})

    def staged_attempts(self, manifest_id: int) -> list[int]:
        return sorted(attempt for of, attempt in self._table.staged() if of == manifest_id)

    def clear_staging(self, manifest_id: int, attempt: int) -> None:
        self._table.drop_staging(manifest_id, attempt)

    def discard(self, receipt: Receipt) -> None:
        """Removes staging only: merged rows cannot be removed, a higher attempt replaces them."""
        self.clear_staging(receipt.manifest_id, receipt.attempt)

    def wait_for_lower(self, manifest_id: int) -> None:
        if self._table.has_support():
            self._table.rows("lock_manifest", manifest=manifest_id)

    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: one transaction takes the marker and merges the rows; the mark is part of it, or follows."""
        fence()
        for number in range(1, MERGES + 1):
            try:
                self._put(receipt, ranges, database_id, fence, mark)
            except _Cancelled as cancelled:
                if number == MERGES:
                    raise cancelled.error from None
            except Unavailable:
                if self._shared is not None or not self._was_committed(receipt):
                    raise
                break  # only the answer to COMMIT was lost
            else:
                break
        if self._shared is None:
            failpoint("publish.before_mark")
            mark()

    def _put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        with self._transaction(receipt) as connection:
            execute(connection, "lock_manifest", None, {**self._table.names, "manifest": receipt.manifest_id})
            if self._take_marker(connection, receipt, ranges, database_id):
                failpoint("publish.mid")
                self._merge(connection, receipt)
                execute(connection, "advance", None, self._table.names)
                fence()  # the merge may take long, and a newer attempt may have started since
            failpoint("publish.before_record")
            if self._shared is not None:
                failpoint("publish.before_mark")
                mark()

    def _merging_connection(self) -> Connection:
        return self._shared.connection if self._shared else self._table.connected()

    @contextmanager
    def _transaction(self, receipt: Receipt) -> Iterator[Connection]:
        context = self._table.context(manifest=receipt.manifest_id, attempt=receipt.attempt)
        connection = self._merging_connection()
        transaction = self._shared.transaction() if self._shared else connection.transaction()
        with translated(**context), transaction:
            try:
                limit = {"name": "idle_in_transaction_session_timeout", "value": f"{IDLE_TIMEOUT_S}s"}
                execute(connection, "set_local", None, limit)
                yield connection
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure) as error:
                raise _Cancelled(context) from error

    def _take_marker(self, connection: Connection, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> bool:
        """Step 2, the fence: False when this attempt has the marker already; ``Fenced`` when a higher one has it."""
        content = self.content_of_record(receipt, ranges, database_id)
        values = {**self._table.names, "manifest": receipt.manifest_id, "attempt": receipt.attempt}
        if execute(connection, "fence", None, {**values, "record": Jsonb(content)}):
            return True
        marker = execute(connection, "marker", None, values)[0]
        if marker["attempt"] == receipt.attempt and marker["record"]["digest"] == content["digest"]:
            return False
        raise Fenced(
            f"attempt {receipt.attempt} is fenced: attempt {marker['attempt']} has its rows in the table",
            next_step="nothing to do here: the newer attempt does the work",
            **self._table.context(manifest=receipt.manifest_id),
        )

    def _merge(self, connection: Connection, receipt: Receipt) -> None:
        """Step 3: merge the rows and insert the dead letters; their numbers must be those of the receipt."""
        values = {
            **self._table.names, **self._lives_as_arrays(), "manifest": receipt.manifest_id, "attempt": receipt.attempt,
        }  # fmt: skip
        rows, dead = self._staged(receipt, ObjectKind.DATA), self._staged(receipt, ObjectKind.DEAD_LETTER)
        parts = self._parts(receipt)
        [merged] = execute(connection, "merge", parts, {**values, "tasks": _tasks(rows)})
        execute(connection, "forget_dead_letters", None, values)
        statement = sql.SQL(QUERIES["bury"]).format(**parts)
        buried = connection.execute(statement, {**values, "tasks": _tasks(dead)}).rowcount
        if (merged["staged"], buried) != (_sum(rows), _sum(dead)):
            raise WorkFailed(
                f"staging holds {merged['staged']:,} rows and {buried:,} dead letters, the receipt says "
                f"{_sum(rows):,} and {_sum(dead):,}",
                next_step="the server may have crashed, which empties staging; nothing was applied: "
                f"tidemark retry {self.pipeline_name}",
                **self._table.context(manifest=receipt.manifest_id),
            )
        superseded, stale = merged["staged"] - merged["newest"], merged["newest"] - merged["merged"]
        execute(connection, "note_merge", None, {**values, "superseded": superseded, "stale": stale})

    def _staged(self, receipt: Receipt, kind: ObjectKind) -> list[PublishedObject]:
        return [part for part in receipt.objects_of(self.name) if part.kind is kind]

    def _lives_as_arrays(self) -> dict[str, Any]:
        topics, partitions, incarnations = zip(*self._lives, strict=True) if self._lives else ((), (), ())
        return {"topics": list(topics), "partitions": list(partitions), "incarnations": list(incarnations)}

    def _parts(self, receipt: Receipt) -> Parts:
        """The identifiers of the merge: table, staging, columns, and the version of staged, old and new rows."""
        columns = [column.name for column in columns_for(self._data, self.config.key)]
        changed = [sql.Identifier(column) for column in columns if column not in self.config.key]
        staged_version = self._version("s")
        return {
            **self._table.staging_parts(receipt.manifest_id, receipt.attempt),
            "table": self._table.identifier,
            "key": names(self.config.key),
            "columns": names(columns),
            "assignments": sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(column) for column in changed),
            "staged_version_descending": sql.SQL(", ").join(
                sql.SQL("{} DESC").format(column) for column in staged_version
            ),
            "staged_version": sql.SQL(", ").join(staged_version),
            "table_version": sql.SQL(", ").join(self._version("t")),
            "new_version": sql.SQL(", ").join(self._version("excluded")),
        }

    def _version(self, rows: str) -> list[sql.Composable]:
        """The columns of a version in their order; text is compared by bytes, whatever the database's language is."""
        texts = {"_topic", *(field.name for field in self._data if type_of(field.type) == "text")}
        columns = [self.config.order_by] if self.config.order_by else []
        columns += ["_incarnation", "_topic", "_partition", "_offset", "_attempt"]
        by_bytes = {True: sql.SQL(' COLLATE "C"'), False: sql.SQL("")}
        return [sql.SQL("{}{}").format(sql.Identifier(rows, column), by_bytes[column in texts]) for column in columns]

    def _was_committed(self, receipt: Receipt) -> bool:
        """Look for the marker on a new connection: without an answer it is not known whether COMMIT was done."""
        self._table.forget_connection()
        with suppress(Unavailable):
            return self.has_record(receipt)
        return False

    def rename(self, old: str) -> None:
        """Markers have the name in their key, and staging tables in their tag: those of dead attempts are dropped."""
        before = self._named(old)
        for manifest_id, attempt in list(before.staged()):
            before.drop_staging(manifest_id, attempt)
        used = list(before.staged())
        if used:
            raise Unavailable(
                f"a task still uses the staging of manifest {used[0][0]} attempt {used[0][1]}",
                next_step="find it in pg_stat_activity and end it; then repeat: "
                f"tidemark rename-sink {self.pipeline_name} {old} {self.name} --why TEXT",
                **self._table.context(manifest=used[0][0]),
            )
        self._table.kept("rename_markers", old=old)

    def alike(self, before: Receipt, now: Receipt) -> bool:
        """Whether the table has every key that is staged now, in this version or a newer one."""
        if not self.has_record(before):
            return False
        tasks = _tasks(self._staged(now, ObjectKind.DATA))
        [row] = self._table.rows("count_lacking", self._parts(now), **self._lives_as_arrays(), tasks=tasks)
        dead = _sum(self._staged(now, ObjectKind.DEAD_LETTER))
        return bool(row["lacking"] == 0 and self._table.dead_letters(now.manifest_id) == dead)

    def audit(self, database: ManifestDatabase, manifests: Sequence[Manifest], *, deep: bool) -> Iterator[Difference]:
        return differences_of_table(database, self, self._table, manifests, deep=deep)

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        for row in self._table.each_dead_letter(receipt.manifest_id, values=values):
            yield dead_letter({**row, "_headers": headers_of(row.get("_headers"))})

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        del receipt
        place = (manifest.id, at.topic, at.partition, offset)
        row = self._table.row_at(*place)
        if row is not None:
            key = {name: row[name] for name in self.config.key}
            what = "a row that marks its key as deleted" if row["_deleted"] else "a row"
            return Located(self.name, row["_attempt"], Standing.HELD, what, ObjectKind.DATA, self.target, key)
        attempt, counts = published.attempt, published.counts
        reason = self._table.dead_letter_at(*place)
        if reason is not None:
            what = f"a dead letter: {reason}"
            return Located(self.name, attempt, Standing.HELD, what, ObjectKind.DEAD_LETTER, DEAD_LETTERS)
        what = (
            f"a newer row of its key is in {self.target} ({counts.superseded:,} rows of the manifest had a newer row "
            f"in the manifest, {counts.stale:,} in the table; any row may have been replaced since)"
        )
        return Located(self.name, attempt, Standing.REPLACED, what, place=self.target)


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


def _tasks(parts: Sequence[PublishedObject]) -> list[str]:
    return sorted({part.staged for part in parts})


def _sum(parts: Sequence[PublishedObject]) -> int:
    return sum(part.rows for part in parts)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> PostgresSink:
    return PostgresSink(pipeline_name, settings, lookup)
