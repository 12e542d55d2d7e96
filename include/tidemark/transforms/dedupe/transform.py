"""Keeps one row of each key in a partition; the rows of a partition come in the order of their offsets.

A key is remembered as its 128-bit hash, in DuckDB: about 25 bytes for each, in bounded memory. Rows with a null in
their key have no key and all stay, and so do the rows of tombstones.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import WorkFailed
from tidemark.model.digest import row_hashes
from tidemark.model.positions import positions
from tidemark.text import named_queries
from tidemark.transforms.base import NO_ROWS, Memory, Transformed, data_columns, others, refuse_unknown
from tidemark.transforms.statement import MEMORY, open_database

QUERIES: Final = named_queries("tidemark.transforms.dedupe", "queries.sql")


class Dedupe:
    """Keeps one row of each key. ``keys`` are the columns of the key.

    Topic and partition are always part of the key: the same values in two partitions are two keys. ``within_us`` is
    ``Settings.within`` in microseconds.
    """

    def __init__(self, keys: Sequence[str], *, last: bool, within_us: int | None) -> None:
        self._keys = list(keys)
        self._last = last
        self._within = within_us
        self._connection = open_database()
        self._connection.execute(QUERIES["create"])

    @property
    def memory(self) -> Memory | None:
        if self._last:
            return Memory.OF_ALL
        return Memory.OF_EARLIER if self._within is not None else None

    def schema(self, given: pa.Schema) -> pa.Schema:
        refuse_unknown(self._keys, given)
        return given

    def remember(self, rows: pa.RecordBatch) -> None:
        with self._keys_of(rows, self._keyed(rows)):
            self._connection.execute(QUERIES["remember"])

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        with_key = self._keyed(rows)
        with self._keys_of(rows, with_key):
            chosen = self._question().to_arrow_table().column(0)
            if not self._last:
                self._connection.execute(QUERIES["remember"])
        keyless = others(rows.num_rows, with_key)
        gone = others(rows.num_rows, pa.concat_arrays([keyless, *chosen.chunks]))
        kept = others(rows.num_rows, gone)
        return Transformed(data_columns(rows).take(kept), kept, NO_ROWS, gone)

    def _question(self) -> duckdb.DuckDBPyRelation:
        if self._last:
            return self._connection.sql(QUERIES["last"])
        if self._within is None:
            return self._connection.sql(QUERIES["first"])
        return self._connection.sql(QUERIES["within"], params={"within": self._within})

    def _keyed(self, rows: pa.RecordBatch) -> pa.Array:
        needed = [*self._keys, *(["_timestamp"] if self._within is not None else [])]
        keyless = reduce(pc.or_, [pc.is_null(rows.column(name)) for name in needed])
        if "_is_deleted" in rows.schema.names:
            keyless = pc.or_(keyless, rows.column("_is_deleted"))
        return positions(rows.num_rows).filter(pc.invert(keyless))

    @contextmanager
    def _keys_of(self, rows: pa.RecordBatch, ordinals: pa.Array) -> Iterator[None]:
        """Fill the table ``keys`` with the rows at these ordinals, for the block."""
        keyed = rows.take(ordinals)
        a, b = row_hashes(keyed.select(["_topic", "_partition", *self._keys]))
        stamp = keyed.column("_offset" if self._last else "_timestamp").cast(pa.int64())
        self._connection.register("keys", pa.table({"a": a, "b": b, "stamp": stamp, "ordinal": ordinals}))
        try:
            yield
        except duckdb.OutOfMemoryException:
            raise WorkFailed(
                f"the keys of the partitions that one task of Spark reads do not fit into {MEMORY}",
                next_step="lower spark.records_per_task; where one partition has too many keys, this manifest can only "
                "be processed without dedupe, or with a shorter within: plan smaller ones (slice.max_records of the "
                "source) from here on",
            ) from None
        finally:
            self._connection.unregister("keys")


def open_transform(options: Mapping[str, Any]) -> Dedupe:
    return Dedupe(options["keys"], last=options["keep"] == "last", within_us=options["within_us"])
