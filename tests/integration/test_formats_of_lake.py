"""A lake of JSON lines or Avro keeps what one of Parquet keeps: run, replay, audit, repair, a change of format."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.worlds.world import Place, World

MakeWorld = Callable[..., World]
NESTED = (
    "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, more STRUCT<tags: ARRAY<STRING>, by: MAP<STRING, DOUBLE>>"
)


def settings(lake: Path, name: str, layout: str = "raw/{stream}/%Y/%m/%d/%H") -> dict[str, Any]:
    return {"sinks": [{"files": {"root": str(lake), "format": name, "layout": layout}}]}


def rows(path: Path) -> list[dict[str, Any]]:
    """As a reader that knows nothing of Tidemark has them, in the columns of Parquet."""
    if path.name.endswith(".avro"):
        with path.open("rb") as file:
            return [dict(row) for row in fastavro.reader(file)]  # type: ignore[call-overload]
    lines = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return [
        {**{f"_{name}": row[name] for name in ("topic", "partition", "offset")}, **row.get("data", {})} for row in lines
    ]


def published(world: World) -> list[Path]:
    return [
        Path(line) for words in ((), ("--dead-letters",)) for line in world.ok("objects", "demo", *words).splitlines()
    ]


def seen(paths: list[Path]) -> Counter[Place]:
    return Counter((row["_topic"], row["_partition"], row["_offset"]) for path in paths for row in rows(path))


def on_disk(world: World) -> dict[Path, int]:
    files = [path for path in world.lake.rglob("*") if path.is_file() and "_manifests" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture(params=["jsonl", "avro"])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    world = make_world()
    world.settings = {**settings(world.lake, request.param), "decode": {"format": "json", "schema": NESTED}}
    world.write_pipeline()
    return world


def test_a_run_a_replay_and_a_deep_audit(world: World) -> None:
    world.produce(60, bad_every=9)
    world.send('{"n": 7, "at": "2024-03-01T00:00:00Z", "more": {"tags": ["a", null], "by": {"x": 0.1}}}', partition=1)
    everything = world.everything() + Counter([(world.topic, 1, 30)])
    world.ok("run", "demo")
    before = on_disk(world)
    paths = published(world)
    assert seen(paths) == everything
    assert set(before) == set(paths)
    assert world.ok("audit", "demo", "--deep") == ""
    [nested] = [row for path in paths for row in rows(path) if row["_offset"] == 30]
    assert nested["more"] == {"tags": ["a", None], "by": {"x": 0.1}}
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert on_disk(world) == before, "equal rows: nothing moved"
    done = json.loads(world.ok("where", world.topic, "1", "30", "--json"))
    assert Path(done[0]["sinks"][0]["place"]) in paths


def test_damage_is_found_and_a_replay_mends_it(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    path = max(published(world), key=lambda file: file.stat().st_size)
    content = path.read_bytes()
    at = len(content) - 40  # in the last block of rows, not in the header
    path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
    audit = world.here("audit", "demo", "--deep")
    assert audit.exit_code == 1
    assert str(path.relative_to(world.lake)) in audit.stdout
    assert "cannot be read" in audit.stdout or "holds other rows" in audit.stdout
    world.ok("replay", "demo", "--manifest", str(int(path.name[:10])))
    assert world.ok("audit", "demo", "--deep") == ""
    assert seen(published(world)) == world.everything()
    stray = path.with_name(path.name.replace("-a0001-", "-a0009-"))
    stray.write_bytes(content)
    assert "is not part of what was published" in world.here("audit", "demo").stdout


def test_a_replay_after_a_change_of_format_or_layout_moves_the_rows(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(30, bad_every=7)
    world.ok("run", "demo")
    old = published(world)
    for number, change in enumerate([("jsonl",), ("avro",), ("avro", "raw/{stream}/%Y")], 2):
        world.settings = settings(world.lake, *change)
        world.write_pipeline()
        world.ok("replay", "demo", "--manifest", "1")
        paths = published(world)
        assert not set(paths) & set(old)
        assert set(on_disk(world)) == set(paths), "what was replaced is gone"
        assert seen(paths) == world.everything()
        assert world.manifests()[0]["published_attempt"] == number
        assert world.ok("audit", "demo", "--deep") == ""
        old = paths
