"""Schemas as people write them: what is understood, and how a mistake is named."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.decoders.json.json_schema import parse, struct_of
from tidemark.errors import ConfigurationError


def columns(schema: Any) -> list[tuple[str, str, bool]]:
    return [(field.name, str(field.arrow.type), field.arrow.nullable) for field in parse(schema)]


def test_ddl_types_and_nulls() -> None:
    assert columns(
        "a INT NOT NULL, b string, c: Timestamp, `d ``e` DECIMAL(10,2) COMMENT 'x, y',"
        " e ARRAY<STRUCT<x: INT, y: MAP<STRING,DEC>>>, f TINYINT, g SMALLINT,"
        " h BIGINT, i REAL, j DOUBLE, k DATE, l BOOLEAN, m NUMERIC(5)"
    ) == [
        ("a", "int32", False),
        ("b", "string", True),
        ("c", "timestamp[us, tz=UTC]", True),
        ("d `e", "decimal128(10, 2)", True),
        ("e", "list<element: struct<x: int32, y: map<string, decimal128(10, 0)>>>", True),
        ("f", "int8", True),
        ("g", "int16", True),
        ("h", "int64", True),
        ("i", "float", True),
        ("j", "double", True),
        ("k", "date32[day]", True),
        ("l", "bool", True),
        ("m", "decimal128(5, 0)", True),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column name at position 0, found the end"),
        ("  ", "expected a column name at position 2, found the end"),
        ("a", "expected a type at position 1, found the end"),
        ("a FOO", "expected a type at position 2, found 'FOO'"),
        ("a TIMESTAMP_NTZ", "expected a type at position 2, found 'TIMESTAMP_NTZ'"),
        ("a INT,", "expected a column name at position 6, found the end"),
        ("a INT b INT", "expected a comma or the end at position 6, found 'b'"),
        ("a INT NOT", "expected NULL at position 9, found the end"),
        ("a ARRAY<INT", "expected '>' at position 11, found the end"),
        ("a MAP<INT, INT>", "expected STRING (names of JSON objects are text) at position 6, found 'INT'"),
        ("a DECIMAL(39,2)", "expected a number from 1 to 38 at position 10, found '39'"),
        ("a DECIMAL(5,6)", "expected a number from 0 to 5 at position 12, found '6'"),
        ("a INT COMMENT b", "expected a comment in quotes at position 14, found 'b'"),
        ("a `INT`", "expected a type at position 2"),
        ("'a' INT", "expected a column name at position 0"),
        ("a INT, A STRING", "A (list at position 0) has the same name as a"),
        ("_a INT", "_a (list at position 0) cannot be the name of a column"),
        ("a STRUCT<b INT, B INT>", "B (list at position 9) has the same name as b"),
        ("a " + "ARRAY<" * 50 + "INT" + ">" * 50, "expected at most 32 nested types"),
    ],
)
def test_a_mistake_in_ddl_is_named_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert message in caught.value.what
    assert caught.value.next_step


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_json_schema_types_and_nulls() -> None:
    schema = object_of(
        a={"type": "integer", "description": "d"},
        b={"type": ["number", "null"]},
        c={"type": "string", "format": "date-time"},
        d={"type": ["null", "string"], "format": "date"},
        e={"type": "array", "items": {"type": "boolean"}},
        f=object_of(x={"type": "string", "enum": ["a"]}, y={"const": 1, "type": "integer"}),
    )
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["a", "b", "e"]}
    assert columns(schema) == [
        ("a", "int64", False),
        ("b", "double", True),
        ("c", "timestamp[us, tz=UTC]", True),
        ("d", "date32[day]", True),
        ("e", "list<element: bool>", False),
        ("f", "struct<x: string, y: int64>", True),
    ]


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "neither a JSON Schema nor a DDL text"),
        ({}, "/type is missing"),
        ({"type": "array", "items": TEXT}, "/type is not 'object'"),
        ({"oneOf": [{"type": "null"}, TEXT]}, "/type is not 'object'"),
        ({"type": "object"}, "/properties names no properties"),
        (object_of(), "/properties names no properties"),
        (object_of(a=True), "/properties/a is true, which allows any value"),
        (object_of(a=False), "/properties/a is false, which allows no value"),
        (object_of(a="string"), "/properties/a is not a schema"),
        (
            object_of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": True}},
            "/properties/a/$ref is true, which allows any value",
        ),
        (object_of(a={"type": "array", "items": [TEXT]}), "/properties/a/items is a list, and a column has one type"),
        (object_of(a={"$recursiveRef": "#"}), "/properties/a/$recursiveRef is not supported, and no type is set"),
        (object_of(a={"$dynamicRef": "#node"}), "/properties/a/$dynamicRef is not supported, and no type is set"),
        (object_of(a={"not": {}}), "/properties/a/not is not supported, and no type is set"),
        (object_of(a={"type": "text"}), "/properties/a/type is 'text'"),
        (object_of(a={"type": ["string", "integer"]}), "/properties/a/type is ['string', 'integer']"),
        (object_of(a={"type": "null"}), "/properties/a/type is 'null'"),
        (object_of(a={**TEXT, "pattern": "(?=x)"}), "/properties/a/pattern is '(?=x)', which RE2 cannot use"),
        (object_of(a={**TEXT, "pattern": 1}), "/properties/a/pattern is 1"),
        (object_of(a={**TEXT, "maxLength": "1"}), "/properties/a/maxLength is '1'"),
        (object_of(a={**TEXT, "maxLenght": 1}), "/properties/a/maxLenght is not a word of JSON Schema"),
        (object_of(a={"type": "integer", "multipleOf": 0}), "/properties/a/multipleOf is 0"),
        (object_of(a={"type": "number", "minimum": True}), "/properties/a/minimum is True"),
        (object_of(a={"oneOf": [TEXT, {"type": "integer"}]}), "/properties/a/oneOf is a choice between types"),
        (object_of(a={"anyOf": [{"type": "null"}]}), "/properties/a/anyOf is a choice between types"),
        (object_of(a={"oneOf": 1}), "/properties/a/oneOf is a choice between types"),
        (object_of(a={"allOf": [TEXT, {"maxLength": 3}]}), "/properties/a/allOf joins several schemas"),
        (object_of(a={**TEXT, "oneOf": [{"type": "integer"}]}), "/properties/a/type is []"),
        (
            object_of(a={**TEXT, "maxLength": 1, "oneOf": [{"maxLength": 2}]}),
            "/properties/a/maxLength is set twice with different values",
        ),
        (
            object_of(a={"$ref": "#/definitions/A"}),
            "/properties/a/$ref is '#/definitions/A', and the schema has no such place",
        ),
        (object_of(a={"$ref": "other.json"}), "/properties/a/$ref names other.json, which is not among"),
        (object_of(a={"$ref": "#address"}), "/properties/a/$ref is '#address', the name of an anchor"),
        (object_of(a={"$ref": "#properties"}), "/properties/a/$ref is '#properties', the name of an anchor"),
        (
            object_of(a={"$ref": "#/properties/"}),
            "/properties/a/$ref is '#/properties/', and the schema has no such place",
        ),
        (object_of(a={"$ref": "#"}), "/properties/a/$ref is recursive"),
        (object_of(a={"$ref": 1}), "/properties/a/$ref is 1"),
        (object_of(a=TEXT) | {"not": {}}, "/not is not supported for object"),
        (object_of(a=TEXT) | {"patternProperties": {}}, "/patternProperties is not supported for object"),
        (object_of(a={"type": "array", "items": TEXT, "contains": TEXT}), "/properties/a/contains is not supported"),
        (object_of(a={"enum": ["x", 1]}), "/properties/a/type is missing"),
        (object_of(a={"type": "object", "additionalProperties": {}}), "/properties/a/properties names no properties"),
        (object_of(a={"type": "array"}), "/properties/a/items is missing"),
        (object_of(a={**TEXT, "enum": []}), "/properties/a/enum is not a list"),
        (object_of(a={**TEXT, "enum": ["x", 1]}), "/properties/a/enum holds 1"),
        (object_of(a={**TEXT, "enum": ["x", None]}), "/properties/a/enum holds None"),
        (object_of(a={**TEXT, "enum": [{}]}), "/properties/a/enum holds {}"),
        (object_of(a={**TEXT, "enum": ["x"], "const": "x"}), "/properties/a/const is set beside enum"),
        (object_of(a={"enum": [10**400], "type": "number"}), "/properties/a/enum holds 1000"),
        *(
            (object_of(a={"type": kind, word: limit}), f"/properties/a/{word} is {limit!r}")
            for kind, word in (("number", "minimum"), ("integer", "multipleOf"), ("string", "maxLength"))
            for limit in (float("nan"), float("inf"))
        ),
        (object_of(a={**TEXT, "required": True}), "/properties/a/required is not a list"),
        (object_of(a=TEXT) | {"required": ["b"]}, "/required/0 is 'b'"),
        (object_of(a=TEXT) | {"required": True}, "/required is not a list"),
        (object_of(a=TEXT) | {"additionalProperties": TEXT}, "/additionalProperties is not true or false"),
        (object_of(a=TEXT) | {"allOf": []}, "/allOf joins several schemas"),
        (object_of(**{"a/b~": {"type": "x"}}), "/properties/a~1b~0/type"),
        (object_of(a=TEXT, A=TEXT), "/properties/A has the same name as a"),
        (object_of(_a=TEXT), "/properties/_a cannot be the name"),
        (object_of(**{"": TEXT}), "/properties/ cannot be the name"),
    ],
)
def test_a_mistake_in_a_json_schema_is_named_with_its_pointer(schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(schema)
    assert message in caught.value.what
    assert caught.value.next_step


# As serializers and generators of schemas write them.
ADDRESS = object_of(street=TEXT, zip={"type": ["string", "null"]})
NOT_INCLUDED = {"type": "null", "title": "Not included"}
REGISTERED: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "Jackson (mbknor)": (
        {
            **object_of(
                id={"type": "integer"},
                note={"oneOf": [NOT_INCLUDED, TEXT]},
                at={"oneOf": [NOT_INCLUDED, {"$ref": "#/definitions/Address"}]},
                by={"type": "object", "additionalProperties": {"type": "number"}, "propertyOrder": 3},
                ms={"type": "integer", "format": "utc-millisec", "javaType": "java.util.Date"},
            ),
            "definitions": {"Address": {**ADDRESS, "additionalProperties": False}},
            "required": ["id"],
        },
        [("id", "int64", False), ("note", "string", True), ("at", "struct<street: string, zip: string>", True),
         ("by", "map<string, double>", True), ("ms", "int64", True)],
    ),
    "Kafka Connect": (
        {
            **object_of(
                id={"type": "integer", "connect.index": 0, "connect.type": "int64"},
                note={"connect.index": 1, "oneOf": [{"type": "null"}, {"type": "string"}]},
                cost={"connect.index": 2, "connect.version": 1, "connect.parameters": {"scale": "2"}, "type": "number",
                      "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes"},
                by={"connect.type": "map", "type": "array", "items": object_of(key={"type": "integer"}, value=TEXT)},
            ),
            "connect.version": 1,
        },
        [("id", "int64", True), ("note", "string", True), ("cost", "double", True),
         ("by", "list<element: struct<key: int64, value: string>>", True)],
    ),
    "pydantic": (
        {
            **object_of(
                id={"type": "integer", "exclusiveMinimum": 0},
                note={"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": None},
                at={"allOf": [{"$ref": "#/$defs/Address"}], "description": "d"},
                kind={"const": "a", "title": "Kind"},
                color={"$ref": "#/$defs/Color"},
            ),
            "$defs": {"Address": ADDRESS, "Color": {"enum": ["r", "g"], "title": "Color"}},
            "required": ["id", "kind"],
        },
        [("id", "int64", False), ("note", "string", True), ("at", "struct<street: string, zip: string>", True),
         ("kind", "string", False), ("color", "string", True)],
    ),
    "NJsonSchema": (
        {
            **object_of(
                id={"type": "string", "format": "guid", "minLength": 1},
                count={"type": "integer", "format": "int32"},
                at={"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Address"}]},
                mail={"type": ["null", "string"], "format": "email", "pattern": "^[^@]+@"},
            ),
            "definitions": {"Address": {**ADDRESS, "x-abstract": True}},
        },
        [("id", "string", True), ("count", "int64", True), ("at", "struct<street: string, zip: string>", True),
         ("mail", "string", True)],
    ),
    "by hand": (
        {
            **object_of(
                a={"items": {"$ref": "#/properties/b"}, "minItems": 1, "uniqueItems": True},
                b={"type": ["integer", "null"], "enum": [1.0, 2, None]},
                c={"properties": {"_id": TEXT}},
                d={"type": "number", "minimum": 0, "exclusiveMinimum": True, "multipleOf": 0.01},
                e={"enum": [1, 2.5, None]},
            ),
            "type": ["object", "null"], "maxProperties": 4, "confluent:tags": ["PII"], "id": "http://x",
        },
        [("a", "list<element: int64>", True), ("b", "int64", True), ("c", "struct<_id: string>", True),
         ("d", "double", True), ("e", "double", True)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGISTERED)
def test_schemas_are_read_as_others_write_them(name: str) -> None:
    schema, expected = REGISTERED[name]
    assert columns(schema) == expected


def test_references_of_a_registry_are_followed() -> None:
    other = {"$id": "http://shop/address.json", **ADDRESS, "definitions": {"Zip": {"type": "string", "maxLength": 5}}}
    schema = object_of(
        a={"$ref": "address.json"}, b={"$ref": "address.json#/definitions/Zip"}, c={"$ref": "http://shop/address.json"}
    )
    fields = struct_of(schema, {"address.json": other}).fields
    address = "struct<street: string, zip: string>"
    assert [str(field.arrow.type) for field in fields] == [address, "string", address]
    loop = {
        "definitions": {"A": object_of(next={"$ref": "#/definitions/A"})},
        **object_of(a={"$ref": "#/definitions/A"}),
    }
    with pytest.raises(ConfigurationError, match=r"/properties/a/properties/next/\$ref is recursive"):
        parse(loop)
    wide: dict[str, Any] = {"A0": TEXT}
    for at in range(1, 40):
        wide[f"A{at}"] = object_of(x={"$ref": f"#/definitions/A{at - 1}"}, y={"$ref": f"#/definitions/A{at - 1}"})
    for deepest in ("A20", "A39"):
        with pytest.raises(ConfigurationError, match="is nested deeper than 32, or the schema has more than 10,000"):
            parse({"definitions": wide, **object_of(a={"$ref": f"#/definitions/{deepest}"})})


@given(st.text(alphabet="aA1 ,:<>()`'_\nINTSTRUCT", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        fields = parse(text)
    except ConfigurationError:
        return
    assert pa.schema([field.arrow for field in fields])


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=3),
        st.sampled_from(["object", "string", "array", "#/a", "#"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "required",
                    "enum",
                    "format",
                    "a",
                    "oneOf",
                    "allOf",
                    "$ref",
                    "additionalProperties",
                    "minimum",
                    "maxLength",
                    "pattern",
                    "$schema",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_parsed_or_refused(schema: Any) -> None:
    try:
        parse(schema)
    except ConfigurationError:
        return
    assert isinstance(schema, dict | str)
