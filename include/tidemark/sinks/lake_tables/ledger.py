"""The ledger of a table that itself says which attempt at each manifest is in it; records are files beside it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from tidemark.paths import RecordName
from tidemark.sinks.base import Ledger


class LakeTableLedger(Ledger):
    """A table has the manifests of one pipeline."""

    record_word: ClassVar[str | None] = "rows"

    @abstractmethod
    def attempts(self) -> Mapping[int, int]:
        """The attempt at each manifest that is in the table, as it says itself."""

    @abstractmethod
    def record_file(self, name: RecordName) -> dict[str, Any] | None:
        """The content of a file beside the table; None when it does not exist, or is damaged."""

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        del own
        attempts = self.attempts().items()
        return [RecordName(self.pipeline_name, manifest_id, attempt) for manifest_id, attempt in attempts
                if manifest_id > above]  # fmt: skip

    def recorded_attempt(self, manifest_id: int) -> int | None:
        return self.attempts().get(manifest_id)

    def record(self, name: RecordName) -> dict[str, Any] | None:
        if self.recorded_attempt(name.manifest_id) != name.attempt:
            return None  # the file of an attempt that did not commit, or has been replaced
        return self.record_file(name)
