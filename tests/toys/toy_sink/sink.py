"""Publishing JSON files: readers take the file of the highest attempt that left a record.

Owner, records and staging lie where those of a lake do; ``rows/<manifest>.<attempt>.json`` has the rows and the dead
letters of one attempt.
"""

import json
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.toys.toy_sink.settings import Settings
from tidemark.connections import Lookup
from tidemark.errors import Fenced, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.model.manifest import Manifest, ManifestState, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.paths import staging_folder
from tidemark.sinks.base import Contents, Expected, Fence, Sink
from tidemark.sinks.capabilities import Leftover
from tidemark.sinks.dead_letters import DeadLetter, dead_letter
from tidemark.sinks.located import Located, RecordStatus
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.objects_output import ObjectsOutput
from tidemark.storage.open import open_store


class ToyOutput(ObjectsOutput):
    """The files of rows in one folder."""

    def place(self, receipt: Receipt, fence: Fence) -> None:
        fence()
        if (self.ledger.recorded_attempt(receipt.manifest_id) or 0) > receipt.attempt:
            raise Fenced("a higher attempt has its record here")
        if not self.has(receipt):
            self.store.put(_key(receipt), json.dumps(self._joined(receipt)).encode())
        failpoint("publish.mid")

    def keys(self, receipt: Receipt) -> list[str]:
        return [_key(receipt)]

    def _joined(self, receipt: Receipt) -> dict[str, list[dict[str, Any]]]:
        folder = staging_folder(receipt.manifest_id, receipt.attempt)
        tasks = {part.staged for part in receipt.objects_of(self.name)}
        parts = [json.loads(self.store.get(f"{folder}/{task}.json") or b"{}") for task in tasks]
        content = {kind.value: [row for part in parts for row in part.get(kind, ())] for kind in ObjectKind}
        if _sizes(content) != self._expected(receipt):
            raise WorkFailed("staging holds other rows than the receipt says", sink=self.name)
        return content

    def has(self, receipt: Receipt) -> bool:
        return _sizes(self._content(receipt)) == self._expected(receipt)

    def same(self, before: Receipt, now: Receipt) -> bool:
        return self.has(before)

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        for manifest, publication in expected.published():
            receipt = expected.receipt(manifest.id, publication.attempt)
            if receipt is not None and not self.has(receipt):
                what = f"{_key(receipt)} is missing or holds other rows than were published"
                yield Problem(manifest.id, what, f"tidemark replay {self.pipeline_name} --manifest {manifest.id}")
        for left in self.leftovers(expected):
            what = f"{left.key} is not part of what was published"
            yield Problem(left.manifest_id, what, f"tidemark repair {self.pipeline_name} --why TEXT")

    def leftovers(self, expected: Expected) -> list[Leftover]:
        """Of manifests that are done: what attempts other than the published one left."""
        own, leftovers = expected.own(), []
        for name in self.store.names("rows"):
            manifest_id, attempt, _ = map(int, name.removeprefix("rows/").replace("json", "0").split("."))
            manifest = own.get(manifest_id)
            if manifest and manifest.state is ManifestState.DONE and not manifest.alive:
                published = manifest.published(self.name)
                if published and published.attempt != attempt:
                    leftovers.append(Leftover(name, manifest_id, attempt))
        return leftovers

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        place = f"{self.store.root}/{_key(receipt)}"
        for kind, rows in self._content(receipt).items():
            if (at.topic, at.partition, offset) in ((row["_topic"], row["_partition"], row["_offset"]) for row in rows):
                what = "a row" if kind == ObjectKind.DATA else "a dead letter"
                return Located(self.name, published.attempt, RecordStatus.HELD, what, ObjectKind(kind), place)
        return Located(self.name, published.attempt, RecordStatus.MISSING, f"{place} does not hold it")

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        if self.store.size(_key(receipt)) is None:
            raise FileNotFoundError(_key(receipt))
        for row in self._content(receipt)[ObjectKind.DEAD_LETTER]:
            headers = row["_headers"] and [{**header, "value": _bytes(header["value"])} for header in row["_headers"]]
            read = {"_timestamp": datetime.fromisoformat(row["_timestamp"]), "_key": _bytes(row["_key"]),
                    "_value": _bytes(row["_value"]), "_headers": headers}  # fmt: skip
            letter = dead_letter({**row, **read})
            yield letter if values else replace(letter, key=None, value=None, headers=None)

    def _content(self, receipt: Receipt) -> dict[str, list[dict[str, Any]]]:
        """The rows by kind; empty when the file is not there or damaged."""
        try:
            content: dict[str, list[dict[str, Any]]] = json.loads(self.store.get(_key(receipt)) or b"{}")
        except ValueError:
            return {}
        return content

    def _expected(self, receipt: Receipt) -> dict[str, int]:
        return {kind.value: sum(part.rows for part in self.parts(receipt, kind)) for kind in ObjectKind}


def _key(receipt: Receipt) -> str:
    return f"rows/{receipt.manifest_id}.{receipt.attempt}.json"


def _bytes(text: str | None) -> bytes | None:
    """Bytes from the text that the writer made of them."""
    return None if text is None else bytes(literal_eval(text))


def _sizes(content: Mapping[str, Sequence[object]]) -> dict[str, int]:
    return {kind: len(rows) for kind, rows in content.items()}


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.folder, {}, lookup)
    ledger = StoreLedger(pipeline_name, settings.name, settings.target, store)
    return Sink(ledger, FolderStaging(store), ToyOutput(ledger))
