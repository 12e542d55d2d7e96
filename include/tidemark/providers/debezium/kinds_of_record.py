"""Recognizes the records of Debezium's topics by their whole shape, whatever columns a table has.

A row without an envelope may have any names: ``id`` and ``status``, ``op``, ``ddl``. So no single name decides.
Sources: "Transaction metadata", "Schema change topic" and "Heartbeat messages" of the connectors' documentation, and
``EnvelopeTransformation``. A JSON record has all fields of its schema, even those that are null.
"""

from collections.abc import Mapping
from typing import Any, Final

OTHERS: Final = ("(heartbeat)", "(transaction)", "(schema change)")  # stand for an op; no real op has these values
STAMPS: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
_ENVELOPE: Final = STAMPS | {"before", "after", "source", "op", "transaction", "message"}
_BORDER: Final = frozenset({"status", "id", "event_count", "data_collections"})
_CHANGE: Final = STAMPS | {"source", "databaseName", "schemaName", "ddl", "tableChanges"}


def is_envelope(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an envelope of a row or a message: it has a ``source``, or only names of an
    envelope."""
    if "op" not in record or record["op"] in OTHERS:
        return False
    if not all(_is_object(record.get(name)) for name in ("before", "after")):
        return False
    return type(record.get("source")) is dict or (record.keys() <= _ENVELOPE and _is_object(record.get("source")))


def kind_of_other(record: Mapping[str, Any]) -> str | None:
    """Return the kind, in parentheses, of a record that says nothing about a row; None if its kind is not known."""
    names = record.keys()
    if names and names <= STAMPS and all(type(stamp) is int for stamp in record.values()):
        return "(heartbeat)"
    if names >= _BORDER and names <= _BORDER | STAMPS and _is_border(record):
        return "(transaction)"
    if names >= {"source", "databaseName", "ddl"} and names <= _CHANGE and _is_schema_change(record):
        return "(schema change)"
    return None


def _is_object(value: object) -> bool:
    return value is None or type(value) is dict


def _is_border(record: Mapping[str, Any]) -> bool:
    counted = record["event_count"], record["data_collections"]
    if type(record["id"]) is not str:
        return False
    if record["status"] == "BEGIN":
        return counted == (None, None)
    return record["status"] == "END" and type(counted[0]) is int and type(counted[1]) in (list, type(None))


def _is_schema_change(record: Mapping[str, Any]) -> bool:
    return type(record["source"]) is dict and type(record.get("tableChanges", [])) in (list, type(None))
