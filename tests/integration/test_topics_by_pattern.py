"""A pipeline that reads all topics of a pattern, on a real broker, through the command line."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from tests.worlds.world import World

MakeWorld = Callable[..., World]


def rows(world: World) -> dict[str, list[tuple[int, bytes]]]:
    """By topic what is published, as readers that skip names with _ and dots find it: (offset, value)."""
    published: dict[str, list[tuple[int, bytes]]] = {}
    for path in sorted(world.lake.rglob("*.parquet")):
        parts = path.relative_to(world.lake).parts
        assert not any(part.startswith(("_", ".")) for part in parts), path
        for row in pq.read_table(path).to_pylist():
            published.setdefault(row["_topic"], []).append((row["_offset"], row["value"]))
    return {topic: sorted(records) for topic, records in published.items()}


def pattern_world(make_world: MakeWorld, prefix: str, **more: object) -> World:
    settings = {
        "kafka": {"topics": [], "topics_regex": rf"[_.]*{prefix}[x.-].*"},
        "decode": {"format": "raw"},
        "event_time": {},
        **more,
    }
    return make_world(settings=settings)


def test_topics_of_a_pattern_are_read_from_their_beginning_each_in_a_folder_that_readers_see(
    make_world: MakeWorld, prefix: str
) -> None:
    world = pattern_world(make_world, prefix)
    done = world.here("plan", "demo")
    assert done.exit_code == 2, done.stderr
    assert "no topic matches [_.]*" in done.stderr
    longest = f"{prefix}{'x' * (249 - len(prefix))}"
    names = [f"{prefix}-a", f"_{prefix}-a", f"..{prefix}-..", longest]
    for name in names:
        world.add_topic(name, name.encode(), b"2")
    world.add_topic(f"__{prefix}-internal", b"never")
    world.add_topic(f"other-{prefix}-a", b"never")
    world.ok("run", "demo")
    expected = {name: [(0, name.encode()), (1, b"2")] for name in names}
    assert rows(world) == expected
    world.add_topic(f"{prefix}-later", b"first", b"second")
    world.ok("run", "demo")
    assert rows(world) == {**expected, f"{prefix}-later": [(0, b"first"), (1, b"second")]}
    assert sorted(path.name for path in world.lake.iterdir()) == ["_manifests", "raw"]
    assert world.ok("audit", "demo", "--deep") == ""
    assert {place["topic"] for place in world.json("lag", "demo")} == {*names, f"{prefix}-later"}


def test_a_planned_topic_that_is_gone_is_refused_until_a_person_accepts_it(make_world: MakeWorld, prefix: str) -> None:
    world = pattern_world(make_world, prefix)
    for name in ("a", "b"):
        world.add_topic(f"{prefix}-{name}", b"1")
    world.ok("run", "demo")
    world.broker.delete_topic(f"{prefix}-a")
    done = world.here("plan", "demo")
    assert done.exit_code == 1
    assert f"topic {prefix}-a no longer exists" in done.stderr
    assert f"tidemark accept topic demo --topic {prefix}-a --why TEXT" in done.stderr
    world.ok("accept", "topic", "demo", "--topic", f"{prefix}-a", "--why", "test")
    world.add_topic(f"{prefix}-c", b"1")
    world.ok("run", "demo")
    assert set(rows(world)) == {f"{prefix}-{name}" for name in "abc"}


def test_a_folder_with_too_long_a_name_is_refused_by_plan(make_world: MakeWorld, prefix: str, tmp_path: Path) -> None:
    sinks = [{"files": {"root": str(tmp_path / "lake"), "layout": "raw/stream={stream}/%Y"}}]
    world = pattern_world(make_world, prefix, sinks=sinks)
    topic = f"{prefix}{'x' * (249 - len(prefix))}"
    world.add_topic(topic, b"1")
    done = world.here("plan", "demo")
    assert done.exit_code == 1
    assert f"its layout gives topic {topic} a folder whose name has 256 bytes" in done.stderr
    assert "change the layout of the sink, or leave the topic out" in done.stderr
