"""Publishes files of a data lake, in folders by topic and event time, and shows readers which hours are complete."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemark.connections.lookup import Lookup
from tidemark.model.findings import Finding, disk_space, existing, failed, ok
from tidemark.model.order import TransformOrder
from tidemark.model.receipt import Receipt
from tidemark.paths import Layout, is_remote
from tidemark.sinks.base import Fence, Sink
from tidemark.sinks.capabilities import CompleteHour, ShowsHours
from tidemark.sinks.files.settings import Settings
from tidemark.sinks.files.success import hide, show_complete
from tidemark.sinks.files.writer import too_many_objects
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.owner_file import claim_in, note_replaces_in, replaces_in
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.objects_output import ObjectsOutput
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store


class FilesLedger(StoreLedger):
    """The ledger of a lake. Before the lake gets an owner, its store is checked; with success files also for
    If-Match."""

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
        self._replaces = False  # true once the store is known to do what success files need (If-Match)

    def note_settings(self) -> None:
        """Check once whether the store can replace success files, if the lake was claimed without them, or by a version
        that did not note the check."""
        if self._success_files and not self._replaces:
            if not replaces_in(self.store):
                self.store.check(replaces=True)
                note_replaces_in(self.store)
            self._replaces = True

    def place(self, receipt: Receipt, fence: Fence) -> None:
        objects = receipt.objects_of(self.name)
        if len(objects) > self.max_objects:
            what = f"the manifest has {len(objects):,} objects"
            context = {"pipeline": self.pipeline_name, "manifest": receipt.manifest_id, "sink": self.name}
            raise too_many_objects(what, self.max_objects, context)
        super().place(receipt, fence)

    def shows_hours(self) -> bool:
        return self._success_files

    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        self.note_settings()  # success_files may have been set in the pipeline file after the plan
        for topic in topics:
            show_complete(self.store, self.pipeline_name, self._layout, topic, hour)

    def hide(self, topics: Sequence[str], hour: datetime) -> None:
        for topic in topics:
            hide(self.store, self._layout.folder(self.pipeline_name, topic, hour))

    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        return path.startswith(self._layout.folder(self.pipeline_name, topic, hour) + "/")

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        root = Path(self.store.root)
        if is_remote(self.store.root) or root.is_dir():
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
        if not is_remote(self.store.root):
            yield from disk_space(self.name, root)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.root, settings.store_settings(), lookup)
    ledger = FilesLedger(pipeline_name, settings, store)
    return Sink(ledger, FolderStaging(store), FilesOutput(settings, ledger))
