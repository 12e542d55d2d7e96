"""Each column type, in each position, with extreme values, into each sink, read back by foreign readers.

docs/extreme-values.md has what each reader gives. A difference from it is a defect here or there.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from psycopg.rows import dict_row

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.postgres import Postgres
from tests.worlds.arrow_readers import by_duckdb, by_polars, by_spark
from tests.worlds.extremes import POSITIONS, UNFIT, differences, extremes, kind_of, of_json, schema, single
from tests.worlds.iceberg_world import catalog_at
from tests.worlds.new_topics import new_topic
from tests.worlds.topic_world import committed
from tests.worlds.world import World
from tidemark.kinds import SINKS

PAGE = CHECKOUT / "docs" / "extreme-values.md"
LIMITS = {
    ("table of PostgreSQL", "psql"): {f"{kind}_{inner}" for kind in ("float", "double") for inner in POSITIONS[1:]}
}
MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline with a sink of every kind, the one of the example package too."""
    monkeypatch.setitem(SINKS, "toy", "tidemark_toy")
    with postgres.temporary_database("warehouse") as warehouse:
        made = make_world(partitions=1, targets={"warehouse": warehouse})
        made.copy = new_topic(made.broker, 1)
        made.settings = {
            "decode": {"format": "avro", "schema": schema()}, "kafka": {"slice": {"max_records": 10_000}},
            "event_time": {}, "on_error": "dead_letter", "max_dead_letters": "100%", "sinks": sinks(made),
        }  # fmt: skip
        made.write_pipeline()
        yield made


def sinks(world: Any) -> list[dict[str, Any]]:
    key, created = ["n", "text_top"], {"auto_create": True}
    table = {"connection": "warehouse", **created}
    lake = {"layout": "raw/{stream}/%Y/%m/%d"}
    iceberg = {**table, "warehouse": str(world.folder / "warehouse"), "max_objects": 1_000}
    parts = ["text_top", "date_top", "bool_top", "month(time_top)"]
    totals = {"records": "count", "double": "max(double_top)", "decimal": "sum(decimal_top)", "long": "sum(long_top)"}
    return [
        world.lake_entry(),
        {"files": {"name": "lines", "root": str(world.folder / "lines"), "format": "jsonl", **lake}},
        {"files": {"name": "avro", "root": str(world.folder / "avro"), "format": "avro", **lake}},
        {"postgres": {**table, "table": "extremes", "key": key}},
        {"totals": {**table, "table": "t", "aggregate": {"group_by": ["text_top"], "window": "1h", "values": totals}}},
        {"topic": {"bootstrap_servers": world.broker.bootstrap_servers, "topic": world.copy}},
        {"iceberg": {**iceberg, "table": "lake.extremes", "partition_by": parts}},
        {"iceberg": {**iceberg, "name": "current", "table": "lake.current", "key": key,
                     "partition_by": [f"bucket(2, {column})" for column in key]}},
        {"delta": {"location": str(world.folder / "delta"), **created}},
        {"delta": {"name": "keyed", "location": str(world.folder / "keyed"), "key": key, "buckets": 2, **created}},
        {"toy": {"folder": str(world.folder / "toy")}},
    ]  # fmt: skip


def test_every_sink_has_the_same_rows_and_dead_letters_and_readers_agree(world: Any) -> None:
    records = list(extremes())
    world.send(*(record.value for record in records), key=b"k")
    done = world.here("run", "demo")
    assert done.exit_code == 0, done.stderr[-3000:]
    unfit = [offset for offset, record in enumerate(records) if record.row is None]
    assert len(unfit) == 4 * len(UNFIT) + 1
    letters = {name: letters_of(world, name) for name in names_of(world)}
    assert [offset for offset, _ in letters["files"]] == unfit
    assert all(kept == letters["files"] for kept in letters.values()), "I33 one record costs one record"
    different = {place: differences(rows) for place, rows in answers(world).items()}
    assert {place: set(columns) for place, columns in different.items() if columns} == LIMITS, different
    lines = [f"| {sink} | {reader} | {'1' if LIMITS.get((sink, reader)) else ''} |" for sink, reader in different]
    assert [line for line in PAGE.read_text().splitlines() if line in lines] == sorted(lines)


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
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        stored = connection.execute("SET timezone = 'UTC'; SELECT * FROM extremes")
        stored.nextset()
        given["table of PostgreSQL", "psql"] = [of_postgres(row) for row in stored.fetchall()]
    lines = [json.loads(line)["data"] for path in paths["lines"] for line in lines_of(Path(path))]
    given["files of JSON lines", "json"] = [of_lines(row) for row in lines]
    messages = committed(world.broker.bootstrap_servers, world.copy)
    given["topic", "json"] = [of_lines(json.loads(message.value() or b"")) for message in messages]
    [record] = (folder / "toy" / "_manifests" / "demo").glob("*.json")
    objects = [part["path"] for part in json.loads(record.read_text())["objects"] if part["kind"] == "data"]
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


def of_postgres(row: dict[str, Any]) -> dict[str, Any]:
    """Lists, structs and maps are JSON there, and a float is the shortest text that stands for it."""
    nested = {
        column: of_json(kind_of(column), value) for column, value in row.items() if isinstance(value, dict | list)
    }
    return {**row, **nested, "float_top": single(row["float_top"])}
