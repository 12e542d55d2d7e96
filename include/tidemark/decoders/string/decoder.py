"""``string``: the value as UTF-8 text. A value that is not UTF-8 is an error of its record."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import BadRecord, Decoded, Decoder
from tidemark.decoders.batch_parts import leave_out
from tidemark.model.positions import positions


class StringDecoder:
    """Decodes values as text. A null value (a tombstone) stays null; an empty value is an empty text."""

    schema = pa.schema([pa.field("value", pa.string())])

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        values = batch.column("value").cast(pa.binary())
        bad: tuple[BadRecord, ...] = ()
        good = positions(len(values))
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            bad = tuple(
                BadRecord(index, reason)
                for index, value in enumerate(values.to_pylist())
                if (reason := _problem_with(value)) is not None
            )
            good = leave_out(good, pa.array([record.index for record in bad], pa.int64()))
            texts = values.take(good).cast(pa.string())
        return Decoded(pa.RecordBatch.from_arrays([texts], schema=self.schema), good, bad)


def _problem_with(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    return None


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    del config  # it has no options
    return StringDecoder()
