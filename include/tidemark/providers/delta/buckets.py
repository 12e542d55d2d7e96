"""The bucket of a key: the partition of a table of current rows in which all versions of a row lie.

Executors import this too.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.digest import row_hashes
from tidemark.sinks.column_names import LOG_GENERATION

BUCKET: Final = "_bucket"


def buckets_of(rows: pa.RecordBatch, columns: pa.Schema, key: Sequence[str], count: int) -> pa.Array:
    """The bucket of each row, from 0 to ``count``, a power of 2; ``columns`` has the types of the table.

    The hash is that of digests, which are stored, so it is the same in every release. The log generation takes no part:
    a task knows it of each partition only.
    """
    names = [name for name in key if name != LOG_GENERATION]
    if not names:
        return pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    arrays = [rows.column(name).cast(columns.field(name).type) for name in names]
    first, _ = row_hashes(pa.RecordBatch.from_arrays(arrays, names=names))
    return pc.bit_wise_and(first, pa.scalar(count - 1, pa.uint64())).cast(pa.int32())
