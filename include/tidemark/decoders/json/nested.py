"""Shapes with parts: fields, records, lists and maps, built column by column like the flat ones in ``shapes.py``.

Inside a nested Arrow column every part is nullable, as in Spark; what must be there is checked here, not by Arrow.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from tidemark.decoders.json.shapes import ABSENT, Absent, Misfit, Shape, json_name
from tidemark.errors import ConfigurationError

_NAME_LIMIT = 40


@dataclass(frozen=True)
class Field:
    """A named value: ``required`` means it must be there, ``nullable`` that null is a value of it."""

    name: str
    shape: Shape
    required: bool
    nullable: bool

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the column."""
        return self.shape.arrow

    @property
    def arrow(self) -> pa.Field:
        """The column; it can hold null when the value may be null or absent."""
        return pa.field(self.name, self.type, nullable=self.nullable or not self.required)

    def column(self, values: list[Any]) -> pa.Array:
        """Like ``Shape.column``; an absent value is ``ABSENT``."""
        types = set(map(type, values))
        if (Absent in types and self.required) or (type(None) in types and not self.nullable):
            raise Misfit
        if Absent in types:
            values = [None if value is ABSENT else value for value in values]
        return self.shape.column(values)

    def why(self, value: Any, path: str) -> str | None:
        """What is wrong with the value, ``ABSENT`` and null included."""
        if value is ABSENT:
            return f"{path}: absent" if self.required else None
        if value is None:
            return None if self.nullable else f"{path}: null"
        return self.shape.why(value, path)


@dataclass(frozen=True)
class Record(Shape):
    """An object with fields; ``closed`` refuses any other property, else they are ignored."""

    fields: tuple[Field, ...]
    closed: bool = False

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([field.arrow.with_nullable(True) for field in self.fields])

    @property
    def names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def columns(self, records: list[dict[str, Any]]) -> list[pa.Array]:
        """One array per field, all as long as ``records``; raises ``Misfit``."""
        names = self.names
        if self.closed and not all(record.keys() <= names for record in records):
            raise Misfit
        return [field.column([record.get(field.name, ABSENT) for record in records]) for field in self.fields]

    def misfits(self, records: list[dict[str, Any]]) -> set[int]:
        """The positions of the records for which ``why`` has a reason."""
        names = self.names
        found = {at for at, record in enumerate(records) if self.closed and not record.keys() <= names}
        for field in self.fields:
            found.update(_misfits(field, [record.get(field.name, ABSENT) for record in records], 0))
        return found

    def column(self, values: list[Any]) -> pa.Array:
        present = _of_type(dict, values)
        return _spread(pa.StructArray.from_arrays(self.columns(present), fields=list(self.arrow)), values)

    def why(self, value: Any, path: str) -> str | None:
        if type(value) is not dict:
            return f"{path}: expected object, found {json_name(value)}"
        for field in self.fields:
            wrong = field.why(value.get(field.name, ABSENT), f"{path}.{field.name}" if path else f"field {field.name}")
            if wrong is not None:
                return wrong
        unknown = value.keys() - self.names if self.closed else ()
        return f"{path or 'record'}: the schema has no property {quoted(min(unknown))}" if unknown else None


@dataclass(frozen=True)
class ListOf(Shape):
    """An array of elements of one shape."""

    element: Shape
    nullable: bool

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.arrow))

    def column(self, values: list[Any]) -> pa.Array:
        present = _of_type(list, values)
        inner = _inner(self.element, self.nullable, list(chain.from_iterable(present)))
        return _spread(pa.ListArray.from_arrays(_offsets(present), inner, type=self.arrow), values)

    def why(self, value: Any, path: str) -> str | None:
        if type(value) is not list:
            return f"{path}: expected array, found {json_name(value)}"
        found = (_why_inner(self.element, self.nullable, one, f"{path}[{at}]") for at, one in enumerate(value))
        return next((wrong for wrong in found if wrong is not None), None)


@dataclass(frozen=True)
class MapOf(Shape):
    """An object with any names, all of whose values have one shape; the names stay in their order."""

    item: Shape
    nullable: bool

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(pa.string(), self.item.arrow)

    def column(self, values: list[Any]) -> pa.Array:
        present = _of_type(dict, values)
        try:
            keys = pa.array(list(chain.from_iterable(present)), pa.string())
        except UnicodeEncodeError as error:
            raise Misfit from error
        items = _inner(self.item, self.nullable, list(chain.from_iterable(one.values() for one in present)))
        return _spread(pa.MapArray.from_arrays(_offsets(present), keys, items, type=self.arrow), values)

    def why(self, value: Any, path: str) -> str | None:
        if type(value) is not dict:
            return f"{path}: expected object, found {json_name(value)}"
        for key, one in value.items():
            if not _is_text(key):
                return f"{path}: the name {quoted(key)} holds a lone surrogate, which is not a character"
            wrong = _why_inner(self.item, self.nullable, one, f"{path}[{quoted(key)}]")
            if wrong is not None:
                return wrong
        return None


def check_names(names: list[str], place: Callable[[str], str]) -> None:
    """Raise ``ConfigurationError`` unless all can be columns of one table; ``place`` says where a name stands."""
    seen: dict[str, str] = {}
    for name in names:
        if not name or name.startswith("_") or not _is_text(name):
            raise ConfigurationError(
                f"{place(name)} cannot be the name of a column",
                next_step="use a name that is not empty and does not begin with _ (those are Tidemark's own columns)",
            )
        twin = seen.get(name.casefold())
        if twin is not None:
            raise ConfigurationError(
                f"{place(name)} has the same name as {twin}",
                next_step="keep one: Spark and most engines do not tell upper case from lower case in names",
            )
        seen[name.casefold()] = name


def quoted(text: str) -> str:
    """A name that comes from the data: as ASCII and cut short, so that a reason can always be stored and read."""
    return json.dumps(text if len(text) <= _NAME_LIMIT else f"{text[:_NAME_LIMIT]}...")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misfits(field: Field, values: list[Any], start: int) -> list[int]:
    """Where values do not fit; halving skips the stretches in which all do."""
    try:
        field.column(values)
    except Misfit:
        if len(values) == 1:
            return [start]
        middle = len(values) // 2
        return _misfits(field, values[:middle], start) + _misfits(field, values[middle:], start + middle)
    return []


def _of_type(kind: type, values: list[Any]) -> list[Any]:
    present = [value for value in values if value is not None]
    if not set(map(type, present)) <= {kind}:
        raise Misfit
    return present


def _inner(shape: Shape, nullable: bool, values: list[Any]) -> pa.Array:
    if not nullable and any(value is None for value in values):
        raise Misfit
    return shape.column(values)


def _why_inner(shape: Shape, nullable: bool, value: Any, path: str) -> str | None:
    if value is None:
        return None if nullable else f"{path}: null"
    return shape.why(value, path)


def _offsets(parts: list[Any]) -> pa.Array:
    return pa.array(list(accumulate(map(len, parts), initial=0)), pa.int32())


def _spread(present: pa.Array, values: list[Any]) -> pa.Array:
    """The array of the values that are not None, with nulls put back where they are."""
    if len(present) == len(values):
        return present
    count = iter(range(len(present)))
    return present.take(pa.array([None if value is None else next(count) for value in values], pa.int64()))
