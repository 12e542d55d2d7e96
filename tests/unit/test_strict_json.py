"""The json decoder: what is not exactly what the schema says is an error of its record."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.decoders.base import REASON_LIMIT
from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json.strict import DEPTH_LIMIT, JsonDecoder
from tidemark.decoders.json_shapes.shapes import ABSENT
from tidemark.decoders.one_by_one import Misfit

DDL = (
    "id INT NOT NULL, text STRING, at TIMESTAMP, money DECIMAL(10,2), list ARRAY<STRING>, flag BOOLEAN, day DATE,"
    " number DOUBLE, half FLOAT, tiny TINYINT, long BIGINT, map MAP<STRING, INT>,"
    " inner STRUCT<x: INT NOT NULL, y: ARRAY<INT>>"
)
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "kind": {"enum": ["a", "b", None], "type": ["string", "null"]},
        "inner": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False},
        "list": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["id", "name"],
    "additionalProperties": False,
}


def decode(schema: Any, *values: bytes | str | None) -> tuple[list[dict[str, Any]], list[str]]:
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    batch = pa.RecordBatch.from_arrays([pa.array(raw, pa.binary())], ["value"])
    decoded = JsonDecoder(struct_of(schema)).decode(batch)
    return decoded.rows.to_pylist(), [bad.reason for bad in decoded.errors]


def test_an_integer_that_nothing_needs_may_have_any_digits() -> None:
    rows, reasons = decode(
        "id INT, more MAP<STRING, INT>", '{"id": 1, "unknown": [-' + "9" * 5000 + ', 1], "more": {}}'
    )
    assert (rows, reasons) == ([{"id": 1, "more": []}], [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value (a tombstone)"),
        (b"", "the value is empty"),
        (b"  ", "not JSON: Expecting value at character 2"),
        (b'\xff{"id": 1}', "not UTF-8 at byte 0"),
        (b'{"id": 1, "text": "\xed\xa0\x80"}', "not UTF-8 at byte 19"),
        (b'\xef\xbb\xbf{"id": 1}', "not JSON: begins with a byte order mark"),
        ('{"id": 1} junk', "not JSON: more content after the first value, at character 9"),
        ('{"id": 1}{"id": 2}', "not JSON: more content after the first value, at character 9"),
        ('{"id": 1}\u00a0', "not JSON: more content after the first value, at character 9"),
        ("{'id': 1}", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        ('{"id": 1', "not JSON: Expecting ',' delimiter at character 8"),
        ('{"id": 01}', "not JSON: Expecting ',' delimiter at character 8"),
        ('{"id": 1, "text": "a\nb"}', "not JSON: Invalid control character at character 20"),
        ('{"id": 1, "id": 1}', 'not JSON: the name "id" comes twice'),
        ('{"id": 1, "more": {"x": 1, "x": 2}}', 'not JSON: the name "x" comes twice'),
        ('{"id": NaN}', "not JSON: NaN"),
        ('{"id": 1, "more": -Infinity}', "not JSON: -Infinity"),
        ("[]", "expected an object, found array"),
        ("1", "expected an object, found integer"),
        ("null", "expected an object, found null"),
        ("{}", "field id: absent"),
        ('{"ID": 1}', "field id: absent"),
        ('{"id": null}', "field id: null"),
        ('{"id": "1"}', "field id: expected integer, found string"),
        ('{"id": 1.5}', "field id: expected integer, found number"),
        ('{"id": 1.0}', "field id: expected integer, found number"),
        ('{"id": true}', "field id: expected integer, found boolean"),
        ('{"id": 2147483648}', "field id: outside the range of a 32-bit integer"),
        ('{"id": 1, "tiny": -129}', "field tiny: outside the range of a 8-bit integer"),
        ('{"id": 1, "long": 9223372036854775808}', "field long: outside the range of a 64-bit integer"),
        ('{"id": ' + "9" * 5000 + "}", "field id: outside the range of a 32-bit integer"),
        ('{"id": 1, "number": -' + "9" * 5000 + "}", "field number: outside the range of a 64-bit float"),
        ('{"id": 1, "more": ' + "9" * 5000 + ', "more": 1}', 'not JSON: the name "more" comes twice'),
        ('{"id": 1, "text": 2.50}', "field text: expected string, found number"),
        ('{"id": 1, "text": {}}', "field text: expected string, found object"),
        ('{"id": 1, "text": "\\ud800"}', "field text: holds a lone surrogate, which is not a character"),
        ('{"id": 1, "flag": 0}', "field flag: expected boolean, found integer"),
        ('{"id": 1, "number": "2"}', "field number: expected number, found string"),
        ('{"id": 1, "number": 1e999}', "field number: outside the range of a 64-bit float"),
        ('{"id": 1, "number": 1' + "0" * 400 + "}", "field number: outside the range of a 64-bit float"),
        ('{"id": 1, "half": 1e39}', "field half: outside the range of a 32-bit float"),
        ('{"id": 1, "money": 2.505}', "field money: does not fit DECIMAL(10,2)"),
        ('{"id": 1, "money": 123456789}', "field money: does not fit DECIMAL(10,2)"),
        ('{"id": 1, "money": 1e99999}', "field money: does not fit DECIMAL(10,2)"),
        ('{"id": 1, "money": 1e-999999999}', "field money: does not fit DECIMAL(10,2)"),
        ('{"id": 1, "money": 0e-999999999}', "field money: does not fit DECIMAL(10,2)"),
        ('{"id": 1, "money": "2.50"}', "field money: expected number, found string"),
        ('{"id": 1, "at": "2013-02-30T00:00:00Z"}', "field at: not an RFC 3339 date-time"),
        ('{"id": 1, "at": 1356998400}', "field at: expected date-time string, found integer"),
        ('{"id": 1, "day": "2013-02-29"}', "field day: not a date (YYYY-MM-DD)"),
        ('{"id": 1, "day": "0000-01-01"}', "field day: not a date (YYYY-MM-DD)"),
        ('{"id": 1, "day": "2013-1-1"}', "field day: not a date (YYYY-MM-DD)"),
        ('{"id": 1, "list": ["a", 1]}', "field list[1]: expected string, found integer"),
        ('{"id": 1, "list": "a"}', "field list: expected array, found string"),
        ('{"id": 1, "map": {"k": "v"}}', 'field map["k"]: expected integer, found string'),
        (
            '{"id": 1, "map": {"\\udfff": 1}}',
            'field map: the name "\\udfff" holds a lone surrogate, which is not a character',
        ),
        ('{"id": 1, "inner": {}}', "field inner.x: absent"),
        ('{"id": 1, "inner": {"x": 1, "y": [2, "3"]}}', "field inner.y[1]: expected integer, found string"),
    ],
)
def test_what_is_not_the_schema_has_a_reason(value: bytes | str | None, reason: str) -> None:
    fine = '{"id": 7}'
    assert decode(DDL, value) == ([], [reason])
    rows, reasons = decode(DDL, *[fine] * 20, value, *[fine] * 20)
    assert [row["id"] for row in rows] == [7] * 40
    assert reasons == [reason]


def test_everything_that_fits_is_read_exactly() -> None:
    value = {
        "id": -1, "text": "é\u0000", "list": [], "flag": False, "day": "2013-01-31", "number": 3, "half": 0.5,
        "tiny": -128, "long": -(2**63), "map": {"b": 1, "a": None}, "inner": {"x": 1, "y": [None, 2]},
        "at": "2013-01-01T10:00:00", "more": [{}],
    }  # fmt: skip
    text = json.dumps(value).removesuffix("}") + ', "money": 12345678.900}'
    rows, reasons = decode(DDL, text, '{"id": 1, "money": -5, "list": null, "inner": null, "number": 0.1}')
    assert reasons == []
    assert rows[0] == {
        "id": -1, "text": "é\u0000", "list": [], "flag": False, "day": date(2013, 1, 31), "number": 3.0, "half": 0.5,
        "tiny": -128, "long": -(2**63), "map": [("b", 1), ("a", None)], "inner": {"x": 1, "y": [None, 2]},
        "at": datetime(2013, 1, 1, 10, tzinfo=UTC), "money": Decimal("12345678.90"),
    }  # fmt: skip
    assert rows[1] == dict.fromkeys(rows[0]) | {"id": 1, "money": Decimal("-5.00"), "number": 0.1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"id": 1}', "field name: absent"),
        ('{"id": null, "name": null}', "field id: null"),
        ('{"id": 1, "name": null, "at": null}', "field at: null"),
        ('{"id": 1, "name": null, "at": "2013-01-01T10:00:00"}', "field at: not an RFC 3339 date-time with a zone"),
        ('{"id": 1, "name": null, "kind": "c"}', "field kind: not one of the 2 values that the schema allows"),
        ('{"id": 1, "name": null, "kind": ["a"]}', "field kind: expected string, found array"),
        ('{"id": 1, "name": null, "zzz": 1}', 'record: the schema has no property "zzz"'),
        ('{"id": 1, "name": null, "inner": {"x": 1, "z": 1}}', 'field inner: the schema has no property "z"'),
        ('{"id": 1, "name": null, "list": [null]}', "field list[0]: null"),
    ],
)
def test_rules_of_a_json_schema_hold(value: str, reason: str) -> None:
    assert decode(SCHEMA, value) == ([], [reason])


def test_what_a_json_schema_allows_is_read() -> None:
    rows, reasons = decode(
        SCHEMA, '{"id": 1, "name": null, "kind": null, "inner": {}}', '{"id": 2, "name": "n", "kind": "b"}'
    )
    assert reasons == []
    assert [(row["id"], row["name"], row["kind"], row["inner"]) for row in rows] == [
        (1, None, None, {"x": None}),
        (2, "n", "b", None),
    ]


def test_deep_nesting_is_a_reason_not_a_crash() -> None:
    def nested(depth: int) -> str:
        return '{"id": 1, "more": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"

    too_deep = f"not read: nested deeper than {DEPTH_LIMIT}"
    assert decode("id INT", nested(DEPTH_LIMIT))[1] == []
    assert decode("id INT", nested(DEPTH_LIMIT + 1), nested(1_000_000))[1] == [too_deep] * 2
    in_text = json.dumps({"id": 1, "text": '["{' * 1000})
    wide = json.dumps({"id": 1, "list": ["[]"] * 10, "more": [[]] * 1000})
    assert decode("id INT", in_text, wide)[1] == []


def test_reasons_are_short_and_can_be_stored_whatever_the_data() -> None:
    name = "\ud800" * 100_000
    record = json.dumps({"id": 1, "name": None, name: 1})
    twice = f"{{{json.dumps(name)}: 1, {json.dumps(name)}: 2}}"
    for reason in decode(SCHEMA, record, twice)[1]:
        assert len(reason) <= REASON_LIMIT
        assert reason.isascii()
    assert len(decode(SCHEMA, record, twice)[1]) == 2


def test_many_names_of_which_one_comes_twice_are_read_quickly() -> None:
    names = ", ".join(f'"n{at}": 1' for at in range(200_000))
    assert decode("id INT", f'{{{names}, "n199999": 1}}')[1] == ['not JSON: the name "n199999" comes twice']


RULED = {
    "type": "object",
    "properties": {
        "whole": {"type": "integer", "minimum": -9, "exclusiveMaximum": 100, "multipleOf": 3},
        "number": {"type": "number", "exclusiveMinimum": -0.5, "maximum": 1e300, "multipleOf": 0.01},
        "text": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z0-9]"},
        "one": {"type": "integer", "enum": [1, 3]},
        "list": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
        "inner": {"type": "object", "properties": {"x": {"type": "integer"}}, "maxProperties": 1},
    },
    "maxProperties": 5,
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"whole": 4}', "field whole: multipleOf of the schema is 3"),
        ('{"whole": -12.0}', "field whole: minimum of the schema is -9"),
        ('{"whole": 102}', "field whole: exclusiveMaximum of the schema is 100"),
        ('{"whole": 3.5}', "field whole: expected integer, found number"),
        ('{"whole": 9007199254740993.5}', "field whole: expected integer, found number"),
        ('{"whole": 1e400}', "field whole: outside the range of a 64-bit integer"),
        ('{"whole": 1e999999999}', "field whole: outside the range of a 64-bit integer"),
        ('{"whole": 1e-999999999}', "field whole: expected integer, found number"),
        ('{"number": 0.005}', "field number: multipleOf of the schema is 0.01"),
        ('{"number": -0.5}', "field number: exclusiveMinimum of the schema is -0.5"),
        ('{"number": 1e301}', "field number: maximum of the schema is 1E+300"),
        ('{"text": ""}', "field text: minLength of the schema is 1"),
        ('{"text": "éééé"}', "field text: maxLength of the schema is 3"),
        ('{"text": "É"}', "field text: pattern of the schema is ^[a-z0-9]"),
        ('{"one": 2.0}', "field one: not one of the 2 values that the schema allows"),
        ('{"list": []}', "field list: minItems of the schema is 1"),
        ('{"list": [1, 2, 3]}', "field list: maxItems of the schema is 2"),
        ('{"list": [1, 1.0]}', "field list: uniqueItems of the schema is True"),
        ('{"list": [0, -0.0]}', "field list: uniqueItems of the schema is True"),
        ('{"list": [1e5, 100000]}', "field list: uniqueItems of the schema is True"),
        ('{"map": {}}', "field map: minProperties of the schema is 1"),
        ('{"inner": {"x": 1, "y": 2}}', "field inner: maxProperties of the schema is 1"),
        ('{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}', "record: maxProperties of the schema is 5"),
    ],
)
def test_bounds_of_a_json_schema_hold(value: str, reason: str) -> None:
    assert decode(RULED, value) == ([], [reason])
    assert decode(RULED, '{"text": "a"}', value)[1] == [reason]


def test_a_number_without_a_fraction_is_an_integer_of_json_schema() -> None:
    """Since draft 6; a number is never rounded to one."""
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "of": {"type": "array", "items": {"type": "integer"}}},
    }
    texts = [
        "1",
        "1.0",
        "3e0",
        "-0.0",
        "0e-7",
        "9007199254740993.0",
        "9223372036854775807.000",
        "12.5e1",
        "1E+2",
        "100e-2",
        "0e50",
        "0e999999999",
    ]
    rows, reasons = decode(schema, *(f'{{"id": {text}, "of": [{text}, {text}]}}' for text in texts))
    assert reasons == []
    assert [row["id"] for row in rows] == [1, 1, 3, 0, 0, 2**53 + 1, 2**63 - 1, 125, 100, 1, 0, 0]
    assert all(row["of"] == [row["id"]] * 2 for row in rows)
    flat = {**schema, "properties": {"id": {"type": "integer"}}}
    assert decode(flat, '{"id":1}', '{"id":2}', '{"id":3.0}', '{"id":3.1}') == (
        [{"id": 1}, {"id": 2}, {"id": 3}], ["field id: expected integer, found number"]
    )  # fmt: skip
    old = {**flat, "$schema": "http://json-schema.org/draft-04/schema#"}
    assert decode(old, '{"id": 1.0}')[1] == ["field id: expected integer, found number"]


@pytest.mark.parametrize(("draft", "holds"), [("draft-07/schema#", False), ("draft/2020-12/schema", True)])
def test_what_stands_beside_a_reference_holds_as_the_draft_says(draft: str, holds: bool) -> None:
    schema = {
        "$schema": f"http://json-schema.org/{draft}", "type": "object", "definitions": {"t": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/t", "maxLength": 1}},
    }  # fmt: skip
    assert decode(schema, '{"a": "xyz"}')[1] == (["field a: maxLength of the schema is 1"] if holds else [])


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**33), 2**33), st.integers(), st.floats(allow_nan=False),
    st.text(max_size=4), st.characters(categories=["Cs"]),
    st.sampled_from(["2013-01-01T10:00:00Z", "2013-01-01", "2013-02-30", "a", "b"]),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.thorough
@settings(max_examples=draws(300))
@given(data=st.data())
@pytest.mark.parametrize("schema", [DDL, SCHEMA, RULED], ids=["ddl", "json-schema", "rules"])
def test_columns_and_reasons_agree(schema: Any, data: st.DataObject) -> None:
    """A column is built exactly when no value has a reason against it, and ``misfits`` names those that have."""
    struct = struct_of(schema)
    for field in struct.fields:
        values = data.draw(st.lists(st.one_of(st.just(ABSENT), anything), max_size=6))
        reasons = [field.problem_with(value, field.name) for value in values]
        try:
            assert len(field.column(values)) == len(values)
            built = True
        except Misfit:
            built = False
        assert built == (not any(reasons))
    records = [
        {
            field.name: value
            for field in struct.fields
            if (value := data.draw(st.one_of(st.just(ABSENT), anything))) is not ABSENT
        }
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    wrong = {index for index, record in enumerate(records) if struct.problem_with(record, "") is not None}
    assert struct.misfits(records) == wrong
