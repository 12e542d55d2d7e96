"""Refuses tables with which rows and evidence would not stay exact, by the name of what stands in the way."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

from tidemark.errors import THEN_RETRY, SinkRefused

_READER_FEATURES: Final = {"timestampNtz"}
_WRITER_FEATURES: Final = {"timestampNtz", "appendOnly", "invariants"}  # the last two are refused where they are used
FEATURES: Final = 7  # the writer version from which on a table names its features one by one; readers: 3
PLAIN: Final = 2  # the newest writer version before that needs nothing of a writer that we do not do; readers: 1
# Properties that a commit of ours would not keep, and why.
_UNKEPT: Final = {
    "delta.appendOnly": "a replay takes rows out",
    "delta.enableChangeDataFeed": "a commit would have to write the changes of each row",
    "delta.enableDeletionVectors": "rows would be gone that the files still have",
    "delta.enableInCommitTimestamps": "a commit would have to say its time",
    "delta.enableRowTracking": "a commit would have to number the rows",
    "delta.columnMapping.mode": "the columns of the files would have other names",
    "delta.setTransactionRetentionDuration": "the table would forget which attempts are in it",
}
_OFF: Final = {"false", "none"}
_NEW_TABLE: Final = "give the sink a new table (sinks.delta.location)"


def refuse_unfit(table: DeltaTable, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` for the first thing that stands in the way; asks nothing but the loaded table."""
    for what, step in _unfit(table):
        raise SinkRefused(what, next_step=step + THEN_RETRY, **context)


def _unfit(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and the step that mends it. Properties stand before the features that they bring."""
    for name, value in sorted(table.metadata().configuration.items()):
        if name.startswith("delta.constraints."):
            step = f"ALTER TABLE .. DROP CONSTRAINT {name.removeprefix('delta.constraints.')}"
            yield f"the table has the constraint {name}, which nobody checks here", step
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
        yield f"the table has the features {', '.join(sorted(unknown))}, which are not known here", step
    for column in json.loads(table.schema().to_json())["fields"]:
        rules = [key for key in column["metadata"] if key.startswith("delta.")]
        if rules:
            yield f"column {column['name']} of the table has the rule {rules[0]}, which nobody keeps here", _NEW_TABLE
