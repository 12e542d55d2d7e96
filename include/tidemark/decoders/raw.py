"""``raw``: value and headers as they are; the key and the timestamp are metadata columns of every table."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import Decoded

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", _HEADER))


class RawDecoder:
    """Every record is good; a null value (a tombstone) stays null, and so do headers that are null."""

    schema = pa.schema([pa.field("value", pa.binary()), pa.field("headers", HEADERS)])

    def __init__(self, config: Mapping[str, Any]) -> None:
        del config  # raw has no options

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Value and headers, unchanged."""
        columns = [batch.column("value").cast(pa.binary()), batch.column("headers").cast(HEADERS)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Decoded(rows, pa.array(range(batch.num_rows), pa.int64()), ())
