"""A group on a real Airflow: bad topics make its runs red by name, and keep no other from being published."""

import json
from collections import Counter
from datetime import datetime, timedelta

import pyarrow.parquet as pq
import pytest

from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.records_of_hours import last_tick
from tests.worlds.world import World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]  # Spark takes 2 s a manifest, more on a busy machine


def send(world: World, topic: str, moment: datetime, *values: str) -> None:
    producer = world.broker.producer()
    for value in values:
        producer.produce(topic, value, timestamp=int(moment.timestamp() * 1000))
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


def told(demo: AirflowWorld, run_id: str) -> list[list[str]]:
    """The members that each event of the group's asset names."""
    events = demo.airflow.asset_events(run_id)
    return [event["extra"]["members"] for event in events if "members" in event["extra"]]


def test_a_scheduled_run_of_a_group_is_red_by_name_and_publishes_the_good_topics_until_all_are_mended(
    served_world: AirflowWorld, prefix: str
) -> None:
    demo, world, airflow = served_world, served_world.world, served_world.airflow
    good = [f"{prefix}-good-{number}" for number in range(4)]
    unreadable, compacted, deleted, recreated = (
        f"{prefix}-{name}" for name in ("unreadable", "compacted", "deleted", "recreated")
    )
    bad = [compacted, deleted, recreated, unreadable]
    today = last_tick(DAY)
    world.settings |= {
        "schedule": "@daily",
        "retries": 0,
        "unfinished": "retry",
        "kafka": {"topics": [], "topics_regex": rf"{prefix}-.*", "slice": {"max_records": 1000}},
        "each_topic": True,
        "decode": {"format": "json", "schema": "n BIGINT NOT NULL"},
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
    for topic in (*good, recreated):
        send(world, topic, today - HOUR, *numbered(3))
    send(world, unreadable, today - HOUR, *numbered(3, 4, 5), "{not json")

    def ended(run_id: str) -> str:
        return airflow.wait_run(DAG, run_id, lambda _: None, timeout=240)

    def verdict(run_id: str) -> str:
        instance = demo.instance(run_id, "verdict")
        assert instance["state"] == "failed"
        return airflow.task_log(DAG, run_id, instance)

    def failed_members() -> dict[str, str]:
        return {each["pipeline"]: each["state"] for each in world.status(DAG) if each["state"] != "ok"}

    demo.deploy()
    wait_until(lambda: len(airflow.runs(DAG)) == 1, "the scheduled run", timeout=120, interval=0.5)
    [scheduled] = [run["dag_run_id"] for run in airflow.runs(DAG)]
    assert ended(scheduled) == "failed"
    log = verdict(scheduled)
    assert f"4 topics of {DAG} failed, the others are done" in log
    for topic in bad:
        assert f"{DAG}.{topic}: " in log
    assert not [topic for topic in good if f"{DAG}.{topic}: " in log]
    assert told(demo, scheduled) == [[f"{DAG}.{topic}" for topic in good]]
    assert failed_members().keys() == {f"{DAG}.{topic}" for topic in bad}
    before = {**{topic: Counter([1, 2, 3]) for topic in good}, deleted: Counter([1, 2]), recreated: Counter([1, 2])}
    assert rows(world) == before

    # What a good topic has is published once more when its task is cleared, and nothing moves. The others stay red.
    labels = {
        str(task["rendered_map_index"]): int(task["map_index"])
        for task in airflow.task_instances(DAG, scheduled)
        if task["task_id"] == "process"
    }
    assert len(labels) == len(good) + 1
    [of_good] = [index for label, index in labels.items() if good[0] in label]
    [of_unreadable] = [index for label, index in labels.items() if unreadable in label]
    world.settings["each_topic"] = {compacted: False, unreadable: {"on_error": "dead_letter"}}
    world.write_pipeline()
    demo.update()
    cleared = [("process", of_good), ("process", of_unreadable), ("close", -1), ("verdict", -1)]
    airflow.clear(DAG, scheduled, cleared)
    assert ended(scheduled) == "failed"
    log = verdict(scheduled)
    assert f"{DAG}.{unreadable}: " not in log
    for topic in bad[:3]:
        assert f"{DAG}.{topic}: " in log, "the plan of this run has not taken it"
    assert rows(world) == {**before, unreadable: Counter([3, 4, 5])}

    # A person decides what a plan cannot: then a run is green, and so is a backfill of a day that is covered.
    world.ok("accept", "topic", f"{DAG}.{recreated}", "--topic", recreated, "--why", "it was made anew")
    world.ok("retire", "pipeline", f"{DAG}.{deleted}", "--why", "nobody writes it any more")
    by_hand = demo.trigger()
    assert ended(by_hand) == "success", demo.logs(by_hand)
    everything = {**before, unreadable: Counter([3, 4, 5]), recreated: Counter([1, 2, 3])}
    assert rows(world) == everything
    [backfilled] = airflow.backfill(DAG, today - DAY, today - DAY)
    assert ended(backfilled) == "success", demo.logs(backfilled)
    assert failed_members() == {}
    assert rows(world) == everything
    assert world.ok("audit", DAG, "--deep") == ""
