"""What a reader in SQL sees of a table: right after a kill, while merges run, and when two want the same rows."""

import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel

from tests.table_world import ROWS, TableWorld
from tests.world import Place
from tidemark.failpoints import FAILPOINTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
MakeTableWorld = Callable[..., TableWorld]


def table() -> dict[str, tuple[str, str]]:
    """Failpoint to what is seen in a table of another database, and in one of the manifest database."""
    part = DOCUMENT.read_text().split("\n### A table\n")[1].split("\n## ")[0].split("\n### ")[0]
    cells = r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \|"
    return {point: (other, same) for point, other, same in re.findall(cells, part, re.MULTILINE)}


def cases() -> list[object]:
    """Every cell of the table; those next to the COMMIT always, the others in `make test-faults`."""
    return [
        pytest.param(point, same, marks=() if point.startswith("publish.before") else pytest.mark.exhaustive)
        for point in FAILPOINTS
        for same in (False, True)
    ]


@pytest.mark.parametrize(("point", "same"), cases())
def test_killed_for_the_first_time_a_reader_in_sql_sees_what_the_table_says(
    make_table_world: MakeTableWorld, point: str, same: bool
) -> None:
    world = make_table_world(same=same, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(100, bad_every=9)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = world.rows()
    assert seen in ({}, world.latest(world.everything()))
    assert ("whole" if seen else "nothing") == table()[point][same]
    world.ok("retry", "demo")
    world.ok("run", "demo", "--run-key", "one")
    world.assert_complete()


@pytest.mark.parametrize("same", [False, True])
def test_G8_merges_of_the_same_keys_at_once_wait_for_each_other(make_table_world: MakeTableWorld, same: bool) -> None:
    world = make_table_world(same=same)
    world.produce(160)
    world.ok("plan", "demo", "--run-key", "one")
    ids = [str(one["id"]) for one in world.json("manifests", "demo")]
    assert len(ids) == 4
    for verb in ("retry", "replay"):
        at_once = [world.start(verb, "demo", "--manifest", manifest) for manifest in ids]
        for process in at_once:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
    world.assert_complete()


def snapshot(world: TableWorld) -> tuple[dict[int, tuple[int, Place]], Counter[Place], set[int], set[int]]:
    """In one snapshot: the rows, the offsets that markers cover, and the manifests with a marker and published."""
    with psycopg.connect(world.targets["warehouse"]) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        found = connection.execute(ROWS).fetchall()
        markers = connection.execute("SELECT manifest, record FROM tidemark_target.marker").fetchall()
        [[published]] = connection.execute(
            "SELECT array_agg(manifest_id) FROM tidemark.publication WHERE sink = 'postgres'"
        ).fetchall()
    covered = Counter(
        (one["at"]["topic"], one["at"]["partition"], offset)
        for _, record in markers
        for one in record["ranges"]
        for offset in range(one["start"], one["end"])
    )
    rows = {k: (n, (topic, partition, offset)) for k, n, topic, partition, offset in found}
    return rows, covered, {manifest for manifest, _ in markers}, set(published or ())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 8))])
def test_a_reader_in_sql_that_looks_all_the_time_sees_each_manifest_whole_and_published(
    make_table_world: MakeTableWorld, seed: int
) -> None:
    world = make_table_world(same=True)
    world.produce(20)
    world.ok("run", "demo")
    over, wrong, samples = threading.Event(), [], 0

    def look() -> None:
        nonlocal samples
        while not over.is_set():
            rows, covered, merged, published = snapshot(world)
            samples += 1
            if rows != world.latest(covered) or merged != published:
                wrong.append((rows, covered, merged, published))
            time.sleep(0.01)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        dice = random.Random(seed)
        for number in range(4):
            world.produce(60)
            point = dice.choice([one for one in FAILPOINTS if one.startswith(("stage", "publish"))])
            world.tidemark("run", "demo", "--run-key", str(number), failpoint=f"{point}:kill9@{dice.randint(1, 2)}")
            world.ok("retry", "demo")
            world.ok("run", "demo", "--run-key", str(number))
    finally:
        over.set()
        reader.join()
    assert wrong == []
    assert samples > 100
    world.assert_complete()
