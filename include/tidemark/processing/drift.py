"""Proposes a line of the schema for each field that records have and the schema does not, by the values seen.

Only decoders of JSON find such fields, so records are read as JSON here, with or without the frame of a registry.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.by_topic.topic_filter import TopicFilter
from tidemark.decoders.envelopes.base import json_row, json_types
from tidemark.decoders.json_shapes.shapes import json_name
from tidemark.decoders.names import ELEMENT, check_names, key_column, label
from tidemark.decoders.registry import open_decoder
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import PLACE
from tidemark.model.unknown_fields import UnknownField

_FRAMES = {0: 5, 1: 17}  # bytes of the frame by its first byte, which no JSON text has: an id or a GUID follows it
_DEPTH_LIMIT = 30
_DDL_OF_SCALARS = {"string": "STRING", "boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE"}
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class ProposedField:
    """An unknown field, the JSON ``types`` of its values, and its line as Spark DDL and as a property of a JSON Schema.

    ``problem`` says why no line can be proposed, such as values of several types; else it is None.
    """

    field: UnknownField
    types: tuple[str, ...]
    ddl: str | None
    json_schema: dict[str, Any] | None
    problem: str | None = None


def with_unknown_fields(decode: Mapping[str, Any], word: str) -> dict[str, Any]:
    """Return ``decode`` of an order with this setting for unknown fields, in each format that has such a setting."""
    changed = {**decode, **({"unknown_fields": word} if "unknown_fields" in decode else {})}
    if "key" in decode:
        changed["key"] = with_unknown_fields(decode["key"], word)
    if "by_topic" in decode:
        changed["by_topic"] = [
            {**entry, "decode": with_unknown_fields(entry["decode"], word)} for entry in decode["by_topic"]
        ]
    return changed


def proposed_fields(decode: Mapping[str, Any], batch: pa.RecordBatch) -> tuple[ProposedField, ...]:
    """Return the proposals for the unknown fields in the records of a batch, one for each path."""
    decoder = open_decoder(with_unknown_fields(decode, "count"))
    unknown = decoder.decode(batch).unknown
    if unknown is None:
        return ()
    proposed = []
    for path in pc.unique(unknown.paths).to_pylist():
        records = batch.take(unknown.records.filter(pc.equal(unknown.paths, path)))
        places = (records.column(name).to_pylist() for name in PLACE)
        field = UnknownField(path, records.num_rows, *min(zip(*places, strict=True)))
        members = [member for record in records.to_pylist() for member in _members_of(decode, record, path)]
        newest = _types_beside(decode, records.to_pylist()[-1])
        proposed.append(_with_type(_proposed(field, members, decoder.schema.names), newest, members))
    return tuple(proposed)


def _types_beside(decode: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the types of columns that a record itself declares, by name."""
    decode = decode_of(decode, record)
    return json_types(decode["envelope"], parsed(record["value"])) if "envelope" in decode else {}


def _with_type(proposed: ProposedField, types: Mapping[str, str], members: Sequence[tuple[str, Any]]) -> ProposedField:
    """Return the proposal with the type that its records declare: a number may stand for a time, for example."""
    names = {name for name, _ in members}
    name = names.pop() if len(names) == 1 else None
    if name is None or name not in types or proposed.field.path != label(name):
        return proposed
    if proposed.problem is not None and not all(value is None for _, value in members):
        return proposed
    return replace(proposed, ddl=f"{_ddl_name(name)} {types[name]}", problem=None)


def decode_of(decode: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of ``decode`` for the topic of a record."""
    for entry in decode.get("by_topic", ()):
        if TopicFilter.of_order(entry).has(record["topic"]):
            return entry["decode"]  # type: ignore[no-any-return]
    return decode


def _members_of(decode: Mapping[str, Any], record: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    """Return each (name, value) at a path in the value of a record, in the row inside it, or in the key."""
    value = parsed(record["value"])
    decode = decode_of(decode, record)
    of_value = [*_members_at(json_row(decode["envelope"], value) if "envelope" in decode else value, path)]
    prefix = key_column("")
    if of_value or not path.startswith(prefix):
        return of_value
    return [*_members_at(parsed(record["key"]), path.removeprefix(prefix))]


def parsed(content: bytes | None) -> Any:
    if not content:
        return None
    try:
        return json.loads(content[_FRAMES.get(content[0], 0) :])
    except ValueError:
        return None


def _members_at(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each (name, value) at a path. The steps of the path are labels, in which long names are cut."""
    if path.startswith(ELEMENT):
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for part in parts:
            yield from _members_at(part, path.removeprefix(ELEMENT).removeprefix("."))
    elif isinstance(value, dict):
        for name, item in value.items():
            step = label(name)
            if path == step:
                yield name, item
            elif path.startswith((f"{step}.", f"{step}{ELEMENT}")):
                yield from _members_at(item, path.removeprefix(step).removeprefix("."))


def _proposed(field: UnknownField, members: Sequence[tuple[str, Any]], columns: Sequence[str]) -> ProposedField:
    types = tuple(sorted({json_name(value) for _, value in members}))
    names = sorted({name for name, _ in members})
    try:
        if len(names) != 1:
            raise _NoOneType("its name is cut, and several names begin so" if names else "its values were not found")
        [name] = names
        column = {label(name): name, key_column(label(name)): key_column(name)}.get(field.path)
        _check_names([*columns, column] if column is not None else [name], inside=column is None)
        kind = _kind_of([value for _, value in members], 0)
    except _NoOneType as problem:
        return ProposedField(field, types, None, None, str(problem))
    between = " " if column is not None else ": "  # as in a STRUCT
    return ProposedField(field, types, f"{_ddl_name(name)}{between}{kind.ddl}", {name: kind.schema})


class _NoOneType(Exception):
    """The reason why no line of a schema fits all values."""


@dataclass(frozen=True)
class _Kind:
    ddl: str
    schema: dict[str, Any]


def _kind_of(values: Sequence[Any], depth: int) -> _Kind:
    """Return the type that fits all values; raises ``_NoOneType`` if there is not exactly one."""
    present = [value for value in values if value is not None]
    types = {json_name(value) for value in present}
    if types == {"integer", "number"}:
        types = {"number"}
    if len(types) != 1:
        raise _NoOneType(f"values of several types: {', '.join(sorted(types))}" if types else "only null was seen")
    if depth > _DEPTH_LIMIT:
        raise _NoOneType(f"nested deeper than {_DEPTH_LIMIT}")
    [kind] = types
    made = _kind_of_type(kind, present, depth + 1)
    if len(present) == len(values):
        return made
    return _Kind(made.ddl, {**made.schema, "type": [kind, "null"]})


def _kind_of_type(kind: str, values: Sequence[Any], depth: int) -> _Kind:
    match kind:
        case "integer" if not all(value in _INT64 for value in values):
            raise _NoOneType("an integer of more than 64 bits")
        case "number" if not all(_fits_double(value) for value in values):
            raise _NoOneType("a number beyond DOUBLE")
        case "string" | "boolean" | "integer" | "number":
            return _Kind(_DDL_OF_SCALARS[kind], {"type": kind})
        case "array":
            elements = [element for value in values for element in value]
            if not elements:
                raise _NoOneType("only empty arrays were seen")
            element = _kind_of(elements, depth)
            return _Kind(f"ARRAY<{element.ddl}>", {"type": kind, "items": element.schema})
        case _:
            return _kind_of_objects(values, depth)


def _kind_of_objects(values: Sequence[Mapping[str, Any]], depth: int) -> _Kind:
    names = [*dict.fromkeys(name for value in values for name in value)]
    if not names:
        raise _NoOneType("only empty objects were seen")
    _check_names(names, inside=True)
    kinds = {}
    for name in names:
        try:
            kinds[name] = _kind_of([value[name] for value in values if name in value], depth)
        except _NoOneType as problem:
            raise _NoOneType(f"{label(name)}: {problem}") from None
    ddl = ", ".join(f"{_ddl_name(name)}: {kind.ddl}" for name, kind in kinds.items())
    properties = {name: kind.schema for name, kind in kinds.items()}
    return _Kind(f"STRUCT<{ddl}>", {"type": "object", "properties": properties})


def _fits_double(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _check_names(names: Sequence[str], *, inside: bool) -> None:
    try:
        check_names([*names], label, inside=inside)
    except ConfigurationError as error:
        raise _NoOneType(error.what) from None


def _ddl_name(name: str) -> str:
    is_word = name.isascii() and name.replace("_", "a").isalnum()
    return name if is_word else "`{}`".format(name.replace("`", "``"))
