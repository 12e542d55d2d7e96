"""Shapes with parts: structs, lists and maps, built column by column like the flat shapes of ``shapes.py``.

Inside a nested Arrow column every part is nullable, as in Spark. So this module checks required parts, not Arrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from tidemark.decoders.json_shapes.shapes import (
    ABSENT,
    Absent,
    OneOf,
    Rule,
    Ruled,
    Shape,
    json_name,
    problem_with_rules,
)
from tidemark.decoders.names import quoted
from tidemark.decoders.one_by_one import Misfit, misfits
from tidemark.text import is_text


@dataclass(frozen=True)
class Field:
    """A named value. ``required``: a record must have it. ``nullable``: it may be null."""

    name: str
    shape: Shape
    required: bool
    nullable: bool

    @property
    def arrow(self) -> pa.Field:
        """The column; it is nullable if the value may be null or absent."""
        return pa.field(self.name, self.shape.arrow, nullable=self.nullable or not self.required)

    def column(self, values: list[Any]) -> pa.Array:
        """Build an array as ``Shape.column`` does; an absent value is ``ABSENT``."""
        types = set(map(type, values))
        if (Absent in types and self.required) or (type(None) in types and not self.nullable):
            raise Misfit
        if Absent in types:
            values = [None if value is ABSENT else value for value in values]
        return self.shape.column(values)

    def problem_with(self, value: Any, path: str) -> str | None:
        """Return the reason why the value, which may be ``ABSENT`` or None, is wrong; None if it is right."""
        if value is ABSENT:
            return f"{path}: absent" if self.required else None
        if value is None:
            return None if self.nullable else f"{path}: null"
        return self.shape.problem_with(value, path)


@dataclass(frozen=True)
class Struct(Shape):
    """An object with fields. Other properties are ignored, or are an error if it is ``closed``."""

    fields: tuple[Field, ...]
    closed: bool = False
    rules: tuple[Rule, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([field.arrow.with_nullable(True) for field in self.fields])

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def columns(self, records: list[dict[str, Any]]) -> list[pa.Array]:
        """Return one array per field, all as long as ``records``; raises ``Misfit``."""
        names = self.names
        if self.closed and not all(record.keys() <= names for record in records):
            raise Misfit
        _check(self.rules, records)
        return [field.column([record.get(field.name, ABSENT) for record in records]) for field in self.fields]

    def misfits(self, records: list[dict[str, Any]]) -> set[int]:
        """Return the positions of the records for which ``problem_with`` gives a reason."""
        names = self.names
        positions = {index for index, record in enumerate(records) if self.closed and not record.keys() <= names}
        positions |= {index for index, record in enumerate(records) if problem_with_rules(self.rules, record, "")}
        for field in self.fields:
            positions.update(misfits(field.column, [record.get(field.name, ABSENT) for record in records]))
        return positions

    def column(self, values: list[Any]) -> pa.Array:
        present = _all_of_type(dict, values)
        return _spread(pa.StructArray.from_arrays(self.columns(present), fields=list(self.arrow)), values)

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is not dict:
            return f"{path}: expected object, found {json_name(value)}"
        for field in self.fields:
            reason = field.problem_with(
                value.get(field.name, ABSENT), f"{path}.{field.name}" if path else f"field {field.name}"
            )
            if reason is not None:
                return reason
        unknown = value.keys() - self.names if self.closed else ()
        if unknown:
            return f"{path or 'record'}: the schema has no property {quoted(min(unknown))}"
        return problem_with_rules(self.rules, value, path or "record")


@dataclass(frozen=True)
class ListOf(Shape):
    """An array of elements of one shape."""

    element: Shape
    nullable: bool
    rules: tuple[Rule, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.element.arrow))

    def column(self, values: list[Any]) -> pa.Array:
        present = _all_of_type(list, values)
        _check(self.rules, present)
        inner = _inner(self.element, self.nullable, list(chain.from_iterable(present)))
        return _spread(pa.ListArray.from_arrays(_offsets(present), inner, type=self.arrow), values)

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is not list:
            return f"{path}: expected array, found {json_name(value)}"
        for index, element in enumerate(value):
            reason = _problem_with_part(self.element, self.nullable, element, f"{path}[{index}]")
            if reason is not None:
                return reason
        return problem_with_rules(self.rules, value, path)


@dataclass(frozen=True)
class MapOf(Shape):
    """An object with any names, whose values all have one shape; the names keep their order."""

    item: Shape
    nullable: bool
    rules: tuple[Rule, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(pa.string(), self.item.arrow)

    def column(self, values: list[Any]) -> pa.Array:
        present = _all_of_type(dict, values)
        _check(self.rules, present)
        try:
            keys = pa.array(list(chain.from_iterable(present)), pa.string())
        except UnicodeEncodeError as error:
            raise Misfit from error
        items = _inner(self.item, self.nullable, list(chain.from_iterable(map_.values() for map_ in present)))
        return _spread(pa.MapArray.from_arrays(_offsets(present), keys, items, type=self.arrow), values)

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is not dict:
            return f"{path}: expected object, found {json_name(value)}"
        for key, item in value.items():
            if not is_text(key):
                return f"{path}: the name {quoted(key)} holds a lone surrogate, which is not a character"
            reason = _problem_with_part(self.item, self.nullable, item, f"{path}[{quoted(key)}]")
            if reason is not None:
                return reason
        return problem_with_rules(self.rules, value, path)


def shapes_within(shape: Shape) -> Iterator[Shape]:
    """Yield the scalar shapes inside a shape."""
    match shape:
        case Struct():
            for field in shape.fields:
                yield from shapes_within(field.shape)
        case ListOf(element=part) | MapOf(item=part) | Ruled(shape=part) | OneOf(shape=part):
            yield from shapes_within(part)
        case _:
            yield shape


def _check(rules: tuple[Rule, ...], values: list[Any]) -> None:
    if not all(rule.holds(value) for rule in rules for value in values):
        raise Misfit


def _all_of_type(kind: type, values: list[Any]) -> list[Any]:
    present = [value for value in values if value is not None]
    if not set(map(type, present)) <= {kind}:
        raise Misfit
    return present


def _inner(shape: Shape, nullable: bool, values: list[Any]) -> pa.Array:
    if not nullable and any(value is None for value in values):
        raise Misfit
    return shape.column(values)


def _problem_with_part(shape: Shape, nullable: bool, value: Any, path: str) -> str | None:
    if value is None:
        return None if nullable else f"{path}: null"
    return shape.problem_with(value, path)


def _offsets(parts: list[Any]) -> pa.Array:
    return pa.array(list(accumulate(map(len, parts), initial=0)), pa.int32())


def _spread(present: pa.Array, values: list[Any]) -> pa.Array:
    """Return ``present``, the array of the values that are not None, with a null at each place where ``values`` has
    None."""
    if len(present) == len(values):
        return present
    positions = iter(range(len(present)))
    return present.take(pa.array([None if value is None else next(positions) for value in values], pa.int64()))
