"""Publishing files: each object of an attempt lies at a key that belongs to that attempt alone.

No lock is held while objects move: a paused process may wake after its session died. So the attempt is compared again
before every object, a key never belongs to two attempts, and readers are told by the record and the publication.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

import pyarrow.parquet as pq
from pyarrow import ArrowException, fs

from tidemark.digest import row_digest
from tidemark.errors import DatabaseBehindLake, ForeignLake, TidemarkError
from tidemark.failpoints import failpoint
from tidemark.layout import OWNER, RECORDS, STAGING, RecordName, staging_folder
from tidemark.model import Receipt, range_from
from tidemark.objectstore import ObjectStore, open_store
from tidemark.offsets import Range

Fence = Callable[[], None]


class FilesSink:
    """One files sink of one pipeline, seen from the process that publishes."""

    def __init__(self, pipeline: str, name: str, root: str) -> None:
        self.pipeline = pipeline
        self.name = name
        self.store: ObjectStore = open_store(root)

    @property
    def root(self) -> str:
        return self.store.root

    def claim(self, database_id: str) -> None:
        """Make the root this database's own, or raise ``ForeignLake``; safe to repeat."""
        owner = json.dumps({"database": database_id, "about": "this lake root is written by one Tidemark database"})
        if self.store.put_if_absent(OWNER, owner.encode()):
            return
        found = self.owner()
        if found != database_id:
            raise ForeignLake(
                f"the lake {self.root} belongs to another manifest database ({found}), this one is {database_id}",
                next_step="check TIDEMARK_DB and the root of the sink; two databases in one lake would count twice. "
                f"To bring the lake into an empty database: tidemark adopt {self.pipeline} --why TEXT",
                pipeline=self.pipeline,
                sink=self.name,
            )

    def owner(self) -> str | None:
        """The database the root belongs to, None while it belongs to nobody."""
        content = self.store.get(OWNER)
        return None if content is None else str(json.loads(content)["database"])

    def highest_record(self, *, own: bool = False) -> int:
        """The highest manifest id that any record in the lake names (``own``: of this pipeline), 0 without one."""
        folder = f"{RECORDS}/{self.pipeline}" if own else RECORDS
        names = (RecordName.parse(key) for key, _ in self.store.list(folder))
        return max((name.manifest for name in names if name), default=0)

    def refuse_records_beyond(self, manifest: int, record: int) -> None:
        """A lake that knows more manifests than the database means an older database was restored."""
        if record > manifest:
            raise DatabaseBehindLake(
                f"the lake {self.root} holds a record of manifest {record}, this database ends at {manifest}",
                next_step="the database was restored from an older copy; nothing was planned. Read them back with: "
                f"tidemark adopt {self.pipeline} --why TEXT",
                pipeline=self.pipeline,
                sink=self.name,
            )

    def recorded_attempt(self, manifest: int) -> int | None:
        """The highest attempt that left a record of this manifest in the lake: what readers without a database see."""
        names = (RecordName.parse(key) for key, _ in self.store.list(f"{RECORDS}/{self.pipeline}"))
        return max((name.attempt for name in names if name and name.manifest == manifest), default=None)

    def refuse_attempts_beyond(self, manifest: int, attempt: int, recorded: int | None) -> None:
        """An attempt in the lake that the database never gave out: its number would be given out again."""
        if recorded is not None and recorded > attempt:
            raise DatabaseBehindLake(
                f"the lake {self.root} holds a record of attempt {recorded}, this database ends at attempt {attempt}",
                next_step="the database was restored from an older copy; nothing was started. Read them back with: "
                f"tidemark adopt {self.pipeline} --why TEXT",
                pipeline=self.pipeline,
                manifest=manifest,
                sink=self.name,
            )

    def has_record(self, receipt: Receipt) -> bool:
        """Whether the record of the receipt's attempt lies in the lake and says the same."""
        content = self.store.get(str(RecordName(self.pipeline, receipt.manifest_id, receipt.attempt)))
        try:
            return content is not None and json.loads(content)["digest"] == receipt.digest(self.name)
        except (ValueError, KeyError, TypeError):
            return False

    def recorded_ranges(self, receipt: Receipt) -> tuple[Range, ...]:
        """The ranges that the record of the receipt's attempt says it covers; none without a record."""
        content = self.store.get(str(RecordName(self.pipeline, receipt.manifest_id, receipt.attempt)))
        return () if content is None else tuple(range_from(one) for one in json.loads(content)["ranges"])

    def holds(self, receipt: Receipt) -> bool:
        """Whether the record is there, and every object of the receipt at its key with its size."""
        return self.has_record(receipt) and self.has_objects(receipt)

    def has_objects(self, receipt: Receipt) -> bool:
        """Whether every object of the receipt lies at its key with its size."""
        return all(self.store.size(one.path) == one.bytes for one in receipt.objects_of(self.name))

    def intact(self, receipt: Receipt) -> bool:
        """``holds``, and every object read back has the rows it was written with; as slow as reading them all."""
        objects = receipt.objects_of(self.name)
        return self.holds(receipt) and all(self._digest_at(one.path) == one.digest for one in objects)

    def _digest_at(self, path: str) -> str | None:
        try:
            with fs.LocalFileSystem().open_input_file(f"{self.root}/{path}") as file:
                return str(row_digest(pq.read_table(file)))
        except (ArrowException, OSError):
            return None

    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence) -> None:
        """Steps 2 and 3: every object to its key, all durable, then the record; failing, it takes its own back."""
        objects = receipt.objects_of(self.name)
        try:
            for one in objects:
                fence()
                self.store.move(one.staged, one.path, one.bytes)
                failpoint("publish.mid")
            self.store.sync(one.path for one in objects)
            failpoint("publish.before_record")
            fence()
            self.write_record(receipt, ranges, database_id)
        except BaseException:
            with suppress(TidemarkError):
                if not self.has_record(receipt):
                    self.discard(receipt)
            raise

    def write_record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> None:
        """The record of an attempt, whole and durable: from here on a reader of records counts its objects."""
        name = RecordName(self.pipeline, receipt.manifest_id, receipt.attempt)
        self.store.put(str(name), self._record(receipt, ranges, database_id))

    def _record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> bytes:
        record = {
            "pipeline": self.pipeline,
            "manifest": receipt.manifest_id,
            "attempt": receipt.attempt,
            "database": database_id,
            "ranges": [asdict(one) for one in ranges],
            "counts": asdict(receipt.counts(self.name, ranges)),
            "digest": receipt.digest(self.name),
            "partitions": [asdict(one) for one in receipt.partitions],
            "hours": receipt.hours,
            "objects": [
                {name: value for name, value in asdict(one).items() if name not in ("sink", "staged")}
                for one in receipt.objects_of(self.name)
            ],
        }
        return json.dumps(record, indent=1, sort_keys=True).encode()

    def discard(self, receipt: Receipt) -> None:
        """Remove all that an attempt which is not published left here.

        The record goes first, so that no record ever names an object that is gone; staging goes last, so that what
        dies on the way is found again by ``sweep``.
        """
        self.store.delete([str(RecordName(self.pipeline, receipt.manifest_id, receipt.attempt))])
        self.store.delete(one.path for one in receipt.objects_of(self.name))
        self.clear_staging(receipt.manifest_id, receipt.attempt)

    def staged_manifests(self) -> list[int]:
        """The manifests of all pipelines that have something in staging, also an empty folder."""
        return [int(name) for name in self.store.folders(STAGING) if name.isdecimal()]

    def clear_staging(self, manifest: int, attempt: int) -> None:
        self.store.delete_folder(staging_folder(manifest, attempt))
