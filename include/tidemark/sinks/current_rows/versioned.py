"""Gives staged rows their version."""

import pyarrow as pa

from tidemark.sinks.column_names import IS_DELETED, LOG_GENERATION
from tidemark.sinks.current_rows.columns import ATTEMPT


def with_version(rows: pa.Table, generation: int, attempt: int) -> pa.Table:
    """Rows with what their version has beside their place, and whether they mark their key as deleted."""
    if IS_DELETED not in rows.schema.names:
        rows = rows.append_column(IS_DELETED, pa.repeat(pa.scalar(False), rows.num_rows))
    for name, number in ((LOG_GENERATION, generation), (ATTEMPT, attempt)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
    return rows
