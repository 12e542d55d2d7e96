"""Merges the staged rows of an attempt into a table of current rows: which of them are put, and which they replace.

Rows are known here by key, version and place only. The newest version of a key wins: (``order_by``, log generation,
topic, partition, offset, attempt). Of one record the row of the higher attempt wins in any case. So the table is the
same in whatever order, and however often, manifests are merged.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

import duckdb
import pyarrow as pa

from tidemark.errors import WorkFailed
from tidemark.named_sql import named_queries
from tidemark.sinks.current_rows.columns import VERSION

QUERIES: Final = named_queries("tidemark.sinks.current_rows", "queries.sql")
MEMORY: Final = "1GB"  # what does not fit goes to a folder for temporary files
PLACES: Final = pa.schema({"file": pa.int32(), "position": pa.int64()})


@dataclass(frozen=True)
class KeyedRows:
    """Rows of one file: ``columns`` has those of key and version, ``positions`` the place of each row in the file."""

    file: int
    positions: pa.Array
    columns: pa.RecordBatch


@dataclass(frozen=True)
class Merged:
    """What a merge does, by file and position: ``kept`` staged rows are put, ``dropped`` ones are not; ``replaced``
    rows leave the table."""

    kept: pa.Table
    dropped: pa.Table
    replaced: pa.Table
    superseded: int  # staged rows with a newer row of the same key among those staged
    stale: int  # staged rows, each the newest of its key, with a newer row in the table


class Merge(AbstractContextManager["Merge"]):
    """One merge. First ``stage``, then ``touch``, then, where a table marks rows as deleted, ``drop_deleted``."""

    def __init__(self, columns: pa.Schema, key: Sequence[str], order_by: str | None) -> None:
        """``columns`` has the columns of key and version, with the types that the table has."""
        self._key = list(key)
        self._order_by = order_by
        self._columns = columns
        kinds = {name.lstrip("_"): columns.field(name).type for name in VERSION}
        self._schema = pa.schema(
            {
                "key": pa.struct([columns.field(name).with_nullable(True) for name in self._key]),
                "order_by": columns.field(order_by).type if order_by else pa.int8(),
                **kinds,
                **{field.name: field.type for field in PLACES},
            }
        )
        self._folder = TemporaryDirectory(prefix="tidemark-merge-")
        self._connection = _connect(self._folder.name)

    @staticmethod
    def needed(key: Sequence[str], order_by: str | None) -> list[str]:
        """The names of the columns that a merge reads."""
        return list(dict.fromkeys([*key, *([order_by] if order_by else []), *VERSION]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._folder.cleanup()

    def stage(self, rows: Iterable[KeyedRows]) -> Self:
        """Take the rows of the attempt, and choose the newest of each key."""
        self._take("stage", rows)
        self._run("choose_newest")
        return self

    def touch(self, rows: Iterable[KeyedRows]) -> pa.Table:
        """Take rows of the table, of which those with a staged key are remembered; the places of these."""
        self._take("touch", rows)
        return self._table("touched_places")

    def drop_deleted(self, places: pa.Table) -> None:
        """Forget rows that the table marks as deleted: ``places`` has their file and position."""
        self._connection.register("deleted", places.cast(PLACES))
        self._run("drop_deleted")

    def merged(self) -> Merged:
        self._run("merge")
        [[staged, newest, merged]] = self._connection.sql(QUERIES["counts"]).fetchall()
        return Merged(
            self._table("kept"), self._table("dropped"), self._table("replaced"), staged - newest, newest - merged
        )

    def lacking(self) -> int:
        """The staged keys of which the table has no row of this version or a newer one."""
        [[lacking]] = self._connection.sql(QUERIES["count_lacking"]).fetchall()
        return int(lacking)

    def _take(self, query: str, rows: Iterable[KeyedRows]) -> None:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches(rows))
        self._connection.register("incoming", reader)
        self._run(query)
        self._connection.unregister("incoming")

    def _batches(self, rows: Iterable[KeyedRows]) -> Iterator[pa.RecordBatch]:
        for part in rows:
            count = len(part.positions)
            given = [part.columns.column(name) for name in self._key]
            key = pa.StructArray.from_arrays(
                [column.cast(field.type) for column, field in zip(given, self._schema.field("key").type, strict=True)],
                fields=list(self._schema.field("key").type),
            )
            order_by = part.columns.column(self._order_by) if self._order_by else pa.nulls(count, pa.int8())
            version = [part.columns.column(name) for name in VERSION]
            columns = [key, order_by, *version, pa.repeat(part.file, count), part.positions]
            kinds = [field.type for field in self._schema]
            yield pa.RecordBatch.from_arrays(
                [key, *(column.cast(kind) for column, kind in zip(columns[1:], kinds[1:], strict=True))],
                schema=self._schema,
            )

    def _run(self, query: str) -> None:
        try:
            self._connection.execute(QUERIES[query])
        except duckdb.OutOfMemoryException:
            raise WorkFailed(
                f"the keys of a manifest do not fit into {MEMORY} and the folder for temporary files",
                next_step="free space there (TMPDIR names it); then: tidemark retry {pipeline}",
            ) from None

    def _table(self, query: str) -> pa.Table:
        made: pa.Table = self._connection.sql(QUERIES[query]).to_arrow_table()
        return made


def _connect(folder: str) -> duckdb.DuckDBPyConnection:
    """A database in memory with one thread, which opens no file but those it spills to this folder."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": MEMORY,
        "temp_directory": folder,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
