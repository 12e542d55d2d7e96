"""What a person is told when something is wrong: what happened, what next, within seconds, and nothing half done."""

import json
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml

from sandbox.services.postgres import Postgres
from sandbox.services.processes import free_port
from tests.worlds.world import EPOCH, World

MakeWorld = Callable[..., World]
PASSWORD = "sesame-open"
PROMPTLY = 19.0  # a silent server is given up after 10 s; nobody asks it twice


def told(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """The process ended with ``status`` and said all the words, readably, without a secret."""
    assert done.returncode == status, f"exit {done.returncode}: {done.stderr}"
    for word in (*words, "error: ", "next: "):
        assert word in done.stderr, done.stderr
    for output in (done.stdout, done.stderr):
        assert "Traceback" not in output
        assert PASSWORD not in output
    assert done.stdout == ""


def within(seconds: float, world: World, *words: str, **popen: object) -> subprocess.CompletedProcess[str]:
    started = time.monotonic()
    done = world.tidemark(*words, **popen)
    assert time.monotonic() - started < seconds, done.stderr
    return done


def untouched(world: World) -> None:
    """Nothing was planned and the lake holds nothing but the name of its owner."""
    assert world.chain() == []
    assert world.json("manifests", "demo") == []
    assert leftovers(world) == []


def finished(world: World) -> None:
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


# records

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_no_command_lets_an_escape_sequence_of_a_record_reach_the_terminal(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"max_dead_letters": None})
    world.produce(2)
    spoken = json.dumps({"n": 5, "at": EPOCH.isoformat(), "name": EVIL, f"more{EVIL}": EVIL}, ensure_ascii=False)
    named = json.dumps({"n": EVIL, "at": EPOCH.isoformat()})
    for value in (spoken, named, EVIL, f'{{"n": {EVIL}'):
        world.send(value, key=EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    commands = [
        ("peek", "demo"), ("peek", "demo", "--drift"), ("peek", "demo", "--json"), ("run", "demo"), ("status",),
        ("show", "1"), ("show", "1", "--compare"), ("dead-letters", "demo", "--show"), ("dead-letters", "demo"),
        ("dead-letters", "demo", "--show", "--json"), ("objects", "demo"), ("hours", "demo"), ("audit", "demo"),
        ("monitor", "metrics"), ("manifests", "demo"), ("history", "demo"),
    ]  # fmt: skip
    world.settings["on_error"] = "fail"
    for words in [*commands, ("replay", "demo", "--manifest", "1")]:
        if words[0] == "replay":
            world.write_pipeline()  # the reason, which is an error of the command now, holds what the record holds
        done = world.here(*words, color=True)  # else click takes the sequences away
        assert not set(done.output) & set("\x1b\x07\x9b\u202e"), f"{words}: {done.output!r}"
        assert done.exit_code == (1 if words[0] in ("status", "replay") else 0), done.output
        if words in (("peek", "demo"), ("dead-letters", "demo", "--show")):
            assert "owned" in done.output


# Kafka


def test_a_broker_that_is_not_there_when_planning(world: World) -> None:
    world.produce(10)
    nobody = f"127.0.0.1:{free_port()}"
    world.write_pipeline(bootstrap_servers=nobody)
    done = within(PROMPTLY, world, "run", "demo")
    told(done, 1, "Kafka does not answer within 10 s", nobody, "Connection refused", "check that the broker runs")
    untouched(world)
    world.write_pipeline()
    finished(world)


def test_a_broker_that_is_not_there_when_processing_is_waited_for_once(world: World) -> None:
    world.produce(100)
    assert len(world.json("plan", "demo")["manifests"]) == 3
    world.write_pipeline(bootstrap_servers=f"127.0.0.1:{free_port()}")
    told(within(PROMPTLY, world, "retry", "demo"), 1, "Kafka does not answer", "tidemark retry demo")  # not 3 x 10 s
    assert {manifest["state"] for manifest in world.json("manifests", "demo")} == {"failed", "planned"}
    assert not list(world.lake.rglob("*.parquet"))
    world.write_pipeline()
    finished(world)


def test_a_kafka_connection_that_cannot_be_used_is_refused_without_its_password(make_world: MakeWorld) -> None:
    world = make_world(settings={"kafka": {"connection": "events"}})
    file = world.pipelines / "demo.yaml"
    pipeline = yaml.safe_load(file.read_text())
    del pipeline["source"]["kafka"]["bootstrap_servers"]
    file.write_text(yaml.safe_dump(pipeline))
    told(world.tidemark("plan", "demo"), 2, "AIRFLOW_CONN_EVENTS")
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="reader" password="{PASSWORD}";'
    extra = {"bootstrap.servers": world.broker.bootstrap_servers, "sasl.jaas.config": jaas}
    connection = json.dumps({"conn_type": "kafka", "extra": extra})
    done = within(PROMPTLY, world, "plan", "demo", env={"AIRFLOW_CONN_EVENTS": connection})
    told(done, 2, "sets sasl.jaas.config, which is not allowed", "write user and password as login and password")
    untouched(world)


def test_a_topic_that_is_not_there(world: World) -> None:
    world.write_pipeline(topics=[world.topic[:-1]])
    done = within(PROMPTLY, world, "run", "demo")
    told(done, 2, f'topic {world.topic[:-1]} does not exist; did you mean "{world.topic}"?', "source.kafka.topics")
    untouched(world)


# the manifest database


COMMANDS = [("run", "demo"), ("manifests",), ("db", "migrate")]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_wrong_password_of_the_database(world: World, postgres: Postgres, words: tuple[str, ...]) -> None:
    dsn = world.dsn.replace(postgres.password, PASSWORD)
    done = within(PROMPTLY, world, *words, env={"TIDEMARK_DB": dsn})
    told(done, 1, "[error=access-denied", "password authentication failed", "TIDEMARK_DB")
    untouched(world)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_database_that_is_not_there(world: World, words: tuple[str, ...]) -> None:
    place = f"127.0.0.1:{free_port()}/lake"
    done = within(PROMPTLY, world, *words, env={"TIDEMARK_DB": f"postgresql://tidemark:{PASSWORD}@{place}"})
    told(done, 1, "the manifest database cannot be reached", place, "TIDEMARK_DB")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("", "TIDEMARK_DB is not set"),
        (f"postgresql:/tidemark:{PASSWORD}@127.0.0.1", "is not a PostgreSQL connection string"),
        (f"host=127.0.0.1 pasword={PASSWORD}", "is not a PostgreSQL connection string"),
    ],
    ids=["unset", "not a DSN", "an unknown key"],
)
def test_a_dsn_that_is_none(world: World, words: tuple[str, ...], dsn: str, message: str) -> None:
    done = within(PROMPTLY, world, *words, env={"TIDEMARK_DB": dsn})
    told(done, 2, message, "postgresql://user:password@host:port/database")


def test_a_database_without_our_tables(world: World, postgres: Postgres) -> None:
    with postgres.temporary_database("empty") as dsn:
        for words in (("run", "demo"), ("manifests",), ("audit", "demo")):
            done = within(PROMPTLY, world, *words, env={"TIDEMARK_DB": dsn})
            told(done, 2, "this database has no Tidemark tables", "tidemark db migrate")
        assert world.tidemark("db", "migrate", env={"TIDEMARK_DB": dsn}).returncode == 0
        world.dsn = dsn
        world.produce(10)
        finished(world)


def test_airflows_own_database(world: World, postgres: Postgres) -> None:
    with postgres.temporary_database("airflow") as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE dag_run (id int)")
        told(
            world.tidemark("db", "migrate", env={"TIDEMARK_DB": dsn}),
            2,
            "Airflow's own metadata database",
            "create a database",
        )


def test_a_user_without_rights(world: World, postgres: Postgres) -> None:
    with psycopg.connect(world.dsn) as connection:
        connection.execute(f"DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    dsn = f"postgresql://guest:{PASSWORD}@127.0.0.1:{postgres.port}/{world.dsn.rpartition('/')[2]}"
    told(
        world.tidemark("db", "migrate", env={"TIDEMARK_DB": dsn}),
        1,
        "permission denied for schema tidemark",
        "grant the user",
    )
    with psycopg.connect(world.dsn) as connection:
        connection.execute("GRANT USAGE ON SCHEMA tidemark TO guest")
    told(
        world.tidemark("run", "demo", env={"TIDEMARK_DB": dsn}),
        1,
        "permission denied for table",
        "GRANT DELETE, INSERT, SELECT, UPDATE ON ALL TABLES IN SCHEMA tidemark TO guest",
    )
    untouched(world)


# words and files


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "demmo"), 'did you mean "demo"?'),
        (("audit", "demmo"), 'did you mean "demo"?'),
        (("show", "77"), "there is no such manifest"),
        (("show", str(2**63)), "there is no such manifest"),
        (("retry", "demo", "--manifest", "77"), "there is no such manifest"),
        (("replay", "demo", "--run-key", "never"), "there is no run never"),
        (("--pipelines", "nowhere", "plan", "demo"), "there is no folder of pipelines at nowhere"),
    ],
)
def test_names_that_do_not_exist(world: World, words: tuple[str, ...], message: str) -> None:
    told(world.tidemark(*words), 2, message)
    untouched(world)


def test_the_right_names_are_in_the_lists_that_are_advised_when_one_does_not_exist(world: World) -> None:
    world.produce(5)
    world.ok("run", "demo", "--run-key", "one")
    assert "next:  list them with: tidemark manifests\n" in world.here("show", "77").stderr
    assert re.search(r"^│ 1 +│ demo ", world.ok("manifests"), re.MULTILINE)
    world.ok("show", "1")
    unknown = world.here("replay", "demo", "--run-key", "never")
    assert "next:  list runs with: tidemark manifests demo\n" in unknown.stderr
    assert "│ one " in world.ok("manifests", "demo")
    world.ok("replay", "demo", "--run-key", "one")
    world.assert_complete()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rum", "demo"), "No such command 'rum'. Did you mean 'run'?"),
        (("plan",), "Missing argument 'PIPELINE'"),
        (("plan", "demo", "--untill", "2024-01-01"), "--until"),
        (("plan", "demo", "--until", "yesterday"), "'yesterday' does not match the formats"),
        (("manifests", "--state", "don"), "'done'"),
        (("replay", "demo"), "name a manifest (--manifest), a run (--run-key), or what is --damaged"),
        (
            ("replay", "demo", "--manifest", "1", "--run-key", "x"),
            "name a manifest (--manifest), a run (--run-key), or what is --damaged",
        ),
    ],
)
def test_wrong_use_of_the_command_line(world: World, words: tuple[str, ...], message: str) -> None:
    done = world.tidemark(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


BROKEN_FILES = {
    "not YAML": (lambda text: text.replace("topics:", "topics: ["), "demo.yaml:"),
    "an unknown key": (lambda text: text.replace("on_error:", "on_eror:"), 'did you mean "on_error"?'),
    "a wrong word": (lambda text: text.replace("dead_letter", "dead_leter"), "dead_letter"),
    "a type that does not exist": (lambda text: text.replace("BIGINT", "BIGGINT"), "BIGGINT"),
    "a DDL that ends too soon": (lambda text: text.replace("name STRING", "name ARRAY<"), "decode"),
    "a schema file that is not there": (lambda text: with_schema(text, "gone.json"), "gone.json"),
    "a schema file that is not JSON": (lambda text: with_schema(text, "broken.json"), "broken.json"),
    "a schema file that is no JSON Schema": (lambda text: with_schema(text, "wrong.json"), "/type is 'objekt'"),
}


def with_schema(text: str, file: str) -> str:
    pipeline = yaml.safe_load(text)
    pipeline["decode"]["schema"] = file
    return yaml.safe_dump(pipeline)


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_a_pipeline_file_that_is_wrong(world: World, case: str) -> None:
    spoil, message = BROKEN_FILES[case]
    file = world.pipelines / "demo.yaml"
    (world.pipelines / "broken.json").write_text('{"type": "object"')
    (world.pipelines / "wrong.json").write_text('{"type": "objekt"}')
    text = file.read_text()
    file.write_text(spoil(text))
    for words in (("run", "demo"), ("validate", str(file))):
        done = world.tidemark(*words)
        told(done, 2, message, "demo.yaml")
    file.write_text(text)
    untouched(world)
    assert world.tidemark("validate").stdout == f"{file}: ok\n"


# the disk


def full_disk_at(limit: int) -> dict[str, Callable[[], None]]:
    """No file may grow beyond ``limit`` bytes: what a process sees of a disk that fills up."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))}


def leftovers(world: World) -> list[str]:
    marks = ("_owner.json", "_target.json")
    return [path.name for path in world.lake.rglob("*") if path.is_file() and path.name not in marks]


def test_a_disk_that_is_full_before_anything_was_written(world: World) -> None:
    world.produce(30)
    told(
        within(PROMPTLY, world, "run", "demo", **full_disk_at(0)),
        1,
        "the disk is full",
        "free some space",
    )
    assert leftovers(world) == []
    untouched(world)
    finished(world)


def test_a_disk_that_fills_up_while_staging(world: World) -> None:
    world.produce(30)
    done = within(PROMPTLY, world, "run", "demo", **full_disk_at(600))
    told(done, 1, "cannot stage a file", "File too large", "tidemark retry")
    assert leftovers(world) == []
    assert world.manifests()[0]["state"] == "failed"
    finished(world)


def test_a_disk_that_fills_up_while_the_record_is_written(world: World) -> None:
    world.settings["spark"] = {"records_per_task": 1}  # so the record names many small files
    world.write_pipeline()
    world.produce(40)
    world.ok("run", "demo")
    record = max(world.lake.glob("_manifests/demo/*.json"), key=lambda path: path.stat().st_size)
    largest = max(path.stat().st_size for path in world.lake.rglob("*.parquet"))
    assert largest + 100 < record.stat().st_size
    before = {path: path.stat().st_mtime_ns for path in world.lake.rglob("*") if path.is_file()}
    world.produce(40)
    done = within(PROMPTLY, world, "run", "demo", **full_disk_at(largest + 100))
    told(done, 1, "the disk is full", "nothing is published half")
    assert {path: path.stat().st_mtime_ns for path in world.lake.rglob("*") if path.is_file()} == before
    assert [manifest["state"] for manifest in world.manifests()] == ["done", "failed"]
    world.assert_whole()
    finished(world)


@pytest.mark.parametrize("where", ["the root", "a folder above it"])
def test_a_file_in_the_place_of_the_lake(world: World, where: str) -> None:
    world.produce(10)
    place = world.lake if where == "the root" else world.folder / "above"
    place.write_text("not a folder")
    if where == "a folder above it":
        world.settings["sinks"] = [{"files": {"root": str(place / "lake")}}]
        world.write_pipeline()
    told(within(PROMPTLY, world, "run", "demo"), 1, "the lake failed", str(place))
    assert place.read_text() == "not a folder"
    assert world.chain() == []
    place.unlink()
    world.settings.pop("sinks", None)
    world.write_pipeline()
    finished(world)


def test_a_file_in_the_place_of_an_hour_fails_that_manifest_alone(world: World) -> None:
    world.produce(100)
    (world.lake / "raw").mkdir(parents=True)
    hour = Path(world.lake, "raw", world.topic)
    hour.write_text("not a folder")
    told(within(PROMPTLY, world, "run", "demo"), 1, "the lake failed", str(hour), "tidemark retry demo")
    assert world.exact() == {}
    hour.unlink()
    finished(world)


def test_the_folder_of_pipelines_may_be_named_before_and_after_the_command(world: World) -> None:
    folder = str(world.pipelines)
    assert world.ok("--pipelines", folder, "validate") == world.ok("validate", f"--pipelines={folder}")
    refused = world.here("validate", "--pipelines", str(world.folder / "nowhere"))
    assert refused.exit_code == 2
    assert "nowhere" in refused.stderr
