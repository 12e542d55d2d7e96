"""Counts the rows of a table of current rows by their origin; an audit compares the counts with what was published."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from tidemark.providers.lake_tables.merge import key_type, keys_of
from tidemark.providers.lake_tables.workspace import Workspace
from tidemark.providers.tables.column_names import TOPIC_PARTITION
from tidemark.providers.tables.columns import ATTEMPT

_ORIGIN = ("_manifest_id", "_topic", TOPIC_PARTITION, "_offset", ATTEMPT)


@dataclass(frozen=True)
class RowOrigins:
    """The counted rows of a table.

    ``origins`` has, for each manifest, the first and last offset and the number of rows, by partition and attempt. An
    attempt of 0 means that rows have none. ``rows`` counts all rows, ``keys`` all keys.
    """

    origins: dict[int, list[dict[str, Any]]]
    rows: int
    keys: int

    @staticmethod
    def needed(key: Sequence[str]) -> list[str]:
        """Return the names of the columns that ``of`` reads."""
        return list(dict.fromkeys([*key, *_ORIGIN]))

    @classmethod
    def of(cls, columns: pa.Schema, key: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Self:
        """Count all rows of a table. ``columns`` has the needed columns, with the types of the table."""
        kinds = [columns.field(name).type for name in _ORIGIN]
        schema = pa.schema(
            [pa.field("key", key_type(columns, key))]
            + [
                pa.field(name.removeprefix("_").removesuffix("_id"), kind)
                for name, kind in zip(_ORIGIN, kinds, strict=True)
            ]
        )

        def held() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                origin = [batch.column(name).cast(kind) for name, kind in zip(_ORIGIN, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays([keys_of(batch, schema.field("key").type), *origin], schema=schema)

        with Workspace() as workspace:
            workspace.take("hold", schema, held())
            origins: dict[int, list[dict[str, Any]]] = {}
            for row in workspace.table("origins").to_pylist():
                origins.setdefault(row["manifest"], []).append(row)
            [[rows, keys]] = workspace.rows("count_held")
        return cls(origins, rows, keys)
