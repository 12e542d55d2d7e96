"""Compares the columns of a table with those of rows, also inside structs, lists and maps.

Both are Arrow columns, as the library of the format returns them. A path is written as in DDL: ``lines.element.sku`` is
a field of the structs in the list ``lines``, and ``prices.value`` the values of the map ``prices``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidemark.errors import SinkRefused
from tidemark.providers.lake_tables.nested import is_list, list_like
from tidemark.sinks.storable_names import refuse_clash

Path = tuple[str, ...]
Described = Callable[[pa.DataType], str]  # returns a type as the format writes it
_WHOLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class MissingField:
    """A column, or a field inside one, that rows have and the table does not; ``beside`` are the table's fields at that
    place."""

    path: Path
    type: pa.DataType
    beside: Sequence[pa.Field]

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class NarrowField:
    """A column, or a part of one, whose type in the table cannot hold the values of the rows.

    ``is_key`` is true for the key of a map, or a part of such a key.
    """

    path: Path
    actual: pa.DataType
    needed: pa.DataType
    is_key: bool = False

    @property
    def can_be_widened(self) -> bool:
        """Return whether the type of the rows can hold all values of the table, so that its files need no change."""
        return not self.is_key and _fits(self.needed, self.actual)


@dataclass(frozen=True)
class _Required:
    """A required column of the table, or a required field inside one, that rows do not have."""

    path: Path


def missing_fields(actual: pa.Schema, needed: pa.Schema) -> list[MissingField]:
    """Return the fields that rows have and the table does not, each with its type in the rows."""
    return [part for part in _differences(list(actual), list(needed), ()) if isinstance(part, MissingField)]


def narrow_fields(actual: pa.Schema, needed: pa.Schema) -> list[NarrowField]:
    """Return the fields whose type in the table can be widened to that of the rows."""
    parts = _differences(list(actual), list(needed), ())
    return [part for part in parts if isinstance(part, NarrowField) and part.can_be_widened]


def refuse_misfits(
    actual: pa.Schema,
    needed: pa.Schema,
    described: Described,
    next_steps: Mapping[str, str],
    context: Mapping[str, Any],
    *,
    widens: bool = False,
) -> None:
    """Raise ``SinkRefused`` if rows with the columns ``needed`` do not fit the table's columns.

    ``next_steps`` has, for ``type`` and ``null``, what to do about such a column; {name} is its path. With ``widens``
    the table gets a wider type if possible.
    """
    for part in _differences(list(actual), list(needed), ()):
        if isinstance(part, MissingField):
            refuse_clash(pa.field(part.path[-1], part.type), part.beside, part.path[:-1], context)
        elif isinstance(part, NarrowField):
            if widens and part.can_be_widened:
                continue
            raise SinkRefused(
                f"column {'.'.join(part.path)} of the table is {described(part.actual)}, the rows have "
                f"{described(part.needed)}",
                next_step=next_steps["type"].replace("{name}", ".".join(part.path)),
                **context,
            )
        else:
            raise SinkRefused(
                f"column {'.'.join(part.path)} of the table is NOT NULL, but the rows have no such column",
                next_step=next_steps["null"].replace("{name}", ".".join(part.path)),
                **context,
            )


def extended(actual: pa.DataType, needed: pa.DataType) -> pa.DataType:
    """Return the table's type with the missing fields added after its own."""
    if pa.types.is_struct(actual) and pa.types.is_struct(needed):
        wanted = {field.name: field for field in needed}
        own = [
            field.with_type(extended(field.type, wanted[field.name].type)) if field.name in wanted else field
            for field in actual
        ]
        known = {field.name for field in actual}
        return pa.struct([*own, *(field.with_nullable(True) for field in needed if field.name not in known)])
    if pa.types.is_map(actual) and pa.types.is_map(needed):
        values = actual.item_field.with_type(extended(actual.item_type, needed.item_type))
        return pa.map_(actual.key_field, values)
    if is_list(actual) and is_list(needed):
        return list_like(actual, actual.value_field.with_type(extended(actual.value_type, needed.value_type)))
    return actual


def required_paths(columns: Iterable[pa.Field], within: Path = ()) -> Iterator[Path]:
    """Yield the paths of the required columns, and of the required fields inside columns. Tidemark's own columns are
    left out."""
    for field in columns:
        path = (*within, field.name)
        if not within and field.name.startswith("_"):
            continue
        if not field.nullable:
            yield path
        yield from _required_inside(field.type, path)


def _required_inside(kind: pa.DataType, path: Path) -> Iterator[Path]:
    if pa.types.is_struct(kind):
        yield from required_paths(kind, path)
    elif pa.types.is_map(kind):
        yield from required_paths([kind.item_field.with_name("value")], path)
    elif is_list(kind):
        yield from required_paths([kind.value_field.with_name("element")], path)


def nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type with every field inside it nullable, so that others can be added."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_type))
    if is_list(kind):
        return list_like(kind, pa.field("element", nullable(kind.value_type)))
    return kind


def _differences(
    actual: Sequence[pa.Field], needed: Sequence[pa.Field], within: Path
) -> Iterator[MissingField | NarrowField | _Required]:
    wanted = {field.name: field for field in needed}
    for field in actual:
        other = wanted.pop(field.name, None)
        if other is not None:
            yield from _differences_of_types(field.type, other.type, (*within, field.name))
        elif not field.nullable:
            yield _Required((*within, field.name))
    for field in wanted.values():
        yield MissingField((*within, field.name), field.type, actual)


def _differences_of_types(
    actual: pa.DataType, needed: pa.DataType, path: Path
) -> Iterator[MissingField | NarrowField | _Required]:
    if pa.types.is_struct(actual) and pa.types.is_struct(needed):
        yield from _differences(list(actual), list(needed), path)
    elif pa.types.is_map(actual) and pa.types.is_map(needed):
        for part in _differences_of_types(actual.key_type, needed.key_type, (*path, "key")):
            yield replace(part, is_key=True) if isinstance(part, NarrowField) else part
        yield from _differences_of_types(actual.item_type, needed.item_type, (*path, "value"))
    elif is_list(actual) and is_list(needed):
        yield from _differences_of_types(actual.value_type, needed.value_type, (*path, "element"))
    elif not _fits(actual, needed):
        yield NarrowField(path, actual, needed)


def _fits(actual: pa.DataType, needed: pa.DataType) -> bool:
    """Return whether the table's type can store values of the type ``needed``: it is the same type, or a wider one."""
    if actual in _WHOLE and needed in _WHOLE:
        return _WHOLE.index(actual) >= _WHOLE.index(needed)
    if pa.types.is_decimal(actual) and pa.types.is_decimal(needed):
        return bool(actual.scale == needed.scale and actual.precision >= needed.precision)
    return bool(actual == needed or (actual == pa.float64() and needed == pa.float32()))
