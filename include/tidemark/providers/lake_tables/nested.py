"""Converts arrays of structs, lists and maps to other types inside. Fields are matched by name; a null stays null.

Arrow cannot cast a struct to one with other fields. PyIceberg can, but does not keep which lists below a list are null.
"""

from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.positions import positions

A = TypeVar("A", pa.Array, pa.ChunkedArray)


def conformed_table(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return the columns of ``rows`` that ``columns`` names, with their types; see ``conformed``.

    Raises ``ArrowInvalid`` also for a null in a required column.
    """
    arrays = [conformed(rows.column(field.name), field.type) for field in columns]
    for field, column in zip(columns, arrays, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name} of the table may not be null, and a row has no value for it")
    return pa.Table.from_arrays(arrays, schema=columns)


def conformed(column: A, kind: pa.DataType) -> A:
    """Return the values with the type ``kind``: at any depth missing fields become null, and fields not in ``kind`` are
    dropped.

    Raises ``ArrowInvalid`` for a value that does not fit.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([conformed(chunk, kind) for chunk in column.chunks], kind)
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        known = {field.name: at for at, field in enumerate(column.type)}
        fields = [
            conformed(column.field(known[field.name]), field.type)
            if field.name in known
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        fields = [
            part if field.nullable else _never_null(part, column, field.name)
            for part, field in zip(fields, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        return with_entries(
            column, conformed(column.keys, kind.key_type), conformed(column.items, kind.item_type), kind
        )
    if is_list(kind) and is_list(column.type):
        return with_elements(column, conformed(column.values, kind.value_type), kind)
    return column.cast(kind)


def _never_null(part: pa.Array, structs: pa.Array, name: str) -> pa.Array:
    """Return a required field of structs. Inside a null struct it gets an arbitrary value, which nobody sees."""
    if not part.null_count:
        return part
    if pc.any(pc.and_(part.is_null(), structs.is_valid())).as_py():
        raise pa.ArrowInvalid(f"field {name} of the table may not be null, and a row has no value for it")
    other = pa.array([_any_value(part.type)], part.type)
    places = pc.if_else(part.is_valid(), positions(len(part)), len(part))
    return pa.concat_arrays([part, other]).take(places)


def _any_value(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _any_value(field.type) for field in kind}
    if pa.types.is_map(kind) or is_list(kind):
        return []
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return "" if any(test(kind) for test in texts[:2]) else b"" if any(test(kind) for test in texts) else 0


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists of any length. PyIceberg makes lists with 64-bit offsets."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def list_like(kind: pa.DataType, element: pa.Field) -> pa.DataType:
    """Return the type of lists with the same offsets and another element."""
    return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)


def with_elements(lists: pa.Array, elements: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same lists with other elements, at the positions of ``lists.values``."""
    made, offset = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
    return made.from_arrays(_offsets(lists, offset), elements, type=kind, mask=lists.is_null())


def with_entries(maps: pa.MapArray, keys: pa.Array, items: pa.Array, kind: pa.MapType) -> pa.MapArray:
    """Return the same maps with other keys and values, at the positions of the old ones."""
    return pa.MapArray.from_arrays(_offsets(maps, pa.int32()), keys, items, type=kind, mask=maps.is_null())


def _offsets(lists: pa.Array, kind: pa.DataType) -> pa.Array:
    """Copy the offsets into an array that begins at 0, because Arrow accepts no slice of offsets together with a
    mask."""
    return pa.array(lists.offsets.to_numpy(zero_copy_only=False), kind)
