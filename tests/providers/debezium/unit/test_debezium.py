"""Envelopes of Debezium. The records have the shapes of its documentation (connectors for PostgreSQL and MySQL: "Data
change events", "Temporal types", "Decimal types", "TOAST values", "Transaction metadata")."""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from struct import pack
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protobuf_schemas import descriptor_set, message_class, proto
from tidemark.decoders.base import Decoded, ErrorClass
from tidemark.decoders.json.settings import Settings
from tidemark.decoders.json_shapes.shapes import Shape
from tidemark.decoders.one_by_one import Misfit
from tidemark.decoders.registry import open_decoder
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import HEADERS
from tidemark.providers.debezium.encoded import (
    Days,
    EncodedDay,
    EncodedExact,
    EncodedInstant,
    EncodedNumber,
    Microseconds,
    NoNumber,
    NoTime,
)
from tidemark.providers.debezium.units import Decimals, Unit

PLACEHOLDER = "__debezium_unavailable_value"
SCHEMA = "id BIGINT NOT NULL, name STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>"
NOON = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
NOON_US = 1_600_000_000_000_000


def config(**envelope: Any) -> dict[str, Any]:
    return {
        "format": "json", "schema": SCHEMA, "tombstones": ["id"], "envelope": {"kind": "debezium", **envelope}
    }  # fmt: skip


def batch(records: list[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    """Records of (key, value)."""
    keys, values = zip(*records, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["shop.public.orders"] * len(records), pa.string()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(len(records), HEADERS),
        }
    )


def text(content: Any) -> bytes | None:
    return None if content is None else json.dumps(content).encode()


def decoded(settings: dict[str, Any], *records: tuple[Any, Any]) -> Decoded:
    """Records of (key, value), as JSON."""
    made = open_decoder(settings).decode(batch([(text(key), text(value)) for key, value in records]))
    places = [*made.good.to_pylist(), *made.filtered.to_pylist(), *(bad.index for bad in made.errors)]
    assert sorted(places) == list(range(len(records))), "each record is in exactly one place"
    return made


def change(op: str, **row: Any) -> dict[str, Any]:
    """A record as a connector writes it."""
    after = None if op in "dt" else {"id": 1, **row}
    return {
        "before": None, "after": after, "op": op, "ts_ms": 1_600_000_000_123,
        "source": {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "lsn": 24_023_128},
        "transaction": None,
    }  # fmt: skip


def beside(schema: list[dict[str, Any]], payload: Any) -> dict[str, Any]:
    """A record with its schema beside it (``schemas.enable``)."""
    fields = [{"field": "before", "type": "struct", "fields": schema},
              {"field": "after", "type": "struct", "fields": schema}]  # fmt: skip
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_what_a_row_is_now_becomes_the_row(op: str) -> None:
    made = decoded(config(), ({"id": 1}, change(op, name="ada", tags=["a"])))
    assert made.rows.to_pylist() == [
        {"id": 1, "name": "ada", "price": None, "at": None, "day": None, "tags": ["a"]}
    ]  # fmt: skip
    assert made.deleted.to_pylist() == [False]


@pytest.mark.parametrize("before", [None, {"id": None}, {"id": 7, "name": PLACEHOLDER}, {"id": 7, "name": 5}])
def test_a_deletion_is_named_by_its_key_whatever_else_before_holds(before: Any) -> None:
    made = decoded(config(), ({"id": 7}, {**change("d"), "before": before}))
    assert made.deleted.to_pylist() == [True]
    assert made.rows.to_pylist()[0]["id"] == 7
    assert made.rows.to_pylist()[0]["name"] is None


def test_a_deletion_without_a_tombstone_and_a_tombstone_without_a_deletion_are_deletions() -> None:
    made = decoded(config(), ({"id": 1}, change("d")), ({"id": 2}, None), ({"id": 3}, change("c", id=3)))
    assert list(zip(made.rows.column("id").to_pylist(), made.deleted.to_pylist(), strict=True)) == [
        (1, True), (2, True), (3, False),
    ]  # fmt: skip


def test_a_key_of_several_values_is_an_error_of_its_key() -> None:
    records = [(b'1, "more": 2', text(change("d"))), (b"2", text(change("d"))), (b'{"id": 3, "more": 2}', None)]
    made = open_decoder(config()).decode(batch(records))
    assert [(bad.index, bad.error, "more content" in bad.reason) for bad in made.errors] == [(0, ErrorClass.KEY, True)]
    assert made.rows.column("id").to_pylist() == [2, 3]


def test_a_deletion_without_a_key_is_an_error_of_its_key() -> None:
    made = decoded(config(), (None, change("d")))
    assert [(bad.error, "wrong key: there is none" in bad.reason) for bad in made.errors] == [(ErrorClass.KEY, True)]


@pytest.mark.parametrize(
    "record",
    [
        change("m", message="hello"),
        {"ts_ms": 1_600_000_000_000},
        {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None},
        {"status": "END", "id": "571", "ts_ms": 1, "event_count": 2, "data_collections": [{"event_count": 2}]},
        {"source": {"db": "shop"}, "ts_ms": 1, "databaseName": "shop", "ddl": "ALTER TABLE t", "tableChanges": []},
        {**change("c"), "source": {"table": "debezium_signal"}, "after": {"id": "ad-hoc", "type": "execute-snapshot"}},
    ],
    ids=["message", "heartbeat", "begin", "end", "ddl", "signal"],
)
@pytest.mark.parametrize("with_schema", [False, True])
def test_records_that_tell_nothing_about_a_row_are_filtered(record: dict[str, Any], with_schema: bool) -> None:
    made = decoded(config(), (None, beside([], record) if with_schema else record))
    assert (made.filtered.to_pylist(), made.errors) == ([0], ())


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("format_of_key", ["json", "avro"])
def test_a_deletion_is_one_beside_keys_of_any_format(format_of_key: str, headers: bool) -> None:
    key_schema = "id BIGINT NOT NULL" if format_of_key == "json" else KEY
    made = Settings.model_validate(
        {"format": "json", "schema": SCHEMA, "tombstones": ["id"], "envelope": "debezium", "headers": headers,
         "key": {"format": format_of_key, "schema": key_schema}}
    )  # fmt: skip
    keys = [text({"id": number}) if format_of_key == "json" else avro(KEY, {"id": number}) for number in (1, 2, 1)]
    values = [text(change("d")), None, text(change("c"))]
    rows = open_decoder(made.record_order()).decode(batch(list(zip(keys, values, strict=True))))
    assert rows.errors == ()
    assert rows.deleted.to_pylist() == [True, True, False]
    assert rows.rows.column("id").to_pylist() == rows.rows.column("key_id").to_pylist() == [1, 2, 1]


def test_an_emptied_table_is_an_error_unless_the_file_says_skip() -> None:
    truncate = (None, change("t"))
    assert "truncate: skip" in decoded(config(), truncate).errors[0].reason
    assert decoded(config(truncate="skip"), truncate).filtered.to_pylist() == [0]
    with_key = {**config(), "key": {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"}}
    assert "truncate: skip" in decoded(with_key, truncate).errors[0].reason
    assert decoded(with_key, (None, change("c"))).errors[0].reason == "it has no key"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 1, "name": "unwrapped"}, "no op"),
        ({**change("c"), "op": "z"}, "op 'z' is not known"),
        ({**change("c"), "op": None}, "no op"),
        ({**change("c"), "op": 5}, "field op: expected string"),
        ({**change("u"), "after": None}, "op u without after"),
        ({"op": "u"}, "op u without after"),
        ({**change("c"), "after": {"name": "x"}}, "field after.id: absent"),
        (change("c", price="no base64!"), "field after.price: does not fit DECIMAL(10,2)"),
        (change("c", at=NOON_US), "envelope.times"),
        (change("c", day=9_000_000), "outside the years 1 to 9999"),
        ({"schema": {}, "payload": None}, "payload is no object"),
        ({"schema": 5, "payload": {"op": "z"}}, "op 'z' is not known"),
    ],
)
def test_what_is_no_envelope_is_an_error_that_says_why(record: dict[str, Any], reason: str) -> None:
    [bad] = decoded(config(), ({"id": 1}, record)).errors
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", PLACEHOLDER),
        ("name", b64encode(PLACEHOLDER.encode()).decode()),
        ("price", PLACEHOLDER),
        ("price", b64encode(PLACEHOLDER.encode()).decode()),
        ("tags", [PLACEHOLDER]),
        ("numbers", [ord(letter) for letter in PLACEHOLDER]),
        ("days", [ord(letter) for letter in PLACEHOLDER]),  # of date[]
        ("tags", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),  # of uuid[]
        ("name", PLACEHOLDER.encode().hex()),
        ("inner", {"text": "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ=="}),  # of a geometry
        ("parts", {PLACEHOLDER: PLACEHOLDER}),
        ("inner", {"text": PLACEHOLDER}),
    ],
)
def test_a_placeholder_of_any_type_is_an_error_that_says_what_helps(field: str, value: Any) -> None:
    schema = f"{SCHEMA}, numbers ARRAY<BIGINT>, days ARRAY<DATE>, parts MAP<STRING,STRING>, inner STRUCT<text STRING>"
    settings = {**config(), "schema": schema}
    made = decoded(settings, ({"id": 1}, change("u", name="b")), ({"id": 1}, change("u", **{field: value})))
    [bad] = made.errors
    assert (bad.index, f"after.{field}" in bad.reason, "REPLICA IDENTITY FULL" in bad.reason) == (1, True, True)


def test_the_placeholder_can_be_another_text() -> None:
    settings = config(unavailable_value="(none)")
    made = decoded(settings, ({"id": 1}, change("u", name="(none)")), ({"id": 1}, change("u", name=PLACEHOLDER)))
    assert ([bad.index for bad in made.errors], made.good.to_pylist()) == ([0], [1])
    of_bytes = {**config(unavailable_value="é"), "schema": "id BIGINT NOT NULL, numbers ARRAY<INT>"}
    made = decoded(of_bytes, ({"id": 1}, change("u", numbers=[-61, -87])), ({"id": 1}, change("u", numbers=[233])))
    assert ([bad.index for bad in made.errors], made.good.to_pylist()) == ([0], [1])


def test_a_changed_key_is_a_deletion_and_a_new_row() -> None:
    made = decoded(
        config(), ({"id": 1}, change("d")), ({"id": 1}, None), ({"id": 2}, {**change("c"), "after": {"id": 2}})
    )
    assert list(zip(made.rows.column("id").to_pylist(), made.deleted.to_pylist(), strict=True)) == [
        (1, True), (1, True), (2, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("io.debezium.time.Timestamp", NOON_US // 1_000),
        ("io.debezium.time.MicroTimestamp", NOON_US),
        ("io.debezium.time.NanoTimestamp", NOON_US * 1_000),
        ("org.apache.kafka.connect.data.Timestamp", NOON_US // 1_000),
        ("io.debezium.time.ZonedTimestamp", "2020-09-13T12:26:40Z"),
    ],
)
def test_the_schema_beside_a_record_says_the_unit_of_its_times(name: str, number: Any) -> None:
    fields = [{"field": "at", "type": "int64", "name": name}]
    made = decoded(config(times={"at": "ms"}), ({"id": 1}, beside(fields, change("c", at=number))))
    assert made.rows.to_pylist()[0]["at"] == NOON


@pytest.mark.parametrize(("unit", "factor"), [("ms", 1 / 1_000), ("us", 1), ("ns", 1_000)])
def test_without_a_schema_the_file_says_the_unit(unit: str, factor: float) -> None:
    made = decoded(config(times={"at": unit}), ({"id": 1}, change("c", at=int(NOON_US * factor), day=18_518)))
    assert [made.rows.to_pylist()[0][name] for name in ("at", "day")] == [NOON, date(2020, 9, 13)]


@pytest.mark.parametrize("infinite", [9_223_372_036_825_200_000, -9_223_372_036_832_400_000])
def test_infinity_is_an_error_of_its_record_alone(infinite: int) -> None:
    records = [({"id": 1}, change("c", at=at)) for at in (infinite, NOON_US)]
    made = decoded(config(times={"at": "us"}), *records)
    assert ([bad.index for bad in made.errors], made.good.to_pylist()) == ([0], [1])


@pytest.mark.parametrize("overflowed", [-29_575_808_000, 22_375_808_000])
@pytest.mark.parametrize("with_schema", [True, False])
def test_infinity_that_overflowed_in_nanoseconds_is_an_error(overflowed: int, with_schema: bool) -> None:
    """Connectors wrote 64 bits of it (debezium/dbz#1833)."""
    record = change("c", at=overflowed)
    if with_schema:
        record = beside([{"field": "at", "type": "int64", "name": "io.debezium.time.NanoTimestamp"}], record)
    made = decoded(config() if with_schema else config(times={"at": "ns"}), *[({"id": 1}, record)] * 3)
    assert [bad.index for bad in made.errors] == [0, 1, 2]


def test_a_date_may_be_a_text_of_iso_8601() -> None:
    made = decoded(config(), *(({"id": 1}, change("c", day=day)) for day in ("2020-09-13", "2020-09-13Z")))
    assert made.rows.column("day").to_pylist() == [date(2020, 9, 13)] * 2


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        ("BNI=", {}),  # 1234
        ({"scale": 3, "value": "MDQ="}, {}),  # 12340
        (12.34, {}),
        ("12.34", {"decimals": "text"}),
    ],
)
def test_a_decimal_is_exact_in_each_encoding(value: Any, settings: dict[str, str]) -> None:
    made = decoded(config(**settings), ({"id": 1}, change("c", price=value)))
    assert made.rows.to_pylist()[0]["price"] == Decimal("12.34")


def test_the_schema_beside_a_record_says_the_scale_of_a_decimal() -> None:
    fields = [{"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}]
    made = decoded(config(decimals="text"), ({"id": 1}, beside(fields, change("c", price="ew=="))))  # 123
    assert made.rows.to_pylist()[0]["price"] == Decimal("12.30")


@pytest.mark.parametrize(("text", "decimal"), [("1234", Decimal(1234)), ("-0.50", Decimal("-0.5"))])
def test_a_decimal_that_is_a_text_by_its_schema_is_never_read_as_base64(text: str, decimal: Decimal) -> None:
    made = decoded(config(), ({"id": 1}, beside([{"field": "price", "type": "string"}], change("c", price=text))))
    assert made.rows.to_pylist()[0]["price"] == decimal


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"field": "price", "type": "string"}, "Infinity"),  # eight characters of base64
        ({**DECIMAL, "field": "price", "parameters": {"scale": "--5"}}, "BNI="),
        ({**DECIMAL, "field": "price", "parameters": {"scale": "99999"}}, "BNI="),
        ({**DECIMAL, "field": "price", "parameters": None}, "BNI="),
    ],
)
def test_a_decimal_that_is_none_by_its_schema_is_an_error(field: dict[str, Any], value: str) -> None:
    [bad] = decoded(config(), ({"id": 1}, beside([field], change("c", price=value)))).errors
    assert bad.reason.startswith("field after.price: does not fit DECIMAL(10,2)")


@pytest.mark.parametrize("settings", [{}, {"decimals": "text"}])
def test_the_schema_beside_a_record_says_what_is_inside_lists_maps_and_structs(settings: dict[str, str]) -> None:
    moment = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    fields = [
        {"field": "prices", "type": "array", "items": DECIMAL},
        {"field": "moments", "type": "map", "keys": {"type": "string"}, "values": moment},
        {"field": "inner", "type": "struct", "fields": [{**DECIMAL, "field": "price"}, {**moment, "field": "at"}]},
    ]  # fmt: skip
    row = {"prices": ["BNI=", None], "moments": {"a": NOON_US}, "inner": {"price": "BNI=", "at": NOON_US}}
    schema = (
        "id BIGINT NOT NULL, prices ARRAY<DECIMAL(10,4)>, moments MAP<STRING,TIMESTAMP>, "
        "inner STRUCT<price DECIMAL(10,4), at TIMESTAMP>"
    )
    made = decoded({**config(**settings), "schema": schema}, ({"id": 1}, beside(fields, change("c", **row))))
    price = Decimal("12.34")
    assert made.rows.to_pylist() == [
        {"id": 1, "prices": [price, None], "moments": [("a", NOON)], "inner": {"price": price, "at": NOON}}
    ]


def test_the_file_says_the_unit_of_times_in_a_list() -> None:
    settings = {**config(times={"moments": "us"}), "schema": "id BIGINT NOT NULL, moments ARRAY<TIMESTAMP>"}
    made = decoded(settings, ({"id": 1}, change("c", moments=[NOON_US, None])))
    assert made.rows.to_pylist() == [{"id": 1, "moments": [NOON, None]}]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ({"field": "day", "type": "int64", "name": "io.debezium.time.Timestamp"}, 1, "needs the type TIMESTAMP"),
        ({"field": "at", "type": "int32", "name": "io.debezium.time.Date"}, 1, "needs the type DATE"),
    ],
)
def test_a_time_in_a_column_of_another_type_is_an_error(field: dict[str, Any], value: int, reason: str) -> None:
    [bad] = decoded(config(), ({"id": 1}, beside([field], change("c", **{field["field"]: value})))).errors
    assert reason in bad.reason


@pytest.mark.parametrize("field", [{"field": []}, {"field": {}}, {}, {"field": "price", "name": []}])
def test_a_schema_beside_a_record_may_be_any_json(field: dict[str, Any]) -> None:
    made = decoded(config(), ({"id": 1}, beside([field], change("c", price="BNI="))))
    assert made.rows.to_pylist()[0]["price"] == Decimal("12.34")


MUTATIONS = st.sampled_from(
    [
        "",
        "}",
        " ",
        ",",
        '"payload":1,',
        '"schema":{},',
        "[" * 130,
        "{" * 60,
        "\\u0073",
        '"',
        "\ufeff",
        "\n",
        "NaN",
        "1e99999",
    ]
)


PLACES = st.integers(0, 3) | st.integers(0, 200)


@pytest.mark.thorough
@given(st.lists(st.tuples(PLACES, MUTATIONS, st.booleans()), min_size=1, max_size=8), st.booleans())
def test_a_record_is_read_alike_alone_and_behind_others_with_the_same_schema(
    changes: list[tuple[int, str, bool]], spaces: bool
) -> None:
    schema = [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]
    separators = (", ", " : ") if spaces else (",", ":")
    values = []
    for at, (place, mutation, is_cut) in enumerate(changes):
        whole = json.dumps(beside(schema, change("u", id=at, at=NOON_US + at, name="}")), separators=separators)
        cut = len(whole) - place if is_cut else place  # at the payload, or at the schema
        values.append((whole[:cut] + mutation + whole[cut:]).encode())
    first = json.dumps(beside(schema, change("u")), separators=separators).encode()
    together = open_decoder(config()).decode(batch([(b'{"id": 1}', value) for value in (first, *values)]))
    seen = dict(zip(together.good.to_pylist(), together.rows.to_pylist(), strict=True))
    for index, value in enumerate(values, 1):
        alone = open_decoder(config()).decode(batch([(b'{"id": 1}', value)]))
        assert alone.rows.to_pylist() == [row for place, row in seen.items() if place == index]
        reasons = [error.reason for error in together.errors if error.index == index]
        assert [error.reason for error in alone.errors] == reasons


@pytest.mark.parametrize("spaces", [("", " "), (" ", ""), ("", "\n\t"), (" ", "  ")])
def test_records_with_the_same_schema_may_have_other_spaces_before_the_payload(spaces: tuple[str, ...]) -> None:
    payload = json.dumps(change("u"))
    values = [f'{{"schema": {{"fields": []}}, "payload":{space}{payload}}}'.encode() for space in spaces]
    made = open_decoder(config()).decode(batch([(b'{"id": 1}', value) for value in values]))
    assert (made.good.to_pylist(), made.errors) == ([0, 1], ())


def test_records_of_more_tables_than_are_known_at_once_are_read_alike() -> None:
    records = [({"id": 1}, beside([{"field": f"of_{number % 150}"}], change("u", name=f"n{number}")))
               for number in range(600)]  # fmt: skip
    assert decoded(config(), *records).rows.column("name").to_pylist() == [f"n{number}" for number in range(600)]


def test_a_schema_with_more_objects_than_a_record_may_nest_costs_nothing_but_its_first_record() -> None:
    schema = [{"field": f"field_{number}", "type": "string"} for number in range(200)]
    made = decoded(config(), *(({"id": 1}, beside(schema, change("u", name=f"n{number}"))) for number in range(3)))
    assert made.rows.column("name").to_pylist() == ["n0", "n1", "n2"]


@pytest.mark.parametrize(("depth", "reasons"), [(124, ["field after.tags[0]: expected string, found array"]),
                                                (125, ["not read: nested deeper than 128"])])  # fmt: skip
def test_a_record_is_nested_as_deeply_behind_others_with_the_same_schema(depth: int, reasons: list[str]) -> None:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    record = {"id": 1}, beside([], change("u", tags=deep))
    for records in ([record], [({"id": 1}, beside([], change("u"))), record]):
        assert [error.reason for error in decoded(config(), *records).errors] == reasons


def test_a_key_may_have_its_schema_beside_it() -> None:
    schema = {**config(times={"at": "ms"}), "tombstones": ["id", "at"]}
    key = {"schema": {"fields": [{"field": "at", "name": "io.debezium.time.MicroTimestamp"}]},
           "payload": {"id": 4, "at": NOON_US}}  # fmt: skip
    made = decoded(schema, (key, change("d")))
    assert [made.rows.to_pylist()[0][name] for name in ("id", "at")] == [4, NOON]


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [
        ("id", {"schema": {"type": "int64"}, "payload": 4}, 4),
        ("at", {"schema": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "payload": NOON_US}, NOON),
        ("name", {"schema": {"type": "string"}, "payload": "ada"}, "ada"),
    ],
)
def test_a_key_of_one_field_may_be_its_value_with_the_schema_beside_it(field: str, key: Any, value: Any) -> None:
    made = decoded({**config(times={"at": "ms"}), "tombstones": [field]}, (key, change("d")))
    assert made.rows.to_pylist()[0][field] == value


def test_other_parts_of_the_envelope_become_columns() -> None:
    columns = {"op": "op", "lsn": "source.lsn", "told_at": "ts_ms", "txid": "transaction.id"}
    made = decoded(config(columns=columns), ({"id": 1}, change("c")), ({"id": 1}, change("d")))
    live, deleted = made.rows.select(["id", *columns]).to_pylist()
    told_at = datetime(2020, 9, 13, 12, 26, 40, 123_000, tzinfo=UTC)
    assert live == {"id": 1, "op": "c", "lsn": 24_023_128, "told_at": told_at, "txid": None}
    assert deleted == {"id": 1, "op": None, "lsn": None, "told_at": None, "txid": None}


def test_only_fields_of_the_row_count_as_unknown() -> None:
    records = [({"id": 1}, change("c", zip="x")), ({"id": 1}, change("d")), ({"id": 1}, beside([], change("u", zip=1)))]
    unknown = decoded(config(columns={"lsn": "source.lsn"}), *records).unknown
    assert unknown is not None
    of_rows = [(path, at) for path, at in zip(unknown.paths.to_pylist(), unknown.records.to_pylist(), strict=True)
               if "(absent)" not in path]  # fmt: skip
    assert of_rows == [("zip", 0), ("zip", 2)]
    refused = decoded({**config(), "unknown_fields": "dead_letter"}, *records)
    assert [(bad.index, bad.reason) for bad in refused.errors] == [
        (0, "field after.zip: not in the schema"), (2, "field after.zip: not in the schema"),
    ]  # fmt: skip


def test_unknown_fields_of_a_record_that_its_envelope_makes_a_dead_letter_do_not_count() -> None:
    made = decoded(config(), ({"id": 1}, change("u", name=PLACEHOLDER, zip=1)), ({"id": 1}, change("c", zip=1)))
    assert made.unknown is not None
    assert (set(made.unknown.records.to_pylist()), [bad.index for bad in made.errors]) == ({1}, [0])


@pytest.mark.parametrize("mode", ["count", "dead_letter", "fail"])
@pytest.mark.parametrize("spaces", [None, (",", ":")])
def test_columns_that_records_do_not_have_are_counted_and_are_no_dead_letters(mode: str, spaces: Any) -> None:
    """The same whether records are read one by one, or their columns at once."""
    settings = {
        "format": "json", "unknown_fields": mode, "schema": "id BIGINT NOT NULL, kept STRING, gone STRING, made INT",
        "tombstones": ["id"], "envelope": {"kind": "debezium"},
    }  # fmt: skip

    def value(**row: Any) -> bytes:
        content = {"op": "c", "before": None, "after": {"id": 1, **row}, "source": {"table": "t"}}
        return json.dumps(content, separators=spaces).encode()

    rows = [value(kept="a", gone=None, made=1), value(kept="b"), value(kept="c"), value(kept=None, gone="x")]
    rows.append(json.dumps({"op": "d", "before": {"id": 1}, "after": None, "source": {"table": "t"}}).encode())
    made = open_decoder(settings).decode(batch([(b'{"id":1}', row) for row in rows]))
    assert (made.errors, made.rows.column("kept").to_pylist()) == ((), ["a", "b", "c", None, None])
    assert made.unknown is not None
    assert list(zip(made.unknown.paths.to_pylist(), made.unknown.records.to_pylist(), strict=True)) == [
        ("gone (absent)", 1), ("gone (absent)", 2), ("made (absent)", 1), ("made (absent)", 2), ("made (absent)", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (config(times={"more": "us"}), "times names more"),
        (config(times={"name": "us"}), "times names name"),
        (config(times={"day": "ms"}), "says ms for day"),
        (config(columns={"name": "op"}), "name"),
        ({**config(), "envelope": {"kind": "maxwell"}}, "'maxwell'"),
    ],
)
def test_settings_that_do_not_fit_the_row_are_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        open_decoder(settings)


# Avro and Protobuf

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "table", "type": "string"}, {"name": "lsn", "type": ["null", "long"], "default": None}]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def avro(schema: Any, content: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), content)
    return stream.getvalue()


def of_schema(schema: Any) -> dict[str, Any]:
    return {"format": "avro", "reader": {"id": -1, "kind": "AVRO", "text": json.dumps(schema), "references": []}}


def test_avro_reads_the_row_inside_and_its_connect_names() -> None:
    settings = {
        **of_schema(ENVELOPE), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium", "columns": {"lsn": "source.lsn"}},
    }  # fmt: skip
    source = {"table": "orders", "lsn": 5}
    row = {"id": 1, "name": "ada", "at": NOON_US, "day": 18_518, "price": Decimal("12.34")}
    values = [
        {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 1},
        {"before": row, "after": None, "source": source, "op": "d", "ts_ms": 1},
        {"before": None, "after": {**row, "at": 2**62}, "source": source, "op": "u", "ts_ms": 1},
        {"before": None, "after": {**row, "name": PLACEHOLDER}, "source": source, "op": "u", "ts_ms": 1},
        {"before": None, "after": None, "source": source, "op": "m", "ts_ms": 1},
        None,
    ]
    keys = [avro(KEY, {"id": 1})] * 4 + [None, avro(KEY, {"id": 2})]
    records = [(key, None if value is None else avro(ENVELOPE, value)) for key, value in zip(keys, values, strict=True)]
    decoder = open_decoder(settings)
    made = decoder.decode(batch(records))
    assert made.rows.schema.field("at").type == pa.timestamp("us", "UTC")
    assert made.rows.to_pylist() == [
        {
            "key_id": 1,
            "id": 1,
            "name": "ada",
            "at": NOON,
            "day": date(2020, 9, 13),
            "price": Decimal("12.34"),
            "lsn": 5,
        },
        {"key_id": 1, "id": 1, "name": None, "at": None, "day": None, "price": None, "lsn": None},
        {"key_id": 2, "id": 2, "name": None, "at": None, "day": None, "price": None, "lsn": None},
    ]
    assert (made.deleted.to_pylist(), made.filtered.to_pylist()) == ([False, True, True], [4])
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in made.errors] == [
        (2, "field after.at"), (3, "field after.name"),
    ]  # fmt: skip


def connect_names(envelope: dict[str, Any], references: tuple[str, ...] = ()) -> pa.Schema:
    """The columns of the row in an envelope."""
    reader = {"id": -1, "kind": "AVRO", "text": json.dumps(envelope), "references": [["", text] for text in references]}
    settings = {"format": "avro", "reader": reader, "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"]}
    return open_decoder({**settings, "envelope": {"kind": "debezium"}}).schema


def test_avro_finds_connect_names_in_a_schema_that_the_envelope_refers_to() -> None:
    name = f"{ENVELOPE['namespace']}.Value"
    _, after, *others = ENVELOPE["fields"]
    envelope = {**ENVELOPE, "fields": [{**after, "type": ["null", name]}, *others]}
    schema = connect_names(envelope, (json.dumps({**VALUE, "namespace": ENVELOPE["namespace"]}),))
    assert [schema.field(name).type for name in ("at", "day")] == [pa.timestamp("us", "UTC"), pa.date32()]


def test_avro_takes_no_connect_names_of_a_record_with_the_same_last_name() -> None:
    other = {"name": "before", "type": {**VALUE, "namespace": "other", "fields": [{"name": "at", "type": "long"}]}}
    _, after, *others = ENVELOPE["fields"]
    schema = connect_names({**ENVELOPE, "fields": [other, {**after, "type": ["null", VALUE]}, *others]})
    assert schema.field("at").type == pa.timestamp("us", "UTC")


def test_avro_does_not_read_before_whatever_it_holds() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": moment}],
    }
    fields = [
        {"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ]  # fmt: skip
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {
        **of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium"},
    }  # fmt: skip
    infinite = {"id": 1, "at": 9_223_372_036_825_200}
    values = [{"before": infinite, "after": None, "op": "d"}, {"before": None, "after": infinite, "op": "c"}]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), avro(envelope, value)) for value in values]))
    assert (made.deleted.to_pylist(), [bad.index for bad in made.errors]) == ([True], [1])


def test_a_part_of_another_type_than_its_column_is_an_error_of_its_record_alone() -> None:
    """Protobuf has numbers beyond 63 bits."""
    source = {"type": "record", "name": "Source", "fields": [{"name": "pos", "type": "string"}]}
    fields = [{"name": "after", "type": VALUE}, {"name": "source", "type": source}, {"name": "op", "type": "string"}]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {
        **of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium", "columns": {"pos": "source.pos"}},
    }  # fmt: skip
    row = {"id": 1, "name": None, "at": None, "day": 1, "price": Decimal(1)}
    values = [avro(envelope, {"after": row, "source": {"pos": number}, "op": "c"}) for number in ("6.28.807", "571")]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), value) for value in values]))
    assert made.rows.column("pos").to_pylist() == [571]
    assert [(bad.index, bad.reason) for bad in made.errors] == [
        (0, "field source.pos: its value does not have the type int64")
    ]


def test_what_the_envelope_refuses_names_both_schemas_of_its_record() -> None:
    """As what the format refuses: the schema that wrote the record, and the one that reads it."""

    def registered(number: int, schema: Any) -> dict[str, Any]:
        return {"id": number, "kind": "AVRO", "text": json.dumps(schema), "references": []}

    registry = {"registry": {"url": "http://r"}}
    settings = {
        "format": "avro", **registry, "reader": registered(4, ENVELOPE), "tombstones": ["id"],
        "schemas": {"http://r: writer 7": registered(7, ENVELOPE)},
        "key": {**of_schema(KEY), "part": "key"}, "envelope": {"kind": "debezium"},
    }  # fmt: skip
    row = {"id": 1, "name": None, "at": 2**62, "day": 1, "price": Decimal(1)}
    content = {"before": None, "after": row, "source": {"table": "t"}, "op": "c", "ts_ms": None}
    value = b"\0" + (7).to_bytes(4, "big") + avro(ENVELOPE, content)
    [bad] = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), value)])).errors
    assert bad.schemas == "writer 7, reader 4"
    assert bad.reason.endswith("(writer 7, reader 4)")
    assert "field after.at" in bad.reason


@pytest.mark.parametrize("number", ["02000a00f4010000", 571])
def test_a_transaction_is_a_text_whatever_the_database_calls_it_by(number: Any) -> None:
    """Oracle has names of transactions, PostgreSQL numbers."""
    settings = {
        "format": "json", "unknown_fields": "count", "schema": "id BIGINT NOT NULL", "tombstones": ["id"],
        "envelope": {"kind": "debezium", "columns": {"tx": "source.txId"}},
    }  # fmt: skip
    change = {"op": "c", "before": None, "after": {"id": 1}, "source": {"txId": number, "table": "t"}}
    values = [json.dumps(change, separators=(",", ":")).encode()] * 3
    made = open_decoder(settings).decode(batch([(b'{"id":1}', value) for value in values]))
    assert made.rows.column("tx").to_pylist() == [str(number)] * 3


@pytest.mark.parametrize(
    "form", [{"scale": 2, "value": "BNI="}, {"schema": {}, "payload": {"scale": 2, "value": "BNI="}}]
)
def test_a_key_that_is_one_number_with_its_scale_names_its_row(form: Any) -> None:
    settings = {
        "format": "json", "unknown_fields": "count", "schema": "id DECIMAL(10,2) NOT NULL", "tombstones": ["id"],
        "envelope": {"kind": "debezium"},
    }  # fmt: skip
    made = open_decoder(settings).decode(
        batch([(json.dumps(form).encode(), b'{"op":"d","before":null,"after":null,"source":{}}')])
    )
    assert (made.rows.column("id").to_pylist(), made.errors) == ([Decimal("12.34")], ())


def test_a_unit_for_a_column_that_is_no_number_is_refused() -> None:
    settings = {
        **of_schema(ENVELOPE), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium", "times": {"name": "us"}},
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="times names name, which is string"):
        open_decoder(settings)


def test_what_the_record_says_of_a_unit_stands_before_what_the_file_says() -> None:
    settings = {
        **of_schema(ENVELOPE), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium", "times": {"at": "ms"}},
    }  # fmt: skip
    row = {"id": 1, "name": None, "at": NOON_US, "day": 1, "price": Decimal(1)}
    value = {"before": None, "after": row, "source": {"table": "orders", "lsn": 5}, "op": "c", "ts_ms": 1}
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), avro(ENVELOPE, value))]))
    assert made.rows.column("at").to_pylist() == [NOON]


def test_protobuf_reads_the_row_inside() -> None:
    file = proto(
        "shop",
        {
            "Value": ["int64 id = 1", "optional string name = 2", "optional int64 at = 3"],
            "Envelope": ["Value before = 1", "Value after = 2", "string op = 3"],
        },
    )
    descriptors = descriptor_set(file)
    reader = {"id": -1, "kind": "PROTOBUF", "text": b64encode(descriptors).decode(), "references": []}
    settings = {
        "format": "protobuf", "reader": reader, "message": "shop.Envelope", "tombstones": ["id"],
        "key": {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"},
        "envelope": {"kind": "debezium", "times": {"at": "us"}},
    }  # fmt: skip
    envelope: Any = message_class(descriptors, "shop.Envelope")
    changes = [envelope(after={"id": 1, "at": NOON_US}, op="c"), envelope(before={"id": 1}, op="d")]
    made = open_decoder(settings).decode(batch([(b'{"id": 1}', each.SerializeToString()) for each in changes]))
    assert made.errors == ()
    assert made.rows.to_pylist() == [
        {"key_id": 1, "id": 1, "name": None, "at": NOON}, {"key_id": 1, "id": 1, "name": None, "at": None}
    ]  # fmt: skip
    assert made.deleted.to_pylist() == [False, True]


NOWHERE = pack("<BIdd", 1, 1, -99_999_999.0, -99_999_999.0)  # a point that stands for a geometry
AS_NUMBERS = [ord(letter) for letter in PLACEHOLDER]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", PLACEHOLDER),
        ("bytes", PLACEHOLDER.encode()),
        ({"type": "array", "items": "string"}, ["a", PLACEHOLDER]),
        ({"type": "array", "items": "long"}, AS_NUMBERS),
        ({"type": "array", "items": {"type": "int", "connect.name": "io.debezium.time.Date"}}, AS_NUMBERS),
        ({"type": "map", "values": "string"}, {PLACEHOLDER: PLACEHOLDER}),
        ({"type": "record", "name": "Geometry", "fields": [{"name": "wkb", "type": "bytes"}]}, {"wkb": NOWHERE}),
    ],
)
def test_avro_finds_a_placeholder_of_any_type(kind: Any, value: Any) -> None:
    columns = [{"name": "id", "type": "long"}, {"name": "large", "type": ["null", kind]}]
    row = {"type": "record", "name": "Value", "fields": columns}
    fields = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {
        **of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
        "envelope": {"kind": "debezium"},
    }  # fmt: skip
    changes = [("c", None), ("u", value)]
    values = [avro(envelope, {"after": {"id": 1, "large": large}, "op": op}) for op, large in changes]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), each) for each in values]))
    assert made.good.to_pylist() == [0]
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in made.errors] == [(1, "field after.large")]
    assert "REPLICA IDENTITY FULL" in made.errors[0].reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optional string large = 2", PLACEHOLDER),
        ("optional bytes large = 2", PLACEHOLDER.encode()),
        ("repeated string large = 2", ["a", PLACEHOLDER]),
        ("repeated int64 large = 2", AS_NUMBERS),
        ("map<string, string> large = 2", {PLACEHOLDER: PLACEHOLDER}),
    ],
)
def test_protobuf_finds_a_placeholder_of_any_type(field: str, value: Any) -> None:
    messages = {"Value": ["int64 id = 1", field], "Envelope": ["Value after = 1", "string op = 2"]}
    descriptors = descriptor_set(proto("shop", messages))
    reader = {"id": -1, "kind": "PROTOBUF", "text": b64encode(descriptors).decode(), "references": []}
    settings = {
        "format": "protobuf", "reader": reader, "message": "shop.Envelope", "tombstones": ["id"],
        "key": {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"}, "envelope": {"kind": "debezium"},
    }  # fmt: skip
    envelope: Any = message_class(descriptors, "shop.Envelope")
    values = [envelope(after={"id": 1}, op="c"), envelope(after={"id": 1, "large": value}, op="u")]
    made = open_decoder(settings).decode(batch([(b'{"id": 1}', each.SerializeToString()) for each in values]))
    assert made.good.to_pylist() == [0]
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in made.errors] == [(1, "field after.large")]


HEARTBEAT = {
    "type": "record", "name": "Heartbeat", "namespace": "io.debezium.connector.common",
    "fields": [{"name": "ts_ms", "type": "long"}],
}  # fmt: skip


def of_registry(kind: str, writers: dict[int, str]) -> dict[str, Any]:
    """Schemas of writers that are pinned, so the registry is never asked."""
    pinned = {
        f"http://none: writer {number}": {"id": number, "kind": kind, "text": schema, "references": []}
        for number, schema in writers.items()
    }
    return {"registry": {"url": "http://none"}, "schemas": pinned}


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def test_avro_knows_other_records_by_the_names_of_their_schemas() -> None:
    other = {**HEARTBEAT, "namespace": "shop"}
    signal = {**ENVELOPE, "namespace": "shop.public.debezium_signal"}
    writers = {5: json.dumps(HEARTBEAT), 6: json.dumps(ENVELOPE), 7: json.dumps(other), 8: json.dumps(signal)}
    settings = {**of_schema(ENVELOPE), **of_registry("AVRO", writers), "key": {**of_schema(KEY), "part": "key"},
                "tombstones": ["id"], "envelope": {"kind": "debezium"}}  # fmt: skip
    removed = {"before": None, "after": None, "source": {"table": "t", "lsn": 1}, "op": "d", "ts_ms": 1}
    values = [avro(HEARTBEAT, {"ts_ms": 1}), avro(ENVELOPE, removed), avro(other, {"ts_ms": 1}), avro(signal, removed)]
    records = [(avro(KEY, {"id": 3}), framed(number, value)) for number, value in enumerate(values, 5)]
    made = open_decoder(settings).decode(batch(records))
    assert (made.filtered.to_pylist(), made.good.to_pylist(), made.deleted.to_pylist()) == ([0, 3], [1], [True])
    assert [(bad.index, bad.error) for bad in made.errors] == [(2, ErrorClass.SCHEMA)]


def test_protobuf_knows_other_records_by_the_names_of_their_messages() -> None:
    shop = proto("shop", {"Envelope": ["Value after = 1", "string op = 2"], "Value": ["int64 id = 1"]})
    common = proto("io.debezium.connector.common", {"Heartbeat": ["int64 ts_ms = 1"]})
    texts = {5: b64encode(common.SerializeToString()).decode(), 6: b64encode(shop.SerializeToString()).decode()}
    reader = {"id": 6, "kind": "PROTOBUF", "text": texts[6], "references": []}
    settings = {"format": "protobuf", "reader": reader, "message": "shop.Envelope", **of_registry("PROTOBUF", texts),
                "key": {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"}, "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    key, first = b'{"id": 1}', b"\0"  # the first message of the schema
    made = open_decoder(settings).decode(
        batch([(key, framed(5, first + b"\x08\x01")), (key, framed(6, first + b"\x12\x01d"))])
    )
    assert (made.filtered.to_pylist(), made.good.to_pylist(), made.errors) == ([0], [1], ())


@pytest.mark.parametrize("schema", [VALUE, KEY])
def test_a_schema_without_a_row_inside_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="no record after"):
        open_decoder({**of_schema(schema), "envelope": {"kind": "debezium"}})


# The shapes: a column is built exactly when no value of it has a problem.

NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20), st.sampled_from([0, 18_518, NOON_US, 2**63, -(2**63), NOON_US // 1_000])
)
PLACEHOLDERS = (PLACEHOLDER, b64encode(PLACEHOLDER.encode()).decode())
TEXTS = st.sampled_from(
    ["", "BNI=", "12.34", "1234", "AAAA", "Infinity", "-Infinity", "NaN",
     "1e99", "2020-09-13", "2020-09-13Z", "2020-09-13T12:26:40Z", "2020-02-30", "A" * 70,
     "\ud800", *PLACEHOLDERS]
)  # fmt: skip
DICTS = st.fixed_dictionaries({"scale": st.integers(-2_000, 2_000), "value": TEXTS})
OTHERS = st.one_of(st.none(), st.booleans(), st.decimals(allow_nan=False), st.lists(st.none(), max_size=1), DICTS)
VALUES = st.one_of(
    NUMBERS, TEXTS, OTHERS, NUMBERS.map(Days), NUMBERS.map(Microseconds), TEXTS.map(NoNumber), NUMBERS.map(NoTime)
)
SHAPES: list[Shape] = [
    EncodedDay(), EncodedInstant("UTC"), EncodedInstant("UTC", Unit.MILLISECONDS),
    EncodedInstant("UTC", Unit.NANOSECONDS), EncodedExact(10, 2), EncodedExact(38, 10, Decimals.TEXT),
    EncodedExact(10, 2, Decimals.BASE64), EncodedNumber(),
    EncodedNumber(32),
    EncodedExact(10, 2, placeholders=PLACEHOLDERS),
]  # fmt: skip


@given(st.sampled_from(SHAPES), st.lists(VALUES, max_size=4))
def test_a_column_is_built_exactly_when_no_value_has_a_problem(shape: Shape, values: list[Any]) -> None:
    problems = [value for value in values if value is not None and shape.problem_with(value, "value") is not None]
    try:
        column = shape.column(values)
    except Misfit:
        assert problems
        return
    assert not problems
    assert [value is None for value in column.to_pylist()] == [value is None for value in values]
