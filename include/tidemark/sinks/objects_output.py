"""Puts the output of a manifest as objects into a folder or a bucket, with its record beside them.

A lock would not help while objects move, because a paused process may go on after it has lost the lock. Instead, the
fence is checked before every object, no key belongs to two attempts, and readers use the record and the publication.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.digest import Digest
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.paths import ObjectName, RecordName, staging_folder
from tidemark.sinks.base import Contents, Expected, Fence, Mark, Record
from tidemark.sinks.capabilities import TakesBack
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.located import Located, RecordStatus
from tidemark.sinks.object_store.audit import differences_of_files
from tidemark.sinks.object_store.leftovers import Leftover, leftovers
from tidemark.sinks.object_store.published_files import changed, dead_letters_in, holds
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.storage.base import Move, ObjectStore


class ObjectsOutput(TakesBack):
    """The objects of receipts in the store of a ``StoreLedger``: files named by ``ObjectName``. Readers of records see
    the objects that a record names."""

    def __init__(self, ledger: StoreLedger) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self.ledger, self.store = ledger, ledger.store

    def place(self, receipt: Receipt, fence: Fence) -> None:
        """Move the staged objects of an attempt to their final keys, durably; may be repeated after a kill at any
        point."""
        objects = receipt.objects_of(self.name)
        moves = [Move(object_.staged, object_.path, object_.bytes) for object_ in objects]
        self.store.move_each(moves, fence, lambda: failpoint("publish.mid"))
        self.store.sync(object_.path for object_ in objects)

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self.store.root)

    def exists(self) -> bool:
        return True

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Do steps 2 to 4: move every object to its key, make all durable, write the record, then set the mark."""
        self.place(receipt, fence)
        failpoint("publish.before_record")
        fence()
        self.ledger.refuse_foreign(record["database"])  # it may have been adopted since the attempt began
        self.write_record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt), record)
        failpoint("publish.before_mark")
        mark()

    def write_record(self, name: RecordName, record: Record) -> None:
        self.store.put(str(name), json.dumps(record, indent=1, sort_keys=True).encode())

    def remove_record(self, name: RecordName) -> None:
        self.store.delete([str(name)])

    def discard(self, receipt: Receipt) -> None:
        """Remove the record first, so that no record names a removed object. Stop uploads before objects are removed,
        so that a paused attempt can no longer complete one. If the attempt did not write to this sink, a record of it
        here is of a retired sink, and stays."""
        if self.name in receipt.sinks:
            self.remove_record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        self.store.stop_uploads(staging_folder(receipt.manifest_id, receipt.attempt))
        self.store.delete(object_.path for object_ in receipt.objects_of(self.name))

    def has(self, receipt: Receipt) -> bool:
        return self.store.has({object_.path: object_.bytes for object_ in receipt.objects_of(self.name)})

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        missing = self.missing(receipt)
        return [*missing, *changed(self.store, [part for part in receipt.objects_of(self.name) if part not in missing])]

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Read all published files, and return whether each has its rows as written, and each folder has the rows and
        format of ``now``."""
        objects = before.objects_of(self.name)
        if _digests_by_place(objects) != _digests_by_place(now.objects_of(self.name)):
            return False
        return self.has(before) and not changed(self.store, objects)

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        del contents  # an unknown file is reported by its key
        return differences_of_files(expected, self, self.store, deep=deep)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """Read every file that may have the record, until one does."""
        del manifest
        damaged: list[str] = []
        for object_ in receipt.objects_of(self.name):
            try:
                if holds(self.store, object_, at, offset):
                    what = "a row" if object_.kind is ObjectKind.DATA else "a dead letter"
                    place = f"{self.store.root}/{object_.path}"
                    return Located(self.name, published.attempt, RecordStatus.HELD, what, object_.kind, place)
            except OSError as error:
                damaged.append(str(error))
        if not damaged and any(partition.gap_count > len(partition.gaps) for partition in receipt.partitions):
            what = "no file holds it, and the manifest has more gaps than its receipt lists"
            return Located(self.name, published.attempt, RecordStatus.NO_RECORD, what)
        what = "; ".join(damaged) or "no published file holds it"
        what = f"{what}; next: tidemark audit {self.pipeline_name} --deep"
        return Located(self.name, published.attempt, RecordStatus.MISSING, what)

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        return dead_letters_in(self.store, self.parts(receipt, ObjectKind.DEAD_LETTER), values=values)

    def leftovers(self, expected: Expected) -> list[Leftover]:
        return leftovers(expected, self.ledger, self.store)

    def remove(self, keys: Sequence[str]) -> None:
        self.store.delete(keys)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Try what publishing needs (create if absent, move, remove) with a name that readers skip."""
        del decode, transforms
        yield ok(self.name, try_moves(self.store, f".doctor-{uuid4().hex}"))


def try_moves(store: ObjectStore, key: str) -> str:
    """Try what publishing needs with an object of this key; return the message about it."""
    try:
        store.put_if_absent(key, b"probe")
        store.move(key, f"{key}-moved", len(b"probe"))
    finally:
        store.delete([key, f"{key}-moved"])
    return "objects can be created once, moved and removed (tried)"


def _digests_by_place(objects: Iterable[PublishedObject]) -> dict[tuple[str, str], Digest]:
    """Return the digest of all rows by folder and suffix: corrected settings may move a row to another folder."""
    digests: dict[tuple[str, str], Digest] = {}
    for object_ in objects:
        folder, _, file_name = object_.path.rpartition("/")
        name = ObjectName.parse(file_name)
        place = folder, name.format if name else ""
        digests[place] = digests.get(place, Digest.zero()) + Digest.parse(object_.digest)
    return digests
