"""Finds columns that can be read, but whose settings you should check."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from tidemark.decoders.envelopes.base import json_doubts
from tidemark.decoders.registry import open_decoder
from tidemark.processing.drift import decode_of, parsed
from tidemark.processing.early_moments import early_moments

_LOOKED_AT: Final = ("topic", "value")  # not the timestamp, which Python may be unable to represent
_RECORDS: Final = 100  # records that are checked for what an envelope leaves open


class Doubt(Protocol):
    """A column and what may be wrong with it, as text."""

    @property
    def next_step(self) -> str: ...


def doubts(decode: Mapping[str, Any], batch: pa.RecordBatch) -> list[Doubt]:
    """Decode records, and return the columns whose settings you should check."""
    return [*early_moments(decode, batch), *_of_envelopes(decode, batch)]


def _of_envelopes(decode: Mapping[str, Any], batch: pa.RecordBatch) -> Iterator[Doubt]:
    seen = set()
    columns = open_decoder(decode).schema
    for record in batch.slice(0, _RECORDS).select(_LOOKED_AT).to_pylist():
        of_topic = decode_of(decode, record)
        if of_topic["format"] == "json" and "envelope" in of_topic:
            for doubt in json_doubts(of_topic["envelope"], columns, parsed(record["value"])):
                if doubt not in seen:
                    seen.add(doubt)
                    yield doubt
