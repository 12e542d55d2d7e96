"""The evidence of manifests in a table: a file without rows, alone in a partition, that each commit replaces.

The application transactions of a table say it too, but ``RESTORE`` keeps them and takes the rows back. This file goes
back with the rows. Its footer says which attempt at each manifest is in the table, and has the number of the commit
that wrote it: the version of the table, which no other commit ever gets. Compaction, VACUUM and DELETE of other rows
leave it alone; without it the target went back, and a person decides.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from itertools import accumulate, pairwise
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.receipt import MALFORMED

_FOOTER: Final = b"tidemark.evidence"


@dataclass(frozen=True)
class CountedMerge:
    """Of the rows of an attempt, ``superseded`` ones had a newer row of their key in the manifest, and ``stale`` ones
    in the table. ``left`` are rows of earlier attempts that this one did not make, and that stay."""

    superseded: int = 0
    stale: int = 0
    left: int = 0


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
    """Ids as steps, which are mostly 1 as attempts are: so a manifest takes less than a byte, and one that was merged a
    few more."""
    ids = sorted(evidence.attempts)
    steps = [after - before for before, after in pairwise([0, *ids])]
    attempts = [evidence.attempts[manifest_id] for manifest_id in ids]
    merges = [astuple(evidence.merges[manifest_id]) for manifest_id in ids] if evidence.merges else []
    content = [evidence.number, steps, attempts, *zip(*merges, strict=True)]
    return b64encode(zlib.compress(json.dumps(content).encode())).decode()


def _decoded(text: str) -> TableEvidence:
    number, steps, attempts, *merges = json.loads(zlib.decompress(b64decode(text)))
    ids = list(accumulate(steps))
    counts = (CountedMerge(*row) for row in zip(*merges, strict=True))
    of_merges = dict(zip(ids, counts, strict=True)) if merges else {}
    return TableEvidence(number, dict(zip(ids, attempts, strict=True)), of_merges)
