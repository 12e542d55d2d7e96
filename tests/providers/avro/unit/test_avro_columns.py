"""Records with records inside are read a field of all records at a time; the result is that of one by one."""

import json
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.providers.avro.unit.test_avro_resolution import encoded, number
from tidemark.decoders.base import Decoded
from tidemark.providers.avro import columns
from tidemark.providers.avro.columns import NestedReader
from tidemark.providers.avro.reading import RecordReader
from tidemark.providers.avro.schema import parsed
from tidemark.providers.avro.types import rows_of

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1), "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False), "double": st.floats(allow_nan=False),
    "string": st.text(max_size=70), "bytes": st.binary(max_size=20),
}  # fmt: skip
LOGICAL: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, st.integers(-(10**6), 4 * 10**6)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(-1, 86_400_000)),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(10**14), 10**15)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(10**17), 10**18)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, st.binary(max_size=6)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, st.binary(max_size=17)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 20}, st.binary(max_size=20)),
]


def record(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in types.items()]}


@st.composite
def types(draw: st.DrawFn, numbers: Any, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and what draws its values: that of a union is (its branch, the value)."""
    match draw(st.integers(0, 6 if depth else 3)):
        case 0 | 1:
            kind = draw(st.sampled_from(sorted(SCALARS)))
            return kind, SCALARS[kind]
        case 2:
            return draw(st.sampled_from(LOGICAL))
        case 3:
            return {"type": "enum", "name": f"E{next(numbers)}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
        case 4:
            return draw(records(numbers, depth - 1))
        case _:
            kind, values = draw(types(numbers, depth - 1).filter(lambda made: not isinstance(made[0], list)))
            at = draw(st.integers(0, 1))
            branches = ["null", kind] if at else [kind, "null"]
            return branches, st.one_of(st.just((1 - at, None)), values.map(lambda value: (at, value)))


@st.composite
def records(draw: st.DrawFn, numbers: Any, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    made = draw(st.lists(types(numbers, depth), min_size=1, max_size=4))
    fields = [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(made)]
    values = st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(made)})
    return {"type": "record", "name": f"R{next(numbers)}", "fields": fields}, values


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, Any, list[bytes]]:
    """(a schema, one with some of its fields, records of the first, of which some are damaged)"""
    schema, values = draw(records(count(), 2))
    written = [encoded(schema, value, {}) for value in draw(st.lists(values, min_size=1, max_size=12))]
    damaged = [draw(st.one_of(st.just(content), st.just(content), damages(content))) for content in written]
    fields = [field for field in schema["fields"] if draw(st.booleans())] or schema["fields"]
    if draw(st.booleans()):
        fields = [*fields, {"name": "more", "type": ["null", "string"], "default": None}]
    return schema, {**schema, "fields": fields}, damaged


@st.composite
def damages(draw: st.DrawFn, content: bytes) -> bytes:
    at = draw(st.integers(0, len(content)))
    match draw(st.integers(0, 3)):
        case 0:
            return content[:at]
        case 1:
            return content + draw(st.binary(min_size=1, max_size=3))
        case 2:
            return content[:at] + draw(st.binary(min_size=1, max_size=12)) + content[at + 1 :]
        case _:
            return draw(st.binary(max_size=20))


def told(decoded: Decoded) -> tuple[Any, ...]:
    return decoded.good.to_pylist(), decoded.errors, str(decoded.rows.to_pylist()), str(decoded.rows.schema)


@pytest.fixture(autouse=True)
def _few_records_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SMALLEST", 1)


@pytest.mark.thorough
@settings(max_examples=draws(400), deadline=None)
@given(batches(), st.integers(0, 3))
def test_at_once_and_one_by_one_are_the_same(drawn: tuple[Any, Any, list[bytes]], before: int) -> None:
    writer, reader, values = drawn
    graph, rows = parsed(json.dumps(writer)), rows_of(parsed(json.dumps(reader)))
    slow = RecordReader(graph, rows)
    fast = NestedReader.of(graph, rows, slow)
    assert fast is not None
    data = pa.array([b"other"] * before + values + [b"end"], pa.binary()).slice(before, len(values))
    assert told(fast.read(data)) == told(slow.read(values))


ALL = b"\xff"
CONTENTS = (
    b"", b"\x00", b"\x02", b"\x04", b"\x01", b"\x80\x00", b"\x82\x80\x80\x00x", ALL * 9 + b"\x01", ALL * 9 + b"\x02",
    ALL * 10 + b"\x00", ALL * 11, number(2**31), number(-(2**31) - 1), b"\x02\xff", b"\x04\xc3\xa9", b"\x80\x00" * 5,
    b"\x02\x02x", b"\x00\x02x", number(2**62), b"\x03x",
)  # fmt: skip
KINDS = ("boolean", "int", "long", "string", "bytes", ["null", "long"], ["string", "null"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("content", CONTENTS)
def test_bytes_of_any_kind_are_as_one_by_one(kind: Any, is_read: bool, content: bytes) -> None:
    inner = record("I", v=kind)
    reader = inner if is_read else {**inner, "fields": [{"name": "w", "type": ["null", "int"], "default": None}]}
    writer, wanted = (record("R", a=each, n="long") for each in (inner, reader))
    graph, rows = parsed(json.dumps(writer)), rows_of(parsed(json.dumps(wanted)))
    slow = RecordReader(graph, rows)
    fast = NestedReader.of(graph, rows, slow)
    assert fast is not None
    values = [content + number(7), content, b"", content + number(-(2**63))]
    assert told(fast.read(pa.array(values, pa.binary()))) == told(slow.read(values))


def test_schemas_that_are_read_one_by_one() -> None:
    endless, many = record("N", n=["null", "N"]), record("M0", x="int")
    for at in range(1, 20):
        many = record(f"M{at}", a=many, b=many["name"])
    kinds = [endless, many, {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, ["int", "string"],
             ["null", "int", "string"]]  # fmt: skip
    for kind in kinds:
        writer, rows = (
            parsed(json.dumps(record("R", a=kind, b="int"))),
            rows_of(parsed(json.dumps(record("R", b="int")))),
        )
        assert NestedReader.of(writer, rows, RecordReader(writer, rows)) is None
