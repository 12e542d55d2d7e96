"""Makes a row from each element of an array column, and repeats the other columns."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigurationError
from tidemark.model.positions import positions
from tidemark.transforms.base import NO_ROWS, Transformed, data_columns, refuse_unknown


class Explode:
    """Replaces the lists in ``column`` by their elements, one row for each."""

    def __init__(self, column: str, *, keep_empty: bool) -> None:
        self._column = column
        self._keep_empty = keep_empty
        self._schema = pa.schema([])

    def schema(self, given: pa.Schema) -> pa.Schema:
        refuse_unknown([self._column], given)
        at = given.get_field_index(self._column)
        kind = given.field(at).type
        if not pa.types.is_list(kind):
            raise ConfigurationError(f"column {self._column} is {kind}, and no array", next_step="name an array")
        self._schema = given.set(at, pa.field(self._column, kind.value_type))
        return self._schema

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        here = positions(rows.num_rows)
        lists = rows.column(self._column)
        has_elements = pc.fill_null(pc.greater(pc.list_value_length(lists), 0), False)
        kept = pc.list_parent_indices(lists).cast(pa.int64())
        elements = pc.list_flatten(lists)
        empty = here.filter(pc.invert(has_elements))
        filtered = empty
        if self._keep_empty and len(empty):
            filtered = NO_ROWS
            order = pc.array_sort_indices(pa.concat_arrays([kept, empty]))
            kept = pa.concat_arrays([kept, empty]).take(order)
            elements = pa.concat_arrays([elements, pa.nulls(len(empty), elements.type)]).take(order)
        data = data_columns(rows)
        columns = [
            elements if field.name == self._column else data.column(field.name).take(kept) for field in self._schema
        ]
        return Transformed(pa.RecordBatch.from_arrays(columns, schema=self._schema), kept, filtered, NO_ROWS)


def open_transform(options: Mapping[str, Any]) -> Explode:
    return Explode(options["column"], keep_empty=options["keep_empty"])
