"""Refuses tables in which rows and evidence would not stay exact, and names the obstacle."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

from tidemark.errors import THEN_RETRY, SinkRefused

_READER_FEATURES: Final = {"timestampNtz"}
_WRITER_FEATURES: Final = {"timestampNtz", "appendOnly", "invariants"}  # tables that use the last two are refused below
FEATURES: Final = 7  # from this writer version on (reader version 3), a table lists its features
PLAIN: Final = 2  # the newest writer version (reader version 1) whose demands on a writer we all meet
# Properties whose demands our commits would break, and how.
_UNKEPT: Final = {
    "delta.appendOnly": "a replay removes rows",
    "delta.enableChangeDataFeed": "a commit would have to write the changes of each row",
    "delta.enableDeletionVectors": "rows may be deleted that are still in the files",
    "delta.enableInCommitTimestamps": "a commit would have to contain its time",
    "delta.enableRowTracking": "a commit would have to number the rows",
    "delta.columnMapping.mode": "the columns of the files would have other names",
    "delta.setTransactionRetentionDuration": "the table would forget which attempts are in it",
}
_OFF: Final = {"false", "none"}
_NEW_TABLE: Final = "give the sink a new table (sinks.delta.location)"


def refuse_unfit(table: DeltaTable, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` for the first obstacle. Looks only at the loaded table."""
    for what, step in _unfit(table):
        raise SinkRefused(what, next_step=step + THEN_RETRY, **context)


def _unfit(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """Yield each obstacle, with the step that removes it. Properties come before the features that they enable."""
    for name, value in sorted(table.metadata().configuration.items()):
        if name.startswith("delta.constraints."):
            step = f"ALTER TABLE .. DROP CONSTRAINT {name.removeprefix('delta.constraints.')}"
            yield f"the table has the constraint {name}, which Tidemark does not check", step
        if name in _UNKEPT and value.lower() not in _OFF:
            step = f"ALTER TABLE .. UNSET TBLPROPERTIES ('{name}')"
            yield f"the table has the property {name} = {value}: {_UNKEPT[name]}", step
    protocol = table.protocol()
    plain = protocol.min_reader_version <= 1 and protocol.min_writer_version <= PLAIN
    if not plain and protocol.min_writer_version < FEATURES:
        versions = f"reader {protocol.min_reader_version} and writer {protocol.min_writer_version}"
        yield f"the table was upgraded to protocol versions {versions}", _NEW_TABLE
    unknown = {*(protocol.reader_features or ())} - _READER_FEATURES
    unknown |= {*(protocol.writer_features or ())} - _WRITER_FEATURES
    if unknown:
        step = f"ALTER TABLE .. DROP FEATURE {min(unknown)}, or {_NEW_TABLE}"
        yield f"the table has the features {', '.join(sorted(unknown))}, which Tidemark does not support", step
    for column in json.loads(table.schema().to_json())["fields"]:
        rules = [key for key in column["metadata"] if key.startswith("delta.")]
        if rules:
            yield f"column {column['name']} of the table has the rule {rules[0]}, which Tidemark ignores", _NEW_TABLE
