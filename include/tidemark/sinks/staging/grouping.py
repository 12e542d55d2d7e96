"""Groups the rows of a batch by topic, partition and period, and adds the hash of each row."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.digest import Digest, row_hashes

_HASH_A, _HASH_B = "_hash_a", "_hash_b"  # added to the columns of rows; names of data columns never begin with _
HASH_COLUMNS = pa.schema({_HASH_A: pa.uint64(), _HASH_B: pa.uint64()})


def digest_of(measured: pa.Table) -> Digest:
    """Return the digest of rows that have the columns of ``HASH_COLUMNS``."""
    return Digest.of(measured.column(_HASH_A), measured.column(_HASH_B))


def grouped(rows: pa.RecordBatch, period: pa.Array | None = None) -> Iterator[tuple[str, int, Any, pa.Table]]:
    """Yield (topic, partition, period, rows) of each group, sorted by these; the rows get the columns of
    ``HASH_COLUMNS``.

    ``period`` has a value for each row that separates groups, a time or a text; without it the period is None. The rows
    of a group are a copy, unless it is the only group, because a slice would keep the whole batch in memory.
    """
    period = pa.nulls(rows.num_rows, pa.int32()) if period is None else period
    columns = [*rows.columns, *row_hashes(rows)]
    measured = pa.Table.from_arrays(columns, schema=pa.schema([*rows.schema, *HASH_COLUMNS]))
    keys = pa.table({"topic": rows.column("_topic"), "partition": rows.column("_partition"), "period": period})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])  # stable, as Arrow documents
    sizes = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")]).to_pylist()

    # Arrow returns the groups in the order of its hash table, so sort them like the rows.
    def place(group: dict[str, Any]) -> tuple[bytes, int, bool, Any]:  # nulls last, as in the sorted rows
        return group["topic"].encode(), group["partition"], group["period"] is None, group["period"]

    sizes.sort(key=place)
    start = 0
    for group in sizes:
        chosen = order[start : start + group["count_all"]]
        start += group["count_all"]
        piece = measured if len(sizes) == 1 else measured.take(chosen)
        yield group["topic"], group["partition"], group["period"], piece
