"""Columns, and fields inside them, come into a table of a lake while it has rows; Spark reads it, and rewrites it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds import delta_readers, iceberg_readers
from tests.worlds.asked_spark import AskedSpark
from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld
from tests.worlds.iceberg_world import IcebergWorld, KeyedIcebergWorld

LakeWorld = DeltaWorld | IcebergWorld
Make = Callable[..., LakeWorld]
PLAIN = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT NOT NULL"
NESTED = "s STRUCT<{}>, l ARRAY<STRUCT<{}>>, ll ARRAY<ARRAY<STRUCT<{}>>>, m MAP<STRING, STRUCT<{}>>"
NARROW = f"{PLAIN}, {NESTED.replace('{}', 'a: INT')}"
# The new field stands before the old one, and `x.y` is a name, not a path.
WIDE = f"{PLAIN}, {NESTED.replace('{}', 'b: STRING, a: INT')}, `x.y` INT, more STRUCT<z: ARRAY<STRUCT<q: INT>>>"
OLD = {"a": 1}
NEW = {"a": 2, "b": "x"}
NESTED_NAMES = ("s", "l", "ll", "m")


def shapes(struct: dict[str, Any]) -> list[dict[str, Any]]:
    """Values of the nested columns with each part of them null, empty, or there."""
    return [
        {},
        {"s": {}, "l": [], "ll": [], "m": {}},
        {"s": {"a": None}, "l": [None], "ll": [None, []], "m": {"i": None}},
        {"s": struct, "l": [None, struct], "ll": [[None, struct], None], "m": {"i": struct, "j": None}},
    ]


def send(world: LakeWorld, struct: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Send a record of each shape, of a key of its own."""
    sent = []
    for shape in shapes(struct):
        number = world.produced
        world.produced += 1
        sent.append({"n": number, "at": "2024-03-01T00:00:00Z", "k": number, **shape, **more})
    world.send(*map(json.dumps, sent))
    return sent


def decode(world: LakeWorld, schema: str, *transforms: dict[str, Any]) -> None:
    world.settings |= {"decode": {"format": "json", "schema": schema}, "transform": list(transforms)}
    world.write_pipeline()


def run(world: LakeWorld, schema: str, struct: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    decode(world, schema)
    sent = send(world, struct, **more)
    world.ok("run", "demo", "--run-key", str(world.produced))
    return sent


@pytest.fixture(scope="module", params=["iceberg", "delta"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def by_spark(spark: AskedSpark, world: LakeWorld, *statements: str) -> list[list[list[Any]]]:
    if isinstance(world, DeltaWorld):
        return delta_readers.by_spark(spark, world, *statements)
    where = world.targets["warehouse"], world.folder / "warehouse"
    filled = (line.format(table=f"tidemark.{world.written}") for line in statements)
    return iceberg_readers.by_spark(spark, *where, *filled)


def as_text(*names: str) -> str:
    """The query for some columns; null is told from what is empty."""
    columns = [f"to_json(struct({name} AS c), map('ignoreNullFields', 'false'))" for name in names]
    return f"SELECT n, {', '.join(columns)} FROM {{table}} ORDER BY n"


def expected(sent: list[dict[str, Any]], *names: str) -> list[list[Any]]:
    def whole(value: Any) -> Any:
        """Every struct has all fields of the table."""
        if isinstance(value, list):
            return [whole(part) for part in value]
        if not isinstance(value, dict):
            return value
        if {*value} <= {"a", "b"}:
            return {"a": None, "b": None, **value}
        return {name: whole(part) for name, part in value.items()}

    def of(row: dict[str, Any], name: str) -> Any:
        value = row.get(name)
        return {} if name == "m" and value == {} else whole(value)

    return [[row["n"], *(of(row, name) for name in names)] for row in sent]


def read(answer: list[list[Any]]) -> list[list[Any]]:
    return [[number, *(json.loads(text)["c"] for text in texts)] for number, *texts in answer]


REWRITES = {
    "delta": "OPTIMIZE {table}",
    "iceberg": "CALL tidemark.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true', "
    "'min-input-files', '1'))",
}


@pytest.mark.thorough
def test_fields_come_into_structs_lists_and_maps_and_what_is_null_stays_null(
    kind: str, asked_spark: AskedSpark, request: pytest.FixtureRequest
) -> None:
    make: Make = request.getfixturevalue(f"make_{kind}_world")
    world = make(partitions=1, settings={"kafka": {"slice": {"max_records": 1000}}})
    more = {"x.y": 7, "more": {"z": [{"q": 1}, None]}}
    sent = [*run(world, NARROW, OLD), *run(world, WIDE, NEW, **more), *run(world, NARROW, OLD)]
    query = as_text(*NESTED_NAMES), as_text("`x.y`", "more")
    for answer, names in zip(by_spark(asked_spark, world, *query), (NESTED_NAMES, ("x.y", "more")), strict=True):
        assert read(answer) == expected(sent, *names)
    for manifest, schema in (("1", NARROW), ("2", WIDE), ("3", NARROW)):
        decode(world, schema)
        assert "unchanged" in world.here("replay", "demo", "--manifest", manifest).stderr
    _, after = by_spark(asked_spark, world, REWRITES[kind], query[0])
    assert read(after) == expected(sent, *NESTED_NAMES)
    assert world.ok("audit", "demo", "--deep") == ""
    # The rows of manifest 2 leave a file that Spark has written; those of the others in it are written again.
    decode(world, WIDE, {"filter": "k <> 5"})
    world.ok("replay", "demo", "--manifest", "2")
    [after] = by_spark(asked_spark, world, query[0])
    assert read(after) == expected([row for row in sent if row["k"] != 5], *NESTED_NAMES)
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.thorough
def test_a_table_with_a_key_takes_fields_and_keeps_the_rows_that_stand(
    kind: str, asked_spark: AskedSpark, request: pytest.FixtureRequest
) -> None:
    make: Callable[..., KeyedDeltaWorld | KeyedIcebergWorld] = request.getfixturevalue(f"make_keyed_{kind}_world")
    world = make(partitions=1, settings={"kafka": {"slice": {"max_records": 1000}}})
    sent = [*run(world, NARROW, OLD), *run(world, WIDE, NEW), *run(world, NARROW, OLD)]
    [answer] = by_spark(asked_spark, world, as_text(*NESTED_NAMES))
    assert read(answer) == expected(sent, *NESTED_NAMES)
    world.ok("replay", "demo", "--manifest", "1")
    _, answer = by_spark(asked_spark, world, REWRITES[kind], as_text(*NESTED_NAMES))
    assert read(answer) == expected(sent, *NESTED_NAMES)
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.thorough
def test_a_field_of_another_type_or_case_is_refused_by_its_path_and_nothing_is_added(
    kind: str, asked_spark: AskedSpark, request: pytest.FixtureRequest
) -> None:
    world: LakeWorld = request.getfixturevalue(f"make_{kind}_world")(partitions=1)
    sent = run(world, NARROW, OLD)
    for field, message in (
        ("b: STRING, a: STRING", "column s.a of the table is int"),
        ("b: STRING, A: INT", "the table cannot have a column s.A as the rows do: it differs from a by case only"),
    ):
        decode(world, f"{PLAIN}, {NESTED.replace('{}', field)}")
        send(world, OLD)
        for command in (["doctor", "demo"], ["run", "demo"], ["retry", "demo"]):
            refused = world.here(*command)
            assert refused.exit_code == 1
            assert message in " ".join((refused.stdout + refused.stderr).split())
            assert "Traceback" not in refused.stderr
        [answer] = by_spark(asked_spark, world, as_text(*NESTED_NAMES))
        assert read(answer) == narrow(sent)


def narrow(sent: list[dict[str, Any]]) -> list[list[Any]]:
    """As ``expected``, of a table without the second field."""
    text = json.dumps(expected(sent, *NESTED_NAMES)).replace(', "b": null', "")
    rows: list[list[Any]] = json.loads(text)
    return rows
