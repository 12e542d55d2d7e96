"""Turns a JSON Schema, or a Spark DDL text, into fields that a decoder can check and build.

It accepts what serializers and generators write: ``type`` (one type, or one and ``null``), ``properties``,
``required``, ``additionalProperties``, ``items``, ``enum``, ``const``, bounds (``rules.py``), ``$ref`` to a part of the
schema or to a reference of the registry, and ``oneOf``, ``anyOf``, ``allOf`` of one schema, or of one and ``null``.
``format`` with ``date-time`` or ``date`` makes a column of times or dates. Other formats, and words that JSON Schema
does not have (``connect.index``, ``javaType``), have no effect. An unsupported word that could forbid a record is an
error: to ignore it would accept that record.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import unquote

from tidemark.decoders.json import ddl
from tidemark.decoders.json.rules import NUMBERS, OBJECTS, TEXTS, rules_of
from tidemark.decoders.json_shapes.nested import Field, ListOf, MapOf, Struct
from tidemark.decoders.json_shapes.shapes import (
    Boolean,
    Day,
    Instant,
    Integer,
    Number,
    OneOf,
    Rule,
    Ruled,
    Scalar,
    Shape,
    Text,
    Whole,
)
from tidemark.decoders.names import check_names
from tidemark.errors import ConfigurationError

_DESCRIBING: Final = {
    "$schema", "$id", "id", "$comment", "$anchor", "$vocabulary", "title", "description", "example", "examples",
    "default",
    "deprecated", "readOnly", "writeOnly", "definitions", "$defs", "contentEncoding", "contentMediaType",
    "contentSchema",
}  # fmt: skip
_OF_KINDS: Final[Mapping[str, set[str]]] = {
    "object": {"properties", "required", "additionalProperties", *OBJECTS},
    "array": {"items", "minItems", "maxItems", "uniqueItems"},
    "string": {"format", "enum", "const", *TEXTS},
    "integer": {"format", "enum", "const", *NUMBERS},
    "number": {"format", "enum", "const", *NUMBERS},
    "boolean": {"enum", "const"},
}
_FORBIDDING: Final = {
    "$dynamicRef", "$recursiveRef", "additionalItems", "allOf", "anyOf", "contains", "dependencies",
    "dependentRequired", "dependentSchemas", "disallow", "divisibleBy", "else", "extends", "if", "maxContains",
    "minContains", "not", "oneOf", "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedItems",
    "unevaluatedProperties",
}  # fmt: skip
_KNOWN: Final = sorted({"type", "$ref", *_DESCRIBING, *_FORBIDDING}.union(*_OF_KINDS.values()))
_CHOICES: Final = ("oneOf", "anyOf", "allOf")
_FORMATS: Final[Mapping[str, Scalar]] = {"date-time": Instant(), "date": Day()}
_SCALARS: Final[Mapping[str, Scalar]] = {
    "string": Text(), "integer": Whole(), "number": Number(), "boolean": Boolean()
}  # fmt: skip
_INTEGERS_ALONE: Final = re.compile(r"draft-0[34]")  # drafts in which 1.0 is no integer
_REFERENCES_ALONE: Final = re.compile(r"draft-0[3-7]")  # drafts that ignore the words beside a $ref
_DEPTH_LIMIT = 32
_MOST_TYPES = 10_000  # with references a small schema can stand for millions of types
_A_TYPO = 0.8  # similarity of two words: above it are itmes and items, below it javaType and type
_OTHER_WAY = "or name another schema of the rows, which leaves this property out"


def parse(schema: Mapping[str, Any] | str) -> tuple[Field, ...]:
    """Return the columns of a JSON Schema or DDL text; ``ConfigurationError`` names the pointer or position of the
    error."""
    return struct_of(schema).fields


def struct_of(schema: object, references: Mapping[str, Any] | None = None) -> Struct:
    """Return all fields of a record, and whether other properties are allowed; raises ``ConfigurationError`` as
    ``parse``.

    ``references`` are other schemas, by the name that a ``$ref`` uses for them.
    """
    if isinstance(schema, str):
        return Struct(ddl.parse(schema))
    if not isinstance(schema, Mapping):
        raise ConfigurationError(
            "decode.schema is neither a JSON Schema nor a DDL text",
            next_step="give the path of a JSON Schema file, or columns such as 'id BIGINT NOT NULL, name STRING'",
        )
    shape, _ = _Reading({"": schema, **(references or {})}).shape(schema, _Place())
    if not isinstance(shape, Struct):
        raise _wrong("/type", "is not 'object'", 'a record is one object: write "type": "object"')
    return shape


class _Place:
    """A place in a schema: its pointer in a document, and the references that lead there."""

    def __init__(self, pointer: str = "", document: str = "", above: tuple[str, ...] = (), depth: int = 0) -> None:
        self.pointer, self.document, self.above, self.depth = pointer, document, above, depth

    def at(self, *steps: str | int) -> "_Place":
        pointer = self.pointer + "".join(f"/{_escaped(str(step))}" for step in steps)
        return _Place(pointer, self.document, self.above, self.depth + 1)

    def wrong(self, word: str, what: str, next_step: str) -> ConfigurationError:
        where = f"{self.document}#" if self.document else ""
        return _wrong(f"{where}{self.pointer}{f'/{_escaped(word)}' if word else ''}", what, next_step)


class _Reading:
    """Reads the parts of a schema and its references; ``documents`` holds them by name."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        draft = str(documents[""].get("$schema"))
        integers_alone = _INTEGERS_ALONE.search(draft) is not None
        self._scalars: Mapping[str, Scalar] = {**_SCALARS, "integer": Integer()} if integers_alone else _SCALARS
        self._references_alone = _REFERENCES_ALONE.search(draft) is not None
        self._types = 0

    def shape(self, schema: object, place: _Place) -> tuple[Shape, bool]:
        """Return (shape, whether null is allowed)."""
        self._types += 1
        if place.depth > _DEPTH_LIMIT or self._types > _MOST_TYPES:
            what = f"is nested deeper than {_DEPTH_LIMIT}, or the schema has more than {_MOST_TYPES:,} types"
            raise _wrong(place.pointer[:80], what, "flatten the schema")
        schema, may_be_null, place = self._plain(schema, place)
        kind, nullable = _type(schema, place)
        self._refuse_others(schema, kind, place)
        try:
            rules = rules_of(schema, kind)
        except ValueError as problem:
            word, what = problem.args
            raise place.wrong(word, what, f"correct it or leave it out, {_OTHER_WAY}") from None
        match kind:
            case "object":
                return self._object(schema, place, rules), nullable or may_be_null
            case "array":
                if "items" not in schema:
                    raise place.wrong("items", "is missing", f"say what the array holds, {_OTHER_WAY}")
                element, element_nullable = self.shape(schema["items"], place.at("items"))
                return ListOf(element, element_nullable, rules), nullable or may_be_null
            case _:
                scalar, nullable = self._scalar(schema, kind, nullable or may_be_null, place)
                return Ruled(scalar, rules) if rules else scalar, nullable or may_be_null

    def _plain(self, schema: object, place: _Place) -> tuple[Mapping[str, Any], bool, _Place]:
        """Replace references and choices by the schemas that they name.

        Return (that schema, whether one of the choices allows null, its place).
        """
        may_be_null = False
        for _ in range(_DEPTH_LIMIT):
            if not isinstance(schema, Mapping):
                raise place.wrong("", _not_a_schema(schema), f"write an object with a type, {_OTHER_WAY}")
            if "$ref" in schema:
                inner, place = self._referred(schema["$ref"], place)
                schema = _joined({} if self._references_alone else schema, "$ref", inner, place)
                continue
            word = next((word for word in _CHOICES if word in schema), None)
            if word is None:
                return schema, may_be_null, place
            inner, with_null = self._chosen(schema[word], word, place)
            may_be_null = may_be_null or with_null
            schema = _joined(schema, word, inner, place)
        raise place.wrong("", f"has more than {_DEPTH_LIMIT} references in a row", "write the type itself")

    def _referred(self, reference: object, place: _Place) -> tuple[Any, _Place]:
        """Return the part of a schema that a ``$ref`` names, and its place."""
        if not isinstance(reference, str):
            raise place.wrong("$ref", f"is {reference!r}", "write the place of a schema, such as #/definitions/Address")
        name, _, pointer = reference.partition("#")
        document = self._document(name, place)
        full = f"{document}#{pointer}"
        if pointer and not pointer.startswith("/"):
            raise place.wrong(
                "$ref",
                f"is {reference[:80]!r}, the name of an anchor, and only paths that begin with / are supported",
                "write the place of the schema, such as #/definitions/Address",
            )
        if full in place.above or (not pointer and document == ""):
            raise place.wrong(
                "$ref",
                f"is recursive: {reference[:80]} contains itself, and columns have a fixed depth",
                f"leave the property out, {_OTHER_WAY}",
            )
        schema = self._documents[document]
        for step in unquote(pointer).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, Mapping) and step in schema:
                schema = schema[step]
            elif isinstance(schema, list) and step.isdecimal() and int(step) < len(schema):
                schema = schema[int(step)]
            else:
                what = f"is {reference[:80]!r}, and the schema has no such place"
                raise place.wrong("$ref", what, "correct the reference")
        return schema, _Place(place.pointer, document, (*place.above, full), place.depth)

    def _document(self, name: str, place: _Place) -> str:
        if not name or name in self._documents:
            return name or place.document
        for document, schema in self._documents.items():
            if isinstance(schema, Mapping) and name in (schema.get("$id"), schema.get("id")):
                return document
        raise place.wrong(
            "$ref",
            f"names {name[:80]}, which is not among the schema's references",
            "register the schema with that reference, or write that type into the schema",
        )

    def _chosen(self, choices: object, word: str, place: _Place) -> tuple[Any, bool]:
        """Return (the only schema beside ``null``, whether null is one of the choices)."""
        if isinstance(choices, list) and choices:
            others = [choice for choice in choices if not _is_null(choice)]
            nulls = len(choices) - len(others)
            if len(others) == 1 and (not nulls or word != "allOf"):
                return others[0], nulls > 0
        raise place.wrong(
            word,
            "is a choice between types, and a column has one" if word != "allOf" else "joins several schemas",
            f"write one schema, or one and null; {_OTHER_WAY}",
        )

    def _refuse_others(self, schema: Mapping[str, Any], kind: str, place: _Place) -> None:
        rules = _OF_KINDS[kind]
        if isinstance(schema.get("required"), bool):
            raise place.wrong("required", "is not a list", "name the required properties beside properties")
        for word in sorted(map(str, schema.keys() - _DESCRIBING - rules - {"type"})):
            if word in _FORBIDDING:
                raise place.wrong(word, f"is not supported for {kind}", f"supported: {', '.join(sorted(rules))}")
            if word not in _KNOWN and (meant := get_close_matches(word, _KNOWN, n=1, cutoff=_A_TYPO)):
                raise place.wrong(word, "is not a word of JSON Schema", f'did you mean "{meant[0]}"?')

    def _scalar(
        self, schema: Mapping[str, Any], kind: str, nullable: bool, place: _Place
    ) -> tuple[Scalar | OneOf, bool]:
        shape = self._scalars[kind]
        word = schema.get("format")
        if kind == "string" and isinstance(word, str):
            shape = _FORMATS.get(word, shape)
        rules = [(word, schema[word]) for word in ("enum", "const") if word in schema]
        if not rules:
            return shape, nullable
        if len(rules) == 2:
            raise place.wrong("const", "is set beside enum", "keep one of the two")
        word, value = rules[0]
        allowed = [value] if word == "const" else value
        if not isinstance(allowed, list) or not allowed:
            raise place.wrong(word, "is not a list of values", "list what is allowed")
        if isinstance(shape, Whole):
            allowed = [int(value) if type(value) is float and value.is_integer() else value for value in allowed]
        for value in allowed:
            if problem := _problem_with(shape, value, nullable):
                raise place.wrong(word, f"holds {repr(value)[:60]}, {problem}", "give values of the type above")
        return OneOf(shape, frozenset(allowed) - {None}), nullable and None in allowed

    def _object(self, schema: Mapping[str, Any], place: _Place, rules: tuple[Rule, ...]) -> Shape:
        properties, others = schema.get("properties"), schema.get("additionalProperties", True)
        if not properties and isinstance(others, Mapping) and others and "required" not in schema:
            item, nullable = self.shape(others, place.at("additionalProperties"))
            return MapOf(item, nullable, rules)
        if not isinstance(properties, Mapping) or not properties:
            raise place.wrong("properties", "names no properties", f"list those that become columns, {_OTHER_WAY}")
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise place.wrong("required", "is not a list", "list names of properties")
        for index, name in enumerate(required):
            if not isinstance(name, str) or name not in properties:
                what = f"is {name!r}, which is not in properties"
                raise place.at("required").wrong(str(index), what, "give it a type there")
        if not isinstance(others, bool):
            raise place.wrong(
                "additionalProperties",
                "is not true or false, beside properties",
                "write true (the default; others are counted, not read) or false",
            )
        inside = bool(place.depth)
        check_names(list(properties), lambda name: place.at("properties", name).pointer, inside=inside)
        fields = []
        for name, inner in properties.items():
            shape, nullable = self.shape(inner, place.at("properties", name))
            fields.append(Field(name, shape, name in required, nullable))
        return Struct(tuple(fields), closed=not others, rules=rules)


def _joined(outer: Mapping[str, Any], word: str, inner: Any, place: _Place) -> Mapping[str, Any]:
    """Return ``outer`` with ``inner``, the schema that its ``word`` names, in place of that word.

    A word that both schemas have must have the same value in both.
    """
    if not isinstance(inner, Mapping):
        raise place.wrong(word, _not_a_schema(inner), f"write an object with a type, {_OTHER_WAY}")
    kept = {name: value for name, value in outer.items() if name != word}
    joined = {**kept, **inner}
    for name in kept.keys() & inner.keys() - _DESCRIBING:
        if name == "type":
            joined[name] = _common_type(kept[name], inner[name])
        elif kept[name] != inner[name] and name in _KNOWN:
            raise place.wrong(name, f"is set twice with different values, here and by {word}", "keep one of the two")
    return joined


def _common_type(outer: object, inner: object) -> object:
    """Return the types that both schemas allow."""
    first, second = ([each] if isinstance(each, str) else each for each in (outer, inner))
    if isinstance(first, list) and isinstance(second, list):
        return [name for name in second if name in first]
    return inner


def _not_a_schema(schema: object) -> str:
    match schema:
        case bool():
            return (
                f"is {str(schema).lower()}, which allows {'any' if schema else 'no'} value, and a column has one type"
            )
        case list():
            return "is a list, and a column has one type"
        case _:
            return "is not a schema"


def _is_null(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None] or schema.get("const", 0) is None


def _type(schema: Mapping[str, Any], place: _Place) -> tuple[str, bool]:
    """Return (type, whether null is allowed)."""
    value = schema.get("type")
    names = [value] if isinstance(value, str) else _types_without_a_word(schema) if value is None else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        others = [name for name in names if name != "null"]
        if len(others) == 1 and others[0] in _OF_KINDS and len(names) <= 2:
            return others[0], len(names) == 2
    if value is None and (word := min(_FORBIDDING & schema.keys(), default=None)):
        raise place.wrong(word, "is not supported, and no type is set beside it", f"write the type, {_OTHER_WAY}")
    kinds = ", ".join(_OF_KINDS)
    what = f"is {value!r}" if "type" in schema else "is missing"
    raise place.wrong("type", what, f'write one of {kinds}, or a list of one and "null"; {_OTHER_WAY}')


def _types_without_a_word(schema: Mapping[str, Any]) -> list[str]:
    """Return the types of a schema without ``type``, as far as its other words imply them."""
    if "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
        return ["object"]
    if "items" in schema:
        return ["array"]
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    if not isinstance(allowed, list):
        return []
    kinds = {names.get(type(value), "") for value in allowed}
    return sorted(kinds - {"integer"} if "number" in kinds else kinds)


def _problem_with(shape: Shape, value: object, nullable: bool) -> str | None:
    if value is None:
        return None if nullable else "but null is not in type"
    if type(value) not in (str, int, float, bool):
        return "which is not a scalar"
    return None if shape.problem_with(value, "value") is None else "which does not have the type"


def _escaped(name: str) -> str:
    """A name as one step of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _wrong(pointer: str, what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"JSON Schema: {pointer} {what}", next_step=next_step)
