"""Writes the rows of one Spark task as Parquet files into the staging folder of the attempt, below the table.

Publishing moves each file to its place in the table; only then the log of the table names it. VACUUM skips folders
whose names begin with ``_``, so it does not touch staged files, however long Spark works.
"""

from base64 import b64decode, b64encode
from typing import Final

import pyarrow as pa

from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.paths import dead_letter_folder
from tidemark.providers.delta.buckets import buckets_of
from tidemark.providers.lake_tables.table_writer import LakeTableWriter
from tidemark.providers.tables.column_names import EVENT_TIME, MANIFEST_ID, stored_names
from tidemark.sinks.staging.grouping import grouped
from tidemark.sinks.staging.partitioned_writer import Target

ROWS: Final = b"tidemark.rows"  # key in the footer of a file: the columns of its rows as the task had them


class Writer(LakeTableWriter):
    """Writes staged files of rows and dead letters. In a table with a key each bucket has its own files."""

    fewer_files = "raise sinks.delta.max_file_bytes or max_objects"
    unfit_row = "correct the type of the column; if the table has changed since the attempt began"

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task, decoded_schema(sink.options["columns"]))
        self._key_columns: list[str] = sink.options.get("key", [])
        self._buckets: int = sink.options.get("buckets", 1)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        rows = rows.append_column(EVENT_TIME, event_time)
        for topic, _, bucket, piece in grouped(rows, self._buckets_of(rows)):
            self._hold(Target(ObjectKind.DATA, topic, "" if bucket is None else str(bucket)), piece)

    def _buckets_of(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the bucket of each row; None in a table of all rows."""
        if not self._key_columns:
            return None
        named = rows.rename_columns(stored_names(rows.schema.names))
        return buckets_of(named, self._columns, self._key_columns, self._buckets)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, _, _, piece in grouped(rows):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, dead_letter_folder(topic)), piece)

    def _folder_of(self, target: Target) -> str:
        is_of_bucket = target.kind is ObjectKind.DATA and target.place != ""
        return f"{self._folder}/{target.place}" if is_of_bucket else self._folder

    def _with_footer(self, stored: pa.Table, rows: pa.Table, target: Target) -> pa.Table:
        """Return the rows with the footer. The partition column is dropped, because the log holds its value."""
        del target
        if not self._key_columns:
            stored = stored.drop_columns([MANIFEST_ID])
        return stored.replace_schema_metadata({ROWS: encoded_schema(rows.schema.remove_metadata()).encode()})


def bucket_of(staged: str) -> int:
    """Return the bucket of the rows in a staged file, from its key."""
    return int(staged.split("/")[-2])


def encoded_schema(columns: pa.Schema) -> str:
    """Return columns as a text for an order or a footer."""
    return b64encode(columns.serialize().to_pybytes()).decode()


def decoded_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))
