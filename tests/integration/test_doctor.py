"""``tidemark doctor`` before real services: what it says of each, and that it leaves nothing behind."""

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from sandbox.services.postgres import Postgres
from sandbox.services.processes import free_port
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World

MakeTableWorld = Callable[..., TableWorld]


def doctor(world: World, *words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    done = world.here("doctor", *words, "--json")
    assert done.exit_code == exit_code, done.stdout
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def failures(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["check"]: one["message"] for one in found if one["severity"] == "failed"}


def said(found: list[dict[str, Any]], check: str) -> str:
    return "; ".join(one["message"] for one in found if one["check"] == check)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_pipeline_that_can_work_passes_and_the_doctor_leaves_nothing(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(20)
    before = names(world.folder)
    found = doctor(world, "demo")
    assert names(world.folder) == before, "not even the lake's folder"
    assert world.query("SELECT 1 FROM pg_namespace WHERE nspname = 'tidemark_target'") == []
    assert world.query("SELECT to_regclass('public.latest') AS there") == [{"there": None}]
    assert "2 partitions, 20 offsets to read" in said(found, "demo: kafka")
    assert f"records can be read ({world.topic})" in said(found, "demo: kafka")
    assert "rolled back" in said(found, "demo: sink postgres")
    assert "the first plan creates it" in said(found, "demo: sink files")
    assert "fsync=off" in said(found, "manifest database"), "the sandbox is not durable, and it is said"
    world.ok("run", "demo")
    before = names(world.folder)
    after = doctor(world, "demo")
    assert "created once, moved and removed" in said(after, "demo: sink files")
    assert "it belongs to this manifest database" in said(after, "demo: sink postgres")
    assert names(world.folder) == before
    world.assert_complete()


def test_everything_that_is_wrong_is_said_at_once_each_with_what_to_do(
    make_table_world: MakeTableWorld, tmp_path: Path
) -> None:
    world = make_table_world(has_lake=True, topic_config={"cleanup.policy": "compact"})
    world.produce(5)
    [sink] = [one for one in world.settings["sinks"] if "postgres" in one]
    sink["postgres"]["auto_create"] = False
    world.write_pipeline(topics=[world.topic, "nowhere"])
    world.lake.write_text("a file where the lake should be")
    (world.pipelines / "broken.yaml").write_text("pipeline: broken\nsource: 1\n")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        found = doctor(world, "--master", f"spark://127.0.0.1:{taken.getsockname()[1]}", exit_code=1)
    wrong = failures(found)
    assert "source" in wrong["pipelines: broken.yaml"]
    every = " ".join(one["message"] for one in found if one["severity"] == "failed")
    assert "topic nowhere does not exist" in every
    assert f"topic {world.topic} is compacted" in every
    assert "the table does not exist" in wrong["demo: sink postgres"]
    assert "demo: sink files" in wrong
    assert "the Spark master cannot be reached" in wrong["spark"]
    assert all(one["next_step"] for one in found if one["severity"] != "ok")


def test_a_database_that_is_away_keeps_nothing_else_from_being_checked(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(5)
    world.dsn = f"postgresql://tidemark:canary@127.0.0.1:{free_port()}/nowhere"
    found = doctor(world, "demo", exit_code=1)
    assert list(failures(found)) == ["manifest database"]
    assert "records can be read" in said(found, "demo: kafka")
    assert "its owner was not checked" in said(found, "demo: sink postgres")
    assert "canary" not in json.dumps(found)


def test_a_wrong_password_is_said_and_not_shown(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.targets["warehouse"] = world.targets["warehouse"].replace("@", "canary@")
    done = world.here("doctor", "demo")
    assert done.exit_code == 1
    assert "failed   demo: sink postgres: the database of connection warehouse cannot be reached" in done.stdout
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("statement", "expected"),
    [("DROP SCHEMA tidemark CASCADE", "it has no Tidemark tables"),
     ("UPDATE tidemark.database SET version = 99", "the tables are of version 99"),
     ("UPDATE tidemark.database SET schema = 'older'", "no release (version 1, schema older)"),
     ("CREATE TABLE public.dag_run (id int)", "this is Airflow's own metadata database")],
)  # fmt: skip
def test_a_database_that_will_not_do_is_told_why(world: World, statement: str, expected: str) -> None:
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]
    assert expected in failures(doctor(world, "demo", exit_code=1))["manifest database"]


def test_a_lake_of_another_database_is_refused(world: World, postgres: Postgres, template: str) -> None:
    world.produce(5)
    world.ok("run", "demo")
    with postgres.temporary_database("other", template) as other, psycopg.connect(other, autocommit=True) as connection:
        connection.execute("UPDATE tidemark.database SET id = gen_random_uuid()")
        world.dsn, owner = other, world.dsn
        assert (
            "belongs to another manifest database" in failures(doctor(world, "demo", exit_code=1))["demo: sink files"]
        )
        world.dsn = owner


def test_a_folder_without_pipelines_is_a_failure(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    pipeline = yaml.safe_load(file.read_text())
    file.unlink()
    assert "there are no pipeline files" in failures(doctor(world, exit_code=1))["pipelines"]
    file.write_text(yaml.safe_dump({**pipeline, "sinks": "none"}))
    assert "no pipeline file" in failures(doctor(world, exit_code=1))["pipelines"]
