"""JSON with Confluent's framing: the reader's schema decides, what does not fit names both. No registry is asked."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.decoders.base import ErrorClass
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import HEADERS
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.providers.registry.json_schema.decoder import open_decoder
from tidemark.providers.registry.registered_schema import RegisteredSchema

READER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}},
    "required": ["id"],
}


UNFRAMED = "the value is not framed: its first byte is 123, and must be 0 (an id follows) or 1 (a GUID follows)"


def config(reader: object = READER) -> dict[str, Any]:
    kinds = {"7": "JSON", "8": "JSON", "9": "AVRO"}
    pinned = {
        f"http://none: writer {writer}": RegisteredSchema(int(writer), kind, "{}").as_dict()
        for writer, kind in kinds.items()
    }
    schema = RegisteredSchema(8, "JSON", json.dumps(reader)).as_dict()
    return {"format": "json_schema", "reader": schema, "registry": {"url": "http://none"}, "schemas": pinned}


def framed(number: int, text: str) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + text.encode()


def test_records_of_several_writers_are_read_with_the_reader_s_schema() -> None:
    values = [
        framed(7, '{"id": 1}'),
        framed(8, '{"id": 2, "note": "n"}'),
        framed(7, '{"id": 3, "old": 5}'),
        None,
        b'{"id": 4}',
        framed(7, '{"id": "5"}'),
        framed(9, '{"id": 6}'),
        framed(7, "no JSON"),
        framed(8, '{"id": 8}'),
    ]
    columns = {"value": pa.array(values, pa.binary()), "headers": pa.array([[]] * len(values), HEADERS)}
    result = open_decoder(config()).decode(pa.record_batch(columns))
    assert [(row["id"], row["note"]) for row in result.rows.to_pylist()] == [(1, None), (2, "n"), (3, None), (8, None)]
    assert result.good.to_pylist() == [0, 1, 2, 8]
    assert [(bad.index, bad.reason, bad.error) for bad in result.errors] == [
        (3, "no value (a tombstone)", ErrorClass.VALUE),
        (4, UNFRAMED, ErrorClass.VALUE),
        (5, "field id: expected integer, found string (writer 7, reader 8)", ErrorClass.SCHEMA),
        (6, "schema 9 is AVRO, not JSON (writer 9, reader 8)", ErrorClass.SCHEMA),
        (7, "not JSON: Expecting value at character 0 (writer 7, reader 8)", ErrorClass.VALUE),
    ]  # fmt: skip
    assert {bad.schemas for bad in result.errors[2:]} == {"writer 7, reader 8", "writer 9, reader 8"}


@pytest.mark.parametrize("reader", [{"type": "object", "properties": {"a": {"$ref": "#/x"}}}, {"type": "string"}, 5])
def test_a_reader_s_schema_that_is_not_understood_is_refused(reader: object) -> None:
    with pytest.raises(ConfigurationError):
        open_decoder(config(reader))


FILE = """\
pipeline: orders
source:
  kafka: {connection: kafka_default, topics: [orders]}
decode:
  format: json_schema
  registry: {connection: schema_registry}
  schema: orders.schema.json
sinks:
  - files: {root: lake}
"""


def test_a_pipeline_file_names_the_schema_of_the_rows_or_leaves_it_to_the_registry(tmp_path: Path) -> None:
    (tmp_path / "orders.schema.json").write_text(json.dumps(READER))
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    decode = load(file, {}).decode
    assert decode.field_types() == {"id": "int64", "note": "string"}
    assert decode.never_null() == {"id"}
    assert decode.connections() == {"schema_registry"}
    file.write_text(FILE.replace("orders.schema.json", "{subject: orders-value, version: 3}"))
    assert not load(file, {}).decode.is_known()
    file.write_text(FILE.replace("  schema: orders.schema.json\n", ""))
    assert not load(file, {}).decode.is_known()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  registry: {connection: schema_registry}\n", "", "decode.registry: is missing: JSON without Confluent's"),
        ("orders.schema.json", "id INT", "decode.schema: must be the name of a JSON Schema file (.json)"),
        ("orders.schema.json", "{type: string}", "decode.schema: does not parse: "),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "orders.schema.json").write_text(json.dumps(READER))
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace(old, new))
    with pytest.raises(InvalidPipelines) as caught:
        load(file, {})
    assert words in str(caught.value)
