"""What a row becomes as a message: key, value, headers; and the example pipeline, which writes a topic."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tidemark.config.base import LoadContext
from tidemark.errors import Unavailable
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.partitions import Record
from tidemark.model.receipt import receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.pipeline.loader import load
from tidemark.processing.processor import BatchProcessor
from tidemark.providers.registry.registered_schema import RegisteredSchema
from tidemark.providers.topic.headers import source_of
from tidemark.providers.topic.long_messages import HEAD, bad_rows
from tidemark.providers.topic.markers import transactional_id
from tidemark.providers.topic.message_limit import MessageLimit
from tidemark.providers.topic.schema import form_of
from tidemark.providers.topic.settings import Settings
from tidemark.providers.topic.staged import staged_messages
from tidemark.providers.topic.writer import Writer
from tidemark.storage.open import open_store

EXAMPLE = Path(__file__).parents[4] / "include" / "pipelines" / "examples" / "orders_to_topic.yaml"
SCHEMA = "id BIGINT NOT NULL, part STRING, price DECIMAL(5, 2)"


def settings(folder: Path, **options: Any) -> Settings:
    at = {"bootstrap_servers": "localhost:9092", "topic": "out"}
    return Settings.model_validate({**at, **options}, context=LoadContext(folder, folder))


def messages(folder: Path, *values: bytes | None, **options: Any) -> list[dict[str, Any]]:
    """What records with these values are staged as."""
    sink = settings(folder, **options)
    placed = {**sink.order(), "staging": str(folder / "staging")}
    order = Order(
        "demo", 1, 1, (), SourceOrder("kafka", {}), {"format": "json", "schema": SCHEMA, "tombstones": ["id"]},
        {"on_invalid": "fail"}, "dead_letter", (SinkOrder("topic", "topic", placed),),
    )  # fmt: skip
    return _staged(folder, order, values)


def _staged(folder: Path, order: Order, values: tuple[bytes | None, ...]) -> list[dict[str, Any]]:
    records = [
        {"topic": "t", "partition": 3, "offset": at, "key": b'{"id": 9}', "value": value, "timestamp": 0}
        for at, value in enumerate(values)
    ]
    task = BatchProcessor(order).process("0", [pa.RecordBatch.from_pylist(records, schema=INPUT)])
    receipt = receipt_of_tasks(replace(order, ranges=()), [{**task, "partitions": []}])
    store = open_store(str(folder / "staging"))
    parts = sorted(receipt.objects, key=lambda part: part.kind)
    return [
        row
        for part in parts
        for batch in staged_messages(store, f"{order.staging}/{part.staged}")
        for row in batch.to_pylist()
    ]


def test_a_value_is_a_json_object_of_the_columns_and_a_key_that_of_the_record(tmp_path: Path) -> None:
    [message] = messages(tmp_path, b'{"id": 1, "part": "a", "price": 1.5}')
    assert message["value"] == b'{"id":1,"part":"a","price":"1.50"}'
    assert (message["key"], message["_topic"], message["_partition"]) == (b'{"id": 9}', "t", 3)
    assert message["about"] is None


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (["id"], [b"1", b"2"]),
        (["part"], [b"a", None]),
        (["id", "part"], [b'{"id":1,"part":"a"}', b'{"id":2,"part":null}']),
    ],
)
def test_a_key_is_the_text_of_a_column_or_an_object_of_several(
    tmp_path: Path, columns: list[str], keys: list[bytes | None]
) -> None:
    values = (b'{"id": 1, "part": "a", "price": 1}', b'{"id": 2, "part": null, "price": 1}')
    assert [message["key"] for message in messages(tmp_path, *values, key=columns)] == keys


def test_a_tombstone_is_a_message_without_a_value(tmp_path: Path) -> None:
    [message] = messages(tmp_path, None, key=["id"])
    assert (message["key"], message["value"]) == (b"9", None)


def test_a_raw_value_is_the_column(tmp_path: Path) -> None:
    [message] = messages(tmp_path, b'{"id": 1, "part": "\xc3\xa9", "price": 1}', format="raw", value="part")
    assert message["value"] == "\u00e9".encode()


def test_a_dead_letter_keeps_key_and_value_and_says_the_rest(tmp_path: Path) -> None:
    [message] = messages(tmp_path, b"{")
    assert (message["key"], message["value"]) == (b'{"id": 9}', b"{")
    about = json.loads(message["about"])
    assert about["error_class"] == "value"
    assert about["reason"].startswith("not JSON")


def test_storage_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("in the way")
    with pytest.raises(Unavailable, match="the sink topic cannot stage a file") as caught:
        messages(tmp_path, b'{"id": 1}')
    assert (caught.value.context["topic"], caught.value.context["partition"]) == ("t", 3)


def test_rows_of_one_record_are_numbered(tmp_path: Path) -> None:
    options = {**settings(tmp_path).order(), "staging": str(tmp_path / "staging")}
    order = Order(
        "demo", 1, 1, (), SourceOrder("kafka", {}), {}, {}, "fail", (SinkOrder("topic", "topic", options),)
    )  # fmt: skip
    rows = pa.RecordBatch.from_pylist(
        [{"_row": number, "id": 7} for number in (0, 1)], schema=pa.schema([("_row", pa.int32()), ("id", pa.int64())])
    )
    place = {"_topic": pa.array(["t", "t"]), "_partition": pa.array([3, 3], pa.int32()),
             "_offset": pa.array([5, 5], pa.int64()), "_key": pa.nulls(2, pa.binary())}  # fmt: skip
    for name, column in place.items():
        rows = rows.append_column(name, column)
    writer = Writer(order, order.sinks[0], "0")
    writer.write(rows, pa.nulls(2))
    [part] = writer.close()
    [batch] = staged_messages(open_store(str(tmp_path / "staging")), f"{order.staging}/{part.staged}")
    assert [(message["row"], message["value"]) for message in batch.to_pylist()] == [(0, b'{"id":7}'), (1, b'{"id":7}')]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap_servers": None}, "one of them must say where Kafka is"),
        ({"connection": "other"}, "only one of them may say where Kafka is"),
        ({"key": ["a", "a"]}, "must name each column once"),
        ({"format": "raw"}, "is for format: raw, which needs it"),
        ({"value": "a"}, "is for format: raw, which needs it"),
        ({"format": "avro"}, "is for format: avro and protobuf, which need it"),
        ({"registry": {"url": "http://registry:8081"}}, "is for format: avro and protobuf, which need it"),
        ({"transaction_timeout": "2h"}, "must be from 10s to 1h"),
        ({"markers": "elsewhere"}, "markers\n  Extra inputs are not permitted"),
        ({"dead_letters": "out"}, "must differ from the topic and from its topic of markers, out-markers"),
        ({"dead_letters": "out-markers"}, "must differ from the topic and from its topic of markers, out-markers"),
        ({"staging_connection": "aws"}, "is for staging such as s3://bucket/prefix"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(tmp_path, **options)


def test_sinks_that_would_write_one_topic_meet_on_one_cluster_only(tmp_path: Path) -> None:
    own = settings(tmp_path)
    assert own.meets(settings(tmp_path, name="b"))
    assert own.meets(settings(tmp_path, name="b", topic="other", dead_letters="out"))
    assert not own.meets(settings(tmp_path, name="b", topic="other"))
    assert not own.meets(settings(tmp_path, name="b", bootstrap_servers="elsewhere:9092"))


@pytest.mark.parametrize("headers", [None, (), (("tidemark.topic", b"t"),), (("tidemark.manifest", None),)])
def test_a_message_of_somebody_else_has_no_source(headers: Any) -> None:
    assert source_of(Record("out", 0, 0, 0, None, b"{}", headers)) is None


def test_the_example_writes_orders_by_their_id(tmp_path: Path) -> None:
    pipeline = load(EXAMPLE, {"TIDEMARK_HOME": str(tmp_path)})
    [sink] = pipeline.sinks
    assert isinstance(sink, Settings)
    assert (sink.markers_topic, sink.dead_letter_topic) == ("orders_clean-markers", "orders_clean-dead-letters")
    assert sink.transaction_timeout == timedelta(minutes=5)
    order = Order(
        pipeline.name, 1, 1, (), SourceOrder("kafka", {}), pipeline.decode.order(), pipeline.event_time.order(),
        "dead_letter", (SinkOrder("topic", "topic", {**sink.order(), "staging": str(tmp_path / "staging")}),),
    )  # fmt: skip
    value = b'{"order_id": 7, "customer": "Ann", "price": 1.5, "ordered_at": "2024-03-01T10:00:00Z"}'
    [message] = _staged(tmp_path, order, (value,))
    assert message["key"] == b"7"
    assert json.loads(message["value"])["customer"] == "Ann"


def test_no_two_purposes_have_one_transactional_id_whatever_their_topics_are_called() -> None:
    topics, purposes = ("7", "owner", "doctor", "owner-7", "a-owner", "a"), (7, 77, "owner", "doctor")
    ids = [transactional_id(topic, of) for topic in topics for of in purposes]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_value_with_a_schema_is_measured_by_the_bytes_that_are_sent(form: str) -> None:
    columns = pa.schema([pa.field("n", pa.int64(), nullable=False), ("name", pa.string())])
    chosen = form_of(form)
    schema = RegisteredSchema(7, chosen.KIND, chosen.derived(columns, "Row"))
    text = json.dumps(schema.as_dict())
    names = ["short", "x" * 9_000, random.Random(1).randbytes(9_000).hex(), None, "y"]
    rows = pa.RecordBatch.from_pydict(
        {"n": range(5), "name": names, "_key": pa.nulls(5, pa.binary()), "_is_deleted": [False] * 4 + [True]}
    )
    limit = MessageLimit("copy", (), None, "zstd", 4_000, schema=text)
    assert [bad.index for bad in bad_rows(rows, **limit.check().options)] == [2]
    longest = len(chosen.values_of(schema).of(rows.select(["n", "name"]).slice(1, 1))[0].as_py())
    plain = MessageLimit("copy", (), None, "none", longest + HEAD, schema=text)
    assert [bad.index for bad in bad_rows(rows, **plain.check().options)] == [2]
    shorter = MessageLimit("copy", (), None, "none", longest + HEAD - 1, schema=text)
    assert [bad.index for bad in bad_rows(rows, **shorter.check().options)] == [1, 2]
