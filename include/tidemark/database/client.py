"""The manifest database as one class: a method per query; every transaction records who acts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import Any, Self

from psycopg.types.json import Jsonb

from tidemark.database.migrate import connect_to_tables
from tidemark.database.session import Session, translated
from tidemark.errors import NotFound
from tidemark.manifest import (
    ALL_MANIFESTS,
    Archive,
    Archived,
    AttemptState,
    Counts,
    Decision,
    KnownSink,
    Manifest,
    ManifestSelection,
    ManifestState,
    Publication,
    PublishedRange,
    RangeKind,
    RunKind,
    StagedRecord,
    WithoutRows,
)
from tidemark.moments import with_zone
from tidemark.named_sql import named_queries
from tidemark.offsets import Range, TopicPartition, range_from
from tidemark.partitions import LastRecord
from tidemark.planner import Chain
from tidemark.receipt import PublishedObject, Receipt, StoredReceipt, object_from

Row = dict[str, Any]


QUERIES = named_queries("tidemark.database", "queries.sql")


class _Ahead:
    """The rows of statements about one pipeline, of many pipelines: each statement goes to PostgreSQL once."""

    def __init__(self, session: Session, pipelines: Iterable[str]) -> None:
        self._session = session
        self._pipelines = frozenset(pipelines)
        self._read: dict[str, dict[object, list[Row]]] = {}
        self._lock = Lock()

    def has(self, values: Mapping[str, object]) -> bool:
        """Whether a statement with these values is about one of the pipelines, and about nothing else."""
        return set(values) == {"pipeline_name"} and values["pipeline_name"] in self._pipelines

    def rows(self, name: str, *, pipeline_name: object) -> list[Row]:
        with self._lock:
            if name not in self._read:
                self._read[name] = self._of_each(name)
        return [dict(row) for row in self._read[name][pipeline_name]]

    def _of_each(self, name: str) -> dict[object, list[Row]]:
        of_one = QUERIES[name].rstrip(";").replace("%(pipeline_name)s", "ahead.of_pipeline")
        every = QUERIES["of_each"].replace("{}", of_one)
        rows: dict[object, list[Row]] = {pipeline_name: [] for pipeline_name in self._pipelines}
        with translated():
            for row in self._session.execute(every, {"names": list(self._pipelines)}).fetchall():
                rows[row.pop("of_pipeline")].append(row)
        return rows


class ManifestDatabase:
    """One session to the manifest database; the history names the ``actor`` (a user, an Airflow task).

    Raises ``ConfigurationError`` for a database without Tidemark's tables or with tables of another version, and
    ``Unavailable`` when it does not answer. An attempt that is started here holds its session lock until ``close``: by
    that lock others see that it is alive.
    """

    def __init__(self, dsn: str, actor: str) -> None:
        self.actor = actor
        self._dsn = dsn
        self._why = ""
        self._session: Session = connect_to_tables(dsn)
        self._ahead: _Ahead | None = None

    def reopened(self) -> "ManifestDatabase":
        """The same database over a new session, which holds none of this one's locks."""
        return ManifestDatabase(self._dsn, self.actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction (READ COMMITTED) with the actor set, which the history needs."""
        with translated(), self._session.transaction():
            self._rows("set_actor", actor=self.actor, why=self._why)
            yield

    @contextmanager
    def because(self, why: str) -> Iterator[None]:
        """One transaction whose history entries have ``why``."""
        self._why = why
        try:
            with self.transaction():
                yield
        finally:
            self._why = ""

    @contextmanager
    def reading_ahead(self, pipelines: Iterable[str]) -> Iterator[None]:
        """Inside, what is asked of one of these pipelines alone is read of all of them with the first of them, and is
        as old as that. Only for reading; several threads may ask."""
        self._ahead = _Ahead(self._session, pipelines)
        try:
            yield
        finally:
            self._ahead = None

    def _rows(self, name: str, **values: object) -> list[Row]:
        ahead = self._ahead
        if ahead is not None and ahead.has(values):
            return ahead.rows(name, **values)
        with translated(pipeline=values.get("pipeline"), manifest=values.get("manifest")):
            cursor = self._session.execute(QUERIES[name], values)
            return cursor.fetchall() if cursor.description else []

    def _changed(self, name: str, **values: object) -> Row | None:
        """Run one guarded statement in the open transaction or one of its own; None when the guard refused it."""
        with self.transaction():
            rows = self._rows(name, **values)
        return rows[0] if rows else None

    def id(self) -> str:
        return str(self._rows("database_id")[0]["id"])

    @property
    def session(self) -> Session:
        """For a sink whose target is this same database: its rows and the publication are one transaction."""
        return self._session

    # planning

    def lock_planning(self, pipeline_name: str) -> None:
        self._rows("lock_planning", pipeline_name=pipeline_name)

    def scheduled_cuts(self, pipeline_name: str) -> list[datetime]:
        """The cuts of scheduled runs and backfills: the ten newest, the newest first, and at last the oldest one."""
        return [row["cut_at"] for row in self._rows("scheduled_cuts", pipeline_name=pipeline_name)]

    def find_run(self, pipeline_name: str, run_key: str) -> Row | None:
        rows = self._rows("find_run", pipeline_name=pipeline_name, run_key=run_key)
        return rows[0] if rows else None

    def remember_pipeline(self, pipeline_name: str, targets: Mapping[str, str]) -> None:
        """Store the pipeline, and target by name of each sink that is not known yet; needs an open transaction."""
        self._rows("remember_pipeline", pipeline_name=pipeline_name)
        names = list(targets)
        self._rows("remember_sinks", pipeline_name=pipeline_name, names=names, targets=list(targets.values()))

    def is_planned(self, pipeline_name: str) -> bool:
        """Whether the pipeline was ever planned or adopted."""
        return bool(self._rows("is_planned", pipeline_name=pipeline_name)[0]["known"])

    def stream_folders(self, topics: Sequence[str]) -> list[Row]:
        """Where each pipeline writes, or wrote, these topics: pipeline, sink, topic, folders, shared_with."""
        return self._rows("stream_folders", topics=list(topics))

    def lock_folders(self) -> None:
        """Until the transaction ends, no other pipeline can take folders."""
        self._rows("lock_folders")

    def remember_folders(self, folders: Sequence[Mapping[str, Any]]) -> None:
        """Store where a pipeline writes its topics, in rows as ``stream_folders`` returns them."""
        for row in folders:
            self._rows("remember_folders", **{**row, "shared_with": list(row["shared_with"])})

    def has_published(self, pipeline_name: str, sink: str) -> bool:
        """Whether a manifest of the pipeline is published in the sink."""
        return bool(self._rows("has_published", pipeline_name=pipeline_name, sink=sink))

    def chains(self, pipeline_name: str) -> list[Chain]:
        """The chains of the pipeline that are not retired."""
        return [_chain(row) for row in self._rows("chains", pipeline_name=pipeline_name)]

    def chains_of(self, manifest_id: int) -> list[Chain]:
        """The chain of each range of a manifest, as if it ended where that range does."""
        return [_chain(row) for row in self._rows("chains_of", manifest_id=manifest_id)]

    def last_published(self, parts: Sequence[tuple[int, int]]) -> dict[int, PublishedRange]:
        """By chain id: the newest published range with a record that ends at or below the offset of (chain id, offset).

        Chains without such a range have no entry.
        """
        return self.newest_published(parts)[0]

    def newest_published(
        self, parts: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, PublishedRange], dict[int, list[tuple[int, int]]]]:
        """As ``last_published``, and by chain id the published offsets ``[start, end)`` behind those last records that
        held no record a reader may see. What is archived says nothing about them."""
        newest: dict[int, PublishedRange] = {}
        empty: dict[int, list[tuple[int, int]]] = {}
        waiting = dict(parts)
        while waiting:
            chains, ends = list(waiting), list(waiting.values())
            waiting = {}
            for row in self._rows("last_published", chains=chains, ends=ends):
                chain_id, start, end = row["chain_id"], row["start_offset"], row["end_offset"]
                if row["digest"] is None:  # no reader may see a record of this range: an older one has the last record
                    waiting[chain_id] = start
                    behind = start if row["read"] == 0 else end
                else:
                    last = LastRecord(row["last_offset"], row["timestamp_ms"], row["digest"], row["leader_epoch"])
                    newest[chain_id] = PublishedRange(chain_id, start, end, last)
                    behind = end if row["read"] is None else last.offset + 1
                if behind < end:
                    empty.setdefault(chain_id, []).append((behind, end))
        return newest, empty

    def staged_below(self, manifest_id: int, attempt: int, sinks: Sequence[str]) -> list[StagedRecord]:
        """The last records that other attempts have read below a manifest's ranges and may still publish.

        Of the manifest itself those of attempts below ``attempt`` for sinks that are not among ``sinks``.
        """
        rows = self._rows("staged_below", manifest_id=manifest_id, attempt=attempt, sinks=list(sinks))
        return [
            StagedRecord(
                _place(row), row["manifest_id"], row["attempt"],
                LastRecord(row["last_offset"], row["timestamp_ms"], row["digest"], row["leader_epoch"]),
                row["end_offset"],
            )
            for row in rows
        ]  # fmt: skip

    def earlier_lives(self, chain_ids: Sequence[int]) -> dict[int, list[tuple[int, int, int]]]:
        """By chain id: (chain id, anchor, end of its life) of each earlier life of the same log, the newest first."""
        lives: dict[int, list[tuple[int, int, int]]] = {}
        if chain_ids:
            for row in self._rows("earlier_lives", chains=list(chain_ids)):
                lives.setdefault(row["later_id"], []).append((row["id"], row["anchor"], row["life_end"]))
        return lives

    def ended_chains(self, pipeline_name: str) -> dict[TopicPartition, int]:
        """The end of the newest retired chain of each partition."""
        return {_place(row): row["end_offset"] for row in self._rows("ended_chains", pipeline_name=pipeline_name)}

    def record_bytes(self, pipeline_name: str) -> float | None:
        """Mean bytes of key and value per record, measured on the newest published manifests; None before the first."""
        value = self._rows("record_bytes", pipeline_name=pipeline_name)[0]["record_bytes"]
        return None if value is None else float(value)

    def insert_chains(self, pipeline_name: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        rows = self._rows("insert_chains", pipeline_name=pipeline_name, **_arrays(places))
        return {_place(row): row["id"] for row in rows}

    def insert_ranges(self, kind: RangeKind, ranges: Sequence[tuple[int, int | None, int, int | None]]) -> None:
        """Rows of (chain id, start or None for an anchor, end, manifest id or None)."""
        chains, starts, ends, manifests = ([row[column] for row in ranges] for column in range(4))
        kinds = [kind.value] * len(ranges)
        self._rows("insert_ranges", chains=chains, starts=starts, ends=ends, kinds=kinds, manifests=manifests)

    def covering_manifests(self, ends: Sequence[tuple[int, int]]) -> list[int]:
        """Ids of the manifests that hold the last offset before each (chain id, end)."""
        chains, offsets = [chain_id for chain_id, _ in ends], [end for _, end in ends]
        return [row["id"] for row in self._rows("covering_manifests", chains=chains, ends=offsets)]

    def unpublished_before(self, pipeline_name: str, ends: Sequence[tuple[int, int]]) -> list[int]:
        """Ids of the manifests that are not done and hold an offset before any (chain id, end)."""
        chains, offsets = [chain_id for chain_id, _ in ends], [end for _, end in ends]
        rows = self._rows("unpublished_before", pipeline_name=pipeline_name, chains=chains, ends=offsets)
        return [row["id"] for row in rows]

    def manifests_between(self, parts: Sequence[tuple[int, int, int]]) -> list[int]:
        """Ids of the manifests that hold an offset of any part: (chain id, start, end), half-open."""
        chains, starts, ends = ([part[column] for part in parts] for column in range(3))
        return [row["id"] for row in self._rows("manifests_between", chains=chains, starts=starts, ends=ends)]

    def insert_run(
        self,
        pipeline_name: str,
        run_key: str,
        kind: RunKind,
        *,
        planned_up_to: datetime | None = None,
        **values: object,
    ) -> int:
        values |= {
            "pipeline_name": pipeline_name,
            "run_key": run_key,
            "kind": kind.value,
            "planned_up_to": planned_up_to,
        }
        return int(self._rows("insert_run", **values)[0]["id"])

    def insert_run_ends(self, run_id: int, ends: Mapping[int, int]) -> None:
        """Store where a run ended, by chain id."""
        self._rows("insert_run_ends", run_id=run_id, chains=list(ends), ends=list(ends.values()))

    def run_ends(self, run_id: int) -> dict[int, int]:
        """Where a run ended, by chain id."""
        return {row["chain_id"]: row["end_offset"] for row in self._rows("run_ends", run_id=run_id)}

    def places_of_run_ends(self, run_id: int) -> list[tuple[TopicPartition, int]]:
        """Where a run ended, by partition."""
        return [(_place(row), row["end_offset"]) for row in self._rows("places_of_run_ends", run_id=run_id)]

    def ends_of_cut(self, pipeline_name: str, cut_at: datetime) -> dict[int, int]:
        """Where the run with this cut ended, by chain id; empty when there is none."""
        rows = self._rows("ends_of_cut", pipeline_name=pipeline_name, cut_at=cut_at)
        return {row["chain_id"]: row["end_offset"] for row in rows}

    def ends_of_schedule(self, pipeline_name: str, cut_at: datetime) -> dict[int, int]:
        """Where the newest scheduled run with this cut or an earlier one ended, by chain id; empty without one."""
        rows = self._rows("ends_of_schedule", pipeline_name=pipeline_name, cut_at=cut_at)
        return {row["chain_id"]: row["end_offset"] for row in rows}

    def ends_before(self, pipeline_name: str, until: datetime) -> dict[int, int]:
        """Where the newest run that planned up to ``until`` or less ended, by chain id; empty when there is none."""
        rows = self._rows("ends_before", pipeline_name=pipeline_name, until=until)
        return {row["chain_id"]: row["end_offset"] for row in rows}

    def insert_manifests(self, run_id: int, pipeline_name: str, slices: int, *, first: int = 0) -> list[int]:
        """Insert manifests with slice numbers from ``first`` on and add them to the run's list; returns their ids."""
        rows = self._rows(
            "insert_manifests", run_id=run_id, pipeline_name=pipeline_name, first=first, last=first + slices - 1
        )
        ids = [row["id"] for row in sorted(rows, key=lambda row: row["slice"])]
        self._rows("list_manifests_of_run", run_id=run_id, manifests=ids)
        return ids

    def block_chains(self, chains: Sequence[int], reason: str, life_end: int | None) -> None:
        """Store why planning was refused on the chains that are not blocked yet."""
        self._changed("block_chains", chains=list(chains), reason=reason, life_end=life_end)

    def retire_chains(self, chains: Sequence[int]) -> None:
        self._changed("retire_chains", chains=list(chains))

    def unblock_chains(self, chains: Sequence[int]) -> None:
        self._changed("unblock_chains", chains=list(chains))

    def accept_loss(self, chain_id: int, start: int, end: int) -> list[int]:
        """Give up offsets after the chain's end or in unpublished ranges; returns the manifests that lost some."""
        return [row["id"] for row in self._rows("accept_loss", chain_id=chain_id, start=start, end=end)]

    def lock_undone(self, pipeline_name: str, also: Sequence[int] = ()) -> None:
        """Until the transaction ends, no attempt can start at an undone manifest or at one of ``also``."""
        self._rows("lock_undone", pipeline_name=pipeline_name, also=list(also))

    def undone_ranges(self, pipeline_name: str) -> list[tuple[int, Range, int, int | None]]:
        """(chain id, range, manifest id, end of a retired chain's life or None) of each range that is not done."""
        rows = self._rows("undone_ranges", pipeline_name=pipeline_name)
        return [(row["chain_id"], range_from(row["covered"]), row["manifest_id"], row["life_end"]) for row in rows]

    def outlived(self, manifest_id: int) -> list[Row]:
        """The ranges of a manifest that reach above the known end of their life of the partition."""
        return self._rows("outlived", manifest_id=manifest_id)

    def note_decision(self, pipeline_name: str, verb: str, decision: Decision) -> None:
        """Add a decision to the history; must be called inside ``because``, which sets who and why."""
        lines, manifests = list(decision.lines), list(decision.manifests)
        self._rows(
            "note_decision", pipeline_name=pipeline_name, verb=verb, lines=Jsonb(lines), manifests=Jsonb(manifests)
        )

    def decisions(self, pipeline_name: str) -> list[Row]:
        """The decisions of people: at, actor, decision, why, lines, manifests; oldest first."""
        return self._rows("decisions", pipeline_name=pipeline_name)

    def extend_back(self, chain_id: int, anchor: int) -> None:
        """Move an anchor back; the caller must insert the ranges up to the old one in the same transaction."""
        self._rows("extend_back", chain_id=chain_id, anchor=anchor)

    # sinks

    def sinks(self, pipeline_name: str) -> list[KnownSink]:
        """The known sinks of a pipeline by name, retired ones too."""
        return [KnownSink(**row) for row in self._rows("sinks", pipeline_name=pipeline_name)]

    def standing_sinks(self, pipeline_name: str) -> list[str]:
        """The names of the known sinks that are not retired."""
        return [sink.name for sink in self.sinks(pipeline_name) if sink.stands]

    def lock_manifests(self, pipeline_name: str) -> None:
        """Until the transaction ends, no attempt at a manifest of the pipeline can start, publish or end."""
        self._rows("lock_manifests", pipeline_name=pipeline_name)

    def with_open_attempts(self, pipeline_name: str) -> list[int]:
        """The manifests with an attempt that has not ended, whether its process is alive or not."""
        return [row["id"] for row in self._rows("with_open_attempts", pipeline_name=pipeline_name)]

    def fence_open_attempts(self, manifests: Sequence[int], reason: str) -> None:
        """Fence every attempt at these manifests that has not ended; its process may be paused, and unknown here."""
        self._rows("fence_open_attempts", manifests=list(manifests), actor=self.actor, reason=reason)

    def rename_sink(self, pipeline_name: str, old: str, new: str, fingerprints: Mapping[str, str]) -> None:
        """Give a sink another name, here and not in its target: ``end_rename`` follows when the target has it too.

        ``fingerprints`` has those of the pipeline with the new name by those with the old one, without pinned schemas.
        """
        names = {"pipeline_name": pipeline_name, "old": old, "new": new}
        self._rows("rename_sink", **names)
        self._rows("rename_publications", **names)
        self._rows("rename_in_damage", **names)
        self._rows("rename_in_folders", **names)
        self._rows("rename_in_success_files", **names)
        self._rows("rename_in_attempts", **names)
        self._rows("rename_in_archive", **names)
        before, after = list(fingerprints), list(fingerprints.values())
        self._rows("rename_in_fingerprints", pipeline_name=pipeline_name, before=before, after=after)

    def end_rename(self, pipeline_name: str, new: str) -> None:
        self._rows("end_rename", pipeline_name=pipeline_name, new=new)

    def retire_sink(self, pipeline_name: str, name: str) -> None:
        """From here on the sink's publications do not count, also not as rows of an hour; what is archived stays."""
        with self.transaction():
            self.lock_hours(pipeline_name)
            self._rows("retire_sink", pipeline_name=pipeline_name, sink=name)
            counted = [row["id"] for row in self._rows("counted_by", pipeline_name=pipeline_name, sink=name)]
            if counted:
                self._count_hours(counted)

    def published_in(self, pipeline_name: str, sink: str) -> dict[int, bool]:
        """The manifests that are published in a sink, and of each whether they are published there alone."""
        rows = self._rows("published_in", pipeline_name=pipeline_name, sink=sink)
        return {row["id"]: row["alone"] for row in rows}

    def lacking(self, pipeline_name: str, sink: str) -> list[int]:
        """The done manifests that a sink has no publication of."""
        return [row["id"] for row in self._rows("lacking", pipeline_name=pipeline_name, sink=sink)]

    def count_lacking(self, pipeline_name: str, sink: str) -> int:
        """How many ``lacking`` there are."""
        return int(self._rows("count_lacking", pipeline_name=pipeline_name, sink=sink)[0]["manifests"])

    def kept_of_retired_sinks(self, pipeline_name: str) -> list[Row]:
        """Each publication in a retired sink: root, manifest_id, attempt, paths."""
        return self._rows("kept_of_retired_sinks", pipeline_name=pipeline_name)

    # adopting

    def succeed(self, database_id: str) -> bool:
        """Note that this database takes over the targets of another one; False when it has manifests of its own."""
        return self._changed("succeed", id=database_id) is not None

    def adopt_manifest(self, run_id: int, pipeline_name: str, manifest_id: int, number: int) -> None:
        self._rows("adopt_manifest", run_id=run_id, pipeline_name=pipeline_name, manifest_id=manifest_id, slice=number)

    def adopt_chains(
        self, pipeline_name: str, lives: Sequence[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int]:
        """Insert chains; returns ids by (place, incarnation). Chains with a newer life beside them are retired."""
        values = _arrays([at for at, _ in lives]) | {"incarnations": [incarnation for _, incarnation in lives]}
        rows = self._rows("adopt_chains", pipeline_name=pipeline_name, **values)
        self._rows("retire_outlived", pipeline_name=pipeline_name)
        return {(_place(row), row["incarnation"]): row["id"] for row in rows}

    def keep_manifest_ids_above(self, highest: int) -> None:
        """New manifests get ids above ``highest``, and above every id that is in use."""
        self._rows("keep_manifest_ids_above", id=max(highest, self.highest_manifest(), 1))

    def adopt_attempt(self, receipt: Receipt, raw: Row) -> None:
        """Insert a published attempt with its receipt; a manifest that is not done becomes running."""
        values = {"manifest_id": receipt.manifest_id, "attempt": receipt.attempt}
        self._rows("adopt_attempt", **values, actor=self.actor, receipt=Jsonb(raw))
        self._rows("adopt_number", **values)

    # attempts

    def start(self, manifest_id: int, fingerprint: str) -> int | None:
        """The number of a new attempt, or None when the manifest is blocked; its lock is held from here on."""
        with self.transaction():
            rows = self._rows("start", manifest_id=manifest_id, fingerprint=fingerprint, actor=self.actor)
            if not rows:
                return None
            attempt = int(rows[0]["attempt"])
            self._rows("fence_lower_attempts", manifest_id=manifest_id, attempt=attempt)
            self._rows("lock_attempt", manifest_id=manifest_id, attempt=attempt)
            return attempt

    def newest_attempt(self, manifest_id: int) -> int:
        rows = self._rows("newest_attempt", manifest_id=manifest_id)
        if not rows:
            raise NotFound(
                "there is no such manifest", next_step="list them with: tidemark manifests", manifest=manifest_id
            )
        return int(rows[0]["attempt"])

    def store_receipt(
        self, receipt: Receipt, raw: Row, sinks: Sequence[str], takes_back: Sequence[str], note: str | None = None
    ) -> bool:
        """Store the receipt of an attempt that was to write to ``sinks``, with a note for people.

        Declares taken back what lower attempts put into the sinks in ``takes_back`` and nobody published. The hours of
        this attempt and of what is published are open from here on. False when a newer attempt has taken over, or other
        records are at these offsets now (``outlived``).
        """
        values = {"manifest_id": receipt.manifest_id, "attempt": receipt.attempt, "receipt": Jsonb(raw)}
        names = {"sinks": list(sinks), "takes_back": list(takes_back), "note": note}
        with self.transaction():
            if not self._rows("store_receipt", **values, **names):
                return False
            self._rows("lock_hours_of", manifest_id=receipt.manifest_id)
            self._rows("reopen_hours", manifest_id=receipt.manifest_id, attempt=receipt.attempt)
            return True

    def store_epochs(self, receipt: Receipt) -> None:
        """Store the leader epochs of a receipt that is stored, unless a newer attempt has taken over."""
        partitions = Jsonb([asdict(count) for count in receipt.partitions])
        with self.transaction():
            self._rows("store_epochs", manifest_id=receipt.manifest_id, attempt=receipt.attempt, partitions=partitions)

    def take_back(self, manifest_id: int, attempt: int, sink: str) -> bool:
        """Declare that the output of an attempt in a sink may be removed; False when it is published."""
        return self._changed("take_back", manifest_id=manifest_id, attempt=attempt, sink=sink) is not None

    def may_put(self, manifest_id: int, attempt: int, sink: str) -> bool:
        """Whether the attempt is the newest, and nobody has taken back what it put into the sink."""
        rows = self._rows("may_put", manifest_id=manifest_id, attempt=attempt, sink=sink)  # none when it is archived
        return bool(rows and rows[0]["allowed"])

    def receipts(self, manifest_id: int) -> list[StoredReceipt]:
        """The receipts of a manifest, newest first."""
        return [
            StoredReceipt(Receipt.from_raw(row["receipt"]), row["fingerprint"], frozenset(row["taken_back"]))
            for row in self._rows("receipts", manifest_id=manifest_id)
        ]

    def receipt(self, manifest_id: int, attempt: int) -> Receipt | None:
        rows = self._rows("receipt", manifest_id=manifest_id, attempt=attempt)
        return Receipt.from_raw(rows[0]["receipt"]) if rows and rows[0]["receipt"] else None

    def publish(self, manifest_id: int, newest: int, sink: str, attempt: int, digest: str, counts: Row) -> bool:
        """Make ``attempt`` what readers see, with its rows by hour; hours that change are open again.

        False when ``newest`` is not the newest attempt any more, or when the output of ``attempt`` was taken back.
        """
        values = {"manifest_id": manifest_id, "newest": newest, "sink": sink, "attempt": attempt, "digest": digest}
        with self.transaction():
            if not self._rows("publish", **values, counts=Jsonb(counts)):
                return False
            self._rows("lock_hours_of", manifest_id=manifest_id)
            self._count_hours([manifest_id])
            return True

    def _count_hours(self, manifest_ids: Sequence[int]) -> None:
        """By what the sinks show now; the caller has locked the hours of the pipeline, of which all of them are."""
        changed = self._rows("count_hours", manifest_ids=list(manifest_ids))
        if changed:
            hours = [row["hour"] for row in changed]
            self._rows("sum_hours", pipeline_name=changed[0]["pipeline"], hours=hours)

    def finish(self, manifest_id: int, attempt: int, sinks: Sequence[str]) -> bool:
        """Set the manifest done; False when a sink lacks a publication or the attempt is not the newest any more."""
        return self._changed("finish", manifest_id=manifest_id, attempt=attempt, sinks=list(sinks)) is not None

    def end_attempt(self, manifest_id: int, attempt: int, state: AttemptState, error: str | None = None) -> bool:
        values = {"manifest_id": manifest_id, "attempt": attempt, "state": state.value, "error": error}
        return self._changed("end_attempt", **values) is not None

    def fail(self, manifest_id: int, attempt: int, reason: str) -> bool:
        return self._changed("fail", manifest_id=manifest_id, attempt=attempt, reason=reason) is not None

    def block(self, manifest_id: int, attempt: int, reason: str) -> bool:
        return self._changed("block", manifest_id=manifest_id, attempt=attempt, reason=reason) is not None

    def release(self, manifest_id: int, attempt: int) -> None:
        """Release the attempt's session lock: from here on it is not alive."""
        self._rows("unlock_attempt", manifest_id=manifest_id, attempt=attempt)

    def attempt_lock(self, manifest_id: int, attempt: int) -> int:
        """The number of the advisory lock that an attempt holds while its process lives."""
        return int(self._rows("attempt_lock", manifest_id=manifest_id, attempt=attempt)[0]["number"])

    def user(self) -> str:
        """The PostgreSQL user of this session."""
        return str(self._rows("current_user")[0]["name"])

    def unblock(self, manifest_id: int) -> bool:
        return self._changed("unblock", manifest_id=manifest_id) is not None

    # hours: times are aware, the first moment of an hour in UTC

    def lock_hours(self, pipeline_name: str) -> None:
        """Until the transaction ends, no receipt is stored, nothing is published, and no hour is closed."""
        self._rows("lock_hours", pipeline_name=pipeline_name)

    def fill_hours(self, pipeline_name: str, since: datetime, until: datetime) -> None:
        """Insert the hours without records, from the day of the first hour at or after ``since`` up to ``until``."""
        self._rows("fill_hours", pipeline_name=pipeline_name, since=since, until=until)

    def held_hours(self, pipeline_name: str, behind: Sequence[int]) -> list[Row]:
        """hour, manifest_id, at_work of the hours that cannot be closed now; ``behind`` are half replayed manifests."""
        return self._rows("held_hours", pipeline_name=pipeline_name, behind=list(behind))

    def close_hours(self, pipeline_name: str, last: datetime, held: Sequence[datetime]) -> list[datetime]:
        """Close the open hours up to ``last``, except those ``held``; returns them in order."""
        rows = self._rows("close_hours", pipeline_name=pipeline_name, last=last, held=list(held))
        return sorted(row["hour"] for row in rows)

    def hours(
        self,
        pipeline_name: str,
        *,
        incomplete: bool = False,
        newest: int | None = None,
        before: datetime | None = None,
        limit: int | None = None,
    ) -> list[Row]:
        """hour, revision, rows, late, complete_at, manifests (ids), rows of the archived ones, and the sinks in which a
        person has given up output of the manifests; oldest first.

        With ``newest`` only that many of the newest, and those that are open. With ``limit`` at most so many, the last
        ones ``before`` a time.
        """
        values = {"incomplete": incomplete, "newest": newest, "before": before, "limit": limit}
        return self._rows("hours", pipeline_name=pipeline_name, **values)

    def without_rows(
        self, pipeline_name: str, times: Sequence[tuple[datetime, datetime]], sink: str | None = None
    ) -> list[WithoutRows]:
        """For each ``(since, until)`` what the runs that read what arrived in between made no rows of; of what one sink
        shows, or of all."""
        values = {"since": [since for since, _ in times], "until": [until for _, until in times], "sink": sink}
        rows = self._rows("without_rows", pipeline_name=pipeline_name, **values)
        return [WithoutRows(row["dead_lettered"], row["filtered"], row["deduplicated"], row["lost"]) for row in rows]

    def given_up(self, pipeline_name: str, since: datetime, until: datetime) -> tuple[str, ...]:
        """The sinks of which a person has accepted that they lack output of what arrived in between."""
        return tuple(
            row["sink"] for row in self._rows("given_up", pipeline_name=pipeline_name, since=since, until=until)
        )

    def without_success_file(self, pipeline_name: str, sink: str, whose: str | None) -> list[Row]:
        """hour, revision, rows, late of the complete hours that a sink's success files do not say yet, or not under
        this name; ``shown``: they say some revision, under the name of the row's ``whose``; ``whole``: it shows a
        publication of every manifest of the hour."""
        return self._rows("without_success_file", pipeline_name=pipeline_name, sink=sink, whose=whose)

    def given_up_files(self, pipeline_name: str, sink: str) -> list[Row]:
        """path, topic of each file with rows that a person has given up in a sink, and the hours of its manifest."""
        return self._rows("given_up_files", pipeline_name=pipeline_name, sink=sink)

    def forget_success_files(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Note that hours have no success files of these revisions or lower ones."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._changed("forget_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def note_success_files(
        self, pipeline_name: str, sink: str, whose: str | None, revisions: Mapping[datetime, int]
    ) -> None:
        """Note which revision of each hour the success files of a sink say, and whose name they have."""
        values = {"whose": whose, "hours": list(revisions), "revisions": list(revisions.values())}
        self._changed("note_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def plain_success_files(
        self, pipeline_name: str, sink: str, hours: Sequence[datetime] | None
    ) -> Iterator[datetime]:
        """The hours, all or some, whose success files of a sink have no pipeline in their name; read page by page, so
        that a transaction in which each is looked at is not idle for long."""
        after = None
        names = {"pipeline_name": pipeline_name, "sink": sink, "hours": None if hours is None else list(hours)}
        while page := [row["hour"] for row in self._rows("plain_success_files", **names, after=after)]:
            yield from page
            after = page[-1]

    def hours_since(self, pipeline_name: str, since: datetime) -> list[Row]:
        """hour, revision, complete, told of each hour from ``since`` on."""
        return self._rows("hours_since", pipeline_name=pipeline_name, since=since)

    def tellers(self, pipeline_name: str) -> list[str]:
        """The runs of Airflow of which it is not known whether they told what they were about to tell."""
        return [row["told_by"] for row in self._rows("tellers", pipeline_name=pipeline_name)]

    def settle_told(self, pipeline_name: str, dag_run: str, *, told: bool) -> None:
        """Note whether a run of Airflow has told what it was about to tell."""
        self._changed("settle_told", pipeline_name=pipeline_name, dag_run=dag_run, told=told)

    def tell_hours(self, pipeline_name: str, dag_run: str, hours: Sequence[datetime]) -> None:
        """Note that a run of Airflow is about to tell the present revisions of these hours."""
        self._changed("tell_hours", pipeline_name=pipeline_name, dag_run=dag_run, hours=list(hours))

    # reading

    def manifests(
        self,
        pipeline_name: str | None = None,
        states: Sequence[ManifestState] | None = None,
        ids: Sequence[int] | None = None,
        *,
        archived: bool = False,
    ) -> list[Manifest]:
        """By id. Those that are archived only with ``archived``, or when they are named by their ``ids``."""
        chosen = None if states is None else [state.value for state in states]
        values = {"pipeline_name": pipeline_name, "ids": None if ids is None else list(ids)}
        rows = self._rows("manifests", states=chosen, **values)
        wanted = archived or (ids is not None and len(rows) < len(set(ids)))
        if wanted and ManifestState.DONE in (states or ManifestState):
            rows += self._rows("archived_manifests", **values)
        # One that was archived between the two queries is in both.
        return [_manifest(row) for _, row in sorted({row["id"]: row for row in rows}.items())]

    def archives(self, pipeline_name: str) -> list[Archive]:
        """What was archived of a pipeline, oldest first."""
        return [Archive(**row) for row in self._rows("archives", pipeline_name=pipeline_name)]

    def count_archived(self, pipeline_name: str) -> int:
        """How many manifests are archived."""
        return int(self._rows("count_archived", pipeline_name=pipeline_name)[0]["manifests"])

    def archived_in_sinks(self, pipeline_name: str) -> list[Row]:
        """The proof by sink: archive_id, sink, manifests, counts and digest, which are sums."""
        return self._rows("archived_in_sinks", pipeline_name=pipeline_name)

    def archived_ranges(self, pipeline_name: str) -> list[Row]:
        """The proof by chain: archive_id, topic, topic_id, partition, incarnation, offsets, manifests, read, lost."""
        return self._rows("archived_ranges", pipeline_name=pipeline_name)

    def false_proofs(self, pipeline_name: str) -> list[str]:
        """Where what is archived does not add up to its proof; it never does, unless somebody changed the tables."""
        return [row["what"] for row in self._rows("false_proofs", pipeline_name=pipeline_name)]

    def archived_at(self, chain_id: int, offset: int) -> Row:
        """The range that holds an archived offset of a chain: id of its manifest (None: it is lost) and offsets."""
        return self._rows("archived_at", chain_id=chain_id, offset=offset)[0]

    def archived_lacking(self, pipeline_name: str, sink: str) -> Row:
        """How many archived ``manifests`` a sink has nothing of, and the ids of the ``first`` and the ``last``."""
        return self._rows("archived_lacking", pipeline_name=pipeline_name, sink=sink)[0]

    def archived_below(self, chains: Sequence[int]) -> dict[int, int]:
        """By chain id: the first offset that is not archived; chains without an archive have no entry."""
        return {row["chain_id"]: row["end_offset"] for row in self._rows("archived_below", chains=list(chains))}

    # archiving

    def oldest_ranges(self, pipeline_name: str, limit: int | None) -> list[Row]:
        """At most ``limit`` ranges with a manifest of each chain, from its anchor on, and those between them: chain_id,
        offsets, kind, manifest_id."""
        return self._rows("oldest_ranges", pipeline_name=pipeline_name, limit=limit)

    def may_be_archived(self, manifests: Sequence[int], before: datetime) -> list[Row]:
        """id, why not (None: it may be) and number of ranges of manifests."""
        return self._rows("may_be_archived", manifests=list(manifests), before=before)

    def begin_archive(self, pipeline_name: str, before: datetime, why: str) -> int:
        """The id of a new archive, without manifests yet; needs an open transaction."""
        rows = self._rows("begin_archive", pipeline_name=pipeline_name, before=before, why=why, actor=self.actor)
        return int(rows[0]["id"])

    def archive(self, archive_id: int, manifests: Sequence[int]) -> None:
        """Fold these manifests with their ranges and the lost ranges between; needs an open transaction."""
        self._rows("archive", archive_id=archive_id, manifests=list(manifests))

    def page_of_manifests(
        self,
        pipeline_name: str | None,
        selection: ManifestSelection = ALL_MANIFESTS,
        *,
        limit: int | None = None,
        after: int | None = None,
    ) -> list[Manifest]:
        """At most ``limit`` manifests, newest first; ``after`` is the last id of the page before.

        They are in the order of their ids, those of a time of one pipeline in that of their runs' times: a page up to a
        time long ago costs no more than the newest.
        """
        rows = self._chosen("newest_manifests", pipeline_name, selection, after, limit)
        ids = [row["id"] for row in islice(rows, limit)]
        by_id = {manifest.id: manifest for manifest in self.manifests(ids=ids)} if ids else {}
        return [by_id[manifest_id] for manifest_id in ids if manifest_id in by_id]

    def count_manifests(
        self, pipeline_name: str | None, selection: ManifestSelection, *, most: int, after: int | None = None
    ) -> int:
        """How many manifests a selection has of a pipeline, and with ``after`` how many of them are older; counted up
        to ``most``, since there may be millions."""
        rows = self._chosen("count_manifests", pipeline_name, selection, after, most)
        return min(sum(int(row["manifests"]) for row in rows), most)

    def _chosen(
        self,
        statement: str,
        pipeline_name: str | None,
        selection: ManifestSelection,
        after: int | None,
        limit: int | None,
    ) -> Iterator[Row]:
        """The rows of a statement, asked for each part of the manifests that may have some, the newest first."""
        times = {"since": selection.since, "until": selection.until}
        values: dict[str, object] = {
            "pipeline_name": pipeline_name,
            "state": selection.state and selection.state.value,
            "lacks": selection.lacks,
            "limit": limit,
            **{name: time_ and with_zone(time_) for name, time_ in times.items()},
            "by_time": pipeline_name is not None and selection.lacks is None and any(times.values()),
            "behind": None,
            "after": after,
        }
        if values["by_time"] and after is not None:
            for row in self._rows("time_of_manifest", manifest_id=after):
                values["behind"], after = row["time"], None
        place = {"topic": selection.topic, "partition": selection.partition}
        if place != {"topic": None, "partition": None}:
            chains = self._rows("chains_at", pipeline_name=pipeline_name, **place)
            statement, values["chains"] = f"{statement}_at", [row["id"] for row in chains]
        parts: list[Row] = [{"first_id": None, "end_id": None}]
        if selection.lacks is not None:
            parts = self._rows("parts_lacking", pipeline_name=pipeline_name, sink=selection.lacks)
        for part in parts:
            ends = [end for end in (part["end_id"], after) if end is not None]
            yield from self._rows(statement, **values, first_id=part["first_id"], end_id=min(ends, default=None))

    def undone(self, pipeline_name: str) -> list[Manifest]:
        """The manifests that are not done."""
        manifests = map(_manifest, self._rows("undone", pipeline_name=pipeline_name))
        return [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]

    def newest_done(self, pipeline_name: str) -> list[Row]:
        """id, run_key, done_at of the newest 100 manifests that are done and not archived."""
        return self._rows("newest_done", pipeline_name=pipeline_name)

    def newest_counts(self, pipeline_name: str) -> list[Counts]:
        """What the newest two manifests counted, of the newest 50 done ones that have read records."""
        return [Counts(**row["counts"]) for row in self._rows("newest_counts", pipeline_name=pipeline_name)]

    def published_up_to(self, pipeline_name: str) -> datetime | None:
        """The latest time before which everything is published, as far as runs say it."""
        rows = self._rows("published_up_to", pipeline_name=pipeline_name)
        return rows[0]["planned_up_to"] if rows else None

    def lost_offsets(self, pipeline_name: str) -> int:
        return int(self._rows("lost_offsets", pipeline_name=pipeline_name)[0]["offsets"])

    def with_dead_letters(
        self, pipeline_name: str, *, manifest_id: int | None = None, newest: int | None = None
    ) -> list[int]:
        """The manifests of which a sink shows dead letters, oldest first: all, the one of an id, or the newest."""
        values = {"manifest_id": manifest_id, "newest": newest}
        rows = self._rows("with_dead_letters", pipeline_name=pipeline_name, **values)
        return sorted(row["id"] for row in rows)

    def hand_out(self, manifests: Sequence[Manifest], dag_run: str) -> list[int]:
        """Note which run of Airflow is to process these manifests; without those that another run has got meanwhile."""
        ids, before = [manifest.id for manifest in manifests], [manifest.dag_run for manifest in manifests]
        with self.transaction():
            rows = self._rows("hand_out", manifests=ids, dag_runs=before, dag_run=dag_run)
        return sorted(row["id"] for row in rows)

    def states(self, pipeline_name: str) -> dict[ManifestState, Row]:
        """By state that a manifest is in: ``manifests`` (how many, archived ones too), ``last_done``."""
        return {ManifestState(row.pop("state")): row for row in self._rows("states", pipeline_name=pipeline_name)}

    def add_up_sums(self, pipeline_name: str) -> None:
        """Make few rows of those that each manifest has added to the sums of what is done; may be repeated."""
        self._rows("add_up_sums", pipeline_name=pipeline_name)

    def wrong_sums(self, pipeline_name: str) -> bool:
        """Whether the sums of what is done are not what the manifests add up to: somebody changed the tables."""
        return bool(self._rows("wrong_sums", pipeline_name=pipeline_name))

    def store_audit(
        self, pipeline_name: str, began: datetime, *, deep: bool, differences: int, first: Sequence[Row]
    ) -> None:
        """Unless one that began later is stored; ``first``: manifest_id, what, next_step of some of the differences."""
        values = {"began": began, "differences": differences, "first_differences": Jsonb(list(first))}
        self._rows("store_audit", pipeline_name=pipeline_name, deep=deep, actor=self.actor, **values)

    def last_audits(self, pipeline_name: str) -> list[Row]:
        """The last audit and the last ``deep`` one, newest first: at, actor, deep, differences, first_differences."""
        return self._rows("last_audits", pipeline_name=pipeline_name)

    def note_failed_task(self, pipeline_name: str, task: str, what: str, next_step: str, *, refused: bool) -> None:
        """Keep why the newest ``plan`` or ``close`` of a pipeline failed, until one succeeds; ``refused``: or until a
        person decides."""
        values = {"task": task, "actor": self.actor, "what": what, "next_step": next_step, "refused": refused}
        self._rows("note_failed_task", pipeline_name=pipeline_name, **values)

    def note_begun_task(self, pipeline_name: str, task: str, run_key: str) -> None:
        """A ``plan`` or ``close`` has begun; what is noted of an earlier one that failed stays."""
        self._rows("note_begun_task", pipeline_name=pipeline_name, task=task, actor=self.actor, run_key=run_key)

    def forget_begun_task(self, pipeline_name: str, task: str) -> None:
        """It has ended, and not failed."""
        self._rows("forget_begun_task", pipeline_name=pipeline_name, task=task)

    def forget_failed_plan_of(self, pipeline_name: str, run_key: str) -> None:
        """The run of this key is stored: what hindered its plan, or one before it began, is over."""
        self._rows("forget_failed_plan_of", pipeline_name=pipeline_name, run_key=run_key)

    def forget_refused_plan(self, pipeline_name: str) -> None:
        """A person has decided what a plan was refused for."""
        self._rows("forget_refused_plan", pipeline_name=pipeline_name)

    def forget_failed_task(self, pipeline_name: str, task: str) -> None:
        """A ``plan`` or ``close`` has succeeded."""
        self._rows("forget_failed_task", pipeline_name=pipeline_name, task=task)

    def failed_tasks(self, pipeline_name: str) -> list[Row]:
        """Why no plan, or no close, succeeds: task, since, at (the newest), times, actor, what, next_step, refused.

        With 0 ``times``, one has begun at ``since`` and has not ended.
        """
        return self._rows("failed_tasks", pipeline_name=pipeline_name)

    def planned_at(self, pipeline_name: str) -> Row:
        """When a plan succeeded: ``first``, ``last``, and ``last_without_time``: of those that reached their cut, and
        stand for no time."""
        [row] = self._rows("planned_at", pipeline_name=pipeline_name)
        return row

    def made_otherwise(self, pipeline_name: str, sinks: Sequence[str], fingerprints: Sequence[str]) -> list[int]:
        """The done manifests with a publication by settings of another fingerprint; pinned schemas are left out.

        A fingerprint has the settings of all sinks of its attempt: one with another sink than ``sinks`` tells nothing.
        """
        rows = self._rows(
            "made_otherwise", pipeline_name=pipeline_name, sinks=list(sinks), fingerprints=list(fingerprints)
        )
        return [row["id"] for row in rows]

    def last_took(self, pipeline_name: str) -> float | None:
        """Seconds from start to end of the newest done manifest's published attempt; None without one."""
        rows = self._rows("last_took", pipeline_name=pipeline_name)
        return float(rows[0]["seconds"]) if rows else None

    def lanes(self, pipeline_name: str) -> list[Row]:
        """Each chain, also retired ones, with ``anchor`` and ``end_offset``."""
        return self._rows("lanes", pipeline_name=pipeline_name)

    def parts_not_done(self, pipeline_name: str) -> list[Row]:
        """What is lost or not done of each chain: chain_id, start, end, state, first_manifest, manifests (how many)."""
        return self._rows("parts_not_done", pipeline_name=pipeline_name)

    def parts_with_dead_letters(self, pipeline_name: str, manifests: int) -> list[Row]:
        """What has dead letters of each chain, of so many of the newest manifests that have some: chain_id, start, end,
        records, manifest_id. What is archived is left out."""
        return self._rows("parts_with_dead_letters", pipeline_name=pipeline_name, manifests=manifests)

    def periods(self, pipeline_name: str, start: datetime, end: datetime, seconds: int) -> list[Row]:
        """Runs and manifests by period of so many seconds, numbered from 0 at ``start``: period, state, number,
        first_manifest and records read; a row whose state is None has the number of runs."""
        return self._rows("periods", pipeline_name=pipeline_name, start=start, end=end, seconds=seconds)

    def undone_before(self, pipeline_name: str, until: datetime) -> Row:
        """How many manifests of runs up to a time are not done, as ``number``, and the ``first_manifest`` of them."""
        return self._rows("undone_before", pipeline_name=pipeline_name, until=until)[0]

    def recent_run(self, pipeline_name: str, runs: int) -> datetime | None:
        """The time up to which the oldest of so many of the newest runs read; None when no run says it."""
        time_: datetime | None = self._rows("recent_run", pipeline_name=pipeline_name, runs=runs)[0]["planned_up_to"]
        return time_

    def published_sums(self, pipeline_name: str) -> Row:
        """``read``, ``written`` and ``dead_lettered`` records of what is published, in one sink of each manifest."""
        return self._rows("published_sums", pipeline_name=pipeline_name)[0]

    def sums_of_hours(self, pipeline_name: str) -> Row:
        """``late`` rows, and how many hours are ``incomplete``."""
        return self._rows("sums_of_hours", pipeline_name=pipeline_name)[0]

    def pipelines(self, *, retired: bool = False) -> list[str]:
        """The pipelines that were ever planned; ``retired``: those too."""
        return [row["name"] for row in self._rows("pipelines", retired=retired)]

    def retired_at(self, pipeline_name: str) -> datetime | None:
        """When a pipeline was retired; None for one that stands or was never planned."""
        rows = self._rows("retired_at", pipeline_name=pipeline_name)
        return rows[0]["retired_at"] if rows else None

    def retire_pipeline(self, pipeline_name: str, *, retired: bool) -> None:
        self._rows("retire_pipeline", pipeline_name=pipeline_name, retired=retired)

    def former_names(self, pipeline_name: str) -> list[Row]:
        """name, pipeline (its name now), until, in_targets: of each name that the pipeline had before ``rename``, and
        of this one when it is itself such a name."""
        return self._rows("former_names", pipeline_name=pipeline_name)

    def rename_pipeline(self, old: str, new: str) -> None:
        """Give a pipeline another name, here and not in its targets: ``end_pipeline_rename`` follows when they have it
        too. Needs an open transaction that holds ``lock_planning`` of both names."""
        self._rows("rename_pipeline", old=old, new=new)

    def end_pipeline_rename(self, new: str) -> None:
        self._changed("end_pipeline_rename", new=new)

    def planned_alike(self, pipeline_name: str, targets: Mapping[str, str], fingerprints: Sequence[str]) -> list[Row]:
        """name, topics, shared_with of other pipelines with these sinks (target by name) and settings."""
        names = list(targets)
        return self._rows(
            "planned_alike", pipeline_name=pipeline_name, names=names, targets=list(targets.values()),
            fingerprints=list(fingerprints),
        )  # fmt: skip

    def manifest(self, manifest_id: int) -> Manifest:
        manifests = self.manifests(ids=[manifest_id])
        if not manifests:
            raise NotFound(
                "there is no such manifest", next_step="list them with: tidemark manifests", manifest=manifest_id
            )
        return manifests[0]

    def incarnations(self, manifest_id: int) -> list[tuple[str, int, int]]:
        """(topic, partition, incarnation) of each range of a manifest."""
        rows = self._rows("incarnations", manifest_id=manifest_id)
        return [(row["topic"], row["partition"], row["incarnation"]) for row in rows]

    def published_objects(
        self, pipeline_name: str | None = None, ids: Sequence[int] | None = None
    ) -> list[tuple[int, str, PublishedObject]]:
        """(manifest id, lake root, object) of every published object, by manifest and path."""
        rows = self._rows("published_objects", pipeline_name=pipeline_name, ids=None if ids is None else list(ids))
        return [(row["manifest_id"], row["root"], object_from(row["object"])) for row in rows]

    def evidence_apart(self, sink: str, evidence: Mapping[int, int]) -> list[int]:
        """The manifests where ``evidence`` (attempts by manifest id) is not the published attempt."""
        first = min(evidence, default=0)
        return [row["manifest_id"] for row in self._rows("evidence_apart", sink=sink, first=first, **_held(evidence))]

    def is_of_retired_sink(self, manifest_id: int, attempt: int) -> bool:
        """Whether an attempt wrote to a sink that is retired since."""
        return bool(self._rows("is_of_retired_sink", manifest_id=manifest_id, attempt=attempt)[0]["retired"])

    def out_of_step(
        self, pipeline_name: str, sink: str, evidence: Mapping[int, int], above: int = 0
    ) -> dict[int, bool]:
        """The done manifests with ids above ``above`` where the ``evidence``, attempts by manifest id, is not that of
        the published attempt; true for those without any, or with that of a lower attempt."""
        rows = self._rows("out_of_step", pipeline_name=pipeline_name, sink=sink, above=above, **_held(evidence))
        return {row["manifest_id"]: (row["evidence"] or 0) < row["published"] for row in rows}

    def half_replayed(self, pipeline_name: str, sinks: Sequence[str]) -> list[Manifest]:
        """The done manifests where one of the sinks shows an older attempt than it was to show."""
        rows = self._rows("behind", pipeline_name=pipeline_name, sinks=list(sinks)) if len(sinks) > 1 else []
        return self.manifests(ids=[row["id"] for row in rows]) if rows else []

    def target(self, target: str) -> Row | None:
        """``identity`` and ``position`` of a target when this database last published there."""
        rows = self._rows("target", target=target)
        return rows[0] if rows else None

    def other_writers(self, pipeline_name: str, target: str) -> list[str]:
        """The other pipelines with a sink, not retired, that has this target."""
        return [row["pipeline"] for row in self._rows("other_writers", pipeline_name=pipeline_name, target=target)]

    def writers(self, targets: Collection[str], *, retired: bool) -> list[tuple[str, str, str]]:
        """Pipeline, name and target of the sinks that have one of these targets; with ``retired`` also of retired ones
        that have published."""
        rows = self._rows("writers", targets=sorted(targets), retired=retired)
        return [(row["pipeline"], row["name"], row["target"]) for row in rows]

    def targets(self) -> list[str]:
        """Those of all sinks that were ever known."""
        return [row["target"] for row in self._rows("targets")]

    def remember_target(self, target: str, identity: str, position: int) -> None:
        """Store the position of a target, unless a higher one is known."""
        self._changed("remember_target", target=target, identity=identity, position=position)

    def accept_target(self, target: str, identity: str, position: int) -> None:
        """Store identity and position of a target that went back, or is another one."""
        self._changed("accept_target", target=target, identity=identity, position=position)

    def accept_damage(self, manifest_id: int, sink: str, attempt: int, paths: Sequence[str]) -> None:
        """From here on these objects of a publication are not missed; with an empty path nothing of the sink is, until
        a higher attempt is published there. The hours of the manifest are open from here on."""
        with self.transaction():
            self._rows("accept_damage", manifest_id=manifest_id, sink=sink, attempt=attempt, paths=list(paths))
            self._rows("lock_hours_of", manifest_id=manifest_id)
            self._rows("reopen_shown_hours", manifest_id=manifest_id)

    def accepted_damage(self, manifest_id: int, sink: str, attempt: int) -> frozenset[str]:
        rows = self._rows("accepted_damage", manifest_id=manifest_id, sink=sink, attempt=attempt)
        return frozenset(row["path"] for row in rows)

    def unknown_manifests(self, manifests: Sequence[int]) -> list[int]:
        """The ids that this database has no manifest of, since it was restored from an older copy."""
        return [row["id"] for row in self._rows("unknown_manifests", manifests=list(manifests))]

    def run_past(self, pipeline_name: str, until: datetime) -> Row | None:
        """id, run_key and planned_up_to of the run that planned up to ``until`` or just past it."""
        rows = self._rows("run_past", pipeline_name=pipeline_name, until=until)
        return rows[0] if rows else None

    def planned_before(self, pipeline_name: str, time: datetime) -> datetime | None:
        """The time next before another one up to which a run planned."""
        at: datetime | None = self._rows("planned_before", pipeline_name=pipeline_name, time=time)[0]["at"]
        return at

    def newest_run(self, pipeline_name: str) -> Row | None:
        """run_key and planned_up_to of the run that planned furthest."""
        rows = self._rows("newest_run", pipeline_name=pipeline_name)
        return rows[0] if rows else None

    def unpublished_parts(self, pipeline_name: str, sinks: Sequence[str], run_id: int | None) -> list[Row]:
        """Ranges below the ends of a run (None: all) that a sink lacks: manifest, state, sink, offsets."""
        return self._rows("unpublished_parts", pipeline_name=pipeline_name, sinks=list(sinks), run_id=run_id)

    def lost_parts(self, pipeline_name: str, run_id: int | None) -> list[Row]:
        """Lost ranges below the ends of a run (None: all)."""
        return self._rows("lost_parts", pipeline_name=pipeline_name, run_id=run_id)

    def attempts(self, manifest_id: int) -> list[Row]:
        return self._rows("attempts", manifest_id=manifest_id)

    def revisions(self, ids: Sequence[int]) -> dict[int, int]:
        """How often readers were given other output of published manifests: 1 is the first publication."""
        return {row["manifest_id"]: int(row["revision"]) for row in self._rows("revisions", ids=list(ids))}

    def events(self, manifest_id: int) -> list[Row]:
        return self._rows("events", manifest_id=manifest_id)

    def ranges_at(self, topic: str, partition: int, offset: int, pipeline_name: str | None = None) -> list[Row]:
        """For each chain, also retired ones, the range that holds an offset; ``kind`` is None without one."""
        return self._rows("ranges_at", topic=topic, partition=partition, offset=offset, pipeline_name=pipeline_name)

    def topics(self, pipeline_name: str | None = None) -> list[str]:
        """The topics that have a chain."""
        return [row["topic"] for row in self._rows("topics", pipeline_name=pipeline_name)]

    def highest_manifest(self, pipeline_name: str | None = None) -> int:
        return int(self._rows("highest_manifest", pipeline_name=pipeline_name)[0]["id"])

    def published_notes(self, pipeline_name: str) -> list[Row]:
        """The notes of attempts that readers see."""
        return self._rows("published_notes", pipeline_name=pipeline_name)

    def broken_chains(self, pipeline_name: str) -> list[Row]:
        return self._rows("broken_chains", pipeline_name=pipeline_name)


def _place(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["topic_id"], row["partition"])


def _chain(row: Row) -> Chain:
    return Chain(
        row["id"], _place(row), row["incarnation"], row["anchor"], row["end_offset"], row["blocked"], row["blocked_end"]
    )


def _held(evidence: Mapping[int, int]) -> dict[str, Any]:
    """Attempts by manifest id as the two parameters that queries unnest."""
    return {"manifests": list(evidence), "attempts": list(evidence.values())}


def _arrays(places: Sequence[TopicPartition]) -> dict[str, Any]:
    """Partitions as the three parameters that queries unnest."""
    return {
        "topics": [place.topic for place in places],
        "topic_ids": [place.topic_id for place in places],
        "partitions": [place.partition for place in places],
    }


def _manifest(row: Row) -> Manifest:
    columns = dict(row)
    return Manifest(
        pipeline_name=columns.pop("pipeline"),
        state=ManifestState(columns.pop("state")),
        ranges=tuple(range_from(raw) for raw in columns.pop("ranges")),
        publications=tuple(_publication(raw) for raw in columns.pop("publications")),
        unfilled=tuple(columns.pop("unfilled")),
        given_up=tuple(columns.pop("given_up")),
        archived=_archived(columns.pop("archived")),
        **columns,
    )


def _archived(raw: Row | None) -> Archived | None:
    return None if raw is None else Archived(**{**raw, "at": datetime.fromisoformat(raw["at"])})


def _publication(raw: Row) -> Publication:
    published_at = datetime.fromisoformat(raw["published_at"])
    return Publication(raw["sink"], raw["attempt"], raw["digest"], Counts(**raw["counts"]), published_at, raw["behind"])
