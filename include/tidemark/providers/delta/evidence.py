"""The evidence of manifests in a table: a file without rows, alone in a partition, that each commit replaces.

The application transactions of a table say it too, but ``RESTORE`` keeps them and takes the rows back. This file goes
back with the rows. Its footer says which attempt at each manifest is in the table, and has the number of the commit
that wrote it: the version of the table, which no other commit ever gets. Compaction, VACUUM and DELETE of other rows
leave it alone; without it the target went back, and a person decides.
"""

import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from itertools import accumulate
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.receipt import MALFORMED
from tidemark.providers.lake_tables.merges import CountedMerge, packed, steps_of, unpacked

_FOOTER: Final = b"tidemark.evidence"


@dataclass(frozen=True)
class TableEvidence:
    """``attempts`` has the attempt by manifest; ``number`` is 0 while nothing was published.

    ``merges`` has what became of the rows of each manifest, where the table has one row per key.
    """

    number: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)
    merges: Mapping[int, CountedMerge] = field(default_factory=dict)

    def with_next(
        self, number: int, manifest_id: int, attempt: int, merge: CountedMerge | None = None
    ) -> "TableEvidence":
        merges = self.merges if merge is None else {**self.merges, manifest_id: merge}
        return TableEvidence(number, {**self.attempts, manifest_id: attempt}, merges)

    def write(self, file: BinaryIO, columns: pa.Schema) -> None:
        """Write the Parquet file, without rows of these columns."""
        schema = columns.with_metadata({_FOOTER: _encoded(self).encode()})
        pq.write_table(schema.empty_table(), file)

    @classmethod
    def read(cls, file: BinaryIO) -> "TableEvidence | None":
        """None for a file that has none, or a damaged one."""
        try:
            return _decoded((pq.read_metadata(file).metadata or {})[_FOOTER].decode())
        except (pa.ArrowException, zlib.error, *MALFORMED):
            return None


def _encoded(evidence: TableEvidence) -> str:
    ids = sorted(evidence.attempts)
    attempts = [evidence.attempts[manifest_id] for manifest_id in ids]
    merges = [astuple(evidence.merges[manifest_id]) for manifest_id in ids] if evidence.merges else []
    return packed([evidence.number, steps_of(ids), attempts, *zip(*merges, strict=True)])


def _decoded(text: str) -> TableEvidence:
    number, steps, attempts, *merges = unpacked(text)
    ids = list(accumulate(steps))
    counts = (CountedMerge(*row) for row in zip(*merges, strict=True))
    of_merges = dict(zip(ids, counts, strict=True)) if merges else {}
    return TableEvidence(number, dict(zip(ids, attempts, strict=True)), of_merges)
