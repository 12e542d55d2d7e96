"""Publishes files: the key of each object belongs to one attempt only.

A lock would not help while objects move, since a paused process may go on after it has lost the lock. Instead the fence
is checked before every object, no key belongs to two attempts, and readers use the record and the publication.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemark.connections import Lookup
from tidemark.failpoints import failpoint
from tidemark.model.digest import Digest
from tidemark.model.findings import Finding, disk_space, existing, failed, ok
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.paths import Layout, ObjectName
from tidemark.sinks.base import Contents, Expected, Fence, Sink
from tidemark.sinks.capabilities import CompleteHour, Leftover, ShowsHours
from tidemark.sinks.dead_letters import PAGE, PAGE_OF_VALUES, DeadLetter, columns_of, dead_letter
from tidemark.sinks.files.audit import differences_of_files
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.sinks.files.leftovers import leftovers
from tidemark.sinks.files.locate import locate
from tidemark.sinks.files.settings import Settings
from tidemark.sinks.files.success import hide, name_shown, show_complete
from tidemark.sinks.files.writer import too_many_objects
from tidemark.sinks.located import Located
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.owner_file import claim_in, note_replaces_in, replaces_in
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.objects_output import ObjectsOutput
from tidemark.storage.base import Move, ObjectStore, is_s3
from tidemark.storage.open import open_store

READERS = 4  # files that are compared at once: a store answers them side by side, and each holds 64 Ki rows in memory


class FilesLedger(StoreLedger):
    """The ledger of a lake that is tried before it gets an owner: ``replaces`` says for what."""

    def __init__(self, pipeline_name: str, settings: Settings, store: ObjectStore) -> None:
        super().__init__(pipeline_name, settings.name, settings.target, store)
        self._replaces = settings.success_files

    def claim(self, database_id: str) -> None:
        if replaces_in(self.store) is None:
            self.store.check(replaces=self._replaces)
            claim_in(self.store, database_id, replaces=self._replaces)


class FilesOutput(ObjectsOutput, ShowsHours):
    """The files of one sink in its lake."""

    def __init__(self, settings: Settings, ledger: StoreLedger) -> None:
        super().__init__(ledger)
        self.max_objects = settings.max_objects
        self._layout = Layout(settings.layout)
        self._success_files = settings.success_files
        self._replaces = False  # until the store is known to do what success files need

    @property
    def root(self) -> str:
        """The folder, or the bucket and prefix, to which keys are relative."""
        return self.store.root

    def note_settings(self) -> None:
        """A lake that was taken before it needed success files, or by a version that did not note it, is tried once."""
        if self._success_files and not self._replaces:
            if not replaces_in(self.store):
                self.store.check(replaces=True)
                note_replaces_in(self.store)
            self._replaces = True

    def has(self, receipt: Receipt) -> bool:
        return self.store.has({object_.path: object_.bytes for object_ in receipt.objects_of(self.name)})

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        gone = super().damaged(receipt)
        present = [part for part in receipt.objects_of(self.name) if part not in gone]
        return [*gone, *self._changed(present)]

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Reads all published files: each has its rows as written, and each folder the rows and format of ``now``."""
        objects = before.objects_of(self.name)
        if _digests_by_place(objects) != _digests_by_place(now.objects_of(self.name)):
            return False
        return self.has(before) and not self._changed(objects)

    def _changed(self, objects: Sequence[PublishedObject]) -> list[PublishedObject]:
        """The objects that have not their rows as they were written; reads all of them, some at once."""
        with ThreadPoolExecutor(READERS) as pool:
            digests = list(pool.map(self._digest_at, [object_.path for object_ in objects]))
        return [object_ for object_, digest in zip(objects, digests, strict=True) if digest != object_.digest]

    def _digest_at(self, path: str) -> str | None:
        try:
            with self.store.open(path) as file:
                return str(format_of(path).digest(file))
        except (Unreadable, OSError):
            return None

    def place(self, receipt: Receipt, fence: Fence) -> None:
        objects = receipt.objects_of(self.name)
        if len(objects) > self.max_objects:
            what = f"the manifest has {len(objects):,} objects"
            context = {"pipeline": self.pipeline_name, "manifest": receipt.manifest_id, "sink": self.name}
            raise too_many_objects(what, self.max_objects, context)
        moves = [Move(object_.staged, object_.path, object_.bytes) for object_ in objects]
        self.store.move_each(moves, fence, lambda: failpoint("publish.mid"))
        self.store.sync(object_.path for object_ in objects)

    def keys(self, receipt: Receipt) -> list[str]:
        return [object_.path for object_ in receipt.objects_of(self.name)]

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        del contents  # an unknown file is told by its key
        return differences_of_files(expected, self, self.store, deep=deep)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        del manifest
        return locate(self.store, self.pipeline_name, published, receipt, at, offset)

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        columns, page = columns_of(values=values), PAGE_OF_VALUES if values else PAGE
        for object_ in self.parts(receipt, ObjectKind.DEAD_LETTER):
            with self.store.open(object_.path) as file:
                try:
                    yield from map(dead_letter, format_of(object_.path).dead_letters(file, columns, page))
                except Unreadable as error:
                    raise OSError(f"{object_.path} cannot be read: {error}") from error

    def shows_hours(self) -> bool:
        return self._success_files

    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        self.note_settings()  # success files may have come into the pipeline file after the plan
        for topic in topics:
            show_complete(self.store, self.pipeline_name, self._layout, topic, hour)

    def hide(self, topics: Sequence[str], hour: datetime, whose: Collection[str | None]) -> None:
        for topic in topics:
            hide(self.store, self._layout.folder(self.pipeline_name, topic, hour), whose)

    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        return path.startswith(self._layout.folder(self.pipeline_name, topic, hour) + "/")

    def name_shown(self, folder: str, whose: str, names: Collection[str]) -> None:
        below = f"{self.root}/"
        if folder.startswith(below):
            name_shown(self.store, self.pipeline_name, folder.removeprefix(below), whose, names)

    def leftovers(self, expected: Expected) -> list[Leftover]:
        return leftovers(expected, self.ledger, self.store)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        root = Path(self.root)
        if is_s3(self.root) or root.is_dir():
            self.store.check(replaces=self._success_files)
            yield from super().rehearse(decode, transforms)
        elif os.access(existing(root), os.W_OK | os.X_OK):
            yield ok(self.name, f"{root} does not exist yet; the first plan creates it")
        else:
            yield failed(
                self.name,
                f"{root} does not exist and cannot be created in {existing(root)}",
                "give this user the right",
            )
        if not is_s3(self.root):
            yield from disk_space(self.name, root)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.root, settings.store_settings(), lookup)
    ledger = FilesLedger(pipeline_name, settings, store)
    return Sink(ledger, FolderStaging(store), FilesOutput(settings, ledger))


def _digests_by_place(objects: Iterable[PublishedObject]) -> dict[tuple[str, str], Digest]:
    """The digest of all rows by folder and suffix. Mended settings may move a row to another folder of the same set."""
    digests: dict[tuple[str, str], Digest] = {}
    for object_ in objects:
        folder, _, file_name = object_.path.rpartition("/")
        name = ObjectName.parse(file_name)
        place = folder, name.format if name else ""
        digests[place] = digests.get(place, Digest.zero()) + Digest.parse(object_.digest)
    return digests
