"""The file with the evidence of a table: one without rows, alone in a partition, that each commit replaces.

The application transactions of a table say it too, but ``RESTORE`` keeps them and takes the rows back. This file goes
back with the rows; its number is the version of the table that its commit makes. Compaction, VACUUM and DELETE of other
rows leave it alone; without it the target went back, and a person decides.
"""

from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.providers.lake_tables.evidence import TableEvidence

_FOOTER: Final = b"tidemark.evidence"


def write_evidence(evidence: TableEvidence, file: BinaryIO, columns: pa.Schema) -> None:
    """Write the Parquet file, without rows of these columns."""
    schema = columns.with_metadata({_FOOTER: evidence.text().encode()})
    pq.write_table(schema.empty_table(), file)


def read_evidence(file: BinaryIO) -> TableEvidence | None:
    """None for a file that has none, or a damaged one."""
    try:
        text = (pq.read_metadata(file).metadata or {}).get(_FOOTER)
    except pa.ArrowException:
        return None
    return TableEvidence.of_text(text) if text else None
