"""The output of a table in a lake: what its commits say, and where the row of a record is."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition, range_from
from tidemark.model.receipt import Receipt
from tidemark.sinks.base import Record, WriteMode
from tidemark.sinks.capabilities import KeepsDeadLetterFiles, MayBeRolledBack, NamesFiles
from tidemark.sinks.lake_tables.ledger import LakeTableLedger
from tidemark.sinks.located import Located, RecordStatus

DIGEST: Final = "tidemark.digest"


class LakeTableOutput(NamesFiles, MayBeRolledBack, KeepsDeadLetterFiles):
    """The rows of one table. Rows and evidence are committed together, and a higher attempt replaces both."""

    write_mode = WriteMode.UPSERT

    def __init__(self, ledger: LakeTableLedger) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self._ledger = ledger

    @abstractmethod
    def located_row(
        self, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        """The row of a record; None when the table does not hold it."""

    @abstractmethod
    def replaced_by(self, published: Publication) -> Located | None:
        """What stands in the place of a row that is not there; None where no row replaces another."""

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        row = self.located_row(manifest, published, at, offset)
        located = row or self.located_dead_letter(published, receipt, at, offset)
        if located is not None:
            return located
        if any(partition.gap_count > len(partition.gaps) for partition in receipt.partitions):
            what = "the table does not hold it, and the manifest has more gaps than its receipt lists"
            return Located(self.name, published.attempt, RecordStatus.NO_RECORD, what)
        newer = self.replaced_by(published)
        if newer is not None:
            return newer
        what = f"the table does not hold it; next: tidemark audit {self.pipeline_name} --deep"
        return Located(self.name, published.attempt, RecordStatus.MISSING, what)

    def about(self, record: Record) -> dict[str, str]:
        """What the commit says of a record to people and programs that have no manifest database."""
        ranges = [range_from(part) for part in record["ranges"]]
        places = [f"{covered.at.topic}-{covered.at.partition}[{covered.start},{covered.end})" for covered in ranges]
        return {
            "tidemark.pipeline": self.pipeline_name,
            "tidemark.database": record["database"],
            DIGEST: record["digest"],
            "tidemark.ranges": " ".join(places),
            "tidemark.counts": json.dumps(record["counts"]),
        }


def is_of_other_rows(before: Mapping[str, Any], record: Record) -> bool:
    """Whether the file of a record is that of an older life: a restored database gives a number out again."""
    return bool(before.get("database") == record["database"] and before.get("digest") != record["digest"])
