"""A kind of sink that is one folder and one line in the registry works from a pipeline file, with every command."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.world import Place, World, places
from tidemark.kinds import SINKS

MakeWorld = Callable[..., World]


@pytest.fixture(autouse=True)
def _the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "toy", "tidemark_toy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "toys"


@pytest.fixture
def world(make_world: MakeWorld, folder: Path) -> World:
    """Two manifests, planned: 80 offsets in two partitions, every ninth record undecodable."""
    world = make_world(settings={"sinks": [{"toy": {"folder": str(folder)}}]})
    world.produce(80, bad_every=9)
    assert len(world.json("plan", "demo")["manifests"]) == 2
    return world


def objects(folder: Path) -> Iterator[dict[str, Any]]:
    """What the highest record of each manifest names."""
    names = sorted((folder / "_manifests" / "demo").glob("*.json"))
    newest = {name.name.partition(".")[0]: name for name in names}
    for name in newest.values():
        yield from json.loads(name.read_text())["objects"]


def file_of(folder: Path, manifest: int, partition: int, kind: str = "data") -> Path:
    """The file that the record of a manifest names for the rows, or dead letters, of a partition."""
    [path] = [
        folder / part["path"]
        for part in objects(folder)
        if part["kind"] == kind
        and [number for number, _, _ in part["spans"]] == [partition]
        and f"/{manifest:010d}-" in part["path"]
    ]
    return path


def seen(folder: Path) -> Counter[Place]:
    """What a reader of the folder sees: rows and dead letters of the highest record of each manifest."""
    lines = [json.loads(line) for part in objects(folder) for line in (folder / part["path"]).read_text().splitlines()]
    return Counter((line["topic"], line["partition"], line["offset"]) for line in lines)


def test_from_plan_to_done_every_record_is_there_once(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    assert seen(folder) == world.everything()
    first, second = world.manifests()
    assert [manifest["state"] for manifest in (first, second)] == ["done", "done"]
    assert sum(manifest["counts"]["written"] for manifest in (first, second)) == 80 - len(world.bad)
    assert first["publications"][0]["sink"] == "toy"
    assert world.ok("audit", "demo", "--deep") == ""
    assert not (folder / "_staging").exists()


def test_damage_is_a_difference_whose_advice_mends_it(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    file = file_of(folder, 1, 0)
    content = file.read_bytes()
    file.write_bytes(content.partition(b"\n")[2])
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    assert audit.stdout == (
        f"manifest 1: a file has {file.stat().st_size:,} bytes instead of {len(content):,}: rows/{file.name}; "
        "next: tidemark replay demo --manifest 1\n"
    )
    world.ok("replay", "demo", "--manifest", "1")
    assert world.ok("audit", "demo", "--deep") == ""
    assert seen(folder) == world.everything()


def test_where_says_which_file_holds_a_row_and_a_dead_letter(world: World, folder: Path) -> None:
    world.ok("retry", "demo")

    def told(number: int) -> dict[str, Any]:
        [chain] = json.loads(world.here("where", world.topic, str(number % 2), str(number // 2), "--json").stdout)
        [sink] = chain["sinks"]
        return {name: sink[name] for name in ("sink", "standing", "kind", "place")}

    rows, dead = file_of(folder, 1, 1), file_of(folder, 1, 1, "dead_letter")
    assert (rows.parent, dead.parent) == (folder / "rows", folder / "_dead_letters" / world.topic)
    assert told(1) == {"sink": "toy", "standing": "held", "kind": "data", "place": str(rows)}
    assert told(9) == {"sink": "toy", "standing": "held", "kind": "dead_letter", "place": str(dead)}
    rows.unlink()
    assert told(1)["standing"] == "missing"


def test_repair_writes_a_lost_record_and_removes_what_a_dead_attempt_left(world: World, folder: Path) -> None:
    world.ok("retry", "demo")
    record = folder / "_manifests" / "demo" / "0000000001.0001.json"
    before = json.loads(record.read_text())
    record.unlink()
    left = file_of(folder, 2, 0)
    left = left.with_name(left.name.replace("-a0001-", "-a0007-"))
    left.write_text("")
    assert world.here("audit", "demo").exit_code == 1
    world.ok("repair", "demo", "--why", "a test")
    assert json.loads(record.read_text()) == before
    assert not left.exists()
    assert world.ok("audit", "demo", "--deep") == ""


def test_adopt_brings_an_empty_database_up_to_the_folder(
    world: World, folder: Path, postgres: Postgres, template: str
) -> None:
    world.ok("retry", "demo")
    with postgres.temporary_database("restored", template) as restored:
        world.dsn = restored
        refused = world.here("plan", "demo")
        assert refused.exit_code == 1
        assert f"{folder} holds a record of manifest 2, this database ends at 0" in refused.stderr
        world.ok("db", "adopt", "demo", "--why", "a test")
        assert [manifest["state"] for manifest in world.json("manifests", "demo")] == ["done", "done"]
        assert world.ok("audit", "demo", "--deep") == ""
        world.produce(20)
        world.ok("run", "demo")
        assert seen(folder) == world.everything()


def test_doctor_tries_it_and_says_whose_it_is(world: World, folder: Path) -> None:
    findings = [finding for finding in world.json("doctor", "demo") if "toy" in finding["check"]]
    assert [(finding["severity"], finding["message"]) for finding in findings] == [
        ("ok", str(folder)),
        ("ok", "objects can be created once, moved and removed (tried)"),
        ("ok", "it belongs to this manifest database"),
    ]


@pytest.mark.parametrize(
    "failpoint", ["stage.done", "publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark"]
)
def test_an_attempt_that_died_is_finished_by_the_next(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    armed = world.environment(TIDEMARK_FAILPOINT=f"{failpoint}:raise")
    with monkeypatch.context() as patched:
        patched.setattr(world, "environment", lambda: armed)
        assert world.here("retry", "demo").exit_code == 1
    world.ok("retry", "demo")
    assert seen(folder) == world.everything()
    assert world.ok("audit", "demo", "--deep") == ""


def test_beside_a_lake_both_have_everything_and_peek_names_both(make_world: MakeWorld, folder: Path) -> None:
    world = make_world()
    world.settings = {"sinks": [{"files": {"root": str(world.lake)}}, {"toy": {"folder": str(folder)}}]}
    world.write_pipeline()
    world.produce(40, bad_every=9)

    def published(sink: str) -> list[Path]:
        of_sink = ("objects", "demo", "--sink", sink)
        return [Path(view["path"]) for view in (*world.json(*of_sink), *world.json(*of_sink, "--dead-letters"))]

    world.ok("run", "demo")
    assert world.listing() == world.recorded() == seen(folder) == world.everything()
    assert places(published("files")) == world.everything()
    assert sorted(published("toy")) == sorted(folder / part["path"] for part in objects(folder))
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.staging() == []
    [row] = [json.loads(line) for line in world.ok("peek", "demo", "-n", "1", "--json").splitlines()]
    assert row["targets"][1] == f"{folder}/rows of demo"


def test_what_the_kind_refuses_is_said_with_its_line(world: World, folder: Path) -> None:
    world.settings = {"sinks": [{"toy": {"folder": str(folder)}}, {"toy": {"folder": str(folder), "name": "more"}}]}
    world.write_pipeline()
    refused = world.here("validate")
    assert refused.exit_code == 2
    assert 'sinks[1]: shares its target with the sink "toy"' in refused.stdout + refused.stderr


def test_its_settings_are_in_the_schema_for_editors() -> None:
    place = "import sys; sys.path[:0] = ['examples/provider']"
    registered = f"{place}; from tidemark.kinds import SINKS; SINKS['toy'] = 'tidemark_toy'"
    command = f"{registered}; from tidemark.cli.main import main; main(['print', 'schema'])"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    schema = json.loads(done.stdout)
    assert set(schema["$defs"]["SinkEntry"]["properties"]) == {*SINKS, "toy"}


def test_the_database_knows_its_target(world: World, folder: Path) -> None:
    with psycopg.connect(world.dsn) as connection:
        sinks = connection.execute("SELECT pipeline, name, target FROM tidemark.sink").fetchall()
    assert sinks == [("demo", "toy", str(folder))]
