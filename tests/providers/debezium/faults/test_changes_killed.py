"""Tables of current rows follow a table that is changed at random, while attempts die and other programs maintain them.

The promise has one exception: a replay with other code leaves the rows that this code does not make any more. Where
the code stays, no row may differ.
"""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.worlds.changed_table import COLUMNS, comparable
from tests.worlds.current_rows import CurrentRows, rows_of_a_changed_table
from tests.worlds.table_world import TableWorld
from tidemark.failpoints import FAILPOINTS

pytestmark = pytest.mark.thorough

OF_ATTEMPTS = tuple(point for point in FAILPOINTS if not point.startswith("plan."))


def process(rows: CurrentRows, manifest: str, random: Random) -> int:
    """Publish a manifest, or publish it again; now and then the process dies at a failpoint first. Returns whether."""
    point, number = random.choice(OF_ATTEMPTS), random.choice([1, 1, 2])
    shutil.rmtree(rows.world.folder / "_failpoints", ignore_errors=True)
    killed = rows.world.tidemark(*rows.step(manifest), failpoint=f"{point}:kill9@{number}")
    assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
    return int(killed.returncode != 0)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 6))])
def test_no_row_differs_after_kills_replays_and_the_work_of_other_programs(
    make_table_world: Callable[..., TableWorld], tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    rows, table = rows_of_a_changed_table(make_table_world, tmp_path / "tables", random)
    world = rows.world
    kills = 0
    for number in range(5):
        table.change(20)
        table.send()
        world.ok("plan", "demo", "--run-key", f"run {number}")
        manifests = [str(manifest["id"]) for manifest in world.manifests()]
        for manifest in random.sample(manifests, random.randint(1, len(manifests))):
            kills += process(rows, manifest, random)
            if random.random() < 0.3:
                rows.maintain(random)
    assert kills > 1
    rows.finish()
    for manifest in random.sample(manifests, len(manifests)):
        rows.publish(manifest)
    copied = rows.seen(*COLUMNS)
    assert {key: comparable(dict(zip(COLUMNS, row, strict=True))) for key, row in copied.items()} == table.rows()
    rows.finish()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 4))])
def test_replays_with_other_code_leave_the_rows_that_it_does_not_make_and_the_tables_count_them(
    make_table_world: Callable[..., TableWorld], tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    rows, table = rows_of_a_changed_table(make_table_world, tmp_path / "tables", random, keys=20)
    world = rows.world
    for number in range(3):
        table.change(25)
        table.send()
        world.ok("plan", "demo", "--run-key", f"run {number}")
    rows.finish()
    world.settings["transform"] = [{"filter": "state IS DISTINCT FROM 'paid'"}]
    world.write_pipeline()
    manifests = [str(manifest["id"]) for manifest in world.manifests()]
    for manifest in random.sample(manifests, len(manifests)):
        process(rows, manifest, random)
        rows.maintain(random)
    for manifest in random.sample(manifests, len(manifests)):
        rows.publish(manifest)
    rows.finish()
    of_source = table.rows()
    paid = {key for key, row in of_source.items() if dict(zip(COLUMNS, row, strict=True))["state"] == "paid"}
    copied = rows.seen(*COLUMNS)
    assert {key: comparable(dict(zip(COLUMNS, row, strict=True))) for key, row in copied.items()} == of_source
    assert paid
    assert rows.left() == {"postgres": (paid, None), "iceberg": (paid, len(paid)), "delta": (paid, len(paid))}
