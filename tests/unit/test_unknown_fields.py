"""Fields that records of JSON have and their schema has not: found by name, counted, or refused."""

import json
import random
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.pipeline_text import changed
from tidemark.decoders.base import Decoded, UnknownFields
from tidemark.decoders.registry import open_decoder
from tidemark.errors import UndecodableRecord
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SourceOrder
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.model.unknown_fields import NAMED_FIELDS, OTHER_FIELDS, UnknownField, fields_together
from tidemark.pipeline.event_time import EventTimeSettings
from tidemark.pipeline.loader import load
from tidemark.processing.processor import BatchProcessor
from tidemark.times.event_time import INSTANT

FLAT = "id BIGINT NOT NULL, name STRING"
# An address has no pattern, so Python's parser reads all records.
NESTED = f"{FLAT}, address STRUCT<town: STRING>, lines ARRAY<STRUCT<sku: STRING>>, by_day MAP<STRING, STRUCT<n: INT>>"
READER = {"id": 7, "kind": "JSON", "references": [], "text": json.dumps(
    {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}},
)}  # fmt: skip
REGISTRY = {"url": "http://none"}
FRAMED = {"format": "json_schema", "reader": READER, "registry": REGISTRY, "schemas": {"http://none: writer 7": READER}}
FRAME = b"\0\0\0\0\7"


def config(schema: str | Mapping[str, Any] = FLAT, **more: Any) -> dict[str, Any]:
    return {"format": "json", "schema": schema, **more}


def batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    *,
    topic: str = "t",
    partition: int = 0,
    first: int = 0,
) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "key": pa.array([None] * count if keys is None else list(keys), pa.binary()),
        "value": pa.array(list(values), pa.binary()),
        "topic": pa.repeat(topic, count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(0, INSTANT), count),
        "headers": pa.array([None] * count, INPUT.field("headers").type),
    }
    return pa.RecordBatch.from_arrays([columns[field.name] for field in INPUT], schema=INPUT)


def pairs(unknown: UnknownFields | None) -> list[tuple[str, int]]:
    return [] if unknown is None else list(zip(unknown.paths.to_pylist(), unknown.records.to_pylist(), strict=True))


def decoded(decode: Mapping[str, Any], *values: bytes | None) -> Decoded:
    return open_decoder(decode).decode(batch(values))


def order(decode: Mapping[str, Any], on_error: str = "fail") -> Order:
    return Order(
        pipeline_name="demo", manifest_id=1, attempt=1, ranges=(Range(TopicPartition("t", "", 0), 0, 1_000_000),),
        source=SourceOrder("kafka", {}), decode=dict(decode), event_time=EventTimeSettings().order(), on_error=on_error,
        sinks=(),
    )  # fmt: skip


def counted(decode: Mapping[str, Any], *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    unknown: list[dict[str, Any]] = BatchProcessor(order(decode, "dead_letter")).process("x", batches, [])[
        "unknown_fields"
    ]
    return unknown


# which fields are found


def test_a_field_is_named_by_its_whole_path() -> None:
    record = {
        "id": 1, "zip": 8000, "address": {"town": "Bern", "zip": "3000"}, "lines": [{"sku": "a", "tax": 1}, {"tax": 2}],
        "by_day": {"mon": {"n": 1, "late": True}, "tue": None},
    }  # fmt: skip
    values = [b'{"id": 1, "address": null}', json.dumps(record).encode()]
    expected = [("address.zip", 1), ("by_day[].late", 1), ("lines[].tax", 1), ("zip", 1)]
    assert pairs(decoded(config(NESTED), *values).unknown) == expected


def test_records_that_arrow_reads_have_the_same_fields_as_those_that_python_reads() -> None:
    draw = random.Random(40)
    names = ["zip", "no", "a b", 'quote"d', "über", "n" * 60, "dotted.name"]
    texts = ['"zip":', '\\"zip\\":', "plain", ""]
    values = []
    for number in range(2_000):
        record: dict[str, Any] = {"id": number, "name": draw.choice(texts)}
        for name in names[: draw.choice([0, 0, 0, 1, 2, 7])]:
            record[name] = draw.choice([1, None, True, "zip", '"no":', 1.5])
        value = json.dumps(record, ensure_ascii=draw.random() < 0.5)
        values.append(value.encode() if draw.random() < 0.97 else value.encode()[:-1])
    of_arrow = open_decoder(config())
    of_python = open_decoder(config(f"{FLAT}, exact DECIMAL(9,2)"))
    for start in range(0, len(values), 500):
        part = batch(values[start : start + 500])
        assert pairs(of_arrow.decode(part).unknown) == pairs(of_python.decode(part).unknown)


def test_nothing_is_unknown_where_the_schema_has_all_fields_and_in_records_that_cannot_be_read() -> None:
    good, bad = [b'{"id": 1, "name": "n"}'] * 3, [b'{"id": "x", "zip": 1}', b'{"zip": 1}', b"{"]
    result = decoded(config(), *good, *bad)
    assert (result.unknown, len(result.errors)) == (None, 3)


def test_a_closed_object_refuses_its_unknown_fields_as_before() -> None:
    inner = {"type": "object", "properties": {"town": {"type": "string"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "address": inner}}
    result = decoded(config(schema), b'{"id": 1, "zip": 1}', b'{"address": {"zip": 1}}')
    assert pairs(result.unknown) == [("zip", 0)]
    assert [bad.reason for bad in result.errors] == ['field address: the schema has no property "zip"']


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("a.b", '"a.b"'), ("a[]", '"a[]"'), ("", '""'), ("nul\0", '"nul\\u0000"'), ("\ud800", '"\\ud800"'),
        ("x" * 50, '"' + "x" * 40 + '..."'), ("größe 2", "größe 2"),
    ],
)  # fmt: skip
def test_a_name_that_is_long_or_could_be_taken_for_a_path_is_quoted(name: str, step: str) -> None:
    [(path, _)] = pairs(decoded(config(), json.dumps({"id": 1, name: 2}).encode()).unknown)
    assert path == step
    path.encode()


def test_names_that_are_the_same_when_they_are_cut_count_once_a_record() -> None:
    record = json.dumps({"id": 1, "x" * 50: 1, "x" * 60: 1}).encode()
    for decode in (config(), config(f"{FLAT}, exact DECIMAL(9,2)")):
        assert len(pairs(decoded(decode, *[record] * 5).unknown)) == 5


# through what joins decoders


def test_framed_json_counts_its_fields_too() -> None:
    result = decoded(FRAMED, b"no frame", FRAME + b'{"id": 1, "zip": 1}', None, FRAME + b'{"zip": 1}')
    assert pairs(result.unknown) == [("zip", 1), ("zip", 3)]


def test_fields_of_a_key_have_the_name_that_its_columns_have() -> None:
    decode = config(key=config("id BIGINT NOT NULL"))
    values = [b'{"id": 1, "zip": 1}', b'{"id": 1, "zip": 1}', b'{"id": 1}']
    keys = [b'{"id": 1, "shard": 1}', b"wrong", b'{"id": 2}']
    assert pairs(open_decoder(decode).decode(batch(values, keys)).unknown) == [("key_shard", 0), ("zip", 0)]


def test_tombstones_have_no_unknown_fields_and_move_no_others() -> None:
    values, keys = [None, b'{"id": 1, "zip": 1}'], [b'{"id": 1, "more": 1}', b'{"id": 1}']
    for decode in (config(tombstones=["id"]), config(tombstones=["key_id"], key=config("id BIGINT NOT NULL"))):
        known = [pair for pair in pairs(open_decoder(decode).decode(batch(values, keys)).unknown) if pair[0] == "zip"]
        assert known == [("zip", 1)]


def test_topics_have_their_own_schemas_and_their_own_setting() -> None:
    entries = [
        {"topics": ["t"], "topics_regex": None, "decode": config("id BIGINT")},
        {"topics": ["u"], "topics_regex": None, "decode": config(unknown_fields="dead_letter")},
    ]
    value = b'{"id": 1, "name": "n", "zip": 1}'
    both = pa.concat_batches([batch([value]), batch([value], topic="u"), batch([value], first=1)])
    result = open_decoder({"by_topic": entries}).decode(both)
    assert pairs(result.unknown) == [("name", 0), ("name", 2), ("zip", 0), ("zip", 2)]
    assert [(bad.index, bad.reason) for bad in result.errors] == [(1, "field zip: not in the schema")]


def test_records_with_too_large_lists_move_no_others() -> None:
    decode = config("id BIGINT, tags ARRAY<STRING>", max_list_bytes=400)
    bomb = json.dumps({"id": 1, "zip": 1, "tags": ["x"] * 500}).encode()
    assert pairs(decoded(decode, bomb, b'{"id": 1, "zip": 1}').unknown) == [("zip", 1)]


# what happens to their records

DRIFTED = [b'{"id": 1}', b'{"id": 2, "zip": 1, "no": 2}', b'{"id": 3}', b'{"id": 4, "zip": null}']


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_the_setting_decides_whatever_on_error_says(on_error: str) -> None:
    def process(**more: Any) -> dict[str, Any]:
        return BatchProcessor(order(config(**more), on_error)).process("x", [batch(DRIFTED)], [])

    by_default, as_letters = process(), process(unknown_fields="dead_letter")
    assert [field["count"] for field in by_default["unknown_fields"]] == [1, 2]
    assert by_default["partitions"][0]["dead_lettered"] == 0
    assert (as_letters["unknown_fields"], as_letters["partitions"][0]["dead_lettered"]) == ([], 2)
    reasons = {(reason["error_class"], reason["reason"]) for reason in as_letters["reasons"]}
    assert reasons == {("schema", "field no: not in the schema"), ("schema", "field zip: not in the schema")}
    with pytest.raises(UndecodableRecord, match="field no: not in the schema; 1 more") as caught:
        process(unknown_fields="fail")
    assert caught.value.context["offset"] == 1


def test_a_file_with_the_default_makes_the_order_and_the_fingerprint_that_it_made_before(tmp_path: Path) -> None:
    def decode_of(extra: str) -> Any:
        file = tmp_path / "flights.yaml"
        file.write_text(changed(("format: json", f"format: json{extra}")))
        return load(file, {}).decode

    without, default, strict = (decode_of(extra) for extra in ("", *(
        f"\n  unknown_fields: {word}" for word in ("count", "fail")
    )))  # fmt: skip
    assert "unknown_fields" not in without.record_order()
    assert default.record_order() == without.record_order()
    assert default.decides_output() == without.decides_output() != strict.decides_output()
    assert strict.record_order()["unknown_fields"] == "fail"


# how they are counted


def test_a_task_counts_by_path_with_the_first_place() -> None:
    later = batch([b'{"id": 1, "zip": 1}'] * 2, partition=1, first=70)
    earlier = batch([b'{"id": 1}', b'{"id": 1, "zip": 1, "no": 1}'], first=10)
    assert counted(config(), later, earlier) == [
        {"path": "no", "count": 1, "topic": "t", "partition": 0, "offset": 11},
        {"path": "zip", "count": 3, "topic": "t", "partition": 0, "offset": 11},
    ]


def some_fields(seed: int, paths: int) -> list[UnknownField]:
    draw = random.Random(seed)
    return [
        UnknownField(f"f{draw.randrange(paths):04}", draw.randrange(1, 9), "t", draw.randrange(3), draw.randrange(999))
        for _ in range(2_000)
    ]


@pytest.mark.parametrize("paths", [3, NAMED_FIELDS, 700])
def test_counts_are_the_same_however_tasks_share_the_records(paths: int) -> None:
    fields = some_fields(paths, paths)
    whole = fields_together(fields)
    draw = random.Random(1)
    for tasks in (2, 7):
        draw.shuffle(fields)
        parts = [fields[number::tasks] for number in range(tasks)]
        in_steps: list[tuple[UnknownField, ...]] = []
        for part in parts:
            task: tuple[UnknownField, ...] = ()
            for start in range(0, len(part), 100):
                task = fields_together([*task, *part[start : start + 100]])
            in_steps.append(task)
        assert fields_together(chain.from_iterable(in_steps)) == whole
    assert sum(field.count for field in whole) == sum(field.count for field in fields)
    assert len(whole) == min(paths, NAMED_FIELDS + 1)
    assert (whole[-1].path == OTHER_FIELDS) is (paths > NAMED_FIELDS)


def test_a_receipt_has_the_counts_of_all_tasks_and_reads_one_without_any() -> None:
    [unknown] = counted(config(), batch([b'{"id": 1, "zip": 1}']))
    report = BatchProcessor(order(config())).process("x", [], [])
    receipt = receipt_of_tasks(order(config()), [{**report, "unknown_fields": [unknown]}] * 2)
    assert receipt.unknown_fields == (UnknownField("zip", 2, "t", 0, 0),)
    assert Receipt.from_json(receipt.to_json()) == receipt
    older = json.loads(receipt.to_json())
    del older["unknown_fields"]
    assert Receipt.from_raw(older).unknown_fields == ()
