"""Messages that a topic does not take: too long, or without a key."""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tidemark.providers.topic import schema
from tidemark.providers.topic.long_messages import bad_rows
from tidemark.providers.topic.message_limit import MessageLimit


def too_long(rows: pa.RecordBatch, limit: MessageLimit) -> list[int]:
    """The rows, with the limit as it is in an order."""
    return [bad.index for bad in bad_rows(rows, **json.loads(json.dumps(limit.check().options)))]


def message_rows(values: list[str | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"_key": pa.array(keys or [b"k"] * len(values), pa.binary()), "text": pa.array(values, pa.string())}
    )


class OfRows:
    """Writes a value of 9,000 bytes for each row."""

    @staticmethod
    def values_of(schema: Any) -> Any:
        assert schema == {"id": 7}
        return OfRows()

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        assert rows.schema.names == ["text"]
        return pa.array([b"v" * 9_000] * rows.num_rows)


@pytest.mark.parametrize(("most", "long"), [(9_600, []), (9_500, [1, 3])])
def test_a_value_with_a_schema_is_measured_as_its_sink_writes_it(monkeypatch, most, long):
    monkeypatch.setattr(schema, "values_of", OfRows.values_of)
    limit = MessageLimit("copy", (), None, "none", most, schema=json.dumps({"id": 7}))
    rows = message_rows(["short", "x" * 20_000, "x" * 20_000, "y" * 2_000])
    deleted = rows.append_column("_is_deleted", pa.array([False, False, True, False]))
    assert too_long(deleted, limit) == long


@pytest.mark.parametrize("value", [None, "text"])
def test_a_message_that_is_longer_than_the_topic_takes_is_found(value):
    limit = MessageLimit("copy", (), value, "none", 10_000, keyed=False)
    rows = message_rows(["short", "x" * 20_000, None, "y" * 9_000, "z" * 9_990])
    assert too_long(rows, limit) == [1, 4]


def test_a_message_is_as_long_as_it_is_packed():
    limit = MessageLimit("copy", ("text",), None, "zstd", 10_000, keyed=False)
    noise = Random(7).randbytes(20_000).hex()
    assert too_long(message_rows(["x" * 50_000, noise]), limit) == [1]


@pytest.mark.parametrize(("key", "lacking"), [((), [0]), (("text",), [1]), (("text", "_key"), [])])
def test_a_compacted_topic_takes_no_message_without_a_key(key, lacking):
    limit = MessageLimit("copy", key, None, "none", 10_000, keyed=True)
    rows = message_rows(["a", None, "c"], [None, b"k", b"k"])
    assert too_long(rows, limit) == lacking
