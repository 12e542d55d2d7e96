"""Each column type, in each position, with extreme values, into each sink, read back by foreign readers.

extreme-values.md has what each reader gives. A difference from it is a defect here or there.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres
from tests.worlds.arrow_readers import by_duckdb, by_polars, by_spark
from tests.worlds.dynamo_world import items_of
from tests.worlds.extremes import (
    KEYED,
    POSITIONS,
    UNFIT,
    canonical,
    differences,
    extremes,
    kind_of,
    of_json,
    rows_of_extremes,
    schema,
)
from tests.worlds.iceberg_world import catalog_at
from tests.worlds.new_topics import new_topic
from tests.worlds.psql_reader import by_psql
from tests.worlds.topic_world import committed
from tests.worlds.world import World
from tidemark.kinds import SINKS

PAGE = Path(__file__).with_name("extreme-values.md")
LIMITS = {
    ("table of PostgreSQL", "psql"): {f"{kind}_{inner}" for kind in ("float", "double") for inner in POSITIONS[1:]}
}
KEY: Final = [f"{kind}_top" for kind in KEYED]
ONE_FOR_EACH_KEY: Final = ("Delta table with a key", "Iceberg table with a key", "table of PostgreSQL")
TOTALS: Final = {
    "records": "count", "sum_of": "sum(long_top)", "most": "max(decimal_top)", "first": "min(date_top)",
    "last": "max(time_top)", "word": "max(text_top)",
}  # fmt: skip
FLOATS: Final = {"least": "min(float_top)", "most": "max(double_top)"}  # which DynamoDB has no copy of
MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld, postgres: Postgres, dynamodb: DynamoDB, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline with a sink of every kind, the one of the example package too."""
    monkeypatch.setitem(SINKS, "toy", "tidemark_toy")
    with postgres.temporary_database("warehouse") as warehouse:
        made = make_world(partitions=1, targets={"warehouse": warehouse, "dynamodb": dynamodb.connection()})
        made.postgres, made.dynamodb, made.items = postgres, dynamodb.client(), f"extremes{uuid4().hex[:12]}"
        made.copy = new_topic(made.broker, 1)
        made.settings = {
            "decode": {"format": "avro", "schema": schema()}, "kafka": {"slice": {"max_records": 10_000}},
            "event_time": {}, "on_error": "dead_letter", "max_dead_letters": "100%", "sinks": sinks(made),
        }  # fmt: skip
        made.write_pipeline()
        yield made


def sinks(world: Any) -> list[dict[str, Any]]:
    created = {"auto_create": True}
    table = {"connection": "warehouse", **created}
    lake = {"layout": "raw/{stream}/%Y/%m/%d"}
    iceberg = {**table, "warehouse": str(world.folder / "warehouse"), "max_objects": 1_000}
    parts = ["text_top", "date_top", "bool_top", "int_top", "long_top", "month(time_top)", "truncate(1000, int_top)",
             "bucket(4, long_top)", "truncate(2, text_top)"]  # fmt: skip
    copy = {"dynamodb": {"connection": "dynamodb", "table": world.items, **created}}
    return [
        world.lake_entry(),
        {"files": {"name": "lines", "root": str(world.folder / "lines"), "format": "jsonl", **lake}},
        {"files": {"name": "avro", "root": str(world.folder / "avro"), "format": "avro", **lake}},
        {"postgres": {**table, "table": "extremes", "key": KEY}},
        {"totals": {**table, "table": "words", "aggregate": {"group_by": ["text_top"], "values": TOTALS},
                    "served_in": copy}},
        {"totals": {**table, "name": "keys", "table": "keys", "aggregate": {"group_by": KEY, "values": FLOATS}}},
        {"topic": {"bootstrap_servers": world.broker.bootstrap_servers, "topic": world.copy}},
        {"iceberg": {**iceberg, "table": "lake.extremes", "partition_by": parts}},
        {"iceberg": {**iceberg, "name": "current", "table": "lake.current", "key": KEY,
                     "partition_by": ["bucket(2, text_top)", "bucket(2, long_top)"]}},
        {"delta": {"location": str(world.folder / "delta"), **created}},
        {"delta": {"name": "keyed", "location": str(world.folder / "keyed"), "key": KEY, "buckets": 2, **created}},
        {"toy": {"folder": str(world.folder / "toy")}},
    ]  # fmt: skip


@pytest.mark.thorough
def test_every_sink_has_the_same_rows_and_dead_letters_and_readers_agree(world: Any) -> None:
    records = list(extremes())
    world.send(*(record.value for record in records), key=b"k")
    world.ok("run", "demo", "--run-key", "one")
    unfit = [offset for offset, record in enumerate(records) if record.row is None]
    assert len(unfit) == 4 * len(UNFIT) + 2
    letters = {name: letters_of(world, name) for name in names_of(world)}
    assert [offset for offset, _ in letters["files"]] == unfit
    assert all(kept == letters["files"] for kept in letters.values()), "I33 one record costs one record"
    world.send(*(record.value for record in records if record.row is not None), key=b"k")  # each key once more
    world.ok("run", "demo", "--run-key", "two")
    different = {
        (sink, reader): differences(rows, times=1 if sink in ONE_FOR_EACH_KEY else 2)
        for (sink, reader), rows in answers(world).items()
    } | different_totals(world)
    wrong = {place: given for place, given in different.items() if set(given) != LIMITS.get(place, set())}
    assert not wrong, f"{wrong}"
    readers: dict[tuple[str, str], list[str]] = {}
    for sink, reader in sorted(different):
        readers.setdefault((sink, "1" if LIMITS.get((sink, reader)) else ""), []).append(reader)
    lines = [f"| {sink} | {', '.join(names)} | {limit} |" for (sink, limit), names in readers.items()]
    assert [line for line in PAGE.read_text().splitlines() if line in lines] == lines


def different_totals(world: Any) -> dict[tuple[str, str], list[str]]:
    """The totals that a reader finds, and the copy of them in DynamoDB, where they are not those of the rows."""
    dsn = world.targets["warehouse"]
    words = [of_psql(row, {"sum_of": "long", **MEANT}) for row in by_psql(world.postgres, dsn, "SELECT * FROM words")]
    keys = [
        of_psql(row, {"least": "float", "most": "double"}) for row in by_psql(world.postgres, dsn, "SELECT * FROM keys")
    ]
    items = [of_item(item) for item in items_of(world.dynamodb, world.items) if "_rows" in item]
    expected_words, expected_keys = by_text(), by_key()
    return {
        ("totals", "psql"): missing(expected_words, words) + missing(expected_keys, keys),
        ("copy of totals in DynamoDB", "boto3"): missing(expected_words, items),
    }


MEANT: Final = {"most": "decimal", "first": "date", "last": "time", "word": "text", "records": "long"}


def by_text() -> list[dict[str, Any]]:
    """The totals of the rows of each text; each row was sent twice."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of_extremes():
        groups[row["text_top"]].append(row)
    return [
        {
            "text_top": text, "_rows": 2 * len(rows), "records": 2 * len(rows),
            "sum_of": 2 * sum(row["long_top"] for row in rows), "most": max(row["decimal_top"] for row in rows),
            "first": min(row["date_top"] for row in rows), "last": max(row["time_top"] for row in rows), "word": text,
        }
        for text, rows in groups.items()
    ]  # fmt: skip


def by_key() -> list[dict[str, Any]]:
    """The totals of each key, which one row has; NaN is no value for them."""
    return [
        {name: row[name] for name in KEY}
        | {"_rows": 2, "least": counted(row["float_top"]), "most": counted(row["double_top"])}
        for row in rows_of_extremes()
    ]


def counted(value: float | None) -> float | None:
    """A number as totals have it: NaN is no value, and the zeros are equal."""
    return None if value is None or value != value else value + 0.0


def missing(expected: list[dict[str, Any]], given: list[dict[str, Any]]) -> list[str]:
    """The totals that only one side has."""
    wanted, got = ({str(sorted(canonical(row).items())) for row in rows} for rows in (expected, given))
    assert (len(expected), len(given)) == (len(wanted), len(got))
    return [*(f"not given: {row[:300]}" for row in wanted - got), *(f"given: {row[:300]}" for row in got - wanted)]


def names_of(world: World) -> list[str]:
    return [settings.get("name", kind) for sink in world.settings["sinks"] for kind, settings in sink.items()]


def letters_of(world: World, sink: str) -> list[tuple[int, str]]:
    """Offset and reason of each dead letter that a sink keeps."""
    letters = world.json("dead-letters", "demo", "--sink", sink, "--show", "--limit", "1000")["records"]
    return sorted((letter["offset"], letter["reason"]) for letter in letters)


def answers(world: Any) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows that each reader gives of each sink."""
    folder, dsn = world.folder, world.targets["warehouse"]
    paths = {name: [str(path) for path in world.data_paths("--sink", name)] for name in ("files", "lines", "avro")}
    listed = ", ".join(f"'{path}'" for path in paths["files"])
    with catalog_at(dsn) as catalog:
        iceberg = {name: catalog.load_table(f"lake.{name}") for name in ("extremes", "current")}
        given = {("Iceberg table", "PyIceberg"): rows_of(iceberg["extremes"].scan().to_arrow())}
        given["Iceberg table with a key", "PyIceberg"] = rows_of(iceberg["current"].scan().to_arrow())
    spark = by_spark(
        folder, dsn,
        {
            "files of Parquet": paths["files"],
            "Iceberg table": "SELECT * FROM tidemark.lake.extremes",
            "Iceberg table with a key": "SELECT * FROM tidemark.lake.current",
            "Delta table": f"SELECT * FROM delta.`{folder}/delta`",
            "Delta table with a key": f"SELECT * FROM delta.`{folder}/keyed`",
        },
    )  # fmt: skip
    duckdb = by_duckdb(
        folder,
        {
            "files of Parquet": f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false)",
            "Iceberg table": f"SELECT * FROM iceberg_scan('{iceberg['extremes'].metadata_location.removeprefix('file://')}')",
            "Iceberg table with a key": "SELECT * FROM iceberg_scan("
            f"'{iceberg['current'].metadata_location.removeprefix('file://')}')",
            "Delta table": f"SELECT * FROM delta_scan('{folder}/delta')",
            "Delta table with a key": f"SELECT * FROM delta_scan('{folder}/keyed')",
        },
    )
    polars = by_polars(folder, {"files of Parquet": paths["files"]})
    for reader, tables in (("Spark", spark), ("DuckDB", duckdb), ("polars", polars)):
        given |= {(sink, reader): rows_of(table) for sink, table in tables.items()}
    for sink, name in (("Delta table", "delta"), ("Delta table with a key", "keyed")):
        given[sink, "deltalake"] = rows_of(DeltaTable(f"{folder}/{name}").to_pyarrow_table())
    given["table of PostgreSQL", "psql"] = [
        of_psql(row) for row in by_psql(world.postgres, dsn, "SELECT * FROM extremes")
    ]
    lines = [json.loads(line)["data"] for path in paths["lines"] for line in lines_of(Path(path))]
    given["files of JSON lines", "json"] = [of_lines(row) for row in lines]
    messages = committed(world.broker.bootstrap_servers, world.copy)
    given["topic", "json"] = [of_lines(json.loads(message.value() or b"")) for message in messages]
    records = [json.loads(path.read_text()) for path in (folder / "toy" / "_manifests" / "demo").glob("*.json")]
    objects = [part["path"] for record in records for part in record["objects"] if part["kind"] == "data"]
    toy = [line for path in objects for line in (folder / "toy" / path).read_text().splitlines()]
    given["the example package", "json"] = [of_lines(json.loads(line)["data"]) for line in toy]
    given["files of Avro", "fastavro"] = [row for path in paths["avro"] for row in of_avro(Path(path))]
    return given


def of_avro(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def of_lines(row: dict[str, Any]) -> dict[str, Any]:
    return {column: of_json(kind_of(column), value) for column, value in row.items()}


def of_psql(row: dict[str, str | None], types: dict[str, str] | None = None) -> dict[str, Any]:
    """Text as the types of the columns have it; lists, structs and maps are JSON, ``types`` are those of totals."""
    return {
        column: of_text((types or {}).get(column) or kind_of(column), column, text)
        for column, text in row.items()
        if column == "_rows" or not column.startswith("_")
    }


def of_text(kind: str, column: str, text: str | None) -> Any:
    if text is None:
        return None
    if column == "keys" or column.endswith(POSITIONS[1:]):
        return of_json(kind, json.loads(text))
    match kind:
        case "bool":
            return text == "t"
        case "int" | "long":
            return int(text)
    return of_json(kind, text)


def of_item(item: dict[str, Any]) -> dict[str, Any]:
    """Dates and times are texts there."""
    named = {name: value for name, value in item.items() if name == "_rows" or not name.startswith("_")}
    return {name: of_json(MEANT.get(name, "text"), value) for name, value in named.items()}
