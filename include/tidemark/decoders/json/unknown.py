"""Finds the fields that JSON records have and their schema does not have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord, ErrorClass, UnknownFields, unknown_at
from tidemark.decoders.json.on_unknown import OnUnknown
from tidemark.decoders.json_shapes.nested import ListOf, MapOf, Struct
from tidemark.decoders.json_shapes.shapes import Shape
from tidemark.decoders.names import ELEMENT, joined_path


def unknown_fields(struct: Struct, records: Sequence[Mapping[str, Any]]) -> UnknownFields | None:
    """Return the unknown fields of records that have the shape of ``struct``; indices are those of ``records``."""
    if _knows(struct, records):
        return None
    places: dict[str, dict[int, None]] = {}
    for path, record in _walk(struct, "", records, range(len(records))):
        places.setdefault(path, {})[record] = None
    return unknown_at({path: pa.array([*records], pa.int64()) for path, records in places.items()})


def _knows(shape: Shape, values: Sequence[Any]) -> bool:
    """Return whether no value has an unknown field. Values are not None. Faster than ``_walk``, because it keeps no
    places."""
    match shape:
        case Struct():
            if not set().union(*values) <= shape.names:
                return False
            return all(
                _knows(field.shape, [part for value in values if (part := value.get(field.name)) is not None])
                for field in shape.fields
                if _has_structs(field.shape)
            )
        case ListOf(element=part) if _has_structs(part):
            return _knows(part, [each for value in values for each in value if each is not None])
        case MapOf(item=part) if _has_structs(part):
            return _knows(part, [each for value in values for each in value.values() if each is not None])
        case _:
            return True


def _walk(shape: Shape, path: str, values: Sequence[Any], records: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield (path, record) for each unknown field. ``values`` are not None; ``records`` has the record of each
    value."""
    match shape:
        case Struct():
            names = shape.names
            for value, record in zip(values, records, strict=True):
                for name in value.keys() - names:
                    yield joined_path(path, name), record
            for field in shape.fields:
                if _has_structs(field.shape):
                    parts = [(value.get(field.name), record) for value, record in zip(values, records, strict=True)]
                    yield from _walk_parts(field.shape, joined_path(path, field.name), parts)
        case ListOf(element=part) | MapOf(item=part) if _has_structs(part):
            lists = ((value.values() if isinstance(value, dict) else value) for value in values)
            elements = [(each, record) for each_of, record in zip(lists, records, strict=True) for each in each_of]
            yield from _walk_parts(part, path + ELEMENT, elements)


def _walk_parts(shape: Shape, path: str, parts: Sequence[tuple[Any, int]]) -> Iterator[tuple[str, int]]:
    present = [(value, record) for value, record in parts if value is not None]
    if present:
        values, records = zip(*present, strict=True)
        yield from _walk(shape, path, values, records)


def _has_structs(shape: Shape) -> bool:
    match shape:
        case Struct():
            return True
        case ListOf(element=part) | MapOf(item=part):
            return _has_structs(part)
        case _:
            return False


def bad_records(unknown: UnknownFields, on_unknown: OnUnknown) -> list[BadRecord]:
    """Return an error for each record with an unknown field, which names the first of its paths in alphabetical
    order."""
    first: dict[int, str] = {}
    for path, record in zip(unknown.paths.to_pylist(), unknown.records.to_pylist(), strict=True):
        first[record] = min(first.get(record, path), path)
    fails = on_unknown is OnUnknown.FAIL
    return [
        BadRecord(record, f"field {path}: not in the schema"[:REASON_LIMIT], ErrorClass.SCHEMA, fails=fails)
        for record, path in sorted(first.items())
    ]
