"""The protobuf decoder: what each type becomes, and that both of its readers mean the same."""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.protobuf_schemas import descriptor_set, message_class, proto
from tidemark.decoders.base import Decoded
from tidemark.decoders.one_by_one import Misfit
from tidemark.errors import ConfigurationError
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.providers.protobuf.decoder import open_decoder
from tidemark.providers.protobuf.fast import LARGEST, Fast, fast_reader
from tidemark.providers.protobuf.reading import Messages
from tidemark.providers.protobuf.runtime import Runtime
from tidemark.providers.protobuf.schemas.descriptors import message_descriptor, needed
from tidemark.providers.protobuf.schemas.shapes import message_shape
from tidemark.providers.registry.registered_schema import RegisteredSchema

SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
FIXED_WIDTH = ("double", "float", "fixed32", "fixed64", "sfixed32", "sfixed64")
TYPES = (
    *SCALARS, "Color", "Inner", "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Empty",
    "google.protobuf.Any", "google.protobuf.Int64Value", "google.protobuf.StringValue",
)  # fmt: skip
COLOR = {"UNKNOWN": 0, "RED": 1, "SCARLET": 1, "BELOW": -3}
EVERYTHING = [
    # Not in the order of their numbers: ptars sorts by number.
    *(f"{kind} plain_{at} = {400 - at}" for at, kind in enumerate(TYPES)),
    *(f"optional {kind} optional_{at} = {1 + at}" for at, kind in enumerate(TYPES)),
    *(f"repeated {kind} repeated_{at} = {100 + at}" for at, kind in enumerate(TYPES) if kind not in FIXED_WIDTH),
    *(f"oneof choice {kind} choice_{at} = {200 + at}" for at, kind in enumerate(TYPES)),
]
INNER = ["sint64 b = 2", "string a = 1", "repeated Deep deep = 3", "oneof way int32 x = 4", "oneof way Deep y = 5"]
SET = descriptor_set(
    proto(
        "t",
        {"All": EVERYTHING, "Inner": INNER, "Deep": ["fixed32 z = 1", "google.protobuf.Timestamp at = 2"]},
        {"Color": COLOR},
    )
)
ALL = message_class(SET, "t.All")


DURATION = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
TIME = pa.timestamp("us", "UTC")
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


def decoded(schema: list[str], *values: bytes | None, syntax: str = "proto3") -> Decoded:
    content = descriptor_set(proto("t", {"M": schema, "Inner": ["int32 a = 1"]}, {"Color": COLOR}, syntax=syntax))
    return read(content, values)


def read(content: bytes, values: Sequence[bytes | None]) -> Decoded:
    local = RegisteredSchema(-1, "PROTOBUF", b64encode(content).decode())
    decoder = open_decoder({"reader": local.as_dict(), "message": "t.M"})
    return decoder.decode(pa.record_batch({"value": pa.array(values, pa.binary())}))


def written(schema: list[str], syntax: str = "proto3", **fields: Any) -> bytes:
    content = descriptor_set(proto("t", {"M": schema, "Inner": ["int32 a = 1"]}, {"Color": COLOR}, syntax=syntax))
    return bytes(message_class(content, "t.M")(**fields).SerializePartialToString())


@pytest.mark.parametrize(
    ("kind", "value", "column", "stored"),
    [
        ("double", 2.5, pa.float64(), 2.5),
        ("float", 0.5, pa.float32(), 0.5),
        ("int32", -(2**31), pa.int32(), -(2**31)),
        ("sint64", 2**63 - 1, pa.int64(), 2**63 - 1),
        ("uint32", 2**32 - 1, pa.int64(), 2**32 - 1),
        ("fixed64", 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
        ("bool", True, pa.bool_(), True),
        ("string", "\u00e9\0", pa.string(), "\u00e9\0"),
        ("bytes", b"\xff\0", pa.binary(), b"\xff\0"),
        ("Color", 1, pa.string(), "RED"),
        ("Color", 77, pa.string(), "77"),
        ("Inner", {"a": 5}, pa.struct([("a", pa.int32())]), {"a": 5}),
        ("google.protobuf.StringValue", {"value": ""}, pa.string(), ""),
        ("google.protobuf.UInt64Value", {"value": 7}, pa.decimal128(20, 0), Decimal(7)),
        ("google.protobuf.Empty", {}, pa.bool_(), True),
        ("google.protobuf.Duration", {"seconds": 3, "nanos": 1}, DURATION, {"seconds": 3, "nanos": 1}),
        ("google.protobuf.Timestamp", {"seconds": -1, "nanos": 999_999_999}, TIME, BEFORE_1970),
        ("google.protobuf.Timestamp", {"seconds": -62_135_596_800}, TIME, datetime(1, 1, 1, tzinfo=UTC)),
        ("google.protobuf.Timestamp", {"seconds": 253_402_300_799}, TIME, datetime(9999, 12, 31, 23, 59, 59, 0, UTC)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("label", ["", "optional ", "repeated ", "oneof c "])
def test_each_type_has_its_column(label: str, kind: str, value: Any, column: pa.DataType, stored: Any) -> None:
    schema = [f"{label}{kind} f = 1"]
    result = decoded(schema, written(schema, f=[value, value] if label == "repeated " else value))
    assert result.errors == ()
    if label == "repeated ":
        assert result.rows.schema.field("f") == pa.field("f", pa.list_(pa.field("element", column)), nullable=False)
        assert result.rows.to_pylist() == [{"f": [stored, stored]}]
    else:
        assert result.rows.schema.field("f").type == column
        assert result.rows.to_pylist() == [{"f": stored}]


def test_a_field_with_presence_is_null_when_it_is_not_set_and_others_have_their_default() -> None:
    schema = [
        "int32 a = 1", "optional int32 b = 2", "oneof c int32 c1 = 3", "oneof c string c2 = 4", "Color d = 5",
        "repeated int32 e = 6", "map<string, int32> f = 7", "Inner g = 8", "google.protobuf.BoolValue h = 9",
    ]  # fmt: skip
    empty = {"a": 0, "b": None, "c1": None, "c2": None, "d": "UNKNOWN", "e": [], "f": [], "g": None, "h": None}
    result = decoded(schema, b"", written(schema, b=0, c2="", g={}, h={}))
    assert result.rows.to_pylist() == [empty, empty | {"b": 0, "c2": "", "g": {"a": 0}, "h": False}]
    assert [field.name for field in result.rows.schema if not field.nullable] == ["a", "d", "e", "f"]


def test_maps_have_keys_of_text_in_their_order_and_of_two_equal_keys_the_last_value() -> None:
    schema = ["map<string, Inner> a = 1", "map<sint32, string> b = 2", "map<bool, Color> c = 3"]
    entries = b"".join(
        b"\x12\x05\x08" + bytes([key]) + b"\x12\x01" + item for key, item in [(4, b"x"), (2, b"y"), (4, b"z")]
    )
    result = decoded(schema, entries, written(schema, a={"k": {"a": 1}, "": {}}, c={True: 1, False: 9}))
    assert result.rows.to_pylist() == [
        {"a": [], "b": [("1", "y"), ("2", "z")], "c": []},
        {"a": [("", {"a": 0}), ("k", {"a": 1})], "b": [], "c": [("false", "9"), ("true", "RED")]},
    ]  # fmt: skip


def test_proto2_has_presence_everywhere_and_knows_required_fields_and_closed_enums() -> None:
    schema = ["required int32 r = 1", "int32 o = 2", "Color e = 3", "string s = 4"]
    result = decoded(
        schema, b"\x08\x01", b"", b"\x08\x01\x18\x4d", b"\x08\x01\x22\x01\xff", b"\x08\x02\x18\x01", syntax="proto2"
    )
    nothing = {"o": None, "e": None, "s": None}
    assert result.rows.to_pylist() == [{"r": 1, **nothing}, {"r": 1, **nothing}, {"r": 2, **nothing, "e": "RED"}]
    assert [(bad.index, bad.reason) for bad in result.errors] == [
        (1, "required fields are absent: r"),
        (3, "a text field is not UTF-8"),
    ]
    assert [field.nullable for field in result.rows.schema] == [False, True, True, True]


def test_a_member_that_comes_later_replaces_the_other_of_its_oneof() -> None:
    schema = ["oneof c int32 x = 1", "oneof c int32 y = 2"]
    result = decoded(schema, b"\x08\x01\x10\x02", b"\x10\x02\x08\x01", b"\x08\x07")
    assert result.rows.to_pylist() == [{"x": None, "y": 2}, {"x": 1, "y": None}, {"x": 7, "y": None}]


BAD = {
    "null": (None, "no value (a tombstone)"),
    "cut": (b"\x08", "not a t.M: wire format was corrupt"),
    "cut text": (b"\x12\x05abc", "not a t.M: wire format was corrupt"),
    "field 0": (b"\x08\x01\x00", "not a t.M: wire format was corrupt"),
    "text": (b"\x12\x01\xff", "not a t.M: string field had bad UTF-8"),
    "cut time": (b"\x1a\x0b\x08" + b"\xff" * 8 + b"\x7f", "not a t.M: wire format was corrupt"),
    "far time": (b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f", "field at: not a time of the years 1 to 9999"),
    "nanos": (b"\x1a\x06\x10\x80\x94\xeb\xdc\x03", "field at: not a time of the years 1 to 9999"),
    "time within": (
        b"\x22\x0d\x0a\x0b\x1a\x09\x08" + b"\xff" * 7 + b"\x7f",
        "field in: in: at: not a time of the years 1 to 9999",
    ),
    "panic": (b"\x12" + b"\xff" * 9 + b"\x01", "not a t.M: wire format was corrupt"),
    "open groups": (b"\xa3\x06" * LARGEST, "not a t.M: wire format was corrupt"),
    "deep groups": (b"\xa3\x06" * 500_000 + b"\xa4\x06" * 500_000, "not a t.M: wire format was corrupt"),
    "giant": (b"\x12\x83\x80\x80\x0f" + b"x" * 1_000_000, "not a t.M: wire format was corrupt"),
}


@pytest.mark.parametrize(("value", "reason"), BAD.values(), ids=list(BAD))
def test_a_bad_record_harms_no_other(value: bytes | None, reason: str) -> None:
    schema = ["int32 id = 1", "string s = 2", "google.protobuf.Timestamp at = 3", "repeated In in = 4"]
    content = descriptor_set(
        proto("t", {"M": schema, "In": ["repeated In2 in = 1"], "In2": ["google.protobuf.Timestamp at = 3"]})
    )
    values = [b"\x08\x01", b"\x08\x02", value, b"\x08\x03", value, b"\x08\x04\x12" + b"\xc0\x9a\x0c" + b"y" * 200_000]
    result = read(content, values)
    assert result.rows.column("id").to_pylist() == [1, 2, 3, 4]
    assert result.good.to_pylist() == [0, 1, 3, 5]
    assert [(bad.index, bad.reason) for bad in result.errors] == [(2, reason), (4, reason)]


def test_fields_and_values_that_the_schema_does_not_know_are_skipped_or_kept_as_numbers() -> None:
    old, new = ["int32 a = 1", "Color c = 2"], ["int32 a = 1", "Color c = 2", "Inner b = 3", "string t = 19000000"]
    assert decoded(old, written(new, a=5, c=12, b={"a": 1}, t="x")).rows.to_pylist() == [{"a": 5, "c": "12"}]
    assert decoded(new, written(old, a=5)).rows.to_pylist() == [{"a": 5, "c": "UNKNOWN", "b": None, "t": ""}]


def chain(length: int, fields: tuple[str, ...]) -> dict[str, list[str]]:
    """Messages M, M1, .. that each hold the next one in these fields."""
    names = ["M", *(f"M{at}" for at in range(1, length))]
    links = {
        name: [f"{below} {field} = {number}" for number, field in enumerate(fields, 1)]
        for name, below in pairwise(names)
    }
    return {**links, names[-1]: ["int32 a = 1"]}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ({"M": ["M m = 1"]}, "the message is recursive (t.M -> t.M)"),
        (
            {"M": ["int32 a = 1", "repeated N n = 2"], "N": ["map<string, M> m = 1"]},
            "the message is recursive (t.M -> t.N -> t.M)",
        ),
        ({"M": ["google.protobuf.Struct s = 1"]}, "is recursive (google.protobuf.Struct -> google.protobuf.Value"),
        ({"M": []}, "t.M cannot be the message of a record"),
        ({"M": ["int32 _a = 1"]}, "t.M._a cannot be the name of a column"),
        ({"M": ["int32 name = 1", "int32 Name = 2"]}, "t.M.Name has the same name as name"),
        (chain(20, ("a", "b")), "t.M has more than 2,000 fields"),
        (chain(40, ("a",)), "t.M has messages nested deeper than 32"),
    ],
)
def test_a_message_that_makes_no_columns_is_refused(messages: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Messages(descriptor_set(proto("t", messages)), "t.M")
    assert words in caught.value.what
    assert caught.value.next_step


def test_what_is_no_descriptor_set_or_lacks_something_is_refused() -> None:
    alone = proto("t", {"M": ["u.U u = 1"]}, imports=("u.proto",))
    for content, name, words in [
        (b"", "t.M", "the schema file is not a descriptor set"),
        (b'syntax = "proto3";', "t.M", "the schema file is not a descriptor set"),
        (SET, "t.Al", 'there is no message t.Al in the descriptor set; did you mean "t.All"?'),
        (
            descriptor_set(alone),
            "t.M",
            "schema.proto imports u.proto, which is missing in the descriptor set, so the type u.U is unknown",
        ),
    ]:
        with pytest.raises(ConfigurationError) as caught:
            needed(content, name)
        assert caught.value.what == words
        assert caught.value.next_step


def test_only_what_the_message_needs_is_kept_and_files_may_come_in_any_order() -> None:
    used = proto("u", {"U": ["int32 a = 1"]}, name="u.proto")
    user = proto("t", {"M": ["u.U u = 1"]}, imports=("u.proto",))
    other = proto("o", {"O": ["int32 a = 1"]}, name="o.proto")
    commented = proto("t", {"M": ["u.U u = 1"]}, imports=("u.proto",))
    commented.source_code_info.location.add(leading_comments="text")
    assert needed(descriptor_set(used, user), "t.M") == needed(descriptor_set(other, commented, used), "t.M")


# Both readers on the same bytes.


def readers() -> tuple[Fast, Runtime]:
    descriptor = message_descriptor(SET, "t.All")
    shape = message_shape(descriptor)
    fast = fast_reader(SET, "t.All", shape)
    assert fast is not None
    return fast, Runtime(descriptor, shape)


FAST, RUNTIME = readers()
LOCAL = RegisteredSchema(-1, "PROTOBUF", b64encode(SET).decode())
DECODER = open_decoder({"reader": LOCAL.as_dict(), "message": "t.All"})


def numbers(of: int) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.sampled_from([0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
        st.integers(0, of),
    ).map(varint)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, wire_type: int, content: bytes) -> bytes:
    return varint(number << 3 | wire_type) + (varint(len(content)) + content if wire_type == 2 else content)


def fields(known: list[int], inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Some fields of any wire types, with numbers that the message has, and others."""
    content = {
        0: numbers(2**64 - 1),
        1: st.binary(min_size=8, max_size=8),
        2: st.one_of(
            st.text(max_size=5).map(str.encode),
            st.lists(numbers(2**40), max_size=4).map(b"".join),
            inner,
            st.binary(max_size=6),
        ),
        5: st.binary(min_size=4, max_size=4),
    }
    single = st.tuples(st.sampled_from([*known, 19_000, 500]), st.sampled_from(sorted(content))).flatmap(
        lambda chosen: content[chosen[1]].map(lambda bytes_: field(*chosen, bytes_))
    )
    return st.lists(single, max_size=6).map(b"".join)


DEEP = fields([1, 2], fields([1, 2], st.just(b"")))
RECORDS = fields([each.number for each in ALL.DESCRIPTOR.fields], fields([1, 2, 3, 4, 5], DEEP))


def outcome(reader: Fast | Runtime, value: bytes) -> list[Any] | None:
    """The row, None when the record is refused."""
    if isinstance(reader, Fast):
        try:
            columns = reader.columns(pa.array([value], pa.binary()))
        except Misfit:
            return None
    else:
        decoded = reader.read([value])
        if not len(decoded.good):
            return None
        columns = decoded.rows.columns
    for column in columns:
        column.validate(full=True)
    return [repr(column.to_pylist()) for column in columns]


def odd_tags(value: bytes) -> bool:
    """Whether there is a group, or a tag that only the runtime refuses, in the record or in what may be within it."""
    at = 0
    while at < len(value):
        tag, size = read_varint(value, at)
        at += size
        if tag & 7 in (3, 4) or size > 5 or tag >= 2**32:
            return True
        match tag & 7:
            case 0:
                at += read_varint(value, at)[1]
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, size = read_varint(value, at)
                at += size
                if odd_tags(value[at : at + length]):
                    return True
                at += length
            case _:
                return False
    return False


def read_varint(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for size, byte in enumerate(value[at : at + 10], 1):
        number |= (byte & 127) << 7 * (size - 1)
        if byte < 128:
            return number, size
    return number, 10


def same_in_both(value: bytes) -> None:
    fast, runtime = outcome(FAST, value), outcome(RUNTIME, value)
    if fast is not None and runtime is None:
        assert odd_tags(value), value
    elif fast is not None:
        assert fast == runtime


@pytest.mark.thorough
@settings(max_examples=draws(150))
@given(RECORDS)
@example(b"\x08\x80\x80\x80\x80\x10")
def test_both_readers_mean_the_same(value: bytes) -> None:
    same_in_both(value)


@pytest.mark.thorough
@settings(max_examples=draws(150))
@given(RECORDS, st.data())
def test_both_readers_mean_the_same_by_damaged_records(value: bytes, data: st.DataObject) -> None:
    damaged = bytearray(value or b"\x08\x01")
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    same_in_both(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@pytest.mark.exhaustive
@settings(max_examples=1_000)  # some 30 s of processor time
@given(RECORDS, st.data())
def test_both_readers_mean_the_same_many_times(value: bytes, data: st.DataObject) -> None:
    same_in_both(value)
    damaged = bytearray(value or b"\x08\x01")
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    same_in_both(bytes(damaged))


@pytest.mark.thorough
@settings(max_examples=draws(60))
@given(st.lists(st.one_of(RECORDS, st.binary(max_size=12)), max_size=12), st.integers(0, 12))
def test_what_becomes_of_a_record_does_not_depend_on_the_records_beside_it(values: list[bytes], cut: int) -> None:
    def outcomes(part: list[bytes]) -> Iterator[str]:
        result = DECODER.decode(pa.record_batch({"value": pa.array(part, pa.binary())}))
        rows = dict(zip(result.good.to_pylist(), result.rows.to_pylist(), strict=True))
        reasons = {bad.index: bad.reason for bad in result.errors}
        return (repr(rows.get(at, reasons.get(at))) for at in range(len(part)))

    assert list(outcomes(values)) == [*outcomes(values[:cut]), *outcomes(values[cut:])]


@pytest.mark.parametrize("name", ["Inner", "t.Inner", ".t.Inner"])
def test_names_of_types_may_count_from_their_own_package(name: str) -> None:
    file = proto("t", {"M": ["Inner in = 1"], "Inner": ["int32 a = 1"]})
    file.message_type[0].field[0].type_name = name
    content = descriptor_set(file)
    assert fast_reader(content, "t.M", message_shape(message_descriptor(content, "t.M"))) is not None
    assert read(content, [b"\x0a\x02\x08\x05"]).rows.to_pylist() == [{"in": {"a": 5}}]


def test_only_types_of_the_list_are_for_the_fast_reader() -> None:
    def has_fast_reader(schema: list[str], syntax: str = "proto3") -> bool:
        content = descriptor_set(proto("t", {"M": schema, "Inner": ["map<string, int32> a = 1"]}, syntax=syntax))
        return fast_reader(content, "t.M", message_shape(message_descriptor(content, "t.M"))) is not None

    assert has_fast_reader(["int32 a = 1"])
    assert not has_fast_reader(["int32 a = 1"], syntax="proto2")
    assert not has_fast_reader(["map<string, int32> a = 1"])
    assert not has_fast_reader(["Inner a = 1"])
    for kind in SCALARS:
        assert has_fast_reader([f"repeated {kind} a = 1"]) == (kind not in FIXED_WIDTH), kind


# The pipeline file.

FILE = """\
pipeline: flights
source:
  kafka: {connection: kafka_default, topics: [flights]}
decode:
  format: protobuf
  message: travel.Flight
  descriptor_set: flights.desc
event_time: {field: at}
sinks:
  - files: {root: lake, format: avro}
"""
FLIGHT = ["string carrier = 1", "google.protobuf.Timestamp at = 2", "map<uint32, Color> seats = 3", "uint64 big = 4"]


def test_a_pipeline_file_reads_the_descriptor_set_beside_it(tmp_path: Path) -> None:
    flights = proto("travel", {"Flight": FLIGHT}, {"Color": COLOR})
    other = proto("other", {"Other": ["int32 a = 1"]}, name="other.proto")
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    (tmp_path / "flights.desc").write_bytes(descriptor_set(flights))
    pipeline = load(file, {})
    (tmp_path / "flights.desc").write_bytes(descriptor_set(flights, other))
    assert load(file, {}).fingerprint() == pipeline.fingerprint()
    (tmp_path / "flights.desc").write_bytes(
        descriptor_set(proto("travel", {"Flight": [*FLIGHT, "int32 more = 5"]}, {"Color": COLOR}))
    )
    assert load(file, {}).fingerprint() != pipeline.fingerprint()
    # The pipeline read before goes on with what it has read: nothing of this machine's files is in an order.
    value = message_class(descriptor_set(flights), "travel.Flight")(carrier="UA", seats={12: 1}).SerializeToString()
    result = open_decoder(pipeline.decode.order()).decode(pa.record_batch({"value": pa.array([value], pa.binary())}))
    assert result.rows.to_pylist() == [{"carrier": "UA", "at": None, "seats": [("12", "RED")], "big": Decimal(0)}]
    assert pipeline.decode.never_null() == {"carrier", "seats", "big"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "travel.Flight",
            "travel.Fligt",
            'no message travel.Fligt in the descriptor set; did you mean "travel.Flight"?',
        ),
        (
            "flights.desc",
            "gone.desc",
            "descriptor_set: names a file that cannot be read: {folder}/gone.desc: No such file",
        ),
        (
            "flights.desc",
            "p.yaml",
            "decode.descriptor_set: cannot be used: the schema file is not a descriptor set; make one: protoc",
        ),
        ("flights.desc", "[1]", "must be the name of a descriptor set that protoc has written, such as flights.desc"),
        (
            "  descriptor_set: flights.desc\n",
            "",
            "descriptor_set: is missing: without registry, a descriptor set file holds",
        ),
        ("{field: at}", "{field: seats}", "event_time.field: is map<string, string> in the schema"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace(old, new))
    (tmp_path / "flights.desc").write_bytes(descriptor_set(proto("travel", {"Flight": FLIGHT}, {"Color": COLOR})))
    with pytest.raises(InvalidPipelines) as caught:
        load(file, {})
    assert words.format(folder=tmp_path) in str(caught.value)


def test_the_example_reads_messages_of_the_proto_file_beside_it() -> None:
    examples = Path(__file__).parents[4] / "include/pipelines/examples"
    text = (examples / "flight.proto").read_text()
    lines = re.findall(r"^  ((?:optional |repeated )?[\w.]+ \w+ = \d+);$", text.partition("message")[2], re.MULTILINE)
    airports = {name: int(number) for name, number in re.findall(r"^  ([A-Z]+) = (\d);$", text, re.MULTILINE)}
    written_set = descriptor_set(proto("travel", {"Flight": lines}, {"Airport": airports}))
    value = message_class(written_set, "travel.Flight")(carrier="UA", origin=3, codeshares=["LH 7"]).SerializeToString()
    pipeline = load(examples / "protobuf.yaml", {})
    made = open_decoder(pipeline.decode.order())
    assert made.schema == Messages(written_set, "travel.Flight").schema
    [row] = made.decode(pa.record_batch({"value": pa.array([value], pa.binary())})).rows.to_pylist()
    assert (row["carrier"], row["origin"], row["tail_number"], row["codeshares"]) == ("UA", "LGA", None, ["LH 7"])
