"""What every registered decoder promises; a new one is picked up by itself and must bring examples."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.protobuf_schemas import descriptor_set, proto
from tidemark.decoders.base import REASON_LIMIT, Decoded, Decoder
from tidemark.decoders.registry import open_decoder
from tidemark.kinds import DECODERS
from tidemark.model.digest import row_digest
from tidemark.model.record_schema import HEADERS
from tidemark.providers.registry import schemas
from tidemark.providers.registry.registered_schema import UnknownSchema


@dataclass(frozen=True)
class Examples:
    """A config, the schema it must give, values that decode, and values that do not (none = every value decodes)."""

    config: dict[str, Any]
    schema: pa.Schema
    good: tuple[bytes | None, ...]
    bad: tuple[bytes | None, ...]
    evolved: "Evolved | str"


@dataclass(frozen=True)
class Evolved:
    """Records of older and newer producers: the config of the reader, what becomes of each, and what a refused
    record's reason says. A text in its place says why the format knows no evolution."""

    config: dict[str, Any]
    rows: tuple[tuple[bytes, dict[str, Any]], ...]
    refused: tuple[tuple[bytes, str], ...]


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def of_registry(kind: str, writers: dict[int, str], **config: Any) -> dict[str, Any]:
    """A config with pinned schemas of writers; the address is never asked."""
    schemas = {
        f"http://none: writer {number}": {"id": number, "kind": kind, "text": text, "references": []}
        for number, text in writers.items()
    }
    return {"registry": {"url": "http://none"}, "schemas": schemas, **config}


def avro_record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def registered_message(name: str, *fields: str) -> str:
    return b64encode(proto("t", {name: list(fields)}).SerializeToString()).decode()


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    ],
}
THING = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
    "required": ["id"],
}
PROTOBUF = ["int64 id = 1", "optional string name = 2", "google.protobuf.Timestamp at = 3", "repeated string tags = 4"]
EXAMPLES = {
    "avro": Examples(
        config={
            "format": "avro",
            "reader": {"id": -1, "kind": "AVRO", "text": json.dumps(ORDER), "references": []},
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("at", pa.timestamp("us", "UTC")),
                pa.field("tags", pa.list_(pa.field("element", pa.string())), nullable=False),
            ]
        ),
        good=(b"\2\0\0\0", b"\4\2\4\xc3\xa9\2\4\4\2\2a\0\0", b"\1\0\2\1\3\4\0\0\0"),
        evolved=Evolved(
            config=of_registry(
                "AVRO",
                {
                    7: avro_record({"name": "number", "type": "int"}),
                    8: avro_record({"name": "more", "type": "string"}, {"name": "id", "type": "long"}),
                    9: avro_record({"name": "id", "type": "string"}),
                    10: avro_record({"name": "other", "type": "long"}),
                },
                format="avro",
                reader={
                    "id": 20,
                    "kind": "AVRO",
                    "text": avro_record(
                        {"name": "id", "type": "long", "aliases": ["number"]},
                        {"name": "note", "type": ["null", "string"], "default": None},
                    ),
                    "references": [],
                },
            ),
            rows=(
                (framed(7, b"\2"), {"id": 1, "note": None}),  # an older name, a narrower number, a default
                (framed(8, b"\4hi\4"), {"id": 2, "note": None}),  # a field that the reader does not know
            ),
            refused=(
                (framed(9, b"\2a"), "id is string, and the reader needs long (writer 9, reader 20)"),
                (framed(10, b"\2"), "(writer 10, reader 20)"),  # no field for id, which has no default
            ),
        ),
        bad=(None, b"", b"\2", b"\2\0\0\0\0", b"\2\2\2\xff\0\0", b"\2\4\0\0", b"\2\0\2" + b"\xff" * 8 + b"\0\0"),
    ),
    "json_schema": Examples(
        config={
            "format": "json_schema",
            "reader": {"id": 8, "kind": "JSON", "text": json.dumps(THING), "references": []},
            "registry": {"url": "http://none"},
            "schemas": {
                f"http://none: writer {writer}": {"id": int(writer), "kind": kind, "text": "{}", "references": []}
                for writer, kind in {"7": "JSON", "8": "JSON", "9": "AVRO"}.items()
            },
        },
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]),
        good=(
            b'\0\0\0\0\x08{"id": 1}',
            b'\0\0\0\0\x07{"id": 2, "name": "\xc3\xa9", "more": 5}',
            b'\0\0\0\0\x07{"id": 3, "name": null}',
        ),
        bad=(
            None,
            b"",
            b"\0\0\0\0",
            b"\0\0\0\0\x08",
            b'{"id": 1}',
            b'\0\0\0\0\x09{"id": 1}',
            b'\0\0\0\0\x07{"id": "1"}',
            b"\0\0\0\0\x07\xff",
        ),
        evolved=Evolved(
            config=of_registry(
                "JSON",
                {7: "{}", 8: "{}"},
                format="json_schema",
                reader={"id": 20, "kind": "JSON", "text": json.dumps(THING), "references": []},
            ),
            rows=(
                (framed(7, b'{"id": 1}'), {"id": 1, "name": None}),
                (framed(8, b'{"id": 2, "name": "n", "more": [1]}'), {"id": 2, "name": "n"}),
            ),
            refused=(
                (framed(8, b'{"id": "2"}'), "field id: expected integer, found string (writer 8, reader 20)"),
                (framed(7, b'{"name": "n"}'), "(writer 7, reader 20)"),
            ),
        ),
    ),
    "protobuf": Examples(
        config={
            "format": "protobuf",
            "message": "t.M",
            "reader": {
                "id": -1,
                "kind": "PROTOBUF",
                "text": b64encode(descriptor_set(proto("t", {"M": PROTOBUF}))).decode(),
                "references": [],
            },
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("at", pa.timestamp("us", "UTC")),
                pa.field("tags", pa.list_(pa.field("element", pa.string())), nullable=False),
            ]
        ),
        # An empty value is a message with nothing set; field 99 is of a later schema.
        good=(
            b"",
            b"\x08\x01",
            b"\x08\x02\x12\x02\xc3\xa9",
            b"\x1a\x02\x08\x05\x22\x01a\x22\x00",
            b"\x08\x03\x9a\x06\x01x",
        ),
        bad=(
            None,
            b"\x08",
            b"\x12\x05a",
            b"\x12\x01\xff",
            b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f",
            b"\x08\x01\x00",
            b"{}",
        ),
        evolved=Evolved(
            config=of_registry(
                "PROTOBUF",
                {
                    7: registered_message("M", "int64 id = 1"),
                    8: registered_message("M", *PROTOBUF, "int32 more = 5"),
                    9: registered_message("Other", "int64 id = 1"),
                    10: registered_message("M", "string id = 1"),
                },
                format="protobuf",
                message="t.M",
                reader={"id": 20, "kind": "PROTOBUF", "text": registered_message("M", *PROTOBUF), "references": []},
            ),
            rows=(
                (framed(7, b"\0\x08\x01"), {"id": 1, "name": None, "at": None, "tags": []}),
                (framed(8, b"\0\x08\x02\x28\x09"), {"id": 2, "name": None, "at": None, "tags": []}),
                # Protobuf's own rule: a field of another wire type is one that is not known.
                (framed(10, b"\0\x0a\x01a"), {"id": 0, "name": None, "at": None, "tags": []}),
            ),
            refused=(
                (framed(9, b"\0\x08\x01"), "it is a message t.Other, and the reader needs t.M (writer 9, reader 20)"),
            ),
        ),
    ),
    "raw": Examples(
        config={"format": "raw"},
        schema=pa.schema([("value", pa.binary()), ("headers", HEADERS)]),
        good=(b"{}", b"", b"\xff\x00", None),
        bad=(),
        evolved="bytes have no schema",
    ),
    "string": Examples(
        config={"format": "string"},
        schema=pa.schema([("value", pa.string())]),
        good=(b"text", b"", "\u00e9 \U0001f600".encode(), b"NUL \0", None),
        evolved="text has no schema",
        bad=(b"\xff", b"text, then \xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"),
    ),
    "json": Examples(
        config={"format": "json", "schema": "id BIGINT NOT NULL, name STRING, at TIMESTAMP, tags ARRAY<STRING>"},
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("at", pa.timestamp("us", "UTC")),
                pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            ]
        ),
        good=(
            b'{"id": 1}',
            b' {"id": 2, "name": "\\u00e9", "more": [{}]}\n',
            b'{"id": 3, "at": "2013-01-01T05:00:00-05:00", "tags": ["a", null]}',
        ),
        evolved=Evolved(
            config={"format": "json", "schema": "id BIGINT NOT NULL, name STRING"},
            rows=(
                (b'{"id": 1}', {"id": 1, "name": None}),
                (b'{"more": {"a": []}, "id": 2, "name": null}', {"id": 2, "name": None}),
            ),
            refused=(
                (b'{"id": 1.5}', "field id: expected integer, found number"),
                (b'{"name": "n"}', "field id: absent"),
            ),
        ),
        bad=(None, b"", b"{}", b'{"id": "1"}', b'{"id": 1}{"id": 2}', b'{"id": 1, "name": "\\ud800"}', b"\xff"),
    ),
}


@pytest.fixture(autouse=True, scope="module")
def no_registry() -> Iterator[None]:
    """Ids that are not pinned are unknown: random bytes name thousands, and a server would only say so."""

    def unknown(registry: object, writer: str) -> None:
        del registry
        raise UnknownSchema(writer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "_ask_for_writer", unknown)
        yield


def test_every_registered_decoder_has_examples() -> None:
    assert set(EXAMPLES) == set(DECODERS)


def records(values: list[bytes | None]) -> pa.RecordBatch:
    """Values as Spark's Kafka source gives them."""
    count = len(values)
    header = [[{"key": "h", "value": b"1"}], [], None]
    columns = {
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
        "headers": pa.array([header[at % 3] for at in range(count)], HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def check(made: Decoder, batch: pa.RecordBatch) -> Decoded:
    """Decode, and hold the result to what is true of every result."""
    decoded = made.decode(batch)
    good, bad = decoded.good.to_pylist(), [bad.index for bad in decoded.errors]
    assert decoded.rows.schema == made.schema
    assert decoded.rows.validate(full=True) is None
    assert decoded.good.type == pa.int64()
    assert decoded.rows.num_rows == len(good)
    assert good == sorted(good)
    assert bad == sorted(bad)
    assert sorted(good + bad) == list(range(batch.num_rows))
    for record in decoded.errors:
        assert 0 < len(record.reason) <= REASON_LIMIT
        assert record.reason.encode()
    return decoded


@pytest.fixture(params=list(EXAMPLES), ids=str)
def examples(request: pytest.FixtureRequest) -> Examples:
    return EXAMPLES[request.param]


@pytest.fixture
def made(examples: Examples) -> Decoder:
    return open_decoder(examples.config)


def test_the_schema_is_exactly_the_expected_one(made: Decoder, examples: Examples) -> None:
    assert made.schema == examples.schema
    assert not [name for name in made.schema.names if name.startswith("_")]


def test_good_records_become_rows(made: Decoder, examples: Examples) -> None:
    assert check(made, records(list(examples.good))).rows.num_rows == len(examples.good)


def test_bad_records_become_errors(made: Decoder, examples: Examples) -> None:
    assert check(made, records(list(examples.bad))).rows.num_rows == 0


@pytest.mark.parametrize("kind", [kind for kind, made in EXAMPLES.items() if isinstance(made.evolved, Evolved)])
def test_records_of_older_and_newer_producers_are_rows_of_the_reader_or_dead_letters(kind: str) -> None:
    evolved = EXAMPLES[kind].evolved
    assert isinstance(evolved, Evolved)
    values = [value for value, _ in (*evolved.refused, *evolved.rows)]
    decoded = check(open_decoder(evolved.config), records(list(values)))
    assert decoded.rows.to_pylist() == [row for _, row in evolved.rows]
    assert decoded.good.to_pylist() == list(range(len(evolved.refused), len(values)))
    for bad, (_, reason) in zip(decoded.errors, evolved.refused, strict=True):
        assert reason in bad.reason


def test_a_batch_without_records_is_no_rows(made: Decoder) -> None:
    assert check(made, records([])).rows.num_rows == 0


def test_rows_keep_their_order_and_errors_their_index(made: Decoder, examples: Examples) -> None:
    values = [
        value for pair in zip(examples.good * 40, (examples.bad or examples.good) * 40, strict=False) for value in pair
    ]
    decoded = check(made, records(values))
    singles = [check(made, records([value])) for value in values]
    assert decoded.good.to_pylist() == [at for at, single in enumerate(singles) if single.rows.num_rows]
    assert decoded.errors == tuple(single.errors[0].at(at) for at, single in enumerate(singles) if single.errors)
    by_itself = [row for single in singles for row in single.rows.to_pylist()]
    without_headers = [{**row, "headers": None} for row in decoded.rows.to_pylist()]
    assert without_headers == [{**row, "headers": None} for row in by_itself]


def test_a_slice_of_a_batch_decodes_like_a_batch(made: Decoder, examples: Examples) -> None:
    batch = records([*examples.good, *examples.bad, *examples.good])
    part = batch.slice(1, len(examples.good) + len(examples.bad))
    copied = pa.RecordBatch.from_pylist(part.to_pylist(), schema=part.schema)
    assert check(made, part) == check(made, copied)


def test_beside_a_decoder_of_another_topic_it_gives_the_same(made: Decoder, examples: Examples) -> None:
    values = [*examples.good, *examples.bad] * 3
    by_topic = [
        {"topics": ["t"], "topics_regex": None, "decode": examples.config},
        {"topics": [], "topics_regex": "u.*", "decode": examples.config},
    ]
    batch = records(values)
    topics = pa.array(["t", "uu", "u"][at % 3] for at in range(len(values)))
    mixed = batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)
    assert check(open_decoder({"by_topic": by_topic}), mixed) == check(made, batch)


def test_decoding_twice_gives_the_same(made: Decoder, examples: Examples) -> None:
    batch = records([*examples.good, *examples.bad] * 7)
    assert check(made, batch) == check(open_decoder(examples.config), batch)


@settings(max_examples=draws(200))
@given(values=st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30))
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_no_bytes_make_a_decoder_raise(kind: str, values: list[bytes | None]) -> None:
    check(open_decoder(EXAMPLES[kind].config), records(values))


@settings(max_examples=draws(200))
@given(data=st.data())
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_damaged_records_do_not_make_a_decoder_raise(kind: str, data: st.DataObject) -> None:
    examples = EXAMPLES[kind]
    value = bytearray(data.draw(st.sampled_from([good_value for good_value in examples.good if good_value])))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    whole = list(examples.good)
    decoded = check(open_decoder(examples.config), records([*whole, bytes(value), *whole]))
    assert decoded.rows.num_rows in (2 * len(whole), 2 * len(whole) + 1)
    assert row_digest(decoded.rows.slice(0, len(whole))) == row_digest(
        open_decoder(examples.config).decode(records([*whole, bytes(value), *whole]).slice(0, len(whole))).rows
    )
