"""A group on a real Airflow: bad topics make its runs red by name, and keep no other from being published. Its tasks
process bundles, each in a Spark session of its own."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld, postgres_connection
from tests.worlds.records_of_hours import last_tick
from tests.worlds.world import World

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
KEY_SCHEMA = "n BIGINT NOT NULL"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BUNDLE = 10
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]  # Spark takes 2 s a manifest, more on a busy machine


def send(world: World, topic: str, moment: datetime, *values: str) -> None:
    """The key of a record has the field of its value."""
    producer = world.broker.producer()
    for value in values:
        key = value if value.endswith("}") else '{"n": 0}'
        producer.produce(topic, value, key=key, timestamp=int(moment.timestamp() * 1000))
    assert producer.flush(30) == 0


def numbered(*numbers: int) -> list[str]:
    return [json.dumps({"n": number}) for number in numbers]


def rows(world: World) -> dict[str, Counter[int]]:
    """By topic what readers of the lake's folders see."""
    published: dict[str, Counter[int]] = {}
    for path in world.lake.rglob("*.parquet"):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(world.lake).parts):
            for row in pq.read_table(path, partitioning=None).to_pylist():
                published.setdefault(row["_topic"], Counter())[row["n"]] += 1
    return published


def keys(warehouse: str, topic: str) -> list[int]:
    """The rows of the topic's table."""
    table = sql.Identifier(topic.replace("-", "_"))
    with psycopg.connect(warehouse) as connection:
        return [n for (n,) in connection.execute(sql.SQL("SELECT n FROM {} ORDER BY n").format(table))]


def told(demo: AirflowWorld, run_id: str) -> list[list[str]]:
    """The members that each event of the group's asset names."""
    events = demo.airflow.asset_events(run_id)
    return [event["extra"]["members"] for event in events if "members" in event["extra"]]


def newest(world: World, topic: str) -> int:
    return int(world.json("manifests", f"{DAG}.{topic}")[0]["id"])


def attempts(world: World, topic: str) -> int:
    """At its newest manifest."""
    return len(world.json("show", str(newest(world, topic)))["attempts"])


def failed_members(world: World) -> set[str]:
    return {each["pipeline"] for each in world.status(DAG) if each["state"] != "ok"}


@pytest.fixture
def warehouse(airflow_world: AirflowWorld, postgres: Postgres) -> Iterator[str]:
    """The DSN of a database that Airflow and the command line know as the connection ``warehouse``."""
    with postgres.temporary_database("warehouse") as dsn:
        airflow_world.airflow.create_connection("warehouse", **postgres_connection(dsn))
        airflow_world.world.targets["warehouse"] = dsn
        yield dsn
        airflow_world.airflow.delete_connection("warehouse")


def listed(browser: httpx.Client, words: str) -> str:
    """The page's list of pipelines, once it has these words."""
    pages: list[str] = []

    def has_words() -> bool:
        pages[:] = [browser.get("/tidemark/").text]
        return words in pages[0]

    wait_until(has_words, words, timeout=120)
    return pages[0]


def labels(demo: AirflowWorld, run_id: str) -> dict[int, str]:
    """What the squares of the mapped tasks say, by map index."""
    return {
        int(task["map_index"]): str(task["rendered_map_index"])
        for task in demo.airflow.task_instances(DAG, run_id)
        if task["task_id"] == "process"
    }


@pytest.mark.parametrize("topics", [9, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_a_scheduled_run_of_a_group_is_red_by_name_and_publishes_the_good_topics_until_all_are_mended(
    airflow_world: AirflowWorld, warehouse: str, browser: httpx.Client, prefix: str, topics: int
) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    good = [f"{prefix}-good-{number:02}" for number in range(topics - 5)]
    unreadable, compacted, deleted, recreated, without_schema = (
        f"{prefix}-{name}" for name in ("unreadable", "compacted", "deleted", "recreated", "without-schema")
    )
    bad = [compacted, deleted, recreated, unreadable, without_schema]
    today = last_tick(DAY)
    schemas = world.folder / "schemas"
    schemas.mkdir()

    def add_schema(topic: str) -> None:
        (schemas / f"{topic}.json").write_text(SCHEMA)

    for topic in (*good, *bad[:-1]):
        add_schema(topic)
    world.settings |= {
        "schedule": "@daily",
        "retries": 0,
        "unfinished": "retry",
        "kafka": {"topics": [], "topics_regex": rf"{prefix}-.*", "slice": {"max_records": 1000}},
        "each_topic": True,
        "airflow": {"bundle": BUNDLE},
        "decode": {
            "format": "json",
            "schema": f"{schemas}/{{topic}}.json",
            "key": {"format": "json", "schema": KEY_SCHEMA},
        },
        "sinks": [
            world.lake_entry(),
            {
                "postgres": {
                    "connection": "warehouse",
                    "table": "{topic}",
                    "key": "record_key",
                    "auto_create": True,
                }
            },
        ],
        "event_time": {},
        "on_error": "fail",
    }
    world.write_pipeline()
    for topic in (*good, deleted, recreated):
        world.add_topic(topic)
        send(world, topic, today - DAY - HOUR, *numbered(1, 2))
    world.ok("run", DAG, "--until", (today - DAY).isoformat(), "--run-key", "by hand")
    for topic in (deleted, recreated):
        world.broker.delete_topic(topic)
    world.add_topic(recreated)
    world.add_topic(unreadable)
    world.broker.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    world.add_topic(without_schema)
    for topic in (*good, recreated, without_schema):
        send(world, topic, today - HOUR, *numbered(3))
    send(world, unreadable, today - HOUR, *numbered(3, 4, 5), "{not json")

    def ended(run_id: str) -> str:
        return airflow.wait_run(DAG, run_id, lambda _: None, timeout=600)

    def verdict(run_id: str) -> str:
        instance = demo.instance(run_id, "verdict")
        assert instance["state"] == "failed"
        return airflow.task_log(DAG, run_id, instance)

    demo.deploy()
    wait_until(lambda: len(airflow.runs(DAG)) == 1, "the scheduled run", timeout=120, interval=0.5)
    [scheduled] = [run["dag_run_id"] for run in airflow.runs(DAG)]
    assert ended(scheduled) == "failed"
    log = verdict(scheduled)
    assert f"5 topics of {DAG} failed, the others are done" in log
    for topic in bad:
        assert f"{DAG}.{topic}: " in log
    assert not [topic for topic in good if f"{DAG}.{topic}: " in log]
    assert told(demo, scheduled) == [[f"{DAG}.{topic}" for topic in good]]
    assert failed_members(world) == {f"{DAG}.{topic}" for topic in bad}
    before = {**{topic: Counter([1, 2, 3]) for topic in good}, deleted: Counter([1, 2]), recreated: Counter([1, 2])}
    assert rows(world) == before

    # On the page those that need a person have rows of their own, and the others are one row that leads to all.
    # A source that has not answered in time makes all of them unknown, until the page is asked again.
    page = listed(browser, f"{DAG}: {len(good)} ok, 5 need you</span></a>")
    assert [topic for topic in good if f">{DAG}.{topic}</a>" in page] == []
    assert [topic for topic in bad if f">{DAG}.{topic}" not in page] == []
    members = browser.get(f"/tidemark/?group={DAG}").text
    assert [topic for topic in good if f">{DAG}.{topic}</a>" not in members] == []

    # A cleared bundle does what is not done. The others stay red.
    bundles = labels(demo, scheduled)
    assert len(bundles) == -(-(len(good) + 1) // BUNDLE)
    [of_unreadable] = [index for index, label in bundles.items() if unreadable in label]
    instance = demo.instance(scheduled, "process", of_unreadable)
    assert (
        f"manifests of this task failed: manifest {newest(world, unreadable)} of {DAG}.{unreadable}: "
        in airflow.task_log(DAG, scheduled, instance)
    )
    world.settings["each_topic"] = {compacted: False, unreadable: {"on_error": "dead_letter"}}
    world.write_pipeline()
    demo.update()
    airflow.clear(DAG, scheduled, [("process", of_unreadable), ("close", -1), ("verdict", -1)])
    assert ended(scheduled) == "failed"
    log = verdict(scheduled)
    assert f"{DAG}.{unreadable}: " not in log
    assert {attempts(world, topic) for topic in good} == {1}
    assert attempts(world, unreadable) == 2
    for topic in (compacted, deleted, recreated, without_schema):
        assert f"{DAG}.{topic}: " in log, "the plan of this run has not taken it"
    assert rows(world) == {**before, unreadable: Counter([3, 4, 5])}

    # When all of a bundle is done, a cleared one is replayed, and no row is there twice.
    airflow.clear(DAG, scheduled, [("process", of_unreadable), ("close", -1), ("verdict", -1)])
    assert ended(scheduled) == "failed"
    assert attempts(world, unreadable) == 3
    assert rows(world) == {**before, unreadable: Counter([3, 4, 5])}

    # A person decides what a plan cannot: then a run is green, and so is a backfill of a day that is covered.
    world.ok("accept", "topic", f"{DAG}.{recreated}", "--topic", recreated, "--why", "it was made anew")
    world.ok("retire", "pipeline", f"{DAG}.{deleted}", "--why", "nobody writes it any more")
    add_schema(without_schema)
    by_hand = demo.trigger()
    assert ended(by_hand) == "success", demo.logs(by_hand)
    everything = {
        **before, unreadable: Counter([3, 4, 5]), recreated: Counter([1, 2, 3]), without_schema: Counter([3])
    }  # fmt: skip
    assert rows(world) == everything
    [backfilled] = airflow.backfill(DAG, today - DAY, today - DAY)
    assert ended(backfilled) == "success", demo.logs(backfilled)
    assert failed_members(world) == set()
    assert rows(world) == everything
    assert {topic: keys(warehouse, topic) for topic in everything} == {
        topic: sorted(numbers) for topic, numbers in everything.items()
    }
    assert world.ok("audit", DAG, "--deep") == ""
