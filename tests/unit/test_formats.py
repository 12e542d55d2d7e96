"""Every file format of the lake: what is written is what is read, and damage is noticed."""

import gc
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

import duckdb
import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.file_of_rows import file_of
from tidemark.decoders.base import DELETED
from tidemark.errors import ConfigurationError, Unavailable
from tidemark.model.digest import row_digest
from tidemark.paths import SUFFIXES, ObjectName
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.processing.processor import DEAD_LETTERS, METADATA
from tidemark.sinks.encoding.json_text import json_texts
from tidemark.sinks.files.settings import COMPRESSIONS, FileFormat
from tidemark.sinks.formats import json_lines
from tidemark.sinks.formats.avro import avro_schema
from tidemark.sinks.formats.base import Unreadable, format_of, open_format

PAIRS = [(name.value, compression.value) for name in FileFormat for compression in COMPRESSIONS[name]]
each_format = pytest.mark.parametrize(("name", "compression"), PAIRS, ids=str)
MOMENT = datetime(2024, 3, 1, 11, 0, 0, 5, UTC)
INNER = pa.struct([("raw", pa.binary()), ("m", pa.map_(pa.string(), pa.int64()))])
OBJECT = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("inner", pa.list_(INNER))])
FIELDS = pa.schema(
    [
        ("yes", pa.bool_()), ("tiny", pa.int8()), ("small", pa.int16()), ("whole", pa.int32()), ("long", pa.int64()),
        ("single", pa.float32()), ("double", pa.float64()), ("text", pa.string()), ("bytes", pa.binary()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("exact", pa.decimal128(38, 8)),
        ("list", pa.list_(pa.field("element", pa.string()))), ("map", pa.map_(pa.string(), pa.decimal128(5, 2))),
        ("object", OBJECT),
    ]
)  # fmt: skip
FULL = {
    "yes": True, "tiny": -128, "small": 2**15 - 1, "whole": -(2**31), "long": 2**63 - 1, "single": 0.1,
    "double": 5e-324, "text": 'q"b\\s/\n\t\x00\x1f\x7fé\u2028😀', "bytes": b"\x00\xff", "day": date(1, 1, 1),
    "at": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "exact": Decimal("0.00000001"), "list": ["a", None, ""],
    "map": [("é", Decimal("1.50")), ("", None)],
    "object": {"n": None, "at": MOMENT, "inner": [{"raw": b"1", "m": [("k", 1)]}, None, {"raw": None, "m": []}]},
}  # fmt: skip
EMPTY = {
    "yes": False, "text": "", "bytes": b"", "list": [], "map": [], "double": nan, "single": -inf, "exact": Decimal(-7),
    "object": {"n": 1, "at": None, "inner": []},
}  # fmt: skip


def table(*fields: dict[str, Any], schema: pa.Schema = FIELDS) -> pa.Table:
    """Rows at the offsets 10, 11, .. of partition 3, with the columns that every file has."""
    rows = [
        {"_topic": "t-1.x_", "_partition": 3, "_offset": 10 + number, "_timestamp": MOMENT, "_key": b"k\xff",
         "_manifest_id": 7, **row}
        for number, row in enumerate(fields)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=pa.schema([*METADATA, *schema]))


def letters() -> pa.Table:
    values = {"_value": b"{", "_headers": [{"key": "h", "value": b"\x01"}, {"key": "h", "value": None}],
              "_error_class": "schema", "_reason": 'field "x": null', "_schemas": "writer 7, reader 3"}  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"_topic": "t", "_partition": 0, "_offset": 1, "_timestamp": MOMENT, "_key": None, "_manifest_id": 7, **values},
        {
            "_topic": "t",
            "_partition": 0,
            "_offset": 2,
            "_manifest_id": 7,
            "_error_class": "value",
            "_reason": "no value",
        },
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


TABLES: dict[str, Callable[[], pa.Table]] = {
    "every type": lambda: table(FULL, {}, EMPTY, FULL),
    "only nulls": lambda: table({}, {}),
    "no rows": table,
    "no fields": lambda: table({}, {}, schema=pa.schema([])),
    "dead letters": letters,
}


@each_format
@pytest.mark.parametrize("kind", TABLES)
def test_what_was_written_is_read_back(name: str, compression: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "CHUNK_ROWS", 3)  # several members or frames in one file
    rows = TABLES[kind]()
    content, digest = file_of(rows, name, compression)
    same = open_format(name, compression)
    assert same.count(io.BytesIO(content)) == rows.num_rows == digest.count
    assert same.digest(io.BytesIO(content)) == digest
    assert same.places(io.BytesIO(content)).to_pylist() == rows.select(["_topic", "_partition", "_offset"]).to_pylist()
    if name != "jsonl":
        assert digest == row_digest(rows), "types and all"


@each_format
def test_a_file_that_was_read_is_still_open_for_whoever_sends_it(name: str, compression: str) -> None:
    content, _ = file_of(table(FULL, EMPTY), name, compression)
    same = open_format(name, compression)
    for read in (same.count, same.digest, same.places):
        with SpooledTemporaryFile() as spooled:
            spooled.write(content)
            spooled.seek(0)
            read(cast("BinaryIO", spooled))
            gc.collect()
            assert spooled.seek(0, 2) == len(content)


@each_format
def test_rows_in_another_order_have_the_same_digest_and_other_rows_another(name: str, compression: str) -> None:
    rows = table(FULL, EMPTY, {})
    _, digest = file_of(rows, name, compression)
    assert file_of(rows.take([2, 0, 1]), name, compression)[1] == digest
    assert file_of(table(FULL, EMPTY, {"long": 0}), name, compression)[1] != digest
    assert file_of(table(FULL, EMPTY), name, compression)[1] != digest


@each_format
def test_a_file_that_was_cut_short_or_damaged_is_unreadable_or_has_another_digest(name: str, compression: str) -> None:
    content, digest = file_of(table(*[FULL, EMPTY] * 20), name, compression)
    same = open_format(name, compression)
    half = len(content) // 2
    flipped = content[:half] + bytes([content[half] ^ 0x55]) + content[half + 1 :]
    damages = [content[:-1], content[:half], b"", b"garbage\n"]
    if name != "parquet":  # the middle of so small a file is in its statistics, which no row depends on
        damages.append(flipped)
    for damaged in damages:
        try:
            digest_now = same.digest(io.BytesIO(damaged))
        except Unreadable:
            continue
        assert digest_now != digest


class Unreachable(io.BytesIO):
    """A file in a store that stopped answering."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise Unavailable(f"the store does not answer ({size} bytes were asked for)")


@each_format
def test_a_store_that_does_not_answer_is_no_damage(name: str, compression: str) -> None:
    content, _ = file_of(table(FULL), name, compression)
    same = open_format(name, compression)
    for ask in (same.count, same.digest, same.places):
        with pytest.raises(Unavailable):
            ask(Unreachable(content))


def test_the_name_of_a_file_says_its_format() -> None:
    suffixes = {open_format(*pair).suffix for pair in PAIRS}
    assert suffixes == set(SUFFIXES)
    for name, compression in PAIRS:
        made = open_format(name, compression)
        key = f"raw/t/{ObjectName(1, 1, (0, 0, 9), 0, made.suffix)}"
        assert type(format_of(key)) is type(made)
        content, digest = file_of(table(FULL), name, compression)
        assert format_of(key).digest(io.BytesIO(content)) == digest
    with pytest.raises(Unreadable, match="is unknown, because Tidemark does not name files like this"):
        format_of("raw/t/part-0.parquet")


# JSON lines


def test_a_json_line_has_place_key_and_data_and_every_value_as_the_documentation_says() -> None:
    content, _ = file_of(table(FULL), "jsonl", "none")
    [line] = content.decode().split("\n")[:-1]
    assert line.startswith('{"topic":"t-1.x_","partition":3,"offset":10,"timestamp":"2024-03-01T11:00:00.000005Z",')
    read = json.loads(line)
    assert read["key"] == "a/8="
    assert read["data"] == {
        "yes": True, "tiny": -128, "small": 2**15 - 1, "whole": -(2**31), "long": 2**63 - 1, "single": 0.1,
        "double": 5e-324, "text": FULL["text"], "bytes": "AP8=", "day": "0001-01-01",
        "at": "9999-12-31T23:59:59.999999Z", "exact": "1E-8", "list": ["a", None, ""], "map": {"é": "1.50", "": None},
        "object": {"n": None, "at": "2024-03-01T11:00:00.000005Z",
                   "inner": [{"raw": "MQ==", "m": {"k": 1}}, None, {"raw": None, "m": {}}]},
    }  # fmt: skip
    assert list(read) == ["topic", "partition", "offset", "timestamp", "key", "data"]


def test_what_json_has_no_number_for_is_text_and_null_is_null() -> None:
    content, _ = file_of(
        table({"double": nan}, {"double": inf}, {"double": -inf}, {"double": -0.0}, {}), "jsonl", "none"
    )
    doubles = [json.loads(line)["data"]["double"] for line in content.splitlines()]
    assert doubles == ["NaN", "Infinity", "-Infinity", 0, None]


@pytest.mark.parametrize(("name", "compression"), [("parquet", "zstd"), ("jsonl", "gzip"), ("avro", "deflate")])
def test_dead_letters_are_read_back_as_they_were_with_the_columns_that_are_asked_for(
    name: str, compression: str
) -> None:
    content, _ = file_of(letters(), name, compression)
    kept = [column for column in DEAD_LETTERS.names if column != "_manifest_id"]
    for columns in (kept, ["_offset", "_reason"]):
        rows = open_format(name, compression).dead_letters(io.BytesIO(content), columns, 1)
        assert [dict(row) for row in rows] == letters().select(columns).to_pylist()
    with pytest.raises(Unreadable):
        list(open_format(name, compression).dead_letters(io.BytesIO(content[:-9]), kept, 1))


def test_dead_letters_and_tombstones_say_what_they_are() -> None:
    content, _ = file_of(letters(), "jsonl", "none")
    first, second = map(json.loads, content.splitlines())
    assert (first["value"], first["reason"]) == ("ew==", 'field "x": null')
    assert (first["error_class"], first["schemas"], second["schemas"]) == ("schema", "writer 7, reader 3", None)
    assert first["headers"] == [{"key": "h", "value": "AQ=="}, {"key": "h", "value": None}]
    assert (second["value"], second["headers"], second["timestamp"]) == (None, None, None)
    assert "data" not in first
    marked = pa.Table.from_pylist(
        [
            {**row, "_is_deleted": at == 1, "n": None}
            for at, row in enumerate(table({}, {}, schema=pa.schema([])).to_pylist())
        ],
        schema=pa.schema([*METADATA, DELETED, ("n", pa.int64())]),
    )
    content, _ = file_of(marked, "jsonl", "none")
    assert [json.loads(line)["is_deleted"] for line in content.splitlines()] == [False, True]


JSON_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
}


@pytest.mark.parametrize("kind", JSON_VALUES, ids=str)
def test_any_value_reads_back_from_its_json_text(kind: pa.DataType) -> None:
    @given(st.lists(st.none() | JSON_VALUES[kind], max_size=20), st.integers(0, 3))
    def holds(values: list[Any], skipped: int) -> None:
        texts = json_texts(pa.array(values, kind)[skipped:]).to_pylist()
        assert [json.loads(text) for text in texts] == values[skipped:]

    holds()


def test_slices_of_nested_columns_are_written_as_they_are_and_not_as_what_they_were_cut_from() -> None:
    whole = table(FULL, {}, EMPTY, FULL, {}).combine_chunks().to_batches()[0]
    for name in ("list", "map", "object"):
        column = whole.column(name)
        assert json_texts(column[1:4]).to_pylist() == json_texts(column).to_pylist()[1:4]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_duckdb_reads_json_lines(tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "CHUNK_ROWS", 7)
    content, _ = file_of(table(*[{"long": at, "text": f"r{at}"} for at in range(100)]), "jsonl", compression)
    path = tmp_path / f"x.{open_format('jsonl', compression).suffix}"
    path.write_bytes(content)
    totals = 'SELECT count(*), sum(data.long), min("offset"), max(timestamp)::TIMESTAMPTZ = $at FROM read_json($path)'
    assert duckdb.sql(totals, params={"path": str(path), "at": MOMENT}).fetchall() == [(100, 4950, 10, True)]
    if compression == "gzip":
        assert len(gzip.decompress(content).splitlines()) == 100


# Avro


def test_fastavro_reads_avro_by_the_schema_in_the_file() -> None:
    content, _ = file_of(table(FULL, {}), "avro", "deflate")
    reader = fastavro.reader(io.BytesIO(content))
    first, second = list(reader)
    assert reader.codec == "deflate"  # type: ignore[attr-defined]
    assert (first["_topic"], first["_offset"], first["_key"]) == ("t-1.x_", 10, b"k\xff")
    assert (first["at"], first["day"], first["exact"]) == (FULL["at"], date(1, 1, 1), Decimal("0.00000001"))
    assert first["map"] == {"é": Decimal("1.50"), "": None}
    assert first["object"]["inner"] == [{"raw": b"1", "m": {"k": 1}}, None, {"raw": None, "m": {}}]
    assert all(second[name] is None for name in FIELDS.names)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("flight-no", pa.int64()), "column flight-no: its name has other characters"),
        (pa.field("1st", pa.int64()), "column 1st: its name"),
        (pa.field("a", pa.struct([("é", pa.int64())])), "column a.é: its name"),
        (pa.field("m", pa.map_(pa.int64(), pa.string())), "column m: it is a map whose keys are int64"),
        (pa.field("t", pa.time64("us")), "column t: it is time64"),
    ],
)
def test_a_column_that_avro_cannot_hold_is_named(field: pa.Field, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        avro_schema(pa.schema([field]))


def test_records_of_the_same_name_in_different_places_are_different_avro_types() -> None:
    inner = pa.struct([("x", pa.int64())])
    other = pa.struct([("x", pa.string())])
    schema = pa.schema([("a", pa.struct([("r", inner)])), ("b", pa.struct([("r", other)])), ("r", pa.list_(inner))])
    fastavro.parse_schema(avro_schema(schema))


# the pipeline file


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("format: jsonl, compression: snappy", "snappy is not allowed with format jsonl; allowed: gzip, zstd, none"),
        ("format: avro, compression: gzip", "gzip is not allowed with format avro; allowed: deflate, none"),
        ("compression: deflate", "deflate is not allowed with format parquet; allowed: zstd, snappy, gzip, none"),
        ("format: json", '"json" is not allowed; did you mean "jsonl"? allowed: parquet, jsonl, avro'),
        ("format: ndjson", '"ndjson" is not allowed; did you mean "jsonl"?'),
        ("format: orc", '"orc" is not allowed; allowed: parquet, jsonl, avro'),
    ],
)
def test_a_wrong_format_or_compression_is_refused_with_what_is_allowed(
    write: Callable[..., Path], sink: str, message: str
) -> None:
    with pytest.raises(InvalidPipelines) as refused:
        load(write(pipeline(sink)), {})
    assert message in str(refused.value)


def test_a_column_that_the_format_cannot_hold_is_refused_when_the_file_is_read(write: Callable[..., Path]) -> None:
    schema = "`flight-no` INT, at TIMESTAMP"
    with pytest.raises(InvalidPipelines, match="may not have format avro: Avro cannot hold column flight-no"):
        load(write(pipeline("format: avro", schema)), {})
    assert load(write(pipeline("format: jsonl", schema)), {}).sinks[0].order()["compression"] == "gzip"


def test_a_compression_that_is_the_default_anyway_does_not_make_old_output_look_stale(
    write: Callable[..., Path],
) -> None:
    def fingerprint(sink: str) -> str:
        return load(write(pipeline(sink)), {}).fingerprint()

    assert fingerprint("format: parquet") == fingerprint("compression: zstd")
    assert fingerprint("format: jsonl") == fingerprint("format: jsonl, compression: gzip")
    assert len({fingerprint(f"format: {name}, compression: {compression}") for name, compression in PAIRS}) == len(
        PAIRS
    )


def pipeline(sink: str, schema: str = "n INT, at TIMESTAMP") -> str:
    return f"""
pipeline: demo
source:
  kafka: {{bootstrap_servers: "localhost:9092", topics: [t]}}
decode: {{format: json, schema: "{schema}"}}
event_time: {{field: at}}
sinks:
  - files: {{root: lake, {sink}}}
"""
