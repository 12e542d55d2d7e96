"""Turns the rows of one Spark task into messages, and stages them; the publishing process sends them."""

import json
from base64 import b64encode
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import DELETED
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.providers.topic.staged import MESSAGES, SUFFIX, MessagesFile
from tidemark.sinks.encoding.json_text import json_object, json_texts
from tidemark.sinks.staging.grouping import grouped
from tidemark.sinks.staging.staged_file import has_complete_file, staging_of
from tidemark.sinks.writer import SinkWriter, StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

if TYPE_CHECKING:
    from tidemark.providers.topic.schema import Values

_PLACE = ["_topic", "_partition", "_offset"]
_OF_DEAD_LETTERS = ("_timestamp", "_error_class", "_reason", "_schemas", "_headers")
Place = tuple[ObjectKind, str, int]  # kind, topic, partition


class Writer(SinkWriter):
    """Appends each batch to the file of its partition; nothing waits in memory."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._key: list[str] = sink.options["key"]
        self._value: str | None = sink.options["value"]
        self._registered = _registered_values(sink.options.get("schema"))
        self._folder = order.staging
        self._store = _store(sink)
        self._files: dict[Place, MessagesFile] = {}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), order.staging)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        names = [name for name in rows.schema.names if not name.startswith("_")]
        deleted = rows.column(DELETED.name) if DELETED.name in rows.schema.names else None
        if self._registered is not None:
            value = _values_unless_deleted(self._registered, rows.select(names), deleted)
        else:
            value = _value_of(rows.select(names), self._value)
            if deleted is not None:
                value = pc.if_else(deleted, pa.scalar(None, pa.binary()), value)
        key = _key_of(rows.select(self._key)) if self._key else rows.column("_key")
        self._append(ObjectKind.DATA, rows, key, value, pa.nulls(rows.num_rows, pa.binary()))

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        about = [_about(letter) for letter in rows.select(_OF_DEAD_LETTERS).to_pylist()]
        self._append(
            ObjectKind.DEAD_LETTER, rows, rows.column("_key"), rows.column("_value"), pa.array(about, pa.binary())
        )

    def close(self) -> list[StagedPart]:
        parts = []
        for place, file in self._files.items():
            kind, topic, _ = place
            with self._staging(place):
                parts.append(file.part(self._name, kind, topic, staged=file.name, folder="", suffix=None))
        return parts

    def abort(self) -> None:
        for file in self._files.values():
            file.abandon()
            with suppress(Exception):  # a file that stays does no harm: no receipt names it
                self._store.delete([file.key])

    def _append(self, kind: ObjectKind, rows: pa.RecordBatch, key: pa.Array, value: pa.Array, about: pa.Array) -> None:
        row = rows.column("_row") if "_row" in rows.schema.names else pa.nulls(rows.num_rows, pa.int32())
        columns = [*(rows.column(name) for name in _PLACE), row, key, value, about]
        messages = pa.RecordBatch.from_arrays(columns, schema=MESSAGES)
        for topic, partition, _, piece in grouped(messages):
            place = kind, topic, partition
            with self._staging(place):
                if place not in self._files:
                    key = f"{self._folder}/{self._task}-{len(self._files):05d}{SUFFIX}"
                    self._files[place] = MessagesFile(self._store, key)
                self._files[place].append(piece)

    def _staging(self, place: Place) -> AbstractContextManager[None]:
        _, topic, partition = place
        return staging_of(self._name, topic=topic, partition=partition)


def _registered_values(schema: dict[str, Any] | None) -> "Values | None":
    if schema is None:
        return None
    from tidemark.providers.topic.schema import values_of  # it needs more libraries than the other formats

    return values_of(schema)


def _values_unless_deleted(values: "Values", rows: pa.RecordBatch, deleted: pa.Array | None) -> pa.Array:
    """Return the values of rows that are not deleted, null for the others, whose columns may be null against the
    schema."""
    if deleted is None:
        return values.of(rows)
    kept = pc.invert(deleted)
    numbers = pc.subtract(pc.cumulative_sum(kept.cast(pa.int64())), 1)
    return values.of(rows.filter(kept)).take(pc.if_else(kept, numbers, pa.scalar(None, pa.int64())))


def _value_of(rows: pa.RecordBatch, column: str | None) -> pa.Array:
    if column is not None:
        return rows.column(column).cast(pa.binary())
    texts = {name: json_texts(values) for name, values in zip(rows.schema.names, rows.columns, strict=True)}
    return json_object(texts, rows.num_rows).cast(pa.binary())


def _key_of(columns: pa.RecordBatch) -> pa.Array:
    """Return the text of one column, null if it is null; of several columns a JSON object."""
    if columns.num_columns > 1:
        return _value_of(columns, None)
    values = columns.column(0)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return values.cast(pa.binary())
    texts = pc.if_else(pc.is_valid(values), json_texts(values), pa.scalar(None, pa.string()))
    return texts.cast(pa.binary())


def _about(letter: dict[str, Any]) -> bytes:
    """Return as JSON everything about a dead letter that its message does not contain."""
    headers = letter["_headers"]
    pairs = None if headers is None else [[header["key"], _base64(header["value"])] for header in headers]
    about = {name.removeprefix("_"): letter[name] for name in _OF_DEAD_LETTERS} | {"headers": pairs}
    if about["timestamp"] is not None:
        about["timestamp"] = about["timestamp"].isoformat()
    return json.dumps(about).encode()


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["staging"], sink.options["store"])
