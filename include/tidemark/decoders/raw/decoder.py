"""``raw``: value and headers undecoded. The key and the timestamp are metadata columns of every table."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import Decoded, Decoder
from tidemark.model.positions import positions
from tidemark.model.record_schema import HEADERS


class RawDecoder:
    """Accepts every record. A null value (a tombstone) stays null, and so do null headers."""

    schema = pa.schema([pa.field("value", pa.binary()), pa.field("headers", HEADERS)])

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        columns = [batch.column("value").cast(pa.binary()), batch.column("headers").cast(HEADERS)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Decoded(rows, positions(batch.num_rows), ())


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    del config  # it has no options
    return RawDecoder()
