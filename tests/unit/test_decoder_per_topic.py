"""``decode`` as a list: topics whose records are decoded in different ways, in one table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.pipeline_text import changed, problems
from tidemark.connections.lookup import from_environment
from tidemark.decoders.base import Decoded
from tidemark.decoders.pins import Pins
from tidemark.decoders.registry import open_decoder, tombstone_fields
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import HEADERS
from tidemark.pipeline.decoded_topics import refuse_undecoded
from tidemark.pipeline.loader import load
from tidemark.pipeline.settings import Pipeline

Write = Callable[..., Path]
SINGLE = "decode:\n  format: json\n  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN\n"
LIST = """\
decode:
  - topics: [flights]
    format: json
    schema: id BIGINT NOT NULL, at TIMESTAMP
  - topics: [delays]
    topics_regex: late-.*
    format: json
    schema: id BIGINT NOT NULL, at TIMESTAMP NOT NULL, why STRING
"""
TOPICS = ("    topics: [flights]\n", "    topics: [flights, delays]\n    topics_regex: (late|early)-.*\n")


def listed(*changes: tuple[str, str]) -> str:
    text = changed((SINGLE, LIST), TOPICS)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def entry(topic: str, schema: str, **more: Any) -> dict[str, Any]:
    decode = {"format": "json", "schema": schema, **more}
    return {"topics": [topic], "topics_regex": None, "decode": decode}


def decoded(config: dict[str, Any], *records: tuple[str, bytes | None]) -> Decoded:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic for topic, _ in records], pa.string()),
            "key": pa.array([b'{"id": 9}'] * len(records), pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "headers": pa.array([[]] * len(records), HEADERS),
        }
    )
    decoder = open_decoder(config)
    result = decoder.decode(batch)
    assert result.rows.schema == decoder.schema
    assert result.rows.validate(full=True) is None
    indices = [*result.good.to_pylist(), *(bad.index for bad in result.errors)]
    assert sorted(indices) == list(range(len(records)))
    return result


def test_records_of_each_topic_are_read_in_their_own_way_and_keep_their_places() -> None:
    config = {"by_topic": [entry("a", "id BIGINT NOT NULL, x STRING NOT NULL"), entry("b", "y DOUBLE, id BIGINT")]}
    result = decoded(config, ("b", b'{"id": 1, "y": 2}'), ("a", b'{"id": 2, "x": "x"}'), ("a", b"no"), ("b", b"no"))
    assert result.rows.to_pylist() == [{"id": 1, "x": None, "y": 2.0}, {"id": 2, "x": "x", "y": None}]
    assert result.good.to_pylist() == [0, 1]
    assert [bad.index for bad in result.errors] == [2, 3]
    assert result.deleted is None
    assert {field.name: field.nullable for field in result.rows.schema} == {"id": True, "x": True, "y": True}
    [alone] = decoded(config, ("a", b'{"id": 2, "x": "x"}')).rows.to_pylist()
    assert alone == {"id": 2, "x": "x", "y": None}


def test_tombstones_of_one_topic_mark_the_rows_of_all() -> None:
    with_tombstones = entry("a", "id BIGINT NOT NULL, x STRING", tombstones=["id"])
    config = {"by_topic": [with_tombstones, entry("b", "id BIGINT NOT NULL")]}
    result = decoded(config, ("b", b'{"id": 1}'), ("a", None), ("b", None), ("a", b'{"id": 2}'))
    assert result.deleted is not None
    assert list(zip(result.rows.column("id").to_pylist(), result.deleted.to_pylist(), strict=True)) == [
        (1, False), (9, True), (2, False),
    ]  # fmt: skip
    assert [bad.index for bad in result.errors] == [2]
    assert tombstone_fields(config) == ("id",)


def test_types_that_differ_in_what_may_be_null_are_one() -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "t", "type": {"type": "array", "items": "string"}}]}
    reader = {"id": -1, "kind": "AVRO", "text": json.dumps(avro), "references": []}
    of_avro = {"topics": ["a"], "topics_regex": None, "decode": {"format": "avro", "reader": reader}}
    result = decoded(
        {"by_topic": [of_avro, entry("b", "t ARRAY<STRING>")]}, ("a", b"\2\2x\0"), ("b", b'{"t": ["y", null]}')
    )
    assert result.rows.to_pylist() == [{"t": ["x"]}, {"t": ["y", None]}]


@pytest.mark.parametrize("topics", [("c", "matches no entry"), ("b", r"matches 2 entries of decode: decode\[0\], dec")])
def test_a_topic_of_no_entry_or_of_two_is_never_decoded(topics: tuple[str, str]) -> None:
    topic, message = topics
    entries = [entry("a", "id BIGINT") | {"topics_regex": "[ab]"}, entry("b", "id BIGINT")]
    with pytest.raises(ConfigurationError, match=message):
        decoded({"by_topic": entries}, (topic, b"{}"))


def test_a_file_with_a_list_gives_the_columns_of_all_entries(write: Write) -> None:
    pipeline = load(write(listed()), {})
    assert pipeline.decode.columns() == {"id": "int64", "at": "timestamp[us, tz=UTC]", "why": "string"}
    rows = pipeline.decode.rows()
    assert rows is not None
    assert (rows.never_null(), rows.fans_out()) == ({"id"}, False)
    assert rows.arrow_schema() == open_decoder(pipeline.decode.record_order()).schema
    refuse_undecoded(pipeline, ["flights", "delays", "late-1"])
    with pytest.raises(ConfigurationError, match=r"topic early-1 matches no entry of decode") as refused:
        refuse_undecoded(pipeline, ["late-1", "early-1"], manifest_id=7)
    assert "exactly one entry of decode" in refused.value.next_step
    assert refused.value.context["manifest"] == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("topics: [delays]\n", "topics: [delys]\n",
         "p.yaml:9: decode: must have one entry for each topic: topic delays matches no entry of decode"),
        ("late-.*\n    format", ".*s\n    format", "topic flights matches 2 entries of decode: decode[0], decode[1]"),
        ("topics: [delays]\n", "topics: [delays, other]\n",
         "decode[1].topics: names other, which source.kafka does not read"),
        ("at TIMESTAMP NOT NULL", "at DATE", "column at is date32[day] in decode[1] and timestamp[us, tz=UTC] in"),
        ("at TIMESTAMP NOT NULL", "AT TIMESTAMP", "column AT of decode[1] has the same name as at"),
        ("    topics_regex: late-.*\n", "    topics_regex: '('\n", "decode[1].topics_regex: is not a regular expr"),
        ("  - topics: [flights]\n", "  - formt: x\n", 'decode[0].formt: unknown key; did you mean "format"?'),
        ("schema: id BIGINT NOT NULL, at TIMESTAMP\n", "schema: id BIGIN\n", "decode[0].schema: does not parse"),
        (LIST, "decode: []\n", "decode: must have at least one entry"),
        (LIST, "decode: [{format: raw}]\n", "decode[0]: names no topics: each entry of a list needs topics"),
        (LIST, "decode: [x]\n", "decode[0]: must be a mapping of keys to values (it is \"x\")"),
        (LIST, "decode: [{topics: [flights]}]\n", "decode[0].format: is missing: the format of the records"),
        (LIST, "decode: {format: raw, topics: [flights]}\n", "decode.topics: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_list_is_named(write: Write, old: str, new: str, message: str) -> None:
    assert message in problems(write(listed((old, new))))[0]


WITHOUT_TIME = ("at TIMESTAMP NOT NULL, why STRING", "id2 INT, why STRING, meta STRUCT<at:TIMESTAMP>")


def test_the_event_time_must_be_in_the_schema_of_every_topic(write: Write) -> None:
    [message] = problems(write(listed(WITHOUT_TIME)))
    assert "event_time.field: is at, which the schema of topic delays, late-.* does not have; add it there" in message
    [message] = problems(write(listed(WITHOUT_TIME, ("field: at\n", "field: meta.at\n"))))
    assert "event_time.field: is meta.at, which the schema of topic flights does not have" in message
    [message] = problems(write(listed(WITHOUT_TIME, ("field: at\n", "field: when\n"))))
    assert "event_time.field: is not in the schema; allowed: " in message


def test_a_topic_without_the_event_time_may_fall_back_to_kafka_or_make_it(write: Write) -> None:
    by_kafka = listed(WITHOUT_TIME, ("field: at\n", "field: at\n  on_invalid: source_timestamp\n"))
    select = """transform: [{select: ['*', 'coalesce("at", meta."at") AS t']}]"""
    made = listed(WITHOUT_TIME, ("event_time:\n  field: at\n", f"{select}\nevent_time:\n  field: t\n"))
    assert all(load(write(text), {}) for text in (by_kafka, made))


def test_tombstones_of_the_entries_need_a_common_field(write: Write) -> None:
    both = [
        ("TIMESTAMP\n", "TIMESTAMP\n    tombstones: [id]\n"),
        ("why STRING\n", "why STRING\n    tombstones: [why]\n"),
    ]
    assert "has tombstones without a common field" in problems(write(listed(*both)))[0]


def fingerprint(write: Write, *changes: tuple[str, str]) -> str:
    return load(write(listed(*changes)), {}).fingerprint()


def test_topics_and_formats_of_all_entries_decide_the_fingerprint(write: Write) -> None:
    changes: list[tuple[tuple[str, str], ...]] = [
        (),
        (("late-.*", "la.e-.*"),),
        (("why STRING", "why INT"),),
        (("[flights]\n    format", "[flights]\n    headers: true\n    format"),),
    ]
    assert len({fingerprint(write, *change) for change in changes}) == len(changes)


def test_each_entry_pins_the_schema_of_its_own_topic(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    framed = "format: avro\n    registry: {url: 'http://none'}\n"
    text = listed(
        ("format: json\n    schema: id BIGINT NOT NULL, at TIMESTAMP\n", framed),
        ("event_time:\n  field: at\n", ""),
    )
    pipeline = load(write(text), {})
    assert pipeline.decode.columns() is None
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    stored = {
        "http://none: subject flights-value newest": {
            "id": 3, "kind": "AVRO", "text": json.dumps(schema), "references": [],
        }
    }  # fmt: skip
    pins = Pins(("flights", "delays"), stored, from_environment)
    pinned: Pipeline = pipeline.model_copy(update={"decode": pipeline.decode.pinned(pins)})
    assert list(pinned.decode.columns() or {}) == ["n", "id", "at", "why"]
    assert set(pins.used) == set(stored)
    assert pinned.fingerprint() != pipeline.fingerprint()
    assert pinned.fingerprint().split("+")[0] == pipeline.fingerprint()
