"""A table format whose ledger is its own log, with rows and evidence in one commit, fits the faces of a sink."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.toys.delta_sink import DELTA
from tests.worlds.world import Place, World
from tidemark.sinks.kinds import SINKS

# ``tidemark`` in a process of its own that knows the kind and starts no Spark.
PROGRAM = """
from tests.toys.delta_sink import DELTA
from tests.worlds.arrow_stage import without_spark
from tidemark.cli import main
from tidemark.sinks.kinds import SINKS
from tidemark.spark import engines
SINKS["delta"] = DELTA
engines.stage_in = without_spark
main.main()
"""


@pytest.fixture(autouse=True)
def _the_delta_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "delta", DELTA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "delta"


@pytest.fixture
def world(make_world: Callable[..., World], folder: Path) -> World:
    """Two manifests, planned: 80 offsets in two partitions, every ninth record undecodable."""
    world = make_world(settings={"sinks": [{"delta": {"folder": str(folder)}}]})
    world.produce(80, bad_every=9)
    assert len(world.json("plan", "demo")["manifests"]) == 2
    return world


def seen(world: World, folder: Path) -> Counter[Place]:
    """What a reader of the table sees, and the dead letters."""
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    places = Counter((row["_topic"], row["_partition"], row["_offset"]) for row in rows)
    letters = world.json("dead-letters", "demo", "--show", "--limit", "100")["records"]
    return places + Counter((letter["topic"], letter["partition"], letter["offset"]) for letter in letters)


def test_from_plan_to_done_every_record_is_there_once(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    assert seen(world, folder) == world.everything()
    assert [manifest["state"] for manifest in world.manifests()] == ["done", "done"]
    assert world.ok("audit", "demo", "--deep") == ""
    assert not (folder / "_staging").exists()


@pytest.mark.parametrize(
    "failpoint",
    ["stage.done", "publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark", "publish.marked"],
)
def test_killed_at_a_failpoint_a_retry_ends_right(world: World, folder: Path, failpoint: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, "retry", "demo"],
        env=world.environment(TIDEMARK_FAILPOINT=f"{failpoint}:kill9"),
        start_new_session=True,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    world.ok("retry", "demo")
    assert seen(world, folder) == world.everything()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_replay_by_other_code_takes_out_the_rows_of_before(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    assert seen(world, folder) == world.everything()
    assert DeltaTable(folder).transaction_version("1") == 2
    assert world.ok("audit", "demo", "--deep") == ""


def test_rows_that_somebody_has_deleted_are_a_difference_whose_advice_mends_it(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    DeltaTable(folder).delete("_manifest = '1' AND _offset = 1")
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    assert audit.stdout == (
        "manifest 1: the table names other files than were published; next: tidemark replay demo --manifest 1\n"
    )
    world.ok("replay", "demo", "--manifest", "1")
    assert world.ok("audit", "demo", "--deep") == ""
    assert seen(world, folder) == world.everything()
