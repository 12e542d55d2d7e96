"""Publishes JSON lines into one folder: readers take the files that the highest record of a manifest names.

Owner, records, staging and dead letters lie where those of a lake do; rows lie in ``rows``.
"""

from tidemark.connections.lookup import Lookup
from tidemark.errors import Fenced
from tidemark.model.receipt import Receipt
from tidemark.sinks.base import Fence, Sink
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.objects_output import ObjectsOutput
from tidemark.storage.open import open_store
from tidemark_toy.settings import Settings


class ToyOutput(ObjectsOutput):
    """The files of one folder."""

    def place(self, receipt: Receipt, fence: Fence) -> None:
        if (self.ledger.recorded_attempt(receipt.manifest_id) or 0) > receipt.attempt:
            raise Fenced("a higher attempt has its record here")
        super().place(receipt, fence)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.folder, {}, lookup)
    ledger = StoreLedger(pipeline_name, settings.name, settings.target, store)
    return Sink(ledger, FolderStaging(store), ToyOutput(ledger))
