"""Keeps the first row of each key in a partition; the rows of a task come in the order of their offsets.

A key is remembered as its 128-bit hash, in DuckDB: about 20 bytes for each, in bounded memory. Rows of which a part of
the key is null have no key and all stay, and so do the rows of tombstones.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.digest import row_hashes
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.suggestion import with_nearest
from tidemark.transforms.base import NO_ROWS, Transformed, data_columns, indices, others
from tidemark.transforms.statement import MEMORY, connect

_FIRST = """
    SELECT min(ordinal) AS ordinal FROM keys WHERE NOT EXISTS (
        SELECT 1 FROM seen WHERE seen.a = keys.a AND seen.b = keys.b)
    GROUP BY a, b"""


class Dedupe:
    """``keys`` are columns; the partition belongs to the key."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._connection = connect()
        self._connection.execute("CREATE TABLE seen (a UBIGINT, b UBIGINT)")

    def schema(self, given: pa.Schema) -> pa.Schema:
        for key in self._keys:
            if key not in given.names:
                raise ConfigurationError(
                    with_nearest(f"there is no column {key}", key, given.names, listed=True),
                    next_step="name one of these columns",
                )
        return given

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        here = indices(rows.num_rows)
        keyless = reduce(pc.or_, [pc.is_null(rows.column(key)) for key in self._keys])
        if "_deleted" in rows.schema.names:
            keyless = pc.or_(keyless, rows.column("_deleted"))
        with_key = here.filter(pc.invert(keyless))
        first = self._first(rows.take(with_key).select(["_topic", "_partition", *self._keys]), with_key)
        gone = others(rows.num_rows, pa.concat_arrays([first, here.filter(keyless)]))
        kept = others(rows.num_rows, gone)
        return Transformed(data_columns(rows).take(kept), kept, NO_ROWS, gone)

    def _first(self, keys: pa.RecordBatch, ordinals: pa.Array) -> pa.Array:
        """Of rows with these ordinals, those whose key comes for the first time in this task."""
        a, b = row_hashes(keys)
        hashes = pa.table({"a": a, "b": b, "ordinal": ordinals})
        self._connection.register("keys", hashes)
        try:
            found = self._connection.sql(_FIRST).to_arrow_table().column("ordinal")
            self._connection.register("new", hashes.filter(pc.is_in(ordinals, value_set=found)))
            self._connection.execute("INSERT INTO seen SELECT a, b FROM new")
            self._connection.unregister("new")
        except duckdb.OutOfMemoryException:
            raise WorkFailed(
                f"the keys of a partition do not fit into {MEMORY}",
                next_step="plan smaller manifests (slice.max_records of the source) from here on; this one can only be "
                "processed without dedupe",
            ) from None
        finally:
            self._connection.unregister("keys")
        return pa.concat_arrays([NO_ROWS, *found.chunks])


def open_transform(options: Mapping[str, Any]) -> Dedupe:
    return Dedupe(options["keys"])
