"""What the lists of a record take as columns: counted before they are made, and a dead letter above the limit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.protobuf_schemas import descriptor_set, message_class, proto
from tests.unit.pipeline_text import changed
from tests.unit.test_hard_records import FRAME, decoded, of_json_schema, of_protobuf
from tidemark.decoders.list_limit import count_of_lists
from tidemark.pipeline.loader import load
from tidemark.providers.protobuf.lists import fields_with_lists, list_bytes
from tidemark.providers.protobuf.schemas.descriptors import message_descriptor
from tidemark.providers.protobuf.schemas.shapes import message_shape

LIMIT = 64 * 2**20
COUNT = 50_000  # empty messages, which take 100 kB, and 400 MB as columns
NUMBERS = {f"n{at}": {"type": "integer"} for at in range(1000)}
WIDE = {"wide": {"type": "array", "items": {"type": "object", "properties": NUMBERS}}}
BOMBS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {  # config, a good record, a bomb
    "protobuf": (
        of_protobuf(M=["repeated Wide wide = 1"], Wide=[f"int64 n{at} = {at + 1}" for at in range(1000)]),
        b"\x0a\x02\x08\x07",
        b"\x0a\x00" * COUNT,
    ),
    "json": (
        {"format": "json", "schema": {"type": "object", "properties": WIDE}},
        b'{"wide":[{"n0":7}]}',
        b'{"wide":[' + b"{}," * COUNT + b"{}]}",
    ),
    "json_schema": (
        of_json_schema(**WIDE), FRAME + b'{"wide":[{"n0":7}]}', FRAME + b'{"wide":[' + b"{}," * COUNT + b"{}]}"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "good", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_record_whose_lists_would_need_the_memory_of_a_worker_is_a_dead_letter(
    config: dict[str, Any], good: bytes, bomb: bytes
) -> None:
    before = pa.total_allocated_bytes()
    result = decoded({**config, "max_list_bytes": LIMIT}, good, bomb, good[:-1], good)
    assert pa.total_allocated_bytes() - before < 2**20
    assert [row["wide"][0]["n0"] for row in result.rows.to_pylist()] == [7, 7]
    assert result.good.to_pylist() == [0, 3]
    large, broken = result.errors
    assert (large.index, broken.index) == (1, 2)
    assert large.reason.startswith("its lists take more than 67,108,864 bytes as columns (max_list_bytes)")


def test_the_limit_is_the_bytes_that_the_elements_take() -> None:
    config, _, _ = BOMBS["protobuf"]
    allowed = {**config, "max_list_bytes": 3 * 8000}
    result = decoded(allowed, b"\x0a\x00" * 3, b"\x0a\x00" * 4, b"\x12\x00" * 4000)
    assert [bad.index for bad in result.errors] == [1]
    as_json = {**BOMBS["json"][0], "max_list_bytes": 3 * 8000}
    result = decoded(as_json, b'{"wide":[{},{},{}]}', b'{"wide":[{},{},{},{}]}', b'{"x":"' + b"[{}]" * 9 + b'"}')
    assert [bad.index for bad in result.errors] == [1]


def test_a_large_record_without_large_lists_is_a_row() -> None:
    config = {**of_protobuf(M=["string t = 1", "repeated int64 n = 2"]), "max_list_bytes": 800}
    text = b"\x0a\x80\x80\x40" + b"x" * 2**20
    result = decoded(config, text, text + b"\x12\x64" + b"\1" * 100, text + b"\x12\x65" + b"\1" * 101)
    assert [(len(row["t"]), len(row["n"])) for row in result.rows.to_pylist()] == [(2**20, 0), (2**20, 100)]
    assert [bad.index for bad in result.errors] == [2]


def test_bytes_that_break_off_are_counted_as_far_as_they_go() -> None:
    config, _, bomb = BOMBS["protobuf"]
    for rest in (b"\xff", b"\x0a\x7f", b"\x0c", b"\x80" * 30, b"\x0b" * 1000):
        large, broken = decoded({**config, "max_list_bytes": LIMIT}, bomb + rest, rest).errors
        assert "max_list_bytes" in large.reason
        assert "not a t.M" in broken.reason


LISTS = {
    "M": [
        "repeated In in = 1", "repeated sint64 n = 2", "repeated float f = 3", "repeated double d = 300",
        "map<string, In> m = 5", "repeated string t = 6", "In alone = 7", "map<int32, bool> b = 8",
        "repeated bool x = 9",
    ],
    "In": ["repeated uint64 big = 1", "string name = 2", "repeated Deep deep = 3", "Deep one = 4"],
    "Deep": ["repeated int32 z = 1", "google.protobuf.Timestamp at = 2"],
}  # fmt: skip
SET = descriptor_set(proto("t", LISTS))
SHAPE = message_shape(message_descriptor(SET, "t.M"))
COUNT_OF_LISTS = count_of_lists(SHAPE.arrow) or len
WITH_LISTS = fields_with_lists(message_descriptor(SET, "t.M"), SHAPE)
DEEP = st.fixed_dictionaries({}, optional={"z": st.lists(st.integers(-9, 999), max_size=3)})
IN = st.fixed_dictionaries(
    {}, optional={"big": st.lists(st.integers(0, 2**64 - 1), max_size=3), "name": st.text(max_size=3),
                  "deep": st.lists(DEEP, max_size=3), "one": DEEP},
)  # fmt: skip
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "in": st.lists(IN, max_size=3), "n": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
        "f": st.lists(st.just(1.5), max_size=4), "d": st.lists(st.just(2.5), max_size=4),
        "m": st.dictionaries(st.text(max_size=2), IN, max_size=3), "t": st.lists(st.text(max_size=4), max_size=3),
        "alone": IN, "b": st.dictionaries(st.integers(0, 9), st.booleans(), max_size=3),
        "x": st.lists(st.booleans(), max_size=4),
    },
)  # fmt: skip


@settings(max_examples=draws(60))
@given(MESSAGES)
def test_what_is_counted_in_the_bytes_of_a_message_is_what_its_columns_have(fields: dict[str, Any]) -> None:
    value = message_class(SET, "t.M")(**fields).SerializeToString()
    assert list_bytes(value, WITH_LISTS, LIMIT) == COUNT_OF_LISTS(fields)


def test_the_pipeline_file_sets_the_limit_and_it_decides_the_rows(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(changed())
    default = load(file, {})
    file.write_text(changed(("format: json", "format: json\n  max_list_bytes: 1MiB")))
    small = load(file, {})
    limits = [pipeline.decode.record_order()["max_list_bytes"] for pipeline in (default, small)]
    assert limits == [LIMIT, 2**20]
    assert default.fingerprint() != small.fingerprint()
    assert json.dumps(small.decode.decides_output())
