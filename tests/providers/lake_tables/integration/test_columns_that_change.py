"""Columns of a table of a lake that get wider, or that take no null: what is done, what is refused with a way out."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from tests.worlds.arrow_readers import by_duckdb
from tests.worlds.delta_world import DeltaWorld
from tests.worlds.iceberg_world import IcebergWorld
from tidemark.providers.lake_tables.table_columns import stored_columns

pytestmark = pytest.mark.thorough

LakeWorld = DeltaWorld | IcebergWorld
Make = Callable[..., LakeWorld]
AT = "2024-03-01T10:00:00Z"
NARROW = (
    "n INT NOT NULL, k INT NOT NULL, at TIMESTAMP NOT NULL, f FLOAT, d DECIMAL(5,2), "
    "s STRUCT<a: INT, b: STRUCT<c: FLOAT>>, l ARRAY<INT>, m MAP<STRING, DECIMAL(4,1)>"
)
WIDE = (
    "n BIGINT NOT NULL, k BIGINT NOT NULL, at TIMESTAMP NOT NULL, f DOUBLE, d DECIMAL(38,2), "
    "s STRUCT<a: BIGINT, b: STRUCT<c: DOUBLE>>, l ARRAY<BIGINT>, m MAP<STRING, DECIMAL(20,1)>, new STRING"
)
NAMES = ["n", "k", "f", "d", "s", "l", "m"]
SMALL = {"k": 7, "f": 0.5, "d": 999.99, "s": {"a": 2**31 - 1, "b": {"c": 0.25}}, "l": [-(2**31), None], "m": {"x": 9.5}}
LARGE = {
    "k": 2**40, "f": 1e300, "d": 10**30, "s": {"a": 2**62, "b": {"c": -1e-300}}, "l": [2**63 - 1], "m": {"x": 10**15}
}  # fmt: skip


def decode(world: LakeWorld, schema: str, *transforms: dict[str, Any]) -> None:
    world.settings |= {"decode": {"format": "json", "schema": schema}, "transform": list(transforms)}
    world.write_pipeline()


def send(world: LakeWorld, *rows: dict[str, Any]) -> None:
    world.send(*(json.dumps({"at": AT, **row}) for row in rows))


def row_of(values: dict[str, Any], n: int) -> dict[str, Any]:
    """A row as readers have it."""
    decimals = {"d": Decimal(str(values["d"])), "m": [("x", Decimal(str(values["m"]["x"])))]}
    return {**values, "n": n, **decimals}


def rows_by_pyiceberg(world: IcebergWorld) -> list[dict[str, Any]]:
    table = world.table()
    assert table is not None
    return sorted(table.scan(selected_fields=tuple(NAMES)).to_arrow().to_pylist(), key=lambda row: row["n"])


def rows_by_duckdb(world: IcebergWorld) -> list[dict[str, Any]]:
    table = world.table()
    assert table is not None
    place = table.metadata_location.removeprefix("file://")
    query = f"SELECT {', '.join(NAMES)} FROM iceberg_scan('{place}') ORDER BY n"
    return list(by_duckdb(world.folder, {"rows": query})["rows"].to_pylist())


@pytest.mark.parametrize(
    ("make", "sink"),
    [
        ("make_iceberg_world", {"partition_by": ["n"]}),
        ("make_iceberg_world", {"partition_by": ["truncate(10, n)", "bucket(4, k)"]}),
        ("make_keyed_iceberg_world", {}),
    ],
)
def test_an_iceberg_table_gets_wider_types_and_its_older_rows_have_them_too(
    request: pytest.FixtureRequest, make: str, sink: dict[str, Any]
) -> None:
    world: IcebergWorld = request.getfixturevalue(make)(iceberg=sink, partitions=1)
    decode(world, NARROW)
    send(world, {"n": 1, **SMALL}, {"n": 2, **SMALL, "k": 8})
    world.ok("run", "demo")
    decode(world, WIDE)
    send(world, {"n": 2**40, **LARGE}, {"n": 5, **SMALL, "k": 8})
    world.settings["sinks"] = world.sinks(auto_create=False)
    world.write_pipeline()
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "column n of the table is int, the rows have long" in refused.stderr
    assert "With auto_create: true int becomes long" in refused.stderr
    world.settings["sinks"] = world.sinks()
    world.write_pipeline()
    world.ok("retry", "demo")
    old, new = [row_of(SMALL, 1), row_of({**SMALL, "k": 8}, 2)], [row_of({**SMALL, "k": 8}, 5), row_of(LARGE, 2**40)]
    expected = [*(old[:1] if make == "make_keyed_iceberg_world" else old), *new]
    assert rows_by_pyiceberg(world) == expected
    assert rows_by_duckdb(world) == expected
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    assert rows_by_pyiceberg(world) == expected, "rows that are written again have the wider types"
    decode(world, NARROW)
    send(world, {"n": 6, **SMALL, "k": 9})
    world.ok("run", "demo")
    assert rows_by_duckdb(world) == sorted([*expected, row_of({**SMALL, "k": 9}, 6)], key=lambda row: row["n"])
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_delta_table_keeps_its_types_and_a_column_of_another_name_is_the_way_out(make_delta_world: Make) -> None:
    world = make_delta_world(partitions=1)
    decode(world, "n INT NOT NULL, at TIMESTAMP NOT NULL")
    send(world, {"n": 1})
    world.ok("run", "demo")
    wide = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"
    decode(world, wide)
    send(world, {"n": 2**40})
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "column n of the table is integer, the rows have long" in refused.stderr
    assert "give the column another name in a transform and let auto_create add it" in refused.stderr
    decode(world, wide, {"select": ["n AS n_long", '"at"']})
    world.ok("retry", "demo")
    assert sorted((row["n"], row["n_long"]) for row in world.all_rows() if row["n_long"]) == [(None, 2**40)]
    assert world.ok("audit", "demo", "--deep") == ""


STRICT = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, s STRUCT<a: INT, b: INT>, l ARRAY<STRING>"


def strict_iceberg(world: IcebergWorld) -> None:
    """A table of STRICT by another program, which takes null for ``s`` and ``l`` alone."""
    columns = stored_columns({"format": "json", "schema": STRICT}, [])
    inner = StructType(NestedField(101, "a", IntegerType(), required=True), NestedField(102, "b", IntegerType()))
    special = {
        "n": (LongType(), True), "name": (StringType(), True), "s": (inner, False),
        "l": (ListType(103, StringType(), element_required=True), False),
    }  # fmt: skip
    from tidemark.providers.iceberg.columns import type_of

    fields = [
        NestedField(at, field.name, *special.get(field.name, (type_of(field.type), False)))
        for at, field in enumerate(columns, 1)
    ]
    with world.catalog() as catalog:
        catalog.create_namespace("sales")
        catalog.create_table(world.written, Schema(*fields), location=str(world.location))


def strict_delta(world: DeltaWorld) -> None:
    columns = stored_columns({"format": "json", "schema": STRICT}, [])
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    special = {
        "n": pa.field("n", pa.int64(), nullable=False), "name": pa.field("name", pa.string(), nullable=False),
        "s": pa.field("s", inner), "l": pa.field("l", pa.list_(pa.field("element", pa.string(), nullable=False))),
    }  # fmt: skip
    schema = pa.schema([special.get(field.name, field) for field in columns])
    DeltaTable.create(world.location, schema=schema, partition_by=["_manifest_id"])


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_null_that_the_table_does_not_take_costs_its_record_in_every_sink(
    request: pytest.FixtureRequest, kind: str
) -> None:
    world: Any = request.getfixturevalue(f"make_{kind}_world")(
        has_lake=True, partitions=1, **({"iceberg": {"partition_by": []}} if kind == "iceberg" else {})
    )
    (strict_iceberg if kind == "iceberg" else strict_delta)(world)
    world.settings |= {"on_error": "dead_letter", "max_dead_letters": "100%"}
    decode(world, STRICT)
    good = {"name": "a", "s": {"a": 1}, "l": ["x"]}
    send(
        world, {"n": 0, **good}, {"n": 1, **good, "name": None}, {"n": 2, **good, "s": {"b": 1}},
        {"n": 3, **good, "l": ["x", None]}, {"n": 4, "name": "b"}, {"n": 5, **good, "l": [], "s": {"a": 2, "b": 3}},
    )  # fmt: skip
    world.ok("run", "demo")
    letters = {
        sink: [(letter["offset"], letter["reason"]) for letter in shown(world, sink)] for sink in ("files", kind)
    }
    why = f"is null, which the table of sink {kind} does not take"
    assert letters["files"] == letters[kind] == [
        (1, f"field name: {why}"), (2, f"field s.a: {why}"), (3, f"field l.element: {why}")
    ]  # fmt: skip
    assert sorted(row["n"] for row in world.all_rows() if row["n"] is not None) == [0, 4, 5]
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    world.settings["decode"] |= {"tombstones": ["n"]}
    world.write_pipeline()
    send(world, {"n": 7, **good})
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    column = "name" if kind == "iceberg" else "at"
    assert f"column {column} of the table may not be null, and a tombstone has no value for it" in refused.stderr
    decode(world, STRICT.replace(" name STRING,", ""))
    refused = world.here("retry", "demo")
    assert "column name of the table is NOT NULL, but the rows have no such column" in refused.stderr
    assert "ALTER COLUMN name DROP NOT NULL" in refused.stderr


def shown(world: Any, sink: str) -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = world.json("dead-letters", "demo", "--sink", sink, "--show")["records"]
    return letters
