"""The bucket of a key. A table of current rows is partitioned by it, so all versions of a row lie in one partition.

Executors import this too.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.digest import row_hashes
from tidemark.providers.tables.column_names import LOG_GENERATION

BUCKET: Final = "_bucket"


def buckets_of(rows: pa.RecordBatch, columns: pa.Schema, key: Sequence[str], count: int) -> pa.Array:
    """Return the bucket of each row, from 0 to ``count`` - 1; ``count`` is a power of 2. ``columns`` has the table's
    types.

    The hash is the one of the stored digests, so it is the same in every release. The log generation is not hashed,
    because a task knows it only by partition, not as a column.
    """
    names = [name for name in key if name != LOG_GENERATION]
    if not names:
        return pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    arrays = [rows.column(name).cast(columns.field(name).type) for name in names]
    first, _ = row_hashes(pa.RecordBatch.from_arrays(arrays, names=names))
    return pc.bit_wise_and(first, pa.scalar(count - 1, pa.uint64())).cast(pa.int32())
