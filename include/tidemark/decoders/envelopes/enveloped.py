"""Decodes records with an envelope: the format's decoder decodes the whole record, then the envelope makes rows of
it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import BadRecord, Decoded, Decoder, WithNamedSchemas, WithNullText, schemas_of, together
from tidemark.decoders.batch_parts import sorted_indices
from tidemark.decoders.envelopes.base import Envelope


class EnvelopeDecoder:
    """Decodes records into rows with the columns of the envelope."""

    def __init__(self, records: Decoder, envelope: Envelope) -> None:
        self._records, self._envelope = records, envelope
        self.schema = envelope.schema

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return schemas_of(self._records)

    @property
    def null_text(self) -> bytes | None:
        return self._records.null_text if isinstance(self._records, WithNullText) else None

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode records; one without a value is an error, as in the decoder of the format."""
        read = self._records.decode(batch)
        unwrapped = self._envelope.unwrap(read.rows).at(read.good)
        unknown = read.unknown and read.unknown.of(unwrapped.good)
        return replace(
            unwrapped,
            rows=pa.RecordBatch.from_arrays(unwrapped.rows.columns, schema=self.schema),
            errors=tuple(sorted((*read.errors, *self._with_schemas(unwrapped.errors, batch)))),
            unknown=together([unknown and unknown.inside(self._envelope.row_name), unwrapped.unknown]),
            filtered=sorted_indices(pa.concat_arrays([read.filtered, unwrapped.filtered])),
        )

    def _with_schemas(self, errors: tuple[BadRecord, ...], batch: pa.RecordBatch) -> Iterator[BadRecord]:
        """Yield the envelope's errors with the names of their records' schemas, which the format's errors have
        already."""
        if not errors or not isinstance(self._records, WithNamedSchemas):
            yield from errors
            return
        names = self._records.named_schemas(batch.take(pa.array([bad.index for bad in errors], pa.int64())))
        for bad, schemas in zip(errors, names, strict=True):
            yield bad.read_with(schemas)
