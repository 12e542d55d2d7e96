"""Publishes totals per key into DynamoDB: contributions, not increments, 49 keys at a time.

DynamoDB changes at most 100 items together, so a manifest with more keys is put in several calls. The numbers are those
of ``lifecycle/publish.py``:

1. The keys of the attempt are stored, then its *intent*: the marker of the manifest names the attempt and its digest,
   as a token. Only over lower attempts. Neither goes over another attempt of the same number: its token is another one.
2. Every call changes contributions and totals of some keys, and checks the marker in the same transaction. So a paused
   attempt changes nothing once a higher one has stored its intent. Keys that lower attempts have listed, and this one
   has not, are emptied. What this attempt has put before, of which only the answer was lost, stays.
3. The marker says that the attempt is there whole, with its record.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.connections import Lookup
from tidemark.errors import Fenced, SinkRefused, Unavailable, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.digest import Digest, row_digest
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Manifest, Publication, count_of
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.paths import ObjectName, RecordName, staging_folder
from tidemark.sinks.aggregates.groups import combined
from tidemark.sinks.aggregates.value_columns import WINDOW
from tidemark.sinks.base import Contents, Expected, Fence, Ledger, Mark, Owner, Position, Record, Sink, Work, WriteMode
from tidemark.sinks.capabilities import DerivesTotals, EndsHalfWay, KeepsDeadLetterFiles
from tidemark.sinks.dynamodb.audit import differences_of_dynamodb
from tidemark.sinks.dynamodb.client import Changed, Dynamo
from tidemark.sinks.dynamodb.items import (
    DIGITS,
    KeyGroup,
    TooManyDigits,
    decimals_of,
    group_of_item,
    group_of_row,
    is_of_kind,
    key_text,
    kind_of,
)
from tidemark.sinks.dynamodb.markers import Markers, OwnerNote
from tidemark.sinks.dynamodb.settings import Settings
from tidemark.sinks.dynamodb.tables import Tables
from tidemark.sinks.dynamodb.totals import KEYS_OF_A_CALL, Putting, Totals
from tidemark.sinks.dynamodb.writer import WITH_DIGEST
from tidemark.sinks.located import Located, RecordStatus
from tidemark.sinks.object_store.own_staging import OwnStaging
from tidemark.sinks.object_store.published_files import changed
from tidemark.storage.base import Move, ObjectStore
from tidemark.storage.s3_client import access
from tidemark.transforms.sequence import columns_after

TRIES = 30  # of a call on items that others change at the same time
ITEM_BYTES = 350_000  # of the text in one item; DynamoDB takes 400 KB, names and numbers included
CALL_BYTES = 3_000_000  # of the text in one call; DynamoDB takes 4 MB
CHECKSUMS = 2**64
GIVEN_UP = "given up"  # in the place of a digest
_OF_A_PLACE = {"_topic": pa.string(), "_partition": pa.int32(), WINDOW: pa.timestamp("us", "UTC")}


class DynamoLedger(Ledger):
    """The markers of a table of contributions: an item for each manifest, and one for the owner."""

    def __init__(self, pipeline_name: str, settings: Settings, tables: Tables, markers: Markers) -> None:
        super().__init__(pipeline_name, settings.name, settings.target)
        self.settings = settings
        self.tables = tables
        self.markers = markers

    @property
    def context(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline_name, "sink": self.name, "table": self.settings.table}

    def owner(self) -> Owner | None:
        return self.markers.owner()

    def claim(self, database_id: str) -> None:
        """Raises ``SinkRefused`` when there are items, and nothing says whose they are."""
        self.tables.ensure()
        if self.markers.owner() is None:
            self.refuse_unowned()
            self.markers.take(Owner(database_id), self.pipeline_name, self.settings.aggregate.definition())

    def refuse_unowned(self) -> None:
        """Raise ``SinkRefused`` when there are items, and nothing says whose they are."""
        if self.tables.are_empty() or self.markers.owner() is not None:  # another process may have been quicker
            return
        tables = f"{self.settings.table} and {self.settings.contributions}"
        raise SinkRefused(
            f"there are items in {tables}, and nothing says any more which manifests they are of: new ones would be "
            "added to them",
            next_step="nothing was written; restore both tables from copies of the same moment; or, when the records "
            "of all items are to be read again, delete the items of both, or both tables, then: tidemark retry "
            f"{self.pipeline_name}; or give this sink another table and another name",
            **self.context,
        )

    def hand_over(self, owner: Owner) -> None:
        self.markers.hand_over(owner)

    def noted_targets(self) -> set[str]:
        noted = self.markers.noted(OwnerNote.TARGET)
        return set() if noted is None else {noted}

    def note_target(self) -> None:
        self.markers.note(OwnerNote.TARGET, self.target, self.markers.noted(OwnerNote.TARGET))

    def position(self) -> Position | None:
        """Of the table of contributions; another table in the place of one of the two is another target."""
        position, noted = self.markers.position(), self.markers.noted(OwnerNote.TABLES)
        if position is None or noted is None or (now := self.tables.identity()) == noted:
            return position
        return replace(position, identity=f"{position.identity} with the tables {now}")

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        del own  # no other pipeline writes to these tables
        markers = self.markers.all(above).items()
        return [RecordName(self.pipeline_name, id_, marker.attempt) for id_, marker in markers if marker.attempt]

    def recorded_attempt(self, manifest_id: int) -> int | None:
        marker = self.markers.of(manifest_id)
        return None if marker is None else marker.attempt

    def record(self, name: RecordName) -> dict[str, Any] | None:
        marker = self.markers.of(name.manifest_id)
        return marker.content() if marker and marker.attempt == name.attempt else None

    def rename_pipeline(self, old: str) -> None:
        """The owner of the tables has the name."""
        self.markers.rename_pipeline(old, self.pipeline_name)


class DynamoStaging(OwnStaging):
    """Its root keeps the dead letters too; those that an older version has left elsewhere come there first."""

    def __init__(self, pipeline_name: str, settings: Settings, markers: Markers, lookup: Lookup) -> None:
        super().__init__(settings.staging, pipeline_name, settings.name, settings.store_settings(), lookup)
        self._settings = settings
        self._markers = markers

    def claim(self, database_id: str) -> None:
        super().claim(database_id)
        self._take_former(self._pipeline_name)

    def rename(self, pipeline_name: str, sink_name: str, owner: Owner) -> None:
        super().rename(pipeline_name, sink_name, owner)
        if pipeline_name != self._pipeline_name:
            self._take_former(pipeline_name)

    @cached_property
    def kept(self) -> ObjectStore:
        """Where the dead letters are. Raises ``ForeignLake`` when those there are of another database."""
        owner = self._markers.owner()
        if owner is not None:
            self.refuse_apart(owner)
        self._take_former(self._pipeline_name)
        return self.store

    def _take_former(self, pipeline_name: str) -> None:
        owner = self._markers.owner()
        if owner is not None:
            self.take_dead_letters(self._settings.former_folder(pipeline_name), owner, self._is_recorded)

    def _is_recorded(self, path: str) -> bool:
        """Whether the marker of its manifest names the file: other sinks may have used its folder too."""
        name = ObjectName.parse(path)
        marker = self._markers.of(name.manifest_id) if name else None
        content = (marker.content() if marker else None) or {}
        return any(part["path"] == path for part in content.get("objects", ()))


class DynamoOutput(DerivesTotals, EndsHalfWay, KeepsDeadLetterFiles):
    """The totals of one pipeline, in the two tables of one sink."""

    write_mode = WriteMode.UPSERT

    def __init__(
        self, pipeline_name: str, settings: Settings, dynamo: Dynamo, ledger: DynamoLedger, staging: DynamoStaging
    ) -> None:
        super().__init__(pipeline_name, settings.name)
        self.settings = settings
        self.target = settings.target
        self.tables = ledger.tables
        self.markers = ledger.markers
        self.context = ledger.context
        self.totals = Totals(settings, dynamo, self.markers)
        self._dynamo = dynamo
        self._ledger = ledger
        self._staging = staging
        self._store = staging.store
        self._had_none: int | None = None  # the manifest that has never contributed, as ``prepare`` found out

    def dataset(self) -> Dataset:
        """By the ARN of the table, as tables of Glue are named."""
        table = self._dynamo.call("describe_table", TableName=self.settings.table)["Table"]
        namespace, _, name = table["TableArn"].rpartition(":")
        return Dataset(namespace, name)

    def exists(self) -> bool:
        return self.tables.exist()

    def note_settings(self) -> None:
        self.refuse_other_definition()
        if self.markers.noted(OwnerNote.TABLES) is None:
            self.markers.note(OwnerNote.TABLES, self.tables.identity())
        if self.markers.noted(OwnerNote.DECIMALS) is None:
            stored = self.totals.stored_key()
            decimals = decimals_of(stored.key, stored.columns) if stored else {}
            if stored is not None and decimals is None:
                raise SinkRefused(
                    f"an older version has stored the key {stored.key} in a way that cannot be found out: a key would "
                    "have two totals",
                    next_step="nothing was written; give this sink another table and another name, then: tidemark "
                    f"fill {self.pipeline_name} NAME --why TEXT",
                    **self.context,
                )
            self.markers.note(OwnerNote.DECIMALS, json.dumps(decimals))

    def refuse_other_definition(self) -> None:
        """Raise ``SinkRefused`` when other totals are in the table, or those of another pipeline."""
        purpose = self.markers.purpose()
        if purpose is None:
            self._ledger.refuse_unowned()
            return
        self.settings.aggregate.refuse_other_totals(self.pipeline_name, *purpose, **self.context)

    def derive_again(self, *, dry_run: bool) -> Iterator[str]:
        if not self.tables.exist():
            return
        noted = self.markers.noted(OwnerNote.TABLES)
        keys = list(self.totals.wrong(self.totals.combinations()))
        try:
            for key in [] if dry_run else keys:
                self.totals.combine_again(key)
        except TooManyDigits as refused:
            raise SinkRefused(
                str(refused),
                next_step="one of its contributions was changed by hand: correct or delete that item, then repeat: "
                f"tidemark db adopt {self.pipeline_name} --why TEXT",
                **self.context,
            ) from refused
        if not dry_run:
            self.markers.note(OwnerNote.TABLES, self.tables.identity(), noted)
        if keys:
            totals = count_of(len(keys), "total")
            yield f"{self.target}: {totals} combined again from what the manifests have contributed"

    def has(self, receipt: Receipt) -> bool:
        """Whether its contributions are whole, nobody has begun to replace them, and its dead letters are kept."""
        marker = self.markers.of(receipt.manifest_id)
        dead = {part.path: part.bytes for part in self.parts(receipt, ObjectKind.DEAD_LETTER)}
        whole = marker is not None and marker.whole and marker.attempt == receipt.attempt
        return whole and self.tables.exist() and self._staging.kept.has(dead)

    def is_half(self, manifest_id: int) -> bool:
        marker = self.markers.of(manifest_id)
        return marker is not None and not marker.whole

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Whether the contributions are those that the marker tells of, the totals of their keys agree, and the dead
        letters are as they were written."""
        marker = self.markers.of(now.manifest_id)
        if marker is None or not self.has(before):
            return False
        if changed(self._staging.kept, self.parts(before, ObjectKind.DEAD_LETTER)):
            return False
        rows = checksum = 0
        decimals = self.markers.decimals()
        keys = iter(self.markers.listed_keys(now.manifest_id, before.attempt))
        while chunk := list(islice(keys, KEYS_OF_A_CALL)):
            contributions, totals = self.totals.read(chunk, now.manifest_id)
            for item in contributions.values():
                group = group_of_item(item, self.totals.key, self.totals.value_columns)
                if group.key != key_text(group.columns, decimals):
                    return False
                rows += group.rows
                checksum = (checksum + group.checksum()) % CHECKSUMS
            if not all(self.totals.is_right(key, totals.get(key)) for key in chunk):
                return False
        return (rows, str(checksum)) == (marker.rows, marker.checksum)

    def prepare(self, work: Work) -> None:
        """Checks what the columns of the key are, and finds out whether the manifest may have contributed before."""
        kinds = self._kinds(work.decode, work.transforms)
        self._refuse_other_kinds(kinds)
        self.markers.note(OwnerNote.KINDS, json.dumps(kinds))
        self._had_none = None if work.may_have_put() else work.manifest_id

    def _kinds(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> dict[str, str]:
        data = columns_after(decode, transforms).schema
        types = {field.name: field.type for field in data} | _OF_A_PLACE
        return {name: kind_of(types[name]) for name in self.totals.key}

    def _refuse_other_kinds(self, kinds: Mapping[str, str]) -> None:
        """Raise ``SinkRefused`` when keys would have another text than those that are stored: a key would have two
        totals. Numbers of any type have one text."""
        noted = self.markers.noted(OwnerNote.KINDS)
        before: Mapping[str, str] = json.loads(noted) if noted else self._stored_kinds(kinds)
        for name, kind in kinds.items():
            if before[name] == kind:
                continue
            raise SinkRefused(
                f"{name}, which is part of the key, is {kind}, and in the table it is {before[name]}: a key would have "
                "two totals",
                next_step="nothing was written; cast it in transform to what it was; or give this sink another table "
                f"and another name, then: tidemark fill {self.pipeline_name} NAME --why TEXT",
                **self.context,
            )

    def _stored_kinds(self, kinds: Mapping[str, str]) -> dict[str, str]:
        """Of a table where none are noted yet: these, as far as what is stored can be of them."""
        stored = self.totals.stored_key() if self.tables.exist() else None
        if stored is None:
            return dict(kinds)
        fitting = {name: is_of_kind(stored.columns.get(name), kind) for name, kind in kinds.items()}
        return {name: kind if fitting[name] else "something else" for name, kind in kinds.items()}

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        fence()
        marker, token = self.markers.of(receipt.manifest_id), receipt.digest(self.name)
        if marker is None or (marker.putting, marker.attempt, marker.token) != (*2 * (receipt.attempt,), token):
            if marker is not None and marker.putting > receipt.attempt:
                raise self._fenced(receipt)
            begun = marker is not None and (marker.putting, marker.token) != (receipt.attempt, token)
            had_none = self._had_none == receipt.manifest_id and not begun
            self._put(receipt, record, token, fence, had_none=had_none)
        failpoint("publish.before_mark")
        mark()

    def _put(self, receipt: Receipt, record: Record, token: str, fence: Fence, *, had_none: bool) -> None:
        """Steps 1 to 3 above."""
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        table = self._staged(receipt)
        size = self._refuse_large(receipt, table)
        keys, checksum = [], 0
        for group in self._groups(table):
            keys.append(group.key)
            checksum = (checksum + group.checksum()) % CHECKSUMS
        listed = self.markers.list_keys(manifest_id, attempt, token, keys)
        if not listed or not self.markers.begin(manifest_id, attempt, token):
            raise self._fenced(receipt)
        dead = [Move(part.staged, part.path, part.bytes) for part in self.parts(receipt, ObjectKind.DEAD_LETTER)]
        self._store.move_each(dead, fence, lambda: None)
        self._store.sync(move.key for move in dead)
        putting = Putting(manifest_id, attempt, token, self.markers.check(manifest_id, attempt, token), had_none)
        number = max(1, min(KEYS_OF_A_CALL, CALL_BYTES // (2 * size)))
        for chunk in self._chunks(manifest_id, table, keys, number):
            self._put_chunk(chunk, putting, receipt, fence)
            failpoint("publish.mid")
        failpoint("publish.before_record")
        fence()
        rows = sum(part.rows for part in self.parts(receipt, ObjectKind.DATA))
        if not self.markers.end(manifest_id, attempt, token, record, len(keys), rows, checksum):
            raise self._fenced(receipt)
        self.markers.forget_keys(manifest_id, attempt)

    def _chunks(
        self, manifest_id: int, table: pa.Table | None, keys: Sequence[str], number: int
    ) -> Iterator[dict[str, KeyGroup | None]]:
        """The groups of the attempt, then nothing for each key that only lower attempts have."""
        groups = self._groups(table)
        while chunk := list(islice(groups, number)):
            yield {group.key: group for group in chunk}
        gone = iter(sorted(set(self.markers.listed_keys(manifest_id)) - set(keys)))
        while others := list(islice(gone, number)):
            yield dict.fromkeys(others)

    def _put_chunk(self, chunk: dict[str, KeyGroup | None], putting: Putting, receipt: Receipt, fence: Fence) -> None:
        for _ in range(TRIES):
            fence()
            try:
                self.totals.put(chunk, putting)
            except Changed as changed:
                if changed.first:
                    raise self._fenced(receipt) from changed
            except TooManyDigits as refused:
                raise self._refused(
                    receipt,
                    f"{refused}, together with what other manifests have contributed",
                    "what was put of the manifest before stays, and is not put twice; filter such records, or add them "
                    "up in PostgreSQL (sinks.totals)",
                ) from refused
            else:
                return
        raise Unavailable(
            f"others have changed the same totals {TRIES} times while they were read",
            next_step="what was put stays, and is not put twice; let fewer manifests run at once, then: tidemark retry "
            f"{self.pipeline_name}",
            manifest=receipt.manifest_id,
            **self.context,
        )

    def _fenced(self, receipt: Receipt) -> Fenced:
        marker = self.markers.of(receipt.manifest_id)
        other = (
            "another attempt of this number has put other contributions, or was about to, for a database that was "
            "restored since"
        )
        if marker is not None and marker.putting > receipt.attempt:
            other = f"attempt {marker.putting} has begun to put its contributions"
        return Fenced(
            f"attempt {receipt.attempt} is fenced: {other}",
            next_step="nothing to do here if a newer attempt is at work; else the next one goes on from there: "
            f"tidemark retry {self.pipeline_name}",
            manifest=receipt.manifest_id,
            **self.context,
        )

    def _staged(self, receipt: Receipt) -> pa.Table | None:
        """The groups of all tasks, each key once; None without any. ``WorkFailed`` when they are not all there.

        A task may have staged a key many times, so keys are counted when they are combined: whenever more than twice
        ``max_keys`` groups wait in memory. Raises ``SinkRefused`` when that many keys are left.
        """
        waiting: list[pa.Table] = []
        for name in sorted({part.staged for part in self.parts(receipt, ObjectKind.DATA)}):
            for groups in self._staged_groups(receipt, name):
                waiting.append(groups)
                if sum(table.num_rows for table in waiting) > 2 * self.settings.max_keys:
                    waiting = [combined(waiting, self.totals.key, self.totals.value_columns)]
                    self._refuse_many(receipt, waiting[0].num_rows)
        table = combined(waiting, self.totals.key, self.totals.value_columns) if waiting else None
        rows = pc.sum(table.column("_rows")).as_py() if table is not None else 0
        expected = sum(part.rows for part in self.parts(receipt, ObjectKind.DATA))
        if rows != expected:
            raise self._failed(receipt, f"staging holds the groups of {rows:,} rows, the receipt says {expected:,}")
        return table

    def _staged_groups(self, receipt: Receipt, staged: str) -> Iterator[pa.Table]:
        """The groups of one task, by what the receipt says of them; ``WorkFailed`` for others."""
        name, _, expected = staged.partition(WITH_DIGEST)
        digest = Digest.zero()
        try:
            with self._store.open(f"{staging_folder(receipt.manifest_id, receipt.attempt)}/{name}") as file:
                parquet = pq.ParquetFile(file)
                for number in range(parquet.num_row_groups):
                    groups = parquet.read_row_group(number)
                    digest += row_digest(groups)
                    yield groups
        except (pa.ArrowException, OSError) as error:
            raise self._failed(receipt, f"staged groups cannot be read: {error}") from error
        if str(digest) != expected:
            raise self._failed(
                receipt,
                f"the staged groups {self._store.root}/{name} are not those that the attempt has staged: somebody has "
                "replaced them",
                "nothing was written; find what else writes there, then: ",
            )

    def _failed(self, receipt: Receipt, what: str, first: str = "") -> WorkFailed:
        return WorkFailed(
            what,
            next_step=f"{first}tidemark retry {self.pipeline_name}",
            manifest=receipt.manifest_id,
            **self.context,
        )

    def _refuse_large(self, receipt: Receipt, table: pa.Table | None) -> int:
        """Raise ``SinkRefused`` for too many keys, and for values that no item takes; the most bytes of text in one."""
        if table is None:
            return 1
        self._refuse_many(receipt, table.num_rows)
        what = next_step = ""
        size = 1
        for name in table.schema.names:
            column = table.column(name)
            if pa.types.is_decimal(column.type):
                largest = pc.max(pc.abs(column)).as_py()
                if largest is not None and largest >= 10 ** (DIGITS - column.type.scale):
                    what = f"a value of {name} has more than the {DIGITS} digits that DynamoDB keeps"
                    next_step = "filter such records, or add them up in PostgreSQL (sinks.totals)"
            elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                size += pc.max(pc.binary_length(column)).as_py() or 0
        if size > ITEM_BYTES:
            what = f"an item of {size:,} bytes of text is larger than DynamoDB keeps"
            next_step = "shorten the columns of group_by, min and max in transform"
        if what:
            raise self._refused(receipt, what, f"nothing was written; {next_step}")
        return size

    def _refuse_many(self, receipt: Receipt, keys: int) -> None:
        if keys > self.settings.max_keys:
            raise self._refused(
                receipt,
                f"the manifest contributes to at least {keys:,} keys, and max_keys is {self.settings.max_keys:,}",
                "nothing was written; group by fewer values, or raise max_keys of the sink; smaller slices make fewer "
                "keys",
            )

    def _refused(self, receipt: Receipt, what: str, next_step: str) -> SinkRefused:
        return SinkRefused(
            what,
            next_step=f"{next_step}; then: tidemark retry {self.pipeline_name}",
            manifest=receipt.manifest_id,
            **self.context,
        )

    def _groups(self, table: pa.Table | None) -> Iterator[KeyGroup]:
        decimals = self.markers.decimals()
        for batch in [] if table is None else table.to_batches(max_chunksize=1_000):
            for row in batch.to_pylist():
                yield group_of_row(row, self.totals.key, self.totals.value_columns, decimals)

    def discard(self, receipt: Receipt) -> None:
        """Removes dead letters only: contributions are not removed, a higher attempt replaces them.

        The dead letters of the attempt whose contributions are there stay: a replay that dies replaces neither.
        """
        if self._ledger.recorded_attempt(receipt.manifest_id) != receipt.attempt:
            self._staging.delete(part.path for part in self.parts(receipt, ObjectKind.DEAD_LETTER))

    def undo_partial(self, manifest_id: int, attempt: int) -> None:
        """Takes the contributions of a manifest that is not whole out of the totals; then the marker goes."""
        marker = self.markers.of(manifest_id)
        if marker is None or marker.whole:
            return
        nothing = Receipt(manifest_id, attempt, (self.name,), (), ())
        if not self.markers.begin(manifest_id, attempt, GIVEN_UP):
            raise self._fenced(nothing)
        putting = Putting(manifest_id, attempt, GIVEN_UP, self.markers.check(manifest_id, attempt, GIVEN_UP), False)
        for chunk in self._chunks(manifest_id, None, [], KEYS_OF_A_CALL):
            self._put_chunk(chunk, putting, nothing, lambda: None)
            failpoint("publish.mid")
        self.markers.forget_keys(manifest_id, attempt)
        self.markers.undo_partial(manifest_id, attempt, GIVEN_UP)

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        del contents  # contributions of unknown manifests have a next step of their own
        return differences_of_dynamodb(expected, self._ledger, self.totals, self.markers, deep=deep)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """A record is part of a total; the table of contributions says which manifests a total is made of."""
        dead_letter = self.located_dead_letter(published, receipt, at, offset)
        if dead_letter is not None:
            return dead_letter
        marker = self.markers.of(manifest.id)
        if marker is None:
            what = f"{self.settings.contributions} has no contribution of the manifest"
            return Located(self.name, published.attempt, RecordStatus.MISSING, what, place=self.target)
        what = (
            f"one of the {marker.rows:,} records that the manifest has contributed to {marker.keys:,} totals; "
            f"they are the items of {self.settings.contributions} with _manifest_id = {manifest.id}"
        )
        return Located(self.name, published.attempt, RecordStatus.HELD, what, ObjectKind.DATA, self.target)

    def dead_letter_store(self) -> ObjectStore:
        return self._staging.kept

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Asks for writes with a condition that never holds."""
        missing = self.tables.check()
        if missing:
            yield ok(self.name, f"an attempt creates {' and '.join(table.name for table in missing)}")
            return
        self.refuse_other_definition()
        self._refuse_other_kinds(self._kinds(decode, transforms))
        self.tables.try_rights()
        yield ok(self.name, "tables, keys and rights are what an attempt needs (tried, and nothing was written)")


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    context: dict[str, object] = {"pipeline": pipeline_name, "sink": settings.name, "table": settings.table}
    dynamo = Dynamo(access(settings.access(), lookup), context)
    markers = Markers(dynamo, settings.contributions)
    ledger = DynamoLedger(pipeline_name, settings, Tables(settings, dynamo, context), markers)
    staging = DynamoStaging(pipeline_name, settings, markers, lookup)
    return Sink(ledger, staging, DynamoOutput(pipeline_name, settings, dynamo, ledger, staging))
