"""The base of decoders of framed records: each record names its writer's schema, and is read with the reader's
schema."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tidemark.decoders.base import NONE, REASON_LIMIT, BadRecord, Decoded, ErrorClass
from tidemark.decoders.batch_parts import joined
from tidemark.providers.registry.framing import RecordPart, Unframed, WriterGroup, without_frames
from tidemark.providers.registry.kind import kind_of
from tidemark.providers.registry.registered_schema import RegisteredSchema
from tidemark.providers.registry.schemas import Schemas


@dataclass(frozen=True)
class OtherRecords:
    """Some records say nothing about a row, so they are filtered."""


@dataclass(frozen=True)
class NotDecoded:
    """The reason why a group of records cannot be read."""

    reason: str
    error: ErrorClass = ErrorClass.SCHEMA


class FramedDecoder(ABC):
    """Decodes records whose values or keys are framed.

    ``config`` is ``decode`` of an order: its reader's schema decides the columns, ``schema``, and its ``part`` says
    what is framed. Without a registry records have no frames: all have one writer, whose name is empty.
    ``with_message`` is true if the place of a message follows the id of a schema, as in Protobuf.
    """

    with_message: ClassVar[bool] = False

    def __init__(self, schema: pa.Schema, config: Mapping[str, Any]) -> None:
        self.schema = schema
        self._reader = RegisteredSchema.from_dict(config["reader"])
        registry = config.get("registry")
        self._schemas = Schemas(registry, config.get("schemas", {})) if registry else None
        self._kind = kind_of(registry or {})
        self._part = RecordPart(config.get("part", RecordPart.VALUE))

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return {} if self._schemas is None else self._schemas.used

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values; raises only if the registry does not answer."""
        unframed = without_frames(batch, self._part) if self._schemas is None else self._unframed(batch)
        errors = [*unframed.errors, *map(self._missing, unframed.missing.to_pylist())]
        parts: list[Decoded] = []
        filtered: list[pa.Array] = [NONE]
        for group in unframed.groups:
            named = self._named(group)
            for indices, read in self._read(group, named):
                if isinstance(read, OtherRecords):
                    filtered.append(indices)
                elif isinstance(read, NotDecoded):
                    errors += [self._bad(at, read.reason, read.error, named) for at in indices.to_pylist()]
                else:
                    parts.append(read.at(indices))
        return joined(self.schema, parts, errors, pa.concat_arrays(filtered))

    def named_schemas(self, batch: pa.RecordBatch) -> list[str]:
        names = [""] * batch.num_rows
        if self._schemas is not None:
            for group in self._unframed(batch).groups:
                for index in group.indices.to_pylist():
                    names[index] = self._named(group)
        return names

    def _unframed(self, batch: pa.RecordBatch) -> Unframed:
        return self._kind.unframe(batch, self._part, with_message=self.with_message)

    def _named(self, group: WriterGroup) -> str:
        return f"writer {group.writer}, reader {self._reader.name}" if group.writer else ""

    @abstractmethod
    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded | OtherRecords]]:
        """Yield each record of the group once: indices in the batch, and their decoded rows, or why none of them can be
        read.

        Errors inside decoded rows must name the schemas, ``named``.
        """

    def _written(self, writer: str, kind: str) -> RegisteredSchema | str:
        """Return the schema of a writer; a text with the reason if the registry has none, or one of another kind."""
        assert self._schemas is not None, "records name their writers"
        registered = self._schemas.writer(writer)
        if registered is None:
            return f"the registry has no schema {writer}"
        return registered if registered.kind == kind else f"schema {writer} is {registered.kind}, not {kind}"

    def _missing(self, index: int) -> BadRecord:
        return BadRecord(index, "no value (a tombstone)")

    def _bad(self, index: int, reason: str, error: ErrorClass, named: str) -> BadRecord:
        reason = f"{reason} ({named})" if named else reason
        return BadRecord(index, reason.encode("utf-8", "replace").decode()[:REASON_LIMIT], error, named)
