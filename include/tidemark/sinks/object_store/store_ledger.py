"""The ledger of a lake: a file says who owns it, and each record of an attempt is a file of its own."""

from pathlib import Path
from typing import Any, ClassVar

from tidemark.paths import RECORDS, RecordName
from tidemark.sinks.base import Ledger, Owner
from tidemark.sinks.object_store.owner_file import (
    claim_in,
    hand_over_in,
    note_target_in,
    owner_in,
    registered_targets_in,
)
from tidemark.sinks.object_store.record_files import record_in, rename_records
from tidemark.storage.base import ObjectStore


class StoreLedger(Ledger):
    """The ledger of one sink of one pipeline in a lake to which several pipelines may write."""

    record_word: ClassVar[str | None] = None

    def __init__(self, pipeline_name: str, name: str, target: str, store: ObjectStore) -> None:
        super().__init__(pipeline_name, name, target)
        self.store = store

    def owner(self) -> Owner | None:
        return owner_in(self.store)

    def claim(self, database_id: str) -> None:
        claim_in(self.store, database_id)

    def hand_over(self, owner: Owner) -> None:
        hand_over_in(self.store, owner)

    def registered_targets(self) -> set[str]:
        return registered_targets_in(self.store)

    def is_at(self, target: str) -> bool:
        return Path(target).resolve() == Path(self.target).resolve()

    def note_target(self) -> None:
        note_target_in(self.store, self.target)

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        pipelines = [self.pipeline_name] if own else self.store.folders(RECORDS)
        after = f"{above:010d}.~"  # sorts behind every record of that manifest
        folders = [f"{RECORDS}/{pipeline_name}" for pipeline_name in pipelines]
        keys = (key for folder in folders for key in self.store.names(folder, after=after))
        return [name for key in keys if (name := RecordName.parse(key))]

    def recorded_attempt(self, manifest_id: int) -> int | None:
        keys = self.store.names(f"{RECORDS}/{self.pipeline_name}", beginning=f"{manifest_id:010d}.")
        return max((name.attempt for key in keys if (name := RecordName.parse(key))), default=None)

    def record(self, name: RecordName) -> dict[str, Any] | None:
        return record_in(self.store, name)

    def rename_pipeline(self, old: str) -> None:
        """Rename the records, whose keys have the name. Files stay, even if the layout has the name in their path."""
        rename_records(self.store, old, self.pipeline_name)
