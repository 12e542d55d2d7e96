"""The evidence of a table: a file without rows, alone in a partition, which each commit replaces.

The application transactions of a table hold the same facts, but ``RESTORE`` keeps them while it takes the rows back.
This file goes back together with the rows; its number is the version of the table that its commit makes. Compaction,
VACUUM and DELETE of other rows do not touch it. If it is missing, the target went back, and you must decide.
"""

from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.providers.lake_tables.evidence import TableEvidence

_FOOTER: Final = b"tidemark.evidence"


def write_evidence(evidence: TableEvidence, file: BinaryIO, columns: pa.Schema) -> None:
    """Write a Parquet file with the evidence in its footer, and with these columns but no rows."""
    schema = columns.with_metadata({_FOOTER: evidence.text().encode()})
    pq.write_table(schema.empty_table(), file)


def read_evidence(file: BinaryIO) -> TableEvidence | None:
    """Return the evidence in a file; None if the file has none or is damaged."""
    try:
        text = (pq.read_metadata(file).metadata or {}).get(_FOOTER)
    except pa.ArrowException:
        return None
    return TableEvidence.of_text(text) if text else None
