"""The Arrow columns of records as a source returns them."""

from typing import Any

import pyarrow as pa

from tidemark.model.partitions import Record

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
UNREADABLE = pa.field("unreadable", pa.string())  # why the source has no message for an offset
INPUT = pa.schema(  # other columns are ignored
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)
PLACE = ("topic", "partition", "offset")
READ = INPUT.append(UNREADABLE)  # the columns of a source that may have no message for an offset


def input_row(record: Record) -> dict[str, Any]:
    """Return a record with the columns of ``READ``."""
    return {
        "key": record.key, "value": record.value, "topic": record.topic, "partition": record.partition,
        "offset": record.offset, "timestamp": record.timestamp_ms * 1000,
        "headers": [{"key": key, "value": value} for key, value in record.headers or ()] or None,
        UNREADABLE.name: record.unreadable,
    }  # fmt: skip
