"""The base of decoders of framed records: each names its writer's schema, and is read with the reader's."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import NONE, REASON_LIMIT, BadRecord, Decoded, ErrorClass, UnknownFields, together
from tidemark.decoders.deletions import in_order
from tidemark.decoders.joined import joined
from tidemark.decoders.schema_registry.framing import RecordPart, WriterGroup, unframe
from tidemark.decoders.schema_registry.registered_schema import RegisteredSchema
from tidemark.decoders.schema_registry.schemas import Schemas


@dataclass(frozen=True)
class OtherRecords:
    """Some records tell nothing about a row: they are filtered."""


@dataclass(frozen=True)
class NotDecoded:
    """Why none of some records can be read."""

    reason: str
    error: ErrorClass = ErrorClass.SCHEMA


class FramedDecoder(ABC):
    """``reader`` decides the columns, which are ``schema``; ``part`` is what is framed."""

    def __init__(self, schema: pa.Schema, reader: RegisteredSchema, schemas: Schemas, part: RecordPart) -> None:
        self.schema = schema
        self._reader, self._schemas, self._part = reader, schemas, part

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return self._schemas.used

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Raises only when the registry does not answer."""
        unframed = unframe(batch, self._part)
        errors = [*unframed.errors]
        errors += [BadRecord(index, "no value (a tombstone)") for index in unframed.missing.to_pylist()]
        parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        unknown: list[UnknownFields] = []
        filtered: list[pa.Array] = [NONE]
        for group in unframed.groups:
            named = f"writer {group.writer}, reader {self._reader.name}"
            for indices, read in self._read(group, named):
                if isinstance(read, OtherRecords):
                    filtered.append(indices)
                elif isinstance(read, NotDecoded):
                    reason = f"{read.reason} ({named})"[:REASON_LIMIT]
                    errors += [BadRecord(at, reason, read.error, named) for at in indices.to_pylist()]
                else:
                    parts.append((read.rows, indices.take(read.good)))
                    errors += [bad.at(indices[bad.index].as_py()) for bad in read.errors]
                    unknown += [read.unknown.at(indices)] if read.unknown else []
        decoded = joined(self.schema, parts, errors, together(unknown))
        return replace(decoded, filtered=in_order(pa.concat_arrays(filtered)))

    @abstractmethod
    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded | OtherRecords]]:
        """Each record of the group once: indices in the batch, and what was read of them or why nothing can be.

        Errors of what was read name the schemas, ``named``.
        """
