"""The columns of records as a source gives them, for Arrow."""

from typing import Any

import pyarrow as pa

from tidemark.model.partitions import Record

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
UNREADABLE = "unreadable"
INPUT = pa.schema(  # other columns are ignored
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
        (UNREADABLE, pa.string()),  # why the record has no message; Spark's own reader of Kafka has no such column
    ]
)


def input_row(record: Record) -> dict[str, Any]:
    """A record with these columns."""
    return {
        "key": record.key, "value": record.value, "topic": record.topic, "partition": record.partition,
        "offset": record.offset, "timestamp": record.timestamp_ms * 1000,
        "headers": [{"key": key, "value": value} for key, value in record.headers or ()] or None,
        UNREADABLE: record.unreadable,
    }  # fmt: skip
