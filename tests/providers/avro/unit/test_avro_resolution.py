"""Only what the reader's schema names is judged: whatever else a writer's schema has is skipped, at any depth."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from struct import pack
from time import monotonic
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.decoders.base import Decoded
from tidemark.errors import ConfigurationError
from tidemark.providers.avro import columns
from tidemark.providers.avro.columns import NestedReader
from tidemark.providers.avro.decoder import open_decoder
from tidemark.providers.avro.fast import FastReader
from tidemark.providers.avro.reading import RecordReader
from tidemark.providers.avro.resolution import NotResolved
from tidemark.providers.avro.schema import parsed
from tidemark.providers.avro.types import rows_of


def record(*fields: tuple[str, Any] | dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    named = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": named, **more}


@pytest.fixture(autouse=True)
def few_records_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "SMALLEST", 1)


def read(writer: Any, reader: Any, *values: bytes, any_name: bool = False) -> Decoded:
    """What both readers say, which must be the same."""
    graph, rows = parsed(json.dumps(writer)), rows_of(parsed(json.dumps(reader)))
    slow = RecordReader(graph, rows, any_name=any_name)
    decoded = slow.read(list(values))
    for fast in filter(None, (FastReader.of(graph, rows, slow), NestedReader.of(graph, rows, slow))):
        again = fast.read(pa.array(values, pa.binary()))
        assert (again.good, again.errors, str(again.rows.to_pylist())) == (
            decoded.good, decoded.errors, str(decoded.rows.to_pylist())
        )  # fmt: skip
    return decoded


def rows(writer: Any, reader: Any, *values: bytes, **more: Any) -> list[dict[str, Any]]:
    decoded = read(writer, reader, *values, **more)
    assert decoded.errors == ()
    return decoded.rows.to_pylist()


def reasons(writer: Any, reader: Any, *values: bytes) -> list[str]:
    return [bad.reason for bad in read(writer, reader, *values).errors]


# An encoder of Avro, by its specification: the value of a union is (its branch, the value).


def number(value: int) -> bytes:
    zigzag, groups = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 127:
        groups.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*groups, zigzag])


def encoded(schema: Any, value: Any, named: dict[str, Any]) -> bytes:
    if isinstance(schema, list):
        return number(value[0]) + encoded(schema[value[0]], value[1], named)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record":
            return b"".join(encoded(field["type"], value[field["name"]], named) for field in schema["fields"])
        case "array":
            return blocks([encoded(schema["items"], item, named) for item in value])
        case "map":
            entries = [encoded("string", key, named) + encoded(schema["values"], value[key], named) for key in value]
            return blocks(entries)
        case "enum":
            return number(schema["symbols"].index(value))
        case _:
            return SCALARS[kind](value)


def sized(value: bytes) -> bytes:
    return number(len(value)) + value


SCALARS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"", "boolean": lambda value: bytes([value]), "int": number, "long": number, "bytes": sized,
    "float": lambda value: pack("<f", value), "double": lambda value: pack("<d", value), "fixed": bytes,
    "string": lambda value: sized(value.encode()),
}  # fmt: skip


def blocks(items: list[bytes]) -> bytes:
    """The first half with its size, the others without."""
    first, rest = items[: len(items) // 2], items[len(items) // 2 :]
    data = number(-len(first)) + number(sum(map(len, first))) + b"".join(first) if first else b""
    return data + (number(len(rest)) + b"".join(rest) if rest else b"") + b"\0"


PRIMITIVE: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(), "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1), "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False), "string": st.text(max_size=5), "bytes": st.binary(max_size=5),
}  # fmt: skip
STRANGE = [
    {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": -2},
    {"type": "bytes", "logicalType": "decimal", "precision": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
    {"type": "bytes", "logicalType": "decimal", "precision": "6"},
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "bytes", "logicalType": {"name": "x"}, "connect.name": "x", "default": 7},
]


@st.composite
def typed(draw: st.DrawFn, numbers: Iterator[int], depth: int = 3) -> tuple[Any, Any]:
    """A type, and a value of it."""
    inner = typed(numbers, depth - 1)
    match draw(st.integers(0, 4 if depth == 0 else 9)):
        case 0 | 1:
            kind = draw(st.sampled_from(sorted(PRIMITIVE)))
            return draw(st.sampled_from([kind, {"type": kind, "doc": "x"}])), draw(PRIMITIVE[kind])
        case 2:
            return draw(st.sampled_from(STRANGE)), draw(PRIMITIVE["bytes"])
        case 3:
            size = draw(st.integers(0, 3))
            return {"type": "fixed", "name": f"F{next(numbers)}", "size": size}, draw(
                st.binary(min_size=size, max_size=size)
            )
        case 4:
            symbol = draw(st.sampled_from("AB"))
            return {"type": "enum", "name": f"E{next(numbers)}", "symbols": ["A", "B"], "default": "gone"}, symbol
        case 5:
            kind, value = draw(inner)
            many = draw(st.integers(0, 4))
            return {"type": "array", "items": kind}, [value] * many
        case 6:
            kind, value = draw(inner)
            return {"type": "map", "values": kind}, {f"k{at}": value for at in range(draw(st.integers(0, 3)))}
        case 7:
            branches = [draw(inner) for _ in range(draw(st.integers(1, 3)))]
            at = draw(st.integers(0, len(branches) - 1))
            return [kind for kind, _ in branches], (at, branches[at][1])
        case 8:
            name = f"N{next(numbers)}"
            value: Any = (0, None)
            for _ in range(draw(st.integers(0, 3))):
                value = (1, {"next": value, "_and": [{"next": value, "_and": []}]})
            fields = [("next", ["null", name]), ("_and", {"type": "array", "items": name})]
            return record(*fields, name=name), {"next": value, "_and": []}
        case _:
            fields, values = [], {}
            for at in range(draw(st.integers(0, 3))):
                kind, values[f"_{at}"] = draw(inner)
                fields.append({"name": f"_{at}", "type": kind, "default": "of another type"})
            return record(*fields, name=f"R{next(numbers)}"), values


@settings(max_examples=draws(300))
@given(data=st.data())
def test_what_the_reader_does_not_name_is_skipped(data: st.DataObject) -> None:
    """Each other field may be anything that has a length."""
    numbers, fields, content, expected = count(), [], {}, {}
    for at in range(data.draw(st.integers(1, 4))):
        kind, content[f"_{at}"] = data.draw(typed(numbers))
        fields.append({"name": f"_{at}", "type": kind, "default": {"of": "another type"}})
        if data.draw(st.booleans()):
            primitive = data.draw(st.sampled_from(sorted(PRIMITIVE)))
            content[f"f{at}"] = expected[f"f{at}"] = data.draw(PRIMITIVE[primitive])
            fields.append({"name": f"f{at}", "type": primitive})
    writer, wanted = record(*fields), [field for field in fields if field["name"] in expected]
    reader = record({"name": "more", "type": "int", "default": 5}, *wanted)
    value = encoded(writer, content, {})
    assert rows(writer, reader, value, value) == [{"more": 5, **expected}] * 2
    for damaged in (value[:-1], value + b"\0"):
        assert len(read(writer, reader, damaged).errors) == (damaged != value)


@settings(max_examples=draws(300))
@given(data=st.data(), junk=st.binary(max_size=20))
def test_no_bytes_raise_whatever_is_skipped(data: st.DataObject, junk: bytes) -> None:
    numbers = count()
    kind, value = data.draw(typed(numbers))
    writer = record(("a", kind), ("b", "long"))
    good = encoded(writer, {"a": value, "b": 1}, {})
    at = data.draw(st.integers(0, len(good)))
    decoded = read(writer, record(("b", "long")), junk, good[:at] + junk + good[at:], good)
    assert decoded.rows.to_pylist()[-1] == {"b": 1}


def test_a_long_list_of_a_recursive_type_is_skipped() -> None:
    node = record(("value", "int"), ("next", ["null", "Node"]), name="Node")
    data = b"\x02" * 200_000 + b"\x02\x00" + b"\x0e"
    assert rows(record(("list", node), ("id", "int")), record(("id", "int")), data) == [{"id": 7}]
    tree = record(("of", {"type": "array", "items": "Tree"}), ("by", {"type": "map", "values": "Tree"}), name="Tree")
    deep = b"\x02" * 50_000 + b"\x00\x00" + b"\x00\x00" * 50_000 + b"\x0e"
    assert rows(record(("tree", tree), ("id", "int")), record(("id", "int")), deep) == [{"id": 7}]


def test_items_that_take_no_bytes_take_no_time() -> None:
    many = number(2**62) + b"\0" + b"\x0e"
    for item in ("null", record(name="Empty"), {"type": "fixed", "name": "F", "size": 0}):
        writer = record(("many", {"type": "array", "items": item}), ("id", "int"))
        assert rows(writer, record(("id", "int")), many) == [{"id": 7}]
        with pytest.raises((ConfigurationError, NotResolved), match="items take no bytes"):
            read(writer, writer, many)
    half: Any = record(name="R0")
    for at in range(1, 200):
        half = record(("a", half), ("b", f"R{at - 1}"), name=f"R{at}")
    assert rows(record(("a", half), ("id", "int")), record(("id", "int")), b"\x0e") == [{"id": 7}]


ADDRESS = record(
    ("street", "string"),
    {"name": "country", "type": "string", "default": "DE"},
    {"name": "codes", "type": {"type": "array", "items": "int"}, "default": [1]},
    name="Address",
)
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
NUMBER = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": -2}
ID = ("id", "int")


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (ADDRESS, {"street": "s"}, {"street": "s", "country": "DE", "codes": [1]}),
        (ADDRESS, {"street": "s", "codes": []}, {"street": "s", "country": "DE", "codes": []}),
        (["null", ADDRESS], {"street": "s"}, {"street": "s", "country": "DE", "codes": [1]}),
        (record({"name": "in", "type": ADDRESS, "default": {"street": "x"}}, name="Out"), {},
         {"in": {"street": "x", "country": "DE", "codes": [1]}}),
        ({"type": "array", "items": ADDRESS}, [{"street": "s"}], [{"street": "s", "country": "DE", "codes": [1]}]),
        ({"type": "map", "values": ADDRESS}, {"k": {"street": "s", "codes": []}},
         [("k", {"street": "s", "country": "DE", "codes": []})]),
        (["string", "null"], None, None),
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0000", b"\xff\0"),
        ("double", 3, 3.0),
        (COLOR, "BLUE", "BLUE"),
        ("long", -(2**63), -(2**63)),
    ],
)  # fmt: skip
def test_a_default_has_the_defaults_within_it(kind: Any, default: Any, expected: Any) -> None:
    reader = record(ID, {"name": "f", "type": kind, "default": default})
    assert rows(record(ID), reader, b"\x0e") == [{"id": 7, "f": expected}]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (ADDRESS, {}), (ADDRESS, "s"), ("int", "1"), ("int", 2**31), ("int", True), ("string", None), ("boolean", 0),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"), ("bytes", "\u0100"), (COLOR, "GREEN"), ("int", 1.0),
        ("string", "\ud800"), (["null", "int"], "x"), ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, [1]),
    ],
)  # fmt: skip
def test_a_wrong_default_matters_only_where_it_is_needed(kind: Any, default: Any) -> None:
    reader = record(ID, {"name": "f", "type": kind, "default": default})
    with pytest.raises(NotResolved, match=r"field f(\.\w+)? is absent"):
        read(record(ID), reader, b"\x0e")
    read(reader, record(ID), b"\x0e")
    read(reader, reader, b"\x0e")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (COLOR, b"\x01"), (COLOR, b"\x03"), (COLOR, b"\x04"), (COLOR, b"\xff\xff\x03"),
        (["null", "int"], b"\x01"), (["null", "int"], b"\x03\x00"), (["null", "int"], b"\x04\x00"),
        (["int", "string", "null"], b"\x01\x00"), ({"type": "array", "items": COLOR}, b"\x02\x01\x00"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_read", [True, False])
def test_an_index_that_no_symbol_and_no_branch_has_is_an_error(kind: Any, value: bytes, is_read: bool) -> None:
    writer = record(("f", kind), ID)
    [reason] = reasons(writer, writer if is_read else record(ID), value + b"\x0e")
    assert "for an enum or a union" in reason


def test_a_default_that_is_no_symbol_of_the_enum_is_none() -> None:
    writer, reader = ({"type": "enum", "name": "E", "symbols": symbols} for symbols in (["A", "B"], ["A"]))
    wrong = {**reader, "default": "Z"}
    assert rows(record(("f", writer)), record(("f", {**reader, "default": "A"})), b"\x02") == [{"f": "A"}]
    assert reasons(record(("f", writer)), record(("f", wrong)), b"\x02") == [
        "does not resolve: the reader's enum has no symbol B, and no default"
    ]


def test_numbers_that_json_lacks_are_the_texts_that_sinks_have() -> None:
    choice = record(("f", ["null", "double", "string"]))
    values = [b"\x02" + pack("<d", float(text)) for text in ("nan", "inf", "-inf")]
    assert [row["f"] for row in rows(choice, choice, *values)] == ['"NaN"', '"Infinity"', '"-Infinity"']


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MEANT: dict[str, tuple[Any, bytes, Any]] = {  # by name: a type, a value, and the value as JSON has it
    "date": ({"type": "int", "logicalType": "date"}, b"\x02", "1970-01-02"),
    "millis": (MILLIS, b"\x02", "1970-01-01T00:00:00.001000Z"),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, b"\x01", "1969-12-31T23:59:59.999999Z"),
    "local": ({"type": "long", "logicalType": "local-timestamp-millis"}, b"\x02", "1970-01-01T00:00:00.001000"),
    "time": ({"type": "int", "logicalType": "time-millis"}, b"\x02", "00:00:00.001000"),
    "decimal": (CENTS, b"\x04\xff\x85", "-1.23"),
    "long decimal": ({**CENTS, "precision": 60, "scale": 0}, b"\x02\x07", "7"),
    "fixed decimal": ({**CENTS, "type": "fixed", "name": "D", "size": 4}, b"\0\0\0\x07", "0.07"),
    "uuid": ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, b"\0" * 15 + b"\1", f"{UUID(int=1)}"),
    "nanoseconds": ({"type": "long", "logicalType": "timestamp-nanos"}, b"\x02", 1),
    "record": (record(("x", ["null", CENTS]), ("y", ["null", MILLIS, "string"]), name="T"), b"\x02\x02\x07\x04\x02z",
               {"x": "0.07", "y": "z"}),
    "array": ({"type": "array", "items": ["null", MILLIS]}, b"\x04\0\x02\0\0", [None, "1970-01-01T00:00:00.000000Z"]),
    "map": ({"type": "map", "values": ["null", MILLIS]}, b"\x04\x02k\0\x02l\x02\0\0",
            {"k": None, "l": "1970-01-01T00:00:00.000000Z"}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "text"), MEANT.values(), ids=MEANT)
def test_a_value_of_a_union_has_the_meaning_of_its_logical_type(kind: Any, value: bytes, text: Any) -> None:
    union = ["null", "boolean", kind]
    outer = record(("f", union))
    assert [json.loads(row["f"]) for row in rows(outer, outer, b"\x04" + value)] == [text]
    assert [json.loads(row["f"]) for row in rows(record(("f", kind)), outer, value)] == [text]
    assert [json.loads(row["value"]) for row in rows(union, union, b"\x04" + value)] == [text]
    within = record(("r", record(("f", {"type": "array", "items": union}), name="S")))
    assert json.loads(rows(within, within, b"\x04\0\x04" + value + b"\0")[0]["r"]["f"][1]) == text
    assert rows(outer, outer, b"\0") == [{"f": None}]


def test_a_default_of_a_union_has_the_meaning_of_its_logical_type() -> None:
    reader = record(("n", "int"), {"name": "f", "type": [CENTS, "null", "boolean"], "default": "\xff\x85"})
    assert rows(record(("n", "int")), reader, b"\x02") == [{"n": 1, "f": '"-1.23"'}]


@pytest.mark.parametrize("union", [[], ["null"], ["null", "boolean"]])
@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        (MILLIS, 2**63 - 1), (MILLIS, -(2**63)), (MILLIS, 253_402_300_800_000),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 2**63 - 1),
        ({"type": "long", "logicalType": "timestamp-micros"}, -(2**63)),
        ({"type": "int", "logicalType": "date"}, -(2**31)),
    ],
)  # fmt: skip
def test_a_time_that_no_calendar_has_costs_its_record_and_names_its_field(
    kind: Any, moment: int, union: list[Any]
) -> None:
    schema = record(("f", [*union, kind] if union else kind))
    branch = number(len(union)) if union else b""
    assert reasons(schema, schema, branch + number(moment)) == ["field f: a time outside the years 1 to 9999"]


def test_two_types_of_one_meaning_are_told_apart_in_the_reason() -> None:
    fixed = {**CENTS, "type": "fixed", "name": "D", "size": 4}
    with pytest.raises(NotResolved, match="field f is fixed, and the reader needs bytes"):
        read(record(("f", fixed)), record(("f", CENTS)), b"\0\0\0\x07")


@pytest.mark.parametrize("precision", [38, 60])
def test_a_decimal_of_many_bytes_costs_its_record_and_no_time(precision: int) -> None:
    kind = record(("f", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}))
    long = sized(b"\x7f" * 2_000_000)
    before = monotonic()
    assert reasons(kind, kind, long) == ["field f: a decimal has more digits than its type"]
    assert monotonic() - before < 10
    assert rows(kind, kind, sized(b"\0" * 2_000_000 + b"\x7b"))[0]["f"] in (Decimal("1.23"), "1.23")


@pytest.mark.parametrize("strange", STRANGE)
def test_a_decimal_that_avro_ignores_is_bytes(strange: Any) -> None:
    assert rows(record(("f", strange)), record(("f", strange)), b"\x04\x01\x02") == [{"f": b"\1\2"}]
    assert rows(record(("f", strange)), record(("f", "bytes")), b"\x04\x01\x02") == [{"f": b"\1\2"}]
    wide = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5, "scale": 1}
    assert rows(record(("f", wide)), record(("f", wide)), b"\1\2") == [{"f": b"\1\2"}]


ORDER = record(ID, name="OrderCreated", namespace="shop")


@pytest.mark.parametrize(
    ("reader", "fits"),
    [
        (record(ID, name="OrderCreated"), True),
        (record(ID, name="other.OrderCreated"), True),
        (record(ID, name="New", aliases=["OrderCreated"]), True),
        (record(ID, name="New", aliases=["x.OrderCreated"]), True),
        (record(ID, name="OrderCancelled", namespace="shop"), False),
        (["null", record(ID, name="OrderCancelled")], True),
        ("string", False),
    ],
)
def test_the_name_of_a_record_is_compared_without_its_namespace(reader: Any, fits: bool) -> None:
    for writer, value in ((ORDER, b"\x0e"), ([ORDER], b"\x00\x0e")):
        if fits:
            assert len(rows(writer, reader, value)) == 1
        else:
            with pytest.raises(
                NotResolved, match=r"it is a record shop\.OrderCreated, and|is record, and the reader needs string"
            ):
                read(writer, reader, value)
    if isinstance(reader, dict):
        assert rows(ORDER, reader, b"\x0e", any_name=True) == [{"id": 7}]


def test_of_a_union_of_records_those_of_the_reader_s_name_are_read() -> None:
    cancelled = record(ID, name="OrderCancelled", namespace="shop")
    decoded = read([cancelled, ORDER], ORDER, b"\x00\x02", b"\x02\x04")
    assert decoded.rows.to_pylist() == [{"id": 2}]
    assert [bad.reason for bad in decoded.errors] == [
        "does not resolve: it is a record shop.OrderCancelled, and the reader needs shop.OrderCreated"
    ]


def test_a_branch_of_its_own_name_is_chosen() -> None:
    first, second = record(("a", "int"), name="x.First"), record(("a", "int"), name="x.Second")
    union = ["null", first, second]
    reader = record({"name": "f", "type": union})
    assert rows(reader, reader, b"\x04\x0e") == [{"f": '{"a":7}'}]
    narrow = record({"name": "f", "type": ["null", {**second, "fields": [{"name": "b", "type": "int", "default": 1}]}]})
    assert rows(record(("f", ["null", second])), narrow, b"\x02\x0e") == [{"f": {"b": 1}}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
        ({"type": "long", "logicalType": "timestamp-nanos"}, {"type": "long", "logicalType": "timestamp-micros"}),
    ],
)
def test_a_wider_number_of_another_unit_is_refused(before: Any, after: Any) -> None:
    with pytest.raises(NotResolved, match="the reader needs"):
        read(record(("f", before)), record(("f", after)), b"\x0e")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("id", "long"), ("ID", "string")], "has a field ID, which has the same name as"),
        ([("s", record(("id", "long"), ("Id", "string"), name="S"))], "field S.Id, which has the same name as"),
        ([("_id", "long")], "field _id, which cannot be the name of a column"),
    ],
)
def test_names_that_cannot_be_columns_are_refused_where_they_are_read(fields: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rows_of(parsed(json.dumps(record(*fields))))
    writer = record(*fields, ("n", "int"))
    value = encoded(
        writer,
        {**{name: {"id": 1, "Id": "a"} if name == "s" else "a" if name == "ID" else 1 for name, _ in fields}, "n": 7},
        {},
    )
    assert rows(writer, record(("n", "int")), value) == [{"n": 7}]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("a", "Gone")), "names a type Gone, which neither"),
        (record(("a", record(("b", "R"), name="S"))), "contains itself without an end"),
        (record(("a", COLOR), ("b", {**COLOR, "symbols": ["X"]})), "defines Color twice"),
        (record(("a", {"type": "fixed", "name": "F", "size": -1})), "a size of -1"),
        (record(("a", {"type": "enum", "name": "F"})), 'one of its types has no "symbols"'),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, 'one of its types has no "name"'),
        (record(("a", 7)), "one of its parts has a wrong JSON type"),
    ],
)
def test_a_schema_whose_values_have_no_length_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parsed(json.dumps(schema))


def test_a_schema_that_defines_a_type_twice_alike_is_read() -> None:
    writer = record(("a", COLOR), ("b", COLOR))
    assert rows(writer, writer, b"\x00\x02") == [{"a": "RED", "b": "BLUE"}]


def test_records_of_another_name_are_dead_letters_or_read_as_the_file_says() -> None:
    schemas = {7: ORDER, 8: record(ID, name="shop.OrderCancelled")}
    pinned = {
        f"http://r: writer {at}": {"id": at, "kind": "AVRO", "text": json.dumps(schema), "references": []}
        for at, schema in schemas.items()
    }
    config = {"registry": {"url": "http://r"}, "schemas": pinned, "reader": pinned["http://r: writer 7"]}
    values = pa.record_batch({
        "value": pa.array([b"\0\0\0\0\7\x02", b"\0\0\0\0\x08\x04"], pa.binary()),
        "headers": pa.array([[], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    })  # fmt: skip
    decoded = open_decoder(config).decode(values)
    assert decoded.rows.to_pylist() == [{"id": 1}]
    [bad] = decoded.errors
    assert "it is a record shop.OrderCancelled, and the reader needs shop.OrderCreated" in bad.reason
    assert open_decoder({**config, "any_record_name": True}).decode(values).rows.to_pylist() == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("kind", ["int", ["null", "int"], {"type": "map", "values": "int"}])
def test_a_field_of_the_writer_may_be_several_of_the_reader(kind: Any) -> None:
    writer = record(("old", kind), ID)
    reader = record(*({"name": name, "type": kind, "aliases": ["old"]} for name in "ab"), ID)
    value = {"int": b"\x02", "map": b"\x02\x02k\x02\x00"}.get(kind if isinstance(kind, str) else "map", b"")
    [row] = rows(writer, reader, (b"\x02\x02" if isinstance(kind, list) else value) + b"\x0e")
    assert row["a"] == row["b"] in (1, [("k", 1)])
    assert row["id"] == 7
