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
from tidemark.database.migrate import migrations

MakeTableWorld = Callable[..., TableWorld]


def doctor(world: World, *words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    done = world.here("doctor", *words, "--json")
    assert done.exit_code == exit_code, done.stdout
    findings: list[dict[str, Any]] = json.loads(done.stdout)
    return findings


def failures(findings: list[dict[str, Any]]) -> dict[str, str]:
    return {finding["check"]: finding["message"] for finding in findings if finding["severity"] == "failed"}


def messages(findings: list[dict[str, Any]], check: str) -> str:
    return "; ".join(finding["message"] for finding in findings if finding["check"] == check)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_pipeline_that_can_work_passes_and_the_doctor_leaves_nothing(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(20)
    before = names(world.folder)
    findings = doctor(world, "demo")
    assert names(world.folder) == before, "not even the lake's folder"
    assert world.query("SELECT 1 FROM pg_namespace WHERE nspname = 'tidemark_target'") == []
    assert world.query("SELECT to_regclass('public.latest') AS there") == [{"there": None}]
    assert "2 partitions, 20 offsets to read" in messages(findings, "demo: kafka")
    assert f"records can be read ({world.topic})" in messages(findings, "demo: kafka")
    assert "rolled back" in messages(findings, "demo: sink postgres")
    assert "the first plan creates it" in messages(findings, "demo: sink files")
    assert "fsync=off" in messages(findings, "manifest database"), "the sandbox is not durable, and it is said"
    world.ok("run", "demo")
    before = names(world.folder)
    after = doctor(world, "demo")
    assert "created once, moved and removed" in messages(after, "demo: sink files")
    assert "it belongs to this manifest database" in messages(after, "demo: sink postgres")
    assert names(world.folder) == before
    world.assert_complete()


def test_everything_that_is_wrong_is_said_at_once_each_with_what_to_do(
    make_table_world: MakeTableWorld, tmp_path: Path
) -> None:
    world = make_table_world(has_lake=True, topic_config={"cleanup.policy": "compact"})
    world.produce(5)
    [sink] = [settings for settings in world.settings["sinks"] if "postgres" in settings]
    sink["postgres"]["auto_create"] = False
    world.write_pipeline(topics=[world.topic, "nowhere"])
    world.lake.write_text("a file where the lake should be")
    (world.pipelines / "broken.yaml").write_text("pipeline: broken\nsource: 1\n")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        findings = doctor(world, "--master", f"spark://127.0.0.1:{taken.getsockname()[1]}", exit_code=1)
    wrong = failures(findings)
    assert "source" in wrong["pipelines: broken.yaml"]
    every = " ".join(finding["message"] for finding in findings if finding["severity"] == "failed")
    assert "topic nowhere does not exist" in every
    assert f"topic {world.topic} is compacted" in every
    assert "the table does not exist" in wrong["demo: sink postgres"]
    assert "demo: sink files" in wrong
    assert "the Spark master cannot be reached" in wrong["spark"]
    assert all(finding["next_step"] for finding in findings if finding["severity"] != "ok")
    sink["postgres"]["auto_create"] = True
    world.settings["kafka"] = {"gaps": "compacted"}
    world.write_pipeline()
    world.lake.unlink()
    (world.pipelines / "broken.yaml").unlink()
    assert failures(doctor(world)) == {}
    world.ok("run", "demo")
    world.assert_complete()


def test_a_database_that_is_away_keeps_nothing_else_from_being_checked(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.produce(5)
    world.dsn = f"postgresql://tidemark:canary@127.0.0.1:{free_port()}/nowhere"
    findings = doctor(world, "demo", exit_code=1)
    assert list(failures(findings)) == ["manifest database"]
    assert "records can be read" in messages(findings, "demo: kafka")
    assert "its owner was not checked" in messages(findings, "demo: sink postgres")
    assert "canary" not in json.dumps(findings)


def test_a_wrong_password_is_said_and_not_shown(make_table_world: MakeTableWorld) -> None:
    world = make_table_world()
    world.targets["warehouse"] = world.targets["warehouse"].replace("@", "canary@")
    done = world.here("doctor", "demo")
    assert done.exit_code == 1
    assert "failed   demo: sink postgres: the database of connection warehouse refuses this client" in done.stdout
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("statement", "expected"),
    [("DROP SCHEMA tidemark CASCADE", "it has no Tidemark tables"),
     ("UPDATE tidemark.database SET version = 99", "the tables are of version 99"),
     ("UPDATE tidemark.database SET schema = 'older'", f"never released (version {len(migrations())}, schema older)"),
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
    assert "has an error" in failures(doctor(world, exit_code=1))["pipelines"]


def test_a_broker_that_is_down_is_told_once_with_its_address_and_who_waits_for_it(world: World) -> None:
    right = (world.pipelines / "demo.yaml").read_text()
    nobody = f"127.0.0.1:{free_port()}"
    for name in ("first", "second", "third"):
        text = right.replace("pipeline: demo", f"pipeline: {name}").replace("/lake", f"/{name}")
        (world.pipelines / f"{name}.yaml").write_text(text.replace(world.broker.bootstrap_servers, nobody))
    findings = doctor(world, exit_code=1)
    silent = [finding["message"] for finding in findings if finding["severity"] == "failed"]
    assert len([message for message in silent if nobody in message]) == 1, silent
    assert "3 pipelines wait for it: first, second, third" in " ".join(silent)
    assert "records can be read" in messages(findings, "demo: kafka") or "to read" in messages(findings, "demo: kafka")


def test_two_pipelines_that_write_one_folder_are_refused_as_a_run_refuses_the_second(world: World) -> None:
    again = yaml.safe_load((world.pipelines / "demo.yaml").read_text()) | {"pipeline": "again"}
    again["sinks"][0]["files"]["name"] = "other"  # else it looks like a pipeline that was renamed
    file = world.pipelines / "again.yaml"
    file.write_text(yaml.safe_dump(again))
    refused = failures(doctor(world, exit_code=1))
    assert {"again: folders", "demo: folders"} <= set(refused)
    world.produce(5)
    world.ok("run", "demo")
    refused = failures(doctor(world, exit_code=1))
    assert "demo: folders" not in refused, "the first that is planned keeps its folders"
    told = refused["again: folders"]
    assert f"writes topic {world.topic} into " in told
    run = world.here("run", "again")
    assert run.exit_code == 1
    assert told in run.stderr
    assert "again: folders" in failures(doctor(world, "again", exit_code=1))
    again["sinks"][0]["files"]["root"] = str(world.folder / "another")
    file.write_text(yaml.safe_dump(again))
    assert not [check for check in failures(doctor(world)) if "folders" in check]


def test_a_pipeline_that_looks_renamed_is_refused_as_a_run_refuses_it(world: World) -> None:
    world.produce(5)
    world.ok("run", "demo")
    text = (world.pipelines / "demo.yaml").read_text()
    (world.pipelines / "again.yaml").write_text(text.replace("pipeline: demo", "pipeline: again"))
    findings = [finding for finding in doctor(world, exit_code=1) if finding["check"] == "again: folders"]
    assert "tidemark rename pipeline demo again" in findings[0]["next_step"]
    assert findings[0]["message"] in world.here("run", "again").stderr
