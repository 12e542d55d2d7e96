"""Puts the output of a manifest as objects of a folder or a bucket, and its record beside them, as in a lake."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok
from tidemark.model.order import TransformOrder
from tidemark.model.receipt import Receipt
from tidemark.paths import RecordName, staging_folder
from tidemark.sinks.base import Fence, Mark, Record
from tidemark.sinks.capabilities import TakesBack
from tidemark.sinks.object_store.store_ledger import StoreLedger


class ObjectsOutput(TakesBack):
    """The objects in the store of a ``StoreLedger``; readers of records see those that a record names."""

    def __init__(self, ledger: StoreLedger) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self.ledger, self.store = ledger, ledger.store

    @abstractmethod
    def place(self, receipt: Receipt, fence: Fence) -> None:
        """Give the staged rows of an attempt their final keys, durable; may be repeated after it died anywhere. It
        passes the failpoint ``publish.mid`` in the middle."""

    @abstractmethod
    def keys(self, receipt: Receipt) -> list[str]:
        """The final keys of what an attempt has put."""

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self.store.root)

    def exists(self) -> bool:
        return True

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: give every object its key, make all durable, write the record, then mark."""
        self.place(receipt, fence)
        failpoint("publish.before_record")
        fence()
        self.write_record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt), record)
        failpoint("publish.before_mark")
        mark()

    def write_record(self, name: RecordName, record: Record) -> None:
        self.store.put(str(name), json.dumps(record, indent=1, sort_keys=True).encode())

    def remove_record(self, name: RecordName) -> None:
        self.store.delete([str(name)])

    def discard(self, receipt: Receipt) -> None:
        """Removes the record first, so that no record names a removed object. Uploads are stopped before objects are
        removed, so that a paused attempt completes none any more. The record of an attempt that put nothing here is of
        a retired sink."""
        if self.name in receipt.sinks:
            self.remove_record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        self.store.stop_uploads(staging_folder(receipt.manifest_id, receipt.attempt))
        self.store.delete(self.keys(receipt))

    def remove(self, keys: Sequence[str]) -> None:
        self.store.delete(keys)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Tries what publishing needs: create only when absent, move, remove, with a name that readers skip."""
        del decode, transforms
        key = f".doctor-{uuid4().hex}"
        try:
            self.store.put_if_absent(key, b"probe")
            self.store.move(key, f"{key}-moved", len(b"probe"))
        finally:
            self.store.delete([key, f"{key}-moved"])
        yield ok(self.name, "objects can be created once, moved and removed (tried)")
