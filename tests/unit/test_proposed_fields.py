"""The lines that are proposed for fields which a schema has not: the schema with them takes the records."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.test_unknown_fields import FRAME, FRAMED, batch, config
from tidemark.decoders.registry import open_decoder
from tidemark.processing.drift import ProposedField, proposed_fields, with_unknown_fields

AS_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def proposed(*values: Any, decode: dict[str, Any] | None = None) -> list[ProposedField]:
    """For a field ``new`` that has these values in records after each other."""
    records = [json.dumps({"id": number, "new": value}).encode() for number, value in enumerate(values)]
    return list(proposed_fields(decode or config("id BIGINT"), batch(records)))


@pytest.mark.parametrize(
    ("values", "ddl", "schema"),
    [
        (["a"], "new STRING", {"type": "string"}),
        (["2024-03-01T00:00:00Z", None], "new STRING", {"type": ["string", "null"]}),
        ([1, -(2**63)], "new BIGINT", {"type": "integer"}),
        ([1, 1.5], "new DOUBLE", {"type": "number"}),
        ([True], "new BOOLEAN", {"type": "boolean"}),
        ([[1], []], "new ARRAY<BIGINT>", {"type": "array", "items": {"type": "integer"}}),
        (
            [{"a b": 1}, {"a b": None, "c": [True]}],
            "new STRUCT<`a b`: BIGINT, c: ARRAY<BOOLEAN>>",
            {"type": "object", "properties": {
                "a b": {"type": ["integer", "null"]}, "c": {"type": "array", "items": {"type": "boolean"}},
            }},
        ),
    ],
)  # fmt: skip
def test_a_type_is_that_of_all_values(values: list[Any], ddl: str, schema: dict[str, Any]) -> None:
    [field] = proposed(*values)
    assert (field.ddl, field.json_schema, field.problem) == (ddl, {"new": schema}, None)
    assert (field.field.path, field.field.count, field.field.offset) == ("new", len(values), 0)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([None], "only null was seen"),
        ([1, "a", None], "values of several types: integer, string"),
        ([2**63], "an integer of more than 64 bits"),
        ([[]], "only empty arrays were seen"),
        ([{}], "only empty objects were seen"),
        ([{"a": None}], "a: only null was seen"),
        ([{"": 1}], '"" cannot be the name of a column'),
        ([{"a": 1, "A": 1}], "A has the same name as a"),
    ],
)
def test_values_without_one_type_have_no_line(values: list[Any], problem: str) -> None:
    [field] = proposed(*values)
    assert (field.ddl, field.json_schema, field.problem) == (None, None, problem)


def test_a_field_is_proposed_where_it_stands() -> None:
    decode = config("id BIGINT, address STRUCT<town: STRING>, lines ARRAY<STRUCT<sku: STRING>>", key=config("id INT"))
    value = {"id": 1, "key_x": 1, "address": {"zip": "8000"}, "lines": [{"sku": "a"}, {"tax": 1.5}]}
    records = batch([json.dumps(value).encode()], [b'{"id": 1, "shard.no": 1}'])
    fields = [(field.field.path, field.ddl) for field in proposed_fields(decode, records)]
    assert fields == [
        ("address.zip", "zip: STRING"), ('key_"shard.no"', "`shard.no` BIGINT"), ("key_x", "key_x BIGINT"),
        ("lines[].tax", "tax: DOUBLE"),
    ]  # fmt: skip


def test_a_name_that_only_differs_in_case_or_is_cut_has_no_line() -> None:
    records = batch([json.dumps({"id": 1, "ID": 1, "n" * 50: 1, "n" * 60: 1, "o" * 50: 1}).encode()])
    problems = {field.field.path[1]: field.problem for field in proposed_fields(config("id BIGINT"), records)}
    assert problems == {
        "D": "ID has the same name as id", "n": "its name is cut, and several names begin so", "o": None,
    }  # fmt: skip


@pytest.mark.parametrize("by_topic", [False, True])
@pytest.mark.parametrize("with_schema", [False, True])
def test_a_field_is_proposed_by_its_values_in_the_row_of_an_envelope(by_topic: bool, with_schema: bool) -> None:
    decode = config("id BIGINT, inner STRUCT<a: BIGINT>", tombstones=["id"], envelope={"kind": "debezium"})
    record = {"op": "c", "after": {"id": 1, "zip": "8000", "inner": {"b": 1}}, "source": {}, "zip": 5}
    records = batch(
        [json.dumps({"schema": None, "payload": record} if with_schema else record).encode()], [b'{"id": 1}']
    )
    if by_topic:
        entry = {"topics": records.column("topic").to_pylist(), "topics_regex": None}
        other = {"topics": ["other"], "topics_regex": None, "decode": config("id BIGINT")}
        decode = {"by_topic": [other, {**entry, "decode": decode}]}
    fields = [(field.field.path, field.ddl) for field in proposed_fields(decode, records)]
    assert fields == [("inner.b", "b: BIGINT"), ("zip", "zip STRING")]


def test_records_with_a_frame_are_read_behind_it() -> None:
    records = batch([FRAME + b'{"id": 1, "zip": "8000"}', b"no frame"])
    [field] = proposed_fields({**FRAMED, "unknown_fields": "fail"}, records)
    assert field.ddl == "zip STRING"


def test_fields_of_the_row_inside_an_envelope_are_proposed() -> None:
    change = {"op": "c", "before": {"zip": 1}, "after": {"id": 1, "zip": "8000"}, "source": {"table": "orders"}}
    beside = {"schema": {"fields": []}, "payload": change}
    deleted = {**change, "op": "d", "after": None}
    decode = {**config("id BIGINT"), "tombstones": ["id"], "envelope": {"kind": "debezium"}}
    by_topic = {"by_topic": [{"topics": ["t"], "topics_regex": None, "decode": decode}]}
    values = [json.dumps(record).encode() for record in (change, deleted, beside)]
    for each in (decode, by_topic):
        [field] = proposed_fields(each, batch(values, [b'{"id": 1}'] * 3))
        assert (field.ddl, field.field.count) == ("zip STRING", 2)


def test_the_schema_beside_a_record_says_the_type_of_an_unknown_field() -> None:
    def of(field: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"field": field, "type": kind, "optional": True, **more}

    decimal = {
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "9"},
    }
    moment = {"name": "io.debezium.time.MicroTimestamp"}
    fields = {
        "at": (of("at", "int64", **moment), 1_700_000_000_000_000, "TIMESTAMP"),
        "day": (of("day", "int32", name="io.debezium.time.Date"), 19_000, "DATE"),
        "zoned": (of("zoned", "string", name="io.debezium.time.ZonedTimestamp"), "2024-01-01T00:00:00Z", "TIMESTAMP"),
        "price": (of("price", "bytes", **decimal), "BNI=", "DECIMAL(9,2)"),
        "few": (of("few", "int16"), 3, "SMALLINT"),
        "times": (of("times", "array", items={"type": "int64", **moment}), [1], "ARRAY<TIMESTAMP>"),
        "nothing": (of("nothing", "boolean"), None, "BOOLEAN"),
        "year": (of("year", "int32", name="io.debezium.time.Year"), 2024, "INT"),
    }
    schema = {
        "type": "struct",
        "fields": [of("after", "struct", fields=[of("id", "int64"), *(each[0] for each in fields.values())])],
    }
    after = {"id": 1, **{name: value for name, (_, value, _) in fields.items()}}
    record = {"schema": schema, "payload": {"op": "c", "before": None, "after": after, "source": {"table": "t"}}}
    decode = {**config("id BIGINT"), "tombstones": ["id"], "envelope": {"kind": "debezium"}}
    proposed = proposed_fields(decode, batch([json.dumps(record).encode()], [b'{"id": 1}']))
    assert {field.field.path: field.ddl for field in proposed} == {
        name: f"{name} {ddl}" for name, (_, _, ddl) in fields.items()
    }
    assert all(field.problem is None for field in proposed)


def test_signals_in_an_envelope_have_no_unknown_fields() -> None:
    signal = {"op": "c", "after": {"id": 1, "type": "log"}, "source": {"table": "debezium_signal"}}
    decode = {**config("id BIGINT"), "tombstones": ["id"], "envelope": {"kind": "debezium"}}
    made = open_decoder(decode).decode(batch([json.dumps(signal).encode()], [b'{"id": 1}']))
    assert (made.filtered.to_pylist(), made.unknown) == ([0], None)


def test_the_word_is_changed_wherever_a_format_has_it() -> None:
    strict = config(unknown_fields="fail")
    decode = {"by_topic": [{"topics": ["t"], "decode": {**strict, "key": strict}}, {"topics": [], "decode": config()}]}
    [first, second] = with_unknown_fields(decode, "count")["by_topic"]
    assert first["decode"]["unknown_fields"] == first["decode"]["key"]["unknown_fields"] == "count"
    assert second["decode"] == config()


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50).filter(lambda name: not name.startswith("_"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=4))
def test_the_schema_with_the_lines_takes_every_record_and_lacks_no_field(records: list[dict[str, Any]]) -> None:
    values = pa.array([json.dumps({**record, "id": 1}).encode() for record in records], pa.binary()).to_pylist()
    fields = proposed_fields(config("id BIGINT"), batch(values))
    lines = [field for field in fields if field.ddl is not None]
    names = [name for field in lines for name in field.json_schema or {}]
    assume(len({name.casefold() for name in (*names, "id")}) == len(names) + 1)  # else they are no columns of one table
    ddl = ", ".join(["id BIGINT", *(str(field.ddl) for field in lines)])
    properties = {name: kind for field in lines for name, kind in (field.json_schema or {}).items()}
    schema = {**AS_SCHEMA, "properties": {**AS_SCHEMA["properties"], **properties}}  # type: ignore[dict-item]
    without_line = [field.field.path for field in fields if field.ddl is None]
    for decode in (config(ddl), config(schema)):
        result = open_decoder(decode).decode(batch(values))
        assert result.errors == ()
        assert ([] if result.unknown is None else pa.compute.unique(result.unknown.paths).to_pylist()) == without_line
