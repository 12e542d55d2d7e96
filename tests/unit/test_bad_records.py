"""Records as no producer should send them: each is a row or a dead letter with a reason, and no other one is harmed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.receipt import ObjectKind, Receipt, receipt_of_tasks
from tidemark.model.record_schema import HEADERS, INPUT
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.formats.base import PLACES, format_of

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TOPICS = ("orders", "_hidden", ".hidden", "a" * 249, "_" * 249, "a..b", "-", "0000000001-a0001")


@dataclass(frozen=True)
class Bad:
    """A value, and what of its reason must be said; None when it is a good record after all."""

    value: bytes | None
    reason: str | None
    key: bytes | None = b"k"


def timed(text: str) -> bytes:
    return json.dumps({"at": text}).encode()


RECORDS: dict[str, Bad] = {
    "30 MB of no JSON": Bad(b"\xff" * 30_000_000, "not UTF-8"),
    "30 MB of text": Bad(b'{"at": "2024-03-01T12:00:00Z", "text": "' + b"x" * 30_000_000 + b'"}', None),
    "deep nesting": Bad(b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper than"),
    "a key that climbs": Bad(timed("2024-03-01T12:00:00Z"), None, b"../../../etc/passwd"),
    "a key that climbs, of a dead letter": Bad(b"{", "not JSON", b"../../../etc/passwd\x00\xff"),
    "NUL in text": Bad(b'{"at": "2024-03-01T12:00:00Z", "text": "\\u0000"}', None, b"\x00"),
    "bytes that are no UTF-8": Bad(b'{"text": "\xff"}', "not UTF-8 at byte 10"),
    "half a character": Bad(b'{"text": "\\ud800"}', "surrogate"),
    "no value": Bad(None, "no value"),
    "year 0001": Bad(timed("0001-01-01T00:00:00Z"), "not within 1970-01-01 and 2200-01-01"),
    "year 9999": Bad(timed("9999-12-31T23:59:59Z"), "not within 1970-01-01 and 2200-01-01"),
    "year 10000": Bad(timed("10000-01-01T00:00:00Z"), "not an RFC 3339"),
    "before 1970": Bad(timed("1969-12-31T23:59:59Z"), "not within 1970-01-01 and 2200-01-01"),
    "a number with a million digits": Bad(b'{"text": ' + b"9" * 1_000_000 + b"}", "expected string, found integer"),
}


def order(root: Path, name: str) -> Order:
    options: dict[str, Any] = {
        "root": str(root), "layout": "raw/{stream}/%Y/%m/%d/%H", "format": name, "compression": "none",
        "max_objects": 10_000, "max_file_rows": 5_000_000, "max_file_bytes": 128 * 2**20, "sort_by": [],
    }  # fmt: skip
    return Order(
        pipeline_name="demo", manifest_id=1, attempt=1, source=SourceOrder("kafka", {}), on_error="dead_letter",
        ranges=tuple(Range(TopicPartition(topic, "id", 0), 0, 100) for topic in TOPICS),
        decode={"format": "json", "schema": "at TIMESTAMP, text STRING"},
        event_time={"field": "at", "on_invalid": "dead_letter"}, sinks=(SinkOrder("files", "files", options),),
    )  # fmt: skip


def good(topic: str, offset: int) -> dict[str, Any]:
    value = timed(NOON.isoformat())
    return {"topic": topic, "partition": 0, "offset": offset, "timestamp": NOON, "key": b"k", "value": value}


def rows_of(root: Path, receipt: Receipt, kind: ObjectKind) -> Iterator[tuple[str, int]]:
    """(topic, offset) of all staged rows."""
    for part in receipt.objects:
        if part.kind is kind:
            with (root / part.staged).open("rb") as file:
                places = format_of(part.path).places(file).select(PLACES.names).to_pylist()
            yield from ((place["_topic"], place["_offset"]) for place in places)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["parquet", "jsonl", "avro"])
@pytest.mark.parametrize("case", RECORDS)
def test_a_bad_record_is_a_dead_letter_with_its_reason_and_its_neighbours_are_rows(
    tmp_path: Path, case: str, name: str
) -> None:
    if name != "parquet" and "30 MB" not in case and "climbs" not in case:
        return  # the decoder does not depend on the format
    bad = RECORDS[case]
    rows = [good("orders", 0), {**good("orders", 1), "value": bad.value, "key": bad.key}, good("orders", 2)]
    made = order(tmp_path, name)
    receipt = receipt_of_tasks(made, [BatchProcessor(made).process("x", [pa.RecordBatch.from_pylist(rows, INPUT)])])
    letters = list(rows_of(tmp_path, receipt, ObjectKind.DEAD_LETTER))
    data = sorted(rows_of(tmp_path, receipt, ObjectKind.DATA))
    if bad.reason is None:
        assert (letters, data) == ([], [("orders", 0), ("orders", 1), ("orders", 2)])
        return
    assert (letters, data) == ([("orders", 1)], [("orders", 0), ("orders", 2)])
    [part] = [part for part in receipt.objects if part.kind is ObjectKind.DEAD_LETTER]
    columns = ["_key", "_value", "_reason"]
    with (tmp_path / part.staged).open("rb") as file:
        [letter] = format_of(part.path).dead_letters(file, columns, 10)
    assert (letter["_key"], letter["_value"]) == (bad.key, bad.value)
    assert bad.reason in letter["_reason"]
    assert len(letter["_reason"]) <= 200


def test_topics_with_odd_names_have_folders_of_their_own_below_the_root_that_readers_see(tmp_path: Path) -> None:
    rows = [row for topic in TOPICS for row in (good(topic, 0), {**good(topic, 1), "value": b"{"})]
    made = order(tmp_path, "parquet")
    batch = pa.RecordBatch.from_pylist([{**row, "headers": None} for row in rows], schema=INPUT)
    assert batch.schema.field("headers").type == HEADERS
    receipt = receipt_of_tasks(made, [BatchProcessor(made).process("x", [batch])])
    folders = {part.path.rpartition("/")[0] for part in receipt.objects}
    assert len(folders) == 2 * len(TOPICS)
    for part in receipt.objects:
        place = tmp_path / part.path
        assert place.resolve().is_relative_to(tmp_path.resolve())
        segments = part.path.split("/")
        assert all(len(segment.encode()) <= 255 for segment in segments)
        assert not [segment for segment in segments[1:] if segment.startswith(("_", "."))]
        place.parent.mkdir(parents=True)
        (tmp_path / part.staged).rename(place)
