"""The ledger of a table that itself says which attempt at each manifest is in it. Records are files beside the
table."""

from typing import Any, ClassVar

from tidemark.paths import RecordName
from tidemark.providers.lake_tables.table import LakeTable
from tidemark.sinks.base import Ledger
from tidemark.sinks.object_store.record_files import record_in


class LakeTableLedger(Ledger):
    """The ledger of one table, which has the manifests of one pipeline."""

    record_word: ClassVar[str | None] = "rows"
    table: LakeTable[Any]

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        del own
        attempts = self.table.evidence().attempts.items()
        return [RecordName(self.pipeline_name, manifest_id, attempt) for manifest_id, attempt in attempts
                if manifest_id > above]  # fmt: skip

    def recorded_attempt(self, manifest_id: int) -> int | None:
        return self.table.evidence().attempts.get(manifest_id)

    def record(self, name: RecordName) -> dict[str, Any] | None:
        if self.recorded_attempt(name.manifest_id) != name.attempt:
            return None  # the record is of an attempt that did not commit, or that was replaced
        store = self.table.store_if_known()
        return record_in(store, name) if store else None
