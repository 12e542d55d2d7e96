"""Decodes topics whose records have different formats: one decoder for each entry of ``decode``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import DELETED, Decoded, Decoder, schemas_of
from tidemark.decoders.batch_parts import joined
from tidemark.decoders.by_topic.topic_filter import TopicFilter, problem_with_topic
from tidemark.decoders.by_topic.united import united
from tidemark.errors import ConfigurationError


class DecoderByTopic:
    """Gives each record to the decoder of its topic. A column that this decoder does not have is null in the rows.

    ``entries`` are pairs of topics and their decoder. With ``tombstones`` all rows have the mark ``_is_deleted``, also
    those of decoders that know no tombstones.
    """

    def __init__(self, entries: Sequence[tuple[TopicFilter, Decoder]], *, tombstones: bool) -> None:
        self._filters = [topic_filter for topic_filter, _ in entries]
        self._decoders = [decoder for _, decoder in entries]
        self._tombstones = tombstones
        self._by_topic: dict[str, int] = {}
        self.schema = united([decoder.schema for decoder in self._decoders])

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return {key: schema for decoder in self._decoders for key, schema in schemas_of(decoder).items()}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode each record with the decoder of its topic.

        Raises ``ConfigurationError`` for a topic that no entry, or more than one entry, matches.
        """
        topics: dict[int, list[str]] = {}
        for topic in pc.unique(batch.column("topic")).to_pylist():
            topics.setdefault(self._entry_of(topic), []).append(topic)
        parts: list[Decoded] = []
        for entry, names in topics.items():
            mine = pc.is_in(batch.column("topic"), value_set=pa.array(names, batch.column("topic").type))
            indices = pc.indices_nonzero(mine).cast(pa.int64())
            decoded = self._decoders[entry].decode(batch if len(topics) == 1 else batch.take(indices))
            parts.append(replace(decoded, rows=self._widened(decoded)).at(indices))
        marked = self.schema.append(DELETED) if self._tombstones else self.schema
        decoded_rows = joined(marked, parts)
        if not self._tombstones:
            return decoded_rows
        rows = decoded_rows.rows.select(self.schema.names)
        return replace(decoded_rows, rows=rows, deleted=decoded_rows.rows.column(DELETED.name))

    def _entry_of(self, topic: str) -> int:
        if topic not in self._by_topic:
            if problem := problem_with_topic(topic, self._filters):
                raise ConfigurationError(f"topic {topic} {problem}", next_step="correct decode of the pipeline file")
            self._by_topic[topic] = next(at for at, entry in enumerate(self._filters) if entry.has(topic))
        return self._by_topic[topic]

    def _widened(self, decoded: Decoded) -> pa.RecordBatch:
        """Return the rows with the columns of all entries; with ``tombstones`` also with the mark ``_is_deleted``."""
        rows, names = decoded.rows, {*decoded.rows.schema.names}
        columns = [
            rows.column(field.name).cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type)
            for field in self.schema
        ]
        if not self._tombstones:
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        mark = pa.repeat(False, rows.num_rows) if decoded.deleted is None else decoded.deleted
        return pa.RecordBatch.from_arrays([*columns, mark], schema=self.schema.append(DELETED))
