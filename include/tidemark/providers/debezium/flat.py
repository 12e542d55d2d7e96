"""Reads rows that a connector has taken out of their envelopes (Debezium's ExtractNewRecordState), in JSON.

Fields of the envelope may stand beside the columns, with ``__`` before their names: ``__op``, ``__table``, ``__lsn``,
``__source_ts_ms`` (``add.fields``). A deletion is a row with ``__deleted`` (``rewrite``), or a record without a value
or with null (``tombstone``, ``none``); with ``drop`` the connector sends none. Source: "New Record State Extraction".
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from tidemark.decoders.one_by_one import Undecodable
from tidemark.providers.debezium.kinds_of_record import OTHERS, is_envelope, kind_of_other
from tidemark.providers.debezium.parts import BEFORE

_PREFIX: Final = "__"
_DELETED: Final = {True: True, "true": True, False: False, "false": False, None: False}
_UNWRAPPED: Final = "an envelope, but the file says flattened: leave that out if the connector does not flatten records"


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the row."""
    return {name: value for name, value in record.items() if not name.startswith(_PREFIX)}


def envelope_of(record: Mapping[str, Any], inner: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the envelope from which a row was taken. ``inner`` has, for each part, the fields of it that are
    needed."""
    if type(record.get("source")) is dict and is_envelope(record):
        raise Undecodable(_UNWRAPPED)
    if (kind := kind_of_other(record)) is not None:
        return {"op": kind}
    row = row_of(record)
    deleted = record.get("__deleted")
    if type(deleted) not in (bool, str, type(None)) or deleted not in _DELETED:
        raise Undecodable("field __deleted: neither true nor false")
    op = record.get("__op")
    if op in OTHERS:
        raise Undecodable("field __op: not known")
    is_deletion = _DELETED[deleted] or op == "d"
    opened: dict[str, Any] = (
        {"op": "d", BEFORE: row} if is_deletion else {"op": "r" if op is None else op, "after": row}
    )
    if "__ts_ms" in record:
        opened["ts_ms"] = record["__ts_ms"]
    for part, names in inner.items():
        if part == BEFORE:
            if is_deletion:
                opened[BEFORE] = {name: row[name] for name in names if name in row}
            continue
        # A name has its part in it if two parts have the field: __source_ts_ms, but __table.
        values = {name: record.get(f"__{part}_{name}", record.get(f"__{name}")) for name in names}
        opened[part] = {name: value for name, value in values.items() if value is not None}
    return opened
