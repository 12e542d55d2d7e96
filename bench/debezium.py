"""The same records as Debezium's changes of a row, in the form in which its connector for PostgreSQL writes them."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro

FORMATS = {"json, Debezium": "json", "json, Debezium, schema beside it": "json", "avro, Debezium": "avro"}
_SOURCE = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "long", "snapshot": "string", "db": "string",
    "schema": "string", "table": "string", "txId": "long", "lsn": "long",
}  # fmt: skip
_KINDS = {
    "id": "int64", "at": "string", "user": "string", "kind": "string", "country": "string", "amount": "double",
    "quantity": "int32", "mobile": "boolean", "session": "string", "referrer": "string",
}  # fmt: skip


def avro_schema(row: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an envelope; ``row`` is the schema of the record inside it."""
    source = {"type": "record", "name": "Source", "fields": [{"name": name, "type": kind}
                                                            for name, kind in _SOURCE.items()]}  # fmt: skip
    fields = {
        "before": ["null", row], "after": ["null", row["name"]], "source": source, "op": "string",
        "ts_ms": ["null", "long"], "transaction": ["null", "string"],
    }  # fmt: skip
    return {
        "type": "record", "name": "Envelope", "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }  # fmt: skip


def encoders(
    values: list[bytes], records: list[dict[str, Any]], avro_row: dict[str, Any], frame: bytes
) -> dict[str, Callable[[int], bytes]]:
    """Return, for each of ``FORMATS``, a function that encodes the record with a number."""
    schema = fastavro.parse_schema(avro_schema(avro_row))
    beside = json.dumps(_connect_schema(), separators=(",", ":")).encode()

    def plain(at: int) -> bytes:
        source, stamp = json.dumps(_source(at), separators=(",", ":")).encode(), _stamp(at)
        return (
            b'{"before":null,"after":%b,"source":%b,"op":"c","ts_ms":%d,"transaction":null}'
            % (values[at], source, stamp)
        )  # fmt: skip

    def with_schema(at: int) -> bytes:
        return b'{"schema":%b,"payload":%b}' % (beside, plain(at))

    def avro(at: int) -> bytes:
        written = BytesIO()
        change = {"before": None, "after": records[at], "source": _source(at), "op": "c", "ts_ms": _stamp(at)}
        fastavro.schemaless_writer(written, schema, {**change, "transaction": None})
        return frame + written.getvalue()

    return dict(zip(FORMATS, (plain, with_schema, avro), strict=True))


def _stamp(at: int) -> int:
    return 1_709_251_200_000 + at


def _source(at: int) -> dict[str, Any]:
    return {
        "version": "3.3.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": _stamp(at), "snapshot": "false",
        "db": "shop", "schema": "public", "table": "events", "txId": 700 + at, "lsn": 24_000_000 + 100 * at,
    }  # fmt: skip


def _connect_schema() -> dict[str, Any]:
    """Return the schema that Kafka Connect's JSON converter writes beside each record (``schemas.enable``)."""
    row = [{"field": name, "type": kind, "optional": name in ("session", "referrer")} for name, kind in _KINDS.items()]
    row[1] |= {"name": "io.debezium.time.ZonedTimestamp", "version": 1}
    source = [{"field": name, "type": kind.replace("long", "int64"), "optional": False}
              for name, kind in _SOURCE.items()]  # fmt: skip
    value = {"type": "struct", "optional": True, "name": "shop.public.events.Value", "fields": row}
    fields = [
        {**value, "field": "before"},
        {**value, "field": "after"},
        {"type": "struct", "optional": False, "name": "io.debezium.connector.postgresql.Source", "field": "source",
         "fields": source},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
        {"type": "string", "optional": True, "field": "transaction"},
    ]  # fmt: skip
    return {"type": "struct", "optional": False, "name": "shop.public.events.Envelope", "fields": fields}
