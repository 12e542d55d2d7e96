"""``decode: {format: avro}`` in pipeline files: what loads, what is refused, and what a fingerprint covers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tidemark.decoders.pins import Pins
from tidemark.errors import ConfigurationError
from tidemark.pipeline.loader import load
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline, json_schema

Write = Callable[..., Path]
ORDER = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}
KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
REGISTRY = {"url": "http://registry:8081"}
TABLE = {"postgres": {"connection": "warehouse", "table": "orders", "key": ["key_id"]}}


def loaded(write: Write, decode: dict[str, Any], **more: Any) -> Pipeline:
    pipeline = {
        "pipeline": "p",
        "source": {"kafka": {"connection": "k", "topics": ["orders"]}},
        "decode": {"format": "avro", **decode},
        "sinks": [{"files": {"root": "lake"}}],
        **more,
    }
    return load(write(yaml.safe_dump(pipeline)), {})


def test_a_schema_file_lies_beside_the_pipeline_file(write: Write) -> None:
    write(json.dumps(ORDER), "orders.avsc")
    pipeline = loaded(write, {"schema": "orders.avsc"}, event_time={"field": "at"})
    assert pipeline.decode.columns() == {"id": "int64", "at": "string"}
    assert json.loads(pipeline.decode.record_order()["reader"]["text"]) == ORDER


@pytest.mark.parametrize(
    ("decode", "more", "message"),
    [
        ({}, {}, "decode.schema: names no file: without registry"),
        ({"schema": "none.avsc"}, {}, "names a file that cannot be read"),
        ({"schema": {"type": "record"}}, {}, "decode.schema: is not valid"),
        ({"schema": {"subject": "s"}}, {}, "decode.schema: names no file: without registry"),
        ({"schema": {"version": 3}, "registry": REGISTRY}, {}, "must hold subject, with or without version, or id"),
        ({"registry": {}}, {}, "must hold one key: connection"),
        ({"registry": {"url": "http://u:p@h"}}, {}, "may not hold a password"),
        ({"registry": {"url": "registry:8081"}}, {}, "must be an address such as"),
        ({"schema": ORDER, "tombstones": ["id"]}, {}, "decode.tombstones: needs key"),
        ({"schema": ORDER, "key": {"format": "avr"}}, {}, "must be a mapping with format, one of avro"),
        ({"schema": ORDER, "key": {"format": "raw", "headers": True}}, {}, "it is about the whole record"),
        ({"schema": ORDER, "key": {"format": "avro"}}, {}, "decode.key.schema: names no file"),
        (
            {"schema": ORDER, "key": {"format": "avro", "schema": KEY}, "tombstones": ["at"]},
            {},
            "names at, which the key",
        ),
        ({"schema": ORDER}, {"event_time": {"field": "when"}}, "is not in the schema"),
        ({"schema": ORDER}, {"sinks": [TABLE]}, "has no column key_id for its key"),
        (
            {"schema": {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}},
            {},
            "is recursive: N contains itself",
        ),
    ],
)
def test_a_wrong_file_is_told_with_its_key(
    write: Write, decode: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipelines) as wrong:
        loaded(write, decode, **more)
    assert message in str(wrong.value)


def test_a_table_may_have_the_columns_of_the_key_as_its_key(write: Write) -> None:
    key = {"format": "avro", "schema": KEY}
    pipeline = loaded(write, {"schema": ORDER, "key": key, "tombstones": ["key_id"]}, sinks=[TABLE])
    assert pipeline.decode.tombstone_fields() == ("key_id",)


def test_the_example_is_right_also_for_editors() -> None:
    file = Path(__file__).parents[4] / "include/pipelines/examples/orders-avro.yaml"
    columns = load(file, {}).decode.columns()
    assert columns is not None
    assert [*columns] == ["key_order_id", "order_id", "customer", "amount", "created_at"]
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(file.read_text()))) == []


def test_what_a_registry_has_is_not_known_before_it_is_pinned(write: Write) -> None:
    pipeline = loaded(write, {"registry": {"connection": "reg"}}, event_time={"field": "anything"}, sinks=[TABLE])
    assert pipeline.decode.columns() is None
    assert {"reg", "k", "warehouse"} == pipeline.connections()


def test_the_fingerprint_covers_the_pinned_schema_and_not_where_the_registry_is(write: Write) -> None:
    question = "http://registry:8081: subject orders-value newest"
    prints = []
    for text in (ORDER, KEY):
        pipeline = loaded(write, {"registry": REGISTRY})
        stored = {question: {"id": 7, "kind": "AVRO", "text": json.dumps(text), "references": []}}
        decode = pipeline.decode.pinned(Pins(["orders"], stored))
        assert decode.record_order()["schemas"] == stored
        prints.append(pipeline.model_copy(update={"decode": decode}).fingerprint())
    assert prints[0] != prints[1]
    unpinned = loaded(write, {"registry": REGISTRY}).fingerprint()
    assert all(print_.startswith(f"{unpinned}+") for print_ in prints)
    assert unpinned == loaded(write, {"registry": {"url": "http://other"}}).fingerprint()
    assert unpinned != loaded(write, {"registry": REGISTRY, "schema": {"subject": "orders-value"}}).fingerprint()


def stored_schemas(key: dict[str, Any]) -> dict[str, Any]:
    """What a registry has answered to an attempt."""
    parts = {"value": (7, ORDER), "key": (8, key)}
    return {
        f"http://registry:8081: subject orders-{part} newest": {
            "id": number, "kind": "AVRO", "text": json.dumps(schema), "references": []
        }
        for part, (number, schema) in parts.items()
    }  # fmt: skip


def test_the_key_of_a_registry_is_pinned_and_another_one_is_refused_with_the_way_out(write: Write) -> None:
    of_key = {"format": "avro", "registry": REGISTRY}
    decode = {"registry": REGISTRY, "key": of_key, "tombstones": "record_key"}
    table = {"connection": "warehouse", "table": "orders", "key": "record_key"}
    sinks = [{"files": {"root": "lake"}}, {"postgres": table}]
    pipeline = loaded(write, decode, sinks=sinks)
    assert [sink.record_key for sink in pipeline.sinks] == [None, ()]
    assert pipeline.decode.tombstone_fields() == ()

    def lookup(_: str) -> None:
        return None

    first = pinned(pipeline, lookup, stored_schemas(KEY))
    assert [sink.record_key for sink in first.sinks] == [None, ("id",)]
    assert first.decode.tombstone_fields() == ("id", "key_id")
    assert first.fingerprint().startswith(f"{pipeline.fingerprint()}+")
    assert pinned(first, lookup, stored_schemas(KEY)).sinks == first.sinks
    wider = {**KEY, "fields": [*KEY["fields"], {"name": "region", "type": "string"}]}
    with pytest.raises(ConfigurationError) as refused:
        pinned(first, lookup, stored_schemas(wider))
    assert "sink postgres has one row for each id, which was the record's key" in str(refused.value)
    assert "the key's schema has id, key_region" in str(refused.value)
    assert "write key: [id] in place of record_key" in str(refused.value)
    written = loaded(write, decode, sinks=[{"postgres": {**table, "key": ["id"]}}])
    assert [sink.record_key for sink in pinned(written, lookup, stored_schemas(wider)).sinks] == [None]
