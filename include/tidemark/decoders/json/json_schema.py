"""Turns a JSON Schema, or a Spark DDL text, into fields that a decoder can check and build.

Supported words of JSON Schema: ``type`` (one type, or one and ``null``), ``properties``, ``required``,
``additionalProperties`` (true or false), ``items``, ``enum``, ``const``, and ``format`` with ``date-time`` or ``date``.
Words that only describe are ignored. Any other word is an error: to ignore a rule would accept records that it forbids.
"""

from collections.abc import Mapping
from typing import Any

from tidemark.decoders.json import ddl
from tidemark.decoders.json_shapes.nested import Field, ListOf, Struct
from tidemark.decoders.json_shapes.shapes import Boolean, Day, Instant, Integer, Number, OneOf, Shape, Text
from tidemark.decoders.names import check_names
from tidemark.errors import ConfigurationError

_DESCRIBING = {
    "$schema", "$id", "$comment", "title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly",
}  # fmt: skip
_RULES = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items"},
    "string": {"format", "enum", "const"},
    "integer": {"enum", "const"},
    "number": {"enum", "const"},
    "boolean": {"enum", "const"},
}
_FORMATS = {"date-time": Instant(), "date": Day()}
_SCALARS: dict[str, Shape] = {"string": Text(), "integer": Integer(), "number": Number(), "boolean": Boolean()}
_DEPTH_LIMIT = 32


def parse(schema: Mapping[str, Any] | str) -> tuple[Field, ...]:
    """The columns of a JSON Schema or DDL text; ``ConfigurationError`` names the pointer or position of the error."""
    return struct_of(schema).fields


def struct_of(schema: object) -> Struct:
    """All fields of a record, and whether it may have other properties; ``ConfigurationError`` as from ``parse``."""
    if isinstance(schema, str):
        return Struct(ddl.parse(schema))
    if not isinstance(schema, Mapping):
        raise ConfigurationError(
            "decode.schema is neither a JSON Schema nor a DDL text",
            next_step="give the path of a JSON Schema file, or columns such as 'id BIGINT NOT NULL, name STRING'",
        )
    shape, nullable = _shape(schema, "")
    if not isinstance(shape, Struct) or nullable:
        raise _wrong("/type", "is not 'object'", 'a record is one object: write "type": "object"')
    return shape


def _shape(schema: object, pointer: str) -> tuple[Shape, bool]:
    """(shape, whether null is allowed)."""
    if not isinstance(schema, Mapping):
        raise _wrong(pointer, "is not a schema", "write an object with a type")
    if pointer.count("/") > 2 * _DEPTH_LIMIT:
        raise _wrong(pointer[:80], f"is nested deeper than {_DEPTH_LIMIT}", "flatten the schema")
    kind, nullable = _type(schema.get("type"), pointer)
    unknown = sorted(str(word) for word in schema.keys() - _DESCRIBING - _RULES[kind] - {"type"})
    if unknown:
        allowed = ", ".join(sorted(_RULES[kind]))
        raise _wrong(f"{pointer}/{_escaped(unknown[0])}", f"is not supported for {kind}", f"supported: {allowed}")
    match kind:
        case "object":
            return _struct(schema, pointer), nullable
        case "array":
            element, element_nullable = _shape(schema.get("items"), f"{pointer}/items")
            return ListOf(element, element_nullable), nullable
        case _:
            return _scalar(schema, kind, nullable, pointer)


def _type(value: object, pointer: str) -> tuple[str, bool]:
    """(type, whether null is allowed)."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        others = [name for name in names if name != "null"]
        if len(others) == 1 and others[0] in _RULES and len(names) <= 2:
            return others[0], len(names) == 2
    raise _wrong(f"{pointer}/type", f"is {value!r}", f'write one of {", ".join(_RULES)}, or a list of one and "null"')


def _scalar(schema: Mapping[str, Any], kind: str, nullable: bool, pointer: str) -> tuple[Shape, bool]:
    shape = _SCALARS[kind]
    if "format" in schema:
        word = schema["format"]
        if not isinstance(word, str) or word not in _FORMATS:
            raise _wrong(f"{pointer}/format", f"is {word!r}", f"supported: {', '.join(_FORMATS)}; or leave it out")
        shape = _FORMATS[word]
    rules = [(word, schema[word]) for word in ("enum", "const") if word in schema]
    if not rules:
        return shape, nullable
    if len(rules) == 2:
        raise _wrong(f"{pointer}/const", "is set beside enum", "keep one of the two")
    word, value = rules[0]
    allowed = [value] if word == "const" else value
    if not isinstance(allowed, list) or not allowed:
        raise _wrong(f"{pointer}/{word}", "is not a list of values", "list what is allowed")
    for value in allowed:
        if problem := _problem_with(shape, value, nullable):
            raise _wrong(f"{pointer}/{word}", f"holds {value!r}, {problem}", "give values of the type above")
    return OneOf(shape, frozenset(allowed) - {None}), nullable and None in allowed


def _problem_with(shape: Shape, value: object, nullable: bool) -> str | None:
    if value is None:
        return None if nullable else "but null is not in type"
    if type(value) not in (str, int, float, bool):
        return "which is not a scalar"
    return None if shape.problem_with(value, "value") is None else "which does not have the type"


def _struct(schema: Mapping[str, Any], pointer: str) -> Struct:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise _wrong(f"{pointer}/properties", "names no properties", "list the properties that become columns")
    required = schema.get("required", [])
    if not isinstance(required, list):
        raise _wrong(f"{pointer}/required", "is not a list", "list names of properties")
    for index, name in enumerate(required):
        if not isinstance(name, str) or name not in properties:
            raise _wrong(
                f"{pointer}/required/{index}", f"is {name!r}, which is not in properties", "give it a type there"
            )
    open_ended = schema.get("additionalProperties", True)
    if not isinstance(open_ended, bool):
        raise _wrong(f"{pointer}/additionalProperties", "is not true or false", "write true (the default) or false")
    check_names(list(properties), lambda name: f"{pointer}/properties/{_escaped(name)}")
    fields = []
    for name, inner in properties.items():
        shape, nullable = _shape(inner, f"{pointer}/properties/{_escaped(name)}")
        fields.append(Field(name, shape, name in required, nullable))
    return Struct(tuple(fields), closed=not open_ended)


def _escaped(name: str) -> str:
    """A name as one step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _wrong(pointer: str, what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"JSON Schema: {pointer} {what}", next_step=next_step)
