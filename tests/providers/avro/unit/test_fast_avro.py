"""pyruhvro beside the slow reader: the same rows and the same verdict for every record, good, damaged or made up."""

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.decoders.base import Decoded
from tidemark.providers.avro.fast import FastReader
from tidemark.providers.avro.reading import RecordReader
from tidemark.providers.avro.schema import parsed
from tidemark.providers.avro.types import rows_of

KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "string": ("string", st.text(max_size=9)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    "date": ({"type": "int", "logicalType": "date"}, st.integers(-800_000, 3_000_000)),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(2**50), 2**50)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(2**60), 2**60)),
    "longs": ({"type": "array", "items": "long"}, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=70)),
    "texts": ({"type": "array", "items": "string"}, st.lists(st.text(max_size=3), max_size=4)),
}
FIELDS = [
    *({"name": name, "type": kind} for name, (kind, _) in KINDS.items()),
    *(
        {"name": f"maybe_{name}", "type": ["null", kind] if at % 2 else [kind, "null"]}
        for at, (name, (kind, _)) in enumerate(KINDS.items())
        if name != "enum"
    ),
]
SCHEMA = parsed(json.dumps({"type": "record", "name": "R", "fields": FIELDS}))
VALUES = st.fixed_dictionaries(
    {
        field["name"]: (
            st.none() | KINDS[field["name"].removeprefix("maybe_")][1]
            if field["name"].startswith("maybe_")
            else KINDS[field["name"]][1]
        )
        for field in FIELDS
    }
)


def written(schema: Any, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, without_logical_types(schema), value)
    return out.getvalue()


def without_logical_types(schema: Any) -> Any:
    """As fastavro writes the numbers that are given; an enum is used once, so each name is written out once."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        kept = {name: part for name, part in schema.items() if name not in ("logicalType", "aliases", "default")}
        return {name: without_logical_types(part) if name in ("type", "fields", "items") else part
                for name, part in kept.items()}  # fmt: skip
    return schema


def same(data: list[bytes], writer: Any = SCHEMA, reader: Any = SCHEMA) -> Decoded:
    rows = rows_of(reader)
    slow = RecordReader(writer, rows)
    fast = FastReader.of(writer, rows, slow)
    assert fast is not None
    ours = fast.read(pa.array([b"before", *data], pa.binary()).slice(1))
    reference = slow.read(data)
    assert ours.good == reference.good
    assert ours.errors == reference.errors
    assert ours.rows.schema == reference.rows.schema
    assert ours.rows.validate(full=True) is None
    assert str(ours.rows.to_pylist()) == str(reference.rows.to_pylist())  # as text, since NaN is not NaN
    return ours


@settings(max_examples=draws(60))
@given(st.lists(VALUES, max_size=4))
def test_good_records_are_the_same_rows(values: list[dict[str, Any]]) -> None:
    same([written(SCHEMA, value) for value in values])


@settings(max_examples=draws(200))
@given(value=VALUES, data=st.data())
def test_damaged_records_get_the_same_verdict(value: dict[str, Any], data: st.DataObject) -> None:
    good = written(SCHEMA, value)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = good[: data.draw(st.integers(0, len(good)))]
    same([good, bytes(damaged), cut, good + data.draw(st.binary(max_size=3)), good])


SMALL = parsed(json.dumps({"type": "record", "name": "R", "fields": [
    {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}, {"name": "c", "type": "boolean"},
    {"name": "d", "type": {"type": "array", "items": "int"}}, {"name": "e", "type": KINDS["enum"][0]},
]}))  # fmt: skip


@settings(max_examples=draws(300))
@given(st.lists(st.binary(max_size=14), max_size=4))
def test_any_bytes_get_the_same_verdict(values: list[bytes]) -> None:
    same(values, SMALL, SMALL)


@pytest.mark.parametrize(
    "record",
    [
        b"\x80\x80\x80\x80\x7f\0\1\0\0",  # an int of 35 bits
        b"\x82\x00\0\1\0\0",  # a longer form of 1
        b"\2\0\2\0\0",  # a boolean that is 2
        b"\2\0\1\1\2\4\0\0",  # a block of items with its size
        b"\2\0\1\2\2\2\4\0\0",  # two blocks
        b"\2\0\1\0\6",  # a symbol that the enum does not have
        b"\2\0\1\0\1",  # a symbol below zero
        b"\2\1\1\0\0",  # a branch below zero
        b"\2\4a\1\0\0",  # a branch that the union does not have
        b"\2\2\2\xff\1\0\0",  # text that is not UTF-8
        b"\2\2\1\1\0\0",  # a length below zero
        b"\2\2\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # an endless text
        b"\2\0\1\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # an endless array
    ],
)
def test_an_unusual_record_gets_the_same_verdict(record: bytes) -> None:
    good = b"\2\0\1\0\0"
    same([good, record, good], SMALL, SMALL)


def test_many_bad_records_among_many_good_ones() -> None:
    random.seed(5)
    good = b"\2\2\4ab\1\2\6\0\2"
    data = [good if random.random() < 0.9 else random.randbytes(9) for _ in range(3_000)]
    assert same(data, SMALL, SMALL).rows.num_rows >= 2_500


@pytest.mark.parametrize("kind", ["int", ["null", "int"], {"type": "array", "items": "int"}])
@pytest.mark.parametrize("wanted", ["int", "long"])
def test_an_int_that_is_too_long_for_one_is_never_another_number(kind: Any, wanted: str) -> None:
    """As fastavro writes it."""
    numbers = [0, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**32, 2**63 - 1, -(2**63)]
    head, end = b"" if kind == "int" else b"\2", b"\0" if isinstance(kind, dict) else b""
    writer, reader = (
        parsed(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": each}]}))
        for each in (kind, json.loads(json.dumps(kind).replace("int", wanted)))
    )
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    decoded = same([head + written(plain, {"a": number}) + end for number in numbers], writer, reader)
    assert decoded.good.to_pylist() == [0, 1, 2]
    unread = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}
    both = {"type": "record", "name": "R", "fields": [*writer["fields"], *unread["fields"]]}
    data = [head + written(plain, {"a": number}) + end + b"\x0e" for number in numbers]
    assert same(data, parsed(json.dumps(both)), parsed(json.dumps(unread))).rows.to_pylist() == [{"b": 7}] * len(
        numbers
    )


def test_a_record_of_an_older_schema_gets_defaults_and_wider_numbers() -> None:
    old = parsed(json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "i", "type": "int"}, {"name": "f", "type": "float"}, {"name": "old", "type": "string"},
        {"name": "gone", "type": ["null", "long"]},
    ]}))  # fmt: skip
    new = parsed(json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "n", "type": ["null", "string"], "default": None}, {"name": "i", "type": "long"},
        {"name": "f", "type": ["null", "double"]}, {"name": "new", "aliases": ["old"], "type": "string"},
        {"name": "d", "type": "int", "default": 7},
    ]}))  # fmt: skip
    values = [{"i": at, "f": at / 2, "old": f"o{at}", "gone": None} for at in range(5)]
    rows = same([written(old, value) for value in values], old, new).rows
    assert rows.to_pylist()[1] == {"n": None, "i": 1, "f": 0.5, "new": "o1", "d": 7}


@pytest.mark.parametrize(
    "kind",
    ["bytes", {"type": "map", "values": "int"}, ["int", "string"], {"type": "array", "items": ["null", "int"]}],
)
def test_other_types_go_to_the_reference(kind: Any) -> None:
    schema = parsed(json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}))
    assert FastReader.of(schema, rows_of(schema), RecordReader(schema, rows_of(schema))) is None
