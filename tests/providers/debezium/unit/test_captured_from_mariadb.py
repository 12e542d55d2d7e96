"""Records that Debezium's MySQL connector wrote of MariaDB's types; docs/debezium-types.md has what they become."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from tests.providers.debezium.unit.test_debezium import batch
from tidemark.decoders.base import Decoded
from tidemark.decoders.registry import open_decoder
from tidemark.providers.debezium.json import types_inside

FOLDER = Path(__file__).parent.parent / "captured_from_mariadb"
PAGE = CHECKOUT / "docs" / "debezium-types.md"
LEAP = datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WKB = bytes.fromhex("0101000000000000000000f83f00000000000002c0")
LINE = bytes.fromhex("010200000002000000" + "00" * 16 + "000000000000f03f" * 2)
TYPES = (  # name, SQL, line of the schema, unit in `times`, the value of the first row
    ("ti", "tinyint", "SMALLINT", "", -128),
    ("b1", "tinyint(1)", "SMALLINT", "", 1),
    ("tu", "tinyint unsigned", "SMALLINT", "", 255),
    ("si", "smallint", "SMALLINT", "", -32_768),
    ("su", "smallint unsigned", "INT", "", 65_535),
    ("mi", "mediumint", "INT", "", 8_388_607),
    ("mu", "mediumint unsigned", "INT", "", 16_777_215),
    ("i", "int", "INT", "", -(2**31)),
    ("iu", "int unsigned", "BIGINT", "", 4_294_967_295),
    ("bi", "bigint", "BIGINT", "", -(2**63)),
    ("bu", "bigint unsigned", "BIGINT", "", -1),
    ("f", "float", "FLOAT", "", 1.100000023841858),
    ("d", "double", "DOUBLE", "", 0.1),
    ("de", "decimal(10,2)", "DECIMAL(10,2)", "", Decimal("-12.30")),
    ("de0", "decimal(65,30)", "STRING", "", "12345678901234567890.123456789012345678901234567890"),
    ("bt", "bit(1)", "BOOLEAN", "", True),
    ("bt12", "bit(12)", "BINARY", "", b"\x01\x08"),
    ("dt", "date", "DATE", "days", date(2024, 2, 29)),
    ("tm", "time", "BIGINT", "", 45_296_000_000),
    ("tm6", "time(6)", "BIGINT", "", -3_020_398_000_001),
    ("dtt", "datetime", "TIMESTAMP", "ms", LEAP),
    ("dt3", "datetime(3)", "TIMESTAMP", "ms", LEAP.replace(microsecond=123_000)),
    ("dt6", "datetime(6)", "TIMESTAMP", "us", LEAP.replace(microsecond=123_456)),
    ("ts", "timestamp", "TIMESTAMP", "", LEAP),
    ("ts6", "timestamp(6)", "TIMESTAMP", "", LEAP.replace(microsecond=123_456)),
    ("y", "year", "INT", "", 2024),
    ("c", "char(5)", "STRING", "", "ab"),
    ("vc", "varchar(20)", "STRING", "", "žluť 🐎"),
    ("tx", "text", "STRING", "", "text"),
    ("bin", "binary(4)", "BINARY", "", b"\x01\x02\0\0"),
    ("vbin", "varbinary(8)", "BINARY", "", b"\0\xc3\xbf"),
    ("bl", "blob", "BINARY", "", b"blob"),
    ("en", "enum('a','b','c d')", "STRING", "", "b"),
    ("st", "set('x','y','z')", "STRING", "", "x,z"),
    ("js", "json", "STRING", "", '{"a": [1.50, null]}'),
    ("pt", "point", "STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>", "",
     {"x": 1.5, "y": -2.25, "wkb": WKB, "srid": None}),
    ("ln", "linestring", "STRUCT<wkb: BINARY, srid: INT>", "", {"wkb": LINE, "srid": None}),
    ("gen", "generated, stored", "INT", "", -256),
)  # fmt: skip
UNITS = {name: unit for name, _, _, unit, _ in TYPES if unit}
Row = dict[str, Any]


def captured(form: str, table: str = "types") -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (FOLDER / f"{form}.jsonl").read_text().splitlines()]
    return [record for record in records if record["topic"].rpartition(".")[2] == table]


def decoded(records: list[dict[str, Any]], columns: dict[str, str], **envelope: Any) -> Decoded:
    schema = ", ".join(f"{name} {line}" for name, line in {"id": "INT NOT NULL", **columns}.items())
    settings = {"format": "json", "schema": schema, "tombstones": ["id"], "envelope": {"kind": "debezium", **envelope}}
    pairs = [tuple(record[part] and record[part].encode() for part in ("key", "value")) for record in records]
    return open_decoder(settings).decode(batch(pairs))  # type: ignore[arg-type]


def of_json(**others: str) -> Decoded:
    columns = {name: line for name, _, line, _, _ in TYPES} | others
    return decoded(captured("json"), columns, times=UNITS, decimals="base64")


def test_each_type_is_as_the_page_says() -> None:
    page = PAGE.read_text()
    together: dict[tuple[str, str], list[str]] = {}
    for _, sql, line, unit, _ in TYPES:
        together.setdefault((line, unit), []).append(f"`{sql}`")
    made = "\n".join(f"| {', '.join(types)} | `{line}` | {unit} |" for (line, unit), types in together.items())
    assert made in page, f"make the page's table this:\n{made}"


def test_the_schema_beside_a_record_proposes_these_types() -> None:
    types = types_inside({"kind": "debezium"}, json.loads(captured("schemas")[0]["value"]))
    assert types == {"id": "INT", **{name: line for name, _, line, _, _ in TYPES}}


def test_values_of_each_type_are_those_of_the_source() -> None:
    made = decoded(captured("schemas"), {name: line for name, _, line, _, _ in TYPES})
    assert made.errors == ()
    rows = {row["id"]: row for row in made.rows.to_pylist()}
    assert rows[1] == {"id": 1, **{name: value for name, _, _, _, value in TYPES}}


def test_without_a_schema_values_are_the_same_but_a_large_decimal_has_no_scale() -> None:
    made = of_json()
    assert made.errors == ()
    first = made.rows.to_pylist()[0]
    assert first == {
        "id": 1, **{name: value for name, _, _, _, value in TYPES}, "de0": "CHJ/Y2mq+DyhUCZ0evjH8ZbOPwrS"
    }  # fmt: skip
    [error] = of_json(de0="DECIMAL(38,18)").errors
    assert "does not fit DECIMAL(38,18)" in error.reason


def test_changes_of_a_key_deletions_and_tombstones_are_read() -> None:
    made = of_json()
    assert made.deleted is not None
    ids = [(row["id"], gone) for row, gone in zip(made.rows.to_pylist(), made.deleted.to_pylist(), strict=True)]
    assert ids == [(1, False), (2, False), (3, False), (4, False), (2, False), (2, True), (2, True), (30, False),
                   (4, True), (4, True)]  # fmt: skip


def test_zero_dates_are_null_or_the_first_of_1970_as_the_connector_writes_them() -> None:
    third = of_json().rows.to_pylist()[2]
    assert (third["dt"], third["dtt"], third["dt3"], third["dt6"]) == (None, None, None, None)
    assert (third["ts"], third["ts6"], third["y"]) == (EPOCH, EPOCH, 1900)
    columns = {"dt": "DATE NOT NULL", "dtt": "TIMESTAMP NOT NULL", "dt6": "TIMESTAMP NOT NULL", "ts": "TIMESTAMP"}
    [row] = decoded(captured("json", "zero"), columns, times={"dtt": "ms", "dt6": "us"}).rows.to_pylist()
    assert row == {"id": 1, "dt": EPOCH.date(), "dtt": EPOCH, "dt6": EPOCH, "ts": EPOCH}


def test_other_modes_of_the_connector_are_read_as_the_file_says() -> None:
    columns = {
        "bu": "DECIMAL(20,0)", "de": "DECIMAL(10,2)", "de0": "STRING", "tm": "INT", "dt6": "TIMESTAMP", "bl": "STRING"
    }  # fmt: skip
    made = decoded(captured("other_modes"), columns, times={"dt6": "ms"})
    assert made.errors == ()
    first = made.rows.to_pylist()[0]
    assert first == {
        "id": 1, "bu": Decimal(2**64 - 1), "de": Decimal("-12.30"), "tm": 45_296_000, "bl": b"blob".hex(),
        "de0": "12345678901234567890.123456789012345678901234567890", "dt6": LEAP.replace(microsecond=123_000),
    }  # fmt: skip
    assert made.rows.to_pylist()[3]["bu"] == Decimal(2**63)


@pytest.mark.parametrize("form", ["json", "schemas"])
def test_changes_of_a_table_tell_nothing_about_a_row(form: str) -> None:
    records = [json.loads(line) for line in (FOLDER / f"{form}.jsonl").read_text().splitlines()]
    changes = [record for record in records if "." not in record["topic"]]
    made = decoded(changes, {})
    assert made.filtered.to_pylist() == list(range(len(changes)))
