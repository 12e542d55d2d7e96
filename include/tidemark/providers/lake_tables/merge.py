"""Merges the staged rows of an attempt into a table of current rows: decides which are added, and which they replace.

A merge knows only key, version and place of rows. The newest version of a key wins: (``order_by``, log generation,
topic, partition, offset, attempt). Of two rows of one record the row of the higher attempt always wins. So the table is
the same in whatever order, and however often, manifests are merged.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from tidemark.providers.lake_tables.workspace import Workspace
from tidemark.providers.tables.columns import VERSION

PLACES: Final = pa.schema({"file": pa.int32(), "position": pa.int64()})


@dataclass(frozen=True)
class KeyedRows:
    """Rows of one file: ``columns`` holds the columns of key and version, ``positions`` the place of each row in the
    file."""

    file: int
    positions: pa.Array
    columns: pa.RecordBatch


@dataclass(frozen=True)
class Merged:
    """The result of a merge, by file and position.

    ``kept`` staged rows are added to the table, ``dropped`` ones are not. ``replaced`` rows are removed from the table.
    """

    kept: pa.Table
    dropped: pa.Table
    replaced: pa.Table
    superseded: int  # staged rows that lost to a newer staged row of their key
    stale: int  # the other staged rows that lost: the table has a newer row of their key


class Merge(ExitStack):
    """One merge. Call ``stage``, then ``touch``, then ``drop_deleted`` if the table marks rows as deleted."""

    def __init__(self, columns: pa.Schema, key: Sequence[str], order_by: str | None) -> None:
        """Open a workspace; ``columns`` are the columns of key and version, with the table's types."""
        super().__init__()
        self._key = list(key)
        self._order_by = order_by
        self._schema = pa.schema(
            {
                "key": key_type(columns, key),
                "order_by": columns.field(order_by).type if order_by else pa.int8(),
                **{name.lstrip("_"): columns.field(name).type for name in VERSION},
                **{field.name: field.type for field in PLACES},
            }
        )
        self._workspace = self.enter_context(Workspace())

    @staticmethod
    def needed(key: Sequence[str], order_by: str | None) -> list[str]:
        """Return the names of the columns that a merge reads."""
        return list(dict.fromkeys([*key, *([order_by] if order_by else []), *VERSION]))

    def stage(self, rows: Iterable[KeyedRows]) -> Self:
        """Take the rows of the attempt, and choose the newest of each key."""
        self._workspace.take("stage", self._schema, self._batches(rows))
        self._workspace.run("choose_newest")
        return self

    def touch(self, rows: Iterable[KeyedRows]) -> pa.Table:
        """Take rows of the table, and keep those with a staged key; return the places of these."""
        self._workspace.take("touch", self._schema, self._batches(rows))
        return self._workspace.table("touched_places")

    def drop_deleted(self, places: pa.Table) -> None:
        """Forget rows that the table marks as deleted; ``places`` has their file and position."""
        self._workspace.take("drop_deleted", PLACES, places.cast(PLACES).to_batches())

    def merged(self) -> Merged:
        self._workspace.run("merge")
        [[staged, newest, merged]] = self._workspace.rows("counts")
        kept, dropped, replaced = (self._workspace.table(name) for name in ("kept", "dropped", "replaced"))
        return Merged(kept, dropped, replaced, superseded=staged - newest, stale=newest - merged)

    def lacking(self) -> int:
        """Count the staged keys for which the table has no row of the same or a newer version."""
        [[lacking]] = self._workspace.rows("count_lacking")
        return int(lacking)

    def _batches(self, rows: Iterable[KeyedRows]) -> Iterator[pa.RecordBatch]:
        for part in rows:
            count = len(part.positions)
            order_by = part.columns.column(self._order_by) if self._order_by else pa.nulls(count, pa.int8())
            version = [part.columns.column(name) for name in VERSION]
            columns = [order_by, *version, pa.repeat(part.file, count), part.positions]
            cast = [column.cast(kind) for column, kind in zip(columns, self._schema.types[1:], strict=True)]
            key = keys_of(part.columns, self._schema.field("key").type)
            yield pa.RecordBatch.from_arrays([key, *cast], schema=self._schema)


def key_type(columns: pa.Schema, key: Sequence[str]) -> pa.DataType:
    """Return the type of a key as one value."""
    return pa.struct([columns.field(name).with_nullable(True) for name in key])


def keys_of(rows: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Return the keys of rows, each as one value of this type."""
    fields = list(kind)
    return pa.StructArray.from_arrays([rows.column(field.name).cast(field.type) for field in fields], fields=fields)
