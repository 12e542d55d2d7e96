"""Reading plain records by Arrow changes nothing but the time: rows and reasons are those of the slow way."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.decoders.base import Decoded
from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json.plain import ORDERS, PlainReader
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.decoders.registry import open_decoder

DDL = (
    "id BIGINT NOT NULL, small TINYINT, whole INT, text STRING NOT NULL, ok BOOLEAN, number DOUBLE, half FLOAT, "
    "at TIMESTAMP, day DATE, price DECIMAL(5,2), count DECIMAL(3,0), raw BINARY"
)
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "kind": {"type": "string", "enum": ["a", "b.c", "é"]},
        "number": {"type": ["number", "null"]},
        "name": {"type": "string"},
    },
    "required": ["id", "number"],
    "additionalProperties": False,
}
PLAIN = {
    "id": 7, "small": 3, "whole": 5, "text": "a", "ok": True, "number": 0.5, "half": 0.25, "at": "2024-03-01T10:00:00Z",
    "day": "2024-03-01", "kind": "b.c", "name": "n", "price": 12.5, "count": 7, "raw": "AQ==",
}  # fmt: skip
WORDS = [
    "0", "-0", "1", "-1", "01", "127", "128", "99", "2147483647", "9999999999", "999999999999999999",
    "9223372036854775807", "9223372036854775808", "1.0", "-0.0", "0.1", "1.", ".1", "1e2", "1E-99", "1e400", "2e38",
    "123456789012345.12345678901234567", "3.4028236e38", "true", "false", "null", "NaN", "Infinity", "+1",
    "999.99", "1000.00", "-0.05", "1.500", "-0.00", "1e-2",
    "[]", "{}",
    "[1]", '"a"', '"b.c"', '"bxc"', '"é"', '""', '"\\u0041"', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\/\\n"',
    '"\\x"', '"a\nb"', '"\t"', '"\x7f"', "'a'", '"\U0001f600"',
    '"2024-03-01T10:00:00Z"', '"2024-02-30T10:00:00Z"', '"2024-03-01 10:00:00"',
    '"2024-03-01T10:00:00.1234567+01:00"', '"2024-03-01T24:00:00Z"', '"2024-03-01T10:00:60Z"', '"0000-01-01"',
    '"2024-02-30"', '"2024-3-1"', '":', '"},{"', '"AQ="', '"AQI="', '"AB=="', '"A==="', '"AA==AA=="', '"+\\/8="',
]  # fmt: skip
WRAPPINGS = ["{}", " {} ", "{}\n", "{} junk", "{}{{}}", "{},", "[{}]", "\ufeff{}", "{}\x00", "", "{{}}"]


def read_slowly(schema: Any, values: Sequence[bytes | None]) -> Decoded:
    decoder = JsonDecoder(struct_of(schema))
    decoder._plain = None
    return decoder.decode(batch(values))


def batch(values: Sequence[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def assert_same(decoded_now: Decoded, expected: Decoded) -> None:
    decoded_now.rows.validate(full=True)
    assert decoded_now.rows.schema == expected.rows.schema
    assert decoded_now.errors == expected.errors
    assert decoded_now.good.equals(expected.good)
    assert repr(decoded_now.rows.to_pydict()) == repr(expected.rows.to_pydict())  # repr tells -0.0 from 0.0


def plain(names: Sequence[str], separators: tuple[str, str] = (",", ":"), **changed: Any) -> bytes:
    return json.dumps({**{name: PLAIN[name] for name in names}, **changed}, separators=separators).encode()


@st.composite
def records(draw: st.DrawFn, names: list[str]) -> bytes:
    """An object of the schema's names, most of it plain; names may change places, be gone, be others or come twice."""
    order = list(names)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(order) - 1))
        match draw(st.sampled_from(["gone", "twice", "other", "moved"])):
            case "gone":
                order.pop(at)
            case "twice":
                order.append(order[at])
            case "other":
                order.insert(at, "other")
            case _:
                order.insert(0, order.pop(at))
        order = order or ["id"]
    values = {name: json.dumps(PLAIN.get(name, 1)) for name in order}
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        values[draw(st.sampled_from(order))] = draw(st.sampled_from(WORDS))
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
    text = comma.join(f'"{name}"{colon}{values[name]}' for name in order)
    wrapped = draw(st.one_of(st.just("{}"), st.sampled_from(WRAPPINGS))).replace("{}", "{{" + "{}" + "}}", 1)
    record = wrapped.format(text).encode()
    return record if draw(st.integers(0, 30)) else record.replace(b"a", b"\xff")


@pytest.mark.thorough
@settings(max_examples=draws(400))
@given(data=st.data())
@pytest.mark.parametrize("schema", [DDL, SCHEMA], ids=["ddl", "json-schema"])
def test_whatever_is_in_a_record_both_ways_say_the_same(schema: Any, data: st.DataObject) -> None:
    names = [field.name for field in struct_of(schema).fields]
    values = data.draw(st.lists(records(names) | st.none(), min_size=1, max_size=8))
    fast = JsonDecoder(struct_of(schema))
    fast.decode(batch([plain(names)]))
    fast.decode(batch(values))  # learns what there is to learn
    assert_same(fast.decode(batch(values)), read_slowly(schema, values))


@pytest.mark.parametrize("empty", [b"{}", b'{"other":1}'])
def test_a_record_without_any_field_of_the_schema_is_a_row_of_nulls(empty: bytes) -> None:
    values = [empty, b'{"a":1}', b"{}"]
    fast = JsonDecoder(struct_of("a INT, b STRING"))
    for _ in range(3):
        assert_same(fast.decode(batch(values)), read_slowly("a INT, b STRING", values))
        assert fast.decode(batch([empty] * 3)).good.to_pylist() == [0, 1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("schema", [DDL, SCHEMA], ids=["ddl", "json-schema"])
def test_every_word_in_every_field_is_read_alike(schema: Any, word: str) -> None:
    names = [field.name for field in struct_of(schema).fields]
    good = plain(names)
    values = [
        good.replace(f'"{name}":{json.dumps(PLAIN[name])}'.encode(), f'"{name}":{word}'.encode()) for name in names
    ]
    fast = JsonDecoder(struct_of(schema))
    fast.decode(batch([good]))
    for value in values:
        assert_same(fast.decode(batch([good, value])), read_slowly(schema, [good, value]))


def fitting(reader: PlainReader, values: Sequence[bytes]) -> list[bool]:
    fits = reader.fitting(pa.array(values, pa.binary()))
    return [] if fits is None else fits.to_pylist()


def test_plain_records_do_not_take_the_slow_way() -> None:
    names = [field.name for field in struct_of(DDL).fields]
    reader = PlainReader.of(struct_of(DDL))
    assert reader is not None
    values = [
        plain(names),
        plain(names, (", ", ": ")),
        plain(names, small=None),
        plain(["id", "text"]),
        plain(names[:5]),
    ]
    assert fitting(reader, values) == []
    reader.learn(json.loads(values[0]), values[0])
    assert fitting(reader, values) == [True] * len(values)
    assert [column.to_pylist() for column in reader.columns(pa.array(values[2:4], pa.binary()))][1] == [None, None]


def test_several_orders_and_unknown_names_are_learned_and_no_more_than_some() -> None:
    reader = PlainReader.of(struct_of("a INT NOT NULL, b INT, c INT NOT NULL"))
    assert reader is not None
    orders = ["ac", "abc", "ca", "cba", "bac", "bca", "xac"]
    texts = [json.dumps(dict.fromkeys(order, 1)).encode() for order in orders]
    for text in texts:
        reader.learn(json.loads(text), text)
    assert fitting(reader, texts) == [
        True,
        True,
        True,
        True,
        True,
        True,
        False,
    ]  # ac and abc are one order, so are cba and ca
    assert len(reader._orders) == ORDERS


def test_a_batch_is_read_from_the_middle_of_an_array_and_with_others_between() -> None:
    values = [b'{"a":%d}' % number if number % 3 else b'{"a" :%d}' % number for number in range(600)]
    whole = open_decoder({"format": "json", "schema": "a INT NOT NULL"})
    part = batch([None, *values, b"junk"]).slice(1, 600)
    for _ in range(2):
        rows_of_part = whole.decode(part)
        assert rows_of_part.rows.column("a").to_pylist() == list(range(600))
        assert rows_of_part.good.to_pylist() == list(range(600))
    assert pc.sum(pc.cast(whole._plain.fitting(part.column("value")), pa.int64())).as_py() == 400  # type: ignore[attr-defined]


@pytest.mark.parametrize("ddl", ["a DECIMAL(2,2)", "a ARRAY<INT>", "a STRUCT<b: INT>", "a MAP<STRING, INT>"])
def test_what_has_no_pattern_has_no_reader(ddl: str) -> None:
    assert PlainReader.of(struct_of(ddl)) is None
