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
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.receipt import MALFORMED

_FOOTER: Final = b"tidemark.evidence"


@dataclass(frozen=True)
class TableEvidence:
    """``attempts`` has the attempt by manifest; ``number`` is 0 while nothing was published."""

    number: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)

    def with_next(self, number: int, manifest_id: int, attempt: int) -> "TableEvidence":
        return TableEvidence(number, {**self.attempts, manifest_id: attempt})

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
    """Ids as steps, which are mostly 1 as attempts are: so a manifest takes less than a byte."""
    ids = sorted(evidence.attempts)
    steps = [after - before for before, after in zip([0, *ids], ids, strict=False)]
    content = [evidence.number, steps, [evidence.attempts[manifest_id] for manifest_id in ids]]
    return b64encode(zlib.compress(json.dumps(content).encode())).decode()


def _decoded(text: str) -> TableEvidence:
    number, steps, attempts = json.loads(zlib.decompress(b64decode(text)))
    manifest_id, attempt_of = 0, {}
    for step, attempt in zip(steps, attempts, strict=True):
        manifest_id += step
        attempt_of[manifest_id] = attempt
    return TableEvidence(number, attempt_of)
