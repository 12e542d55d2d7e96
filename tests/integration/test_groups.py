"""A file with ``each_topic`` on a real broker, through the command line: each topic has a pipeline of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import TopicPartition

import tidemark
from tests.worlds.world import World

MakeWorld = Callable[..., World]


def group_world(make_world: MakeWorld, prefix: str, each_topic: Any = True, **more: object) -> World:
    settings = {
        "kafka": {"topics": [], "topics_regex": rf"{prefix}-(?P<name>.*)"},
        "decode": {"format": "raw"},
        "event_time": {},
        "each_topic": each_topic,
        **more,
    }
    return make_world(settings=settings)


def send(world: World, topic: str, *values: bytes) -> None:
    producer = world.broker.producer()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def rows(world: World) -> dict[str, list[bytes]]:
    """By topic what is published, in the order of offsets."""
    published: dict[str, list[tuple[int, bytes]]] = {}
    for path in sorted(world.lake.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(world.lake).parts):
            for row in pq.read_table(path).to_pylist():
                published.setdefault(row["_topic"], []).append((row["_offset"], row["value"]))
    return {topic: [value for _, value in sorted(records)] for topic, records in published.items()}


def states(world: World) -> dict[str, str]:
    return {each["pipeline"]: each["state"] for each in world.status("demo")}


@pytest.mark.road
def test_each_topic_is_a_pipeline_and_a_bad_one_stops_no_other(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    good, gone, compacted = f"{prefix}-Good.1", f"{prefix}-gone", f"{prefix}-compacted"
    for topic in (good, gone):
        world.add_topic(topic, b"1", b"2")
    world.ok("run", "demo")
    world.broker.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    world.broker.delete_topic(gone)
    world.add_topic(f"{prefix}-new", b"first")
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert "2 topics of demo failed, the others are done" in run.stderr
    assert f"topic {gone} no longer exists" in run.stderr
    assert rows(world) == {good: [b"1", b"2"], gone: [b"1", b"2"], f"{prefix}-new": [b"first"]}
    assert states(world) == {
        f"demo.{good}": "ok",
        f"demo.{prefix}-new": "ok",
        f"demo.{gone}": "blocked",
        f"demo.{compacted}": "failed",
    }
    shown = world.here("status")
    assert "demo: 2 ok, 2 need you" in shown.stdout
    assert f"demo.{good}" not in shown.stdout
    assert {each["pipeline"] for each in world.json("manifests", "demo")} == {
        f"demo.{good}", f"demo.{gone}", f"demo.{prefix}-new"
    }  # fmt: skip
    # A person gives the deleted topic up; the other one is left out by the file, and its note goes with the next plan.
    world.ok("retire", "pipeline", f"demo.{gone}", "--why", "nobody writes it any more")
    world.settings["each_topic"] = {compacted: False}
    world.write_pipeline()
    world.ok("run", "demo")
    assert states(world) == {f"demo.{good}": "ok", f"demo.{prefix}-new": "ok"}
    assert world.ok("audit", "demo", "--deep") == ""
    assert {part["topic"] for part in world.json("lag", "demo")} == {good, f"{prefix}-new"}


def test_what_several_topics_have_in_common_is_said_once(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    names = [f"{prefix}-{number}" for number in range(3)]
    for topic in names:
        world.add_topic(topic, b"1")
    world.lake.write_text("no folder")
    run = world.here("run", "demo")
    assert run.exit_code == 1
    cause = next(line for line in run.stderr.splitlines() if line.startswith("error: ")).removeprefix("error: ")
    cause = cause.partition(" [")[0]
    assert run.stderr.count(cause) == 2, "as an error, and in the summary"
    assert f"3 topics of demo failed, the others are done: {', '.join(f'demo.{each}' for each in names)}: {cause}" in (
        run.stderr
    )
    assert "nothing is new" not in run.stderr
    shown = world.here("status").stdout
    assert shown.count(cause) == 1
    assert f"3 topics of demo: {', '.join(f'demo.{each}' for each in names)}" in shown
    assert world.here("status", "demo").stdout.count(cause) == 3, "the next step of each"


def test_a_group_is_not_complete_while_no_plan_takes_one_of_its_topics(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    compacted = f"{prefix}-compacted"
    world.add_topic(f"{prefix}-good", b"1")
    world.broker.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    assert world.here("run", "demo").exit_code == 1
    [manifest] = world.manifests()
    until = manifest["created_at"]
    asked = world.here("complete", "demo", "--until", until)
    assert asked.exit_code == 1
    assert f"demo.{compacted}: no plan has included it" in asked.stderr
    assert f"demo.{prefix}-good:" in asked.stdout
    world.settings["each_topic"] = {compacted: False}
    world.write_pipeline()
    world.ok("run", "demo")
    world.ok("complete", "demo", "--until", until)


def test_one_member_is_planned_and_run_alone_and_a_name_that_is_wrong_stores_nothing(
    make_world: MakeWorld, prefix: str
) -> None:
    world = group_world(make_world, prefix)
    for name in ("orders", "items"):
        world.add_topic(f"{prefix}-{name}", b"1")
    for command in ("plan", "run"):
        typo = world.here(command, f"demo.{prefix}-ordres")
        assert typo.exit_code == 2
        assert f'demo reads no topic {prefix}-ordres; did you mean "{prefix}-orders"?' in typo.stderr
        assert world.here(command, "demo.else").exit_code == 2
    assert [each["pipeline"] for each in world.status()] == ["demo"]
    world.ok("run", f"demo.{prefix}-orders")
    assert rows(world) == {f"{prefix}-orders": [b"1"]}
    assert states(world) == {f"demo.{prefix}-orders": "ok"}
    assert world.json("plan", "demo", "--dry-run")[f"demo.{prefix}-items"]["dry_run"]
    world.ok("plan", "demo")
    world.ok("retry", "demo")
    assert set(rows(world)) == {f"{prefix}-orders", f"{prefix}-items"}
    found_by_api = tidemark.manifests("demo", dsn=world.dsn, pipelines=world.pipelines)
    assert [each.id for each in found_by_api] == [2, 1]
    with pytest.raises(tidemark.TidemarkError, match="demo is a group"):
        tidemark.lanes("demo", dsn=world.dsn, pipelines=world.pipelines)
    whole = world.here("audit", "demo")
    assert whole.exit_code == 0
    for words in (["replay", "demo", "--manifest", "1"], ["objects", "demo"], ["accept", "loss", "demo", "--why", "x"]):
        refused = world.here(*words)
        assert refused.exit_code == 2
        assert "demo is a group: each topic has a pipeline of its own" in refused.stderr


def test_a_wrong_difference_stops_its_member_alone(make_world: MakeWorld, prefix: str, tmp_path: Path) -> None:
    sinks = [{"files": {"root": str(tmp_path / "lake")}}]
    bad = f"{prefix}-bad"
    world = group_world(make_world, prefix, {bad: {"on_error": "panic"}}, sinks=sinks)
    for name in ("bad", "good"):
        world.add_topic(f"{prefix}-{name}", b"1")
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert f'each_topic.{bad}.on_error: "panic" is not allowed' in run.stderr
    assert states(world) == {f"demo.{bad}": "failed", f"demo.{prefix}-good": "ok"}
    validated = world.here("validate", "demo")
    assert validated.exit_code == 2
    assert f"each_topic.{bad}.on_error" in validated.stderr + validated.stdout
    world.settings["each_topic"] = {bad: {"on_error": "fail"}}
    world.write_pipeline()
    world.ok("validate", "demo")
    world.ok("run", "demo")
    assert set(states(world).values()) == {"ok"}


def test_a_topic_moves_out_of_the_group_and_back_in(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    topic = f"{prefix}-orders"
    world.add_topic(topic, b"1")
    world.ok("run", "demo")
    member = f"demo.{topic}"
    own = yaml.safe_load(world.ok("print", "member", member))
    (world.pipelines / "orders.yaml").write_text(yaml.safe_dump({**own, "pipeline": "orders"}))
    early = world.here("rename", "pipeline", member, "orders", "--why", "it needs a schedule of its own")
    assert early.exit_code == 2
    assert "demo.yaml" in early.stderr
    copied = world.here("plan", "orders")
    assert f"tidemark rename pipeline {member} orders" in copied.stderr
    world.settings["each_topic"] = {topic: False}
    world.write_pipeline()
    world.ok("rename", "pipeline", member, "orders", "--why", "it needs a schedule of its own")
    send(world, topic, b"2")
    world.ok("run", "orders")
    assert world.ok("audit", "orders", "--deep") == ""
    assert rows(world) == {topic: [b"1", b"2"]}
    # While it has a file of its own, the group does not copy it as well; the message names the way in.
    world.settings["each_topic"] = True
    world.write_pipeline()
    twice = world.here("run", "demo")
    assert twice.exit_code == 1
    assert f"tidemark rename pipeline orders {member} --why TEXT" in twice.stderr
    (world.pipelines / "orders.yaml").unlink()
    world.ok("rename", "pipeline", "orders", member, "--why", "it is as the others")
    send(world, topic, b"3")
    world.ok("run", "demo")
    assert rows(world) == {topic: [b"1", b"2", b"3"]}
    assert states(world) == {member: "ok"}
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("differs", [{}, {"on_error": "fail"}])
def test_a_topic_that_a_pipeline_of_its_own_copies_to_the_same_place_is_refused_with_the_way_in(
    make_world: MakeWorld, prefix: str, differs: dict[str, Any]
) -> None:
    """Also when their settings differ: the folders are the same."""
    world = group_world(make_world, prefix)
    topic, other = f"{prefix}-orders", f"{prefix}-other"
    for name in (topic, other):
        world.add_topic(name, b"1")
    own = yaml.safe_load(world.ok("print", "member", f"demo.{topic}"))
    (world.pipelines / "solo.yaml").write_text(yaml.safe_dump({**own, "pipeline": "solo", **differs}))
    world.ok("run", "solo")
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"tidemark rename pipeline solo demo.{topic} --why TEXT" in refused.stderr
    assert rows(world) == {topic: [b"1"], other: [b"1"]}
    (world.pipelines / "solo.yaml").unlink()
    world.ok("rename", "pipeline", "solo", f"demo.{topic}", "--why", "it is as the others")
    world.ok("run", "demo")
    assert states(world) == {f"demo.{name}": "ok" for name in (topic, other)}
    assert rows(world) == {topic: [b"1"], other: [b"1"]}
    assert world.ok("audit", "demo", "--deep") == ""


def group_with_tables(make_table_world: MakeWorld, prefix: str) -> World:
    """A group whose members write to PostgreSQL, each to a table with the name of its topic."""
    table = {"postgres": {"connection": "warehouse", "table": "{name}", "key": ["id"], "auto_create": True}}
    decode = {"format": "json", "schema": "id BIGINT NOT NULL"}
    return group_world(make_table_world, prefix, decode=decode, sinks=[table])


def test_two_topics_with_one_table_leave_it_to_the_member_that_was_planned_first(
    make_table_world: MakeWorld, prefix: str
) -> None:
    world = group_with_tables(make_table_world, prefix)
    first, second = f"{prefix}-dup_b", f"{prefix}-Dup.b"
    world.add_topic(first, b'{"id": 1}')
    world.ok("run", "demo")
    world.add_topic(second, b'{"id": 2}')
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert f"demo.{second}: " in run.stderr
    assert f"demo.{first}" in run.stderr
    assert states(world) == {f"demo.{first}": "ok", f"demo.{second}": "failed"}
    world.settings["each_topic"] = {second: {"sinks": [{"postgres": {"table": "dup_b_too"}}]}}
    world.write_pipeline()
    world.ok("run", "demo")
    assert set(states(world).values()) == {"ok"}


def test_members_are_adopted_one_by_one_after_their_database_is_lost(make_world: MakeWorld, prefix: str) -> None:
    """As the page of groups says; all of them share one lake."""
    world = group_world(make_world, prefix)
    topics = [f"{prefix}-{name}" for name in "abc"]
    for topic in topics:
        world.add_topic(topic, b"1")
    world.ok("run", "demo")
    world.lose_manifest_database()
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    for topic in topics:
        assert f"tidemark db adopt demo.{topic} --why TEXT" in world.here("status", "demo").stdout
        world.ok("db", "adopt", f"demo.{topic}", "--why", "the database is lost")
    for topic in topics:
        send(world, topic, b"2")
    world.ok("run", "demo")
    assert rows(world) == {topic: [b"1", b"2"] for topic in topics}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_broker_that_does_not_answer_is_noted_once(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    world.add_topic(f"{prefix}-a", b"1")
    world.add_topic(f"{prefix}-b", b"1")
    world.ok("run", "demo")
    there = world.settings["kafka"]
    world.settings["kafka"] = {**there, "bootstrap_servers": "127.0.0.1:1"}
    world.write_pipeline()
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert "127.0.0.1:1" in run.stderr
    failed = [each["pipeline"] for each in world.status("demo", "--no-source") if each["state"] == "failed"]
    assert failed == ["demo"]
    world.settings["kafka"] = there
    world.write_pipeline()
    world.ok("run", "demo")
    assert set(states(world).values()) == {"ok"}


def test_a_sink_of_a_group_is_filled_topic_by_topic(make_world: MakeWorld, prefix: str, tmp_path: Path) -> None:
    world = group_world(make_world, prefix)
    good, gone, without = (f"{prefix}-{name}" for name in ("good", "gone", "without"))
    for topic in (good, gone, without):
        world.add_topic(topic, b"1")
    world.ok("run", "demo")
    copy = {"files": {"name": "copy", "root": str(tmp_path / "copy")}}
    world.settings["sinks"] = [world.lake_entry()]
    world.settings["each_topic"] = {topic: {"sinks": [copy]} for topic in (good, gone)}
    world.write_pipeline()
    missing = world.here("fill", "demo", "none", "--why", "x")
    assert missing.exit_code == 1
    assert f"demo.{good}: " in missing.stderr
    words = ("fill", "demo", "copy", "--why", "a new reader")
    dry = json.loads(world.ok(*words, "--dry-run", "--json"))
    assert {name: each["dry_run"] for name, each in dry.items()} == {f"demo.{good}": True, f"demo.{gone}": True}
    world.administer("delete_records", [TopicPartition(gone, 0, 1)])
    filled = world.here(*words)
    assert filled.exit_code == 1, "one of its manifests cannot be read any more"
    assert f"demo.{good}: 1 manifest published to copy" in filled.stdout
    assert f"demo.{gone}: manifest" in filled.stdout
    again = world.here(*words)
    assert again.exit_code == 1
    assert f"demo.{good}" not in again.stdout


def test_what_lies_before_the_anchors_of_a_group_is_planned_topic_by_topic(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix, kafka={
        "topics": [], "topics_regex": rf"{prefix}-(?P<name>.*)", "starting_offsets": "latest",
    })  # fmt: skip
    topics = [f"{prefix}-{name}" for name in "ab"]
    for topic in topics:
        world.add_topic(topic, b"old")
    world.ok("run", "demo")
    assert rows(world) == {}
    world.add_topic(f"{prefix}-c")
    world.ok("run", "demo")
    words = ("extend-back", "demo", "--why", "a reader wants all")
    dry = json.loads(world.ok(*words, "--dry-run", "--json"))
    assert {name for name, each in dry.items() if each["lines"]} == {f"demo.{topic}" for topic in topics}
    assert f"demo.{topics[0]}: {topics[0]}-0: offsets [0, 1)" in world.ok(*words)
    world.ok("retry", "demo")
    assert rows(world) == {topic: [b"old"] for topic in topics}
    assert "there is nothing to do" in world.here(*words).stderr
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_group_is_retired_when_its_file_is_gone_and_brought_back_with_it(make_world: MakeWorld, prefix: str) -> None:
    world = group_world(make_world, prefix)
    topics = [f"{prefix}-{name}" for name in "abc"]
    for topic in topics:
        world.add_topic(topic, b"1")
    world.ok("run", "demo")
    words = ("retire", "pipeline", "demo", "--why", "nobody needs it")
    file = world.pipelines / "demo.yaml"
    refused = world.here(*words)
    assert refused.exit_code == 2
    assert f"rm {file}" in refused.stderr
    file.unlink()
    world.ok("retire", "pipeline", f"demo.{topics[0]}", "--why", "first")
    dry = json.loads(world.ok(*words, "--dry-run", "--json"))
    assert set(dry) == {f"demo.{topic}" for topic in topics[1:]}
    assert f"demo.{topics[1]}: 1 manifest done" in world.ok(*words)
    assert world.status() == []
    assert "there is nothing to do" in world.here(*words).stderr
    world.write_pipeline()
    world.ok(*words, "--undo")
    assert states(world) == {f"demo.{topic}": "ok" for topic in topics}
    world.ok("run", "demo")
    assert rows(world) == {topic: [b"1"] for topic in topics}


def test_a_lost_database_gets_all_members_of_a_group_back_also_of_topics_that_are_gone(
    make_world: MakeWorld, prefix: str
) -> None:
    world = group_world(make_world, prefix)
    good, gone, bad = (f"{prefix}-{name}" for name in ("good", "gone", "bad"))
    for topic in (good, gone, bad):
        world.add_topic(topic, b"1")
    world.ok("run", "demo")
    world.broker.delete_topic(gone)
    world.lose_manifest_database()
    [record] = (world.lake / "_manifests" / f"demo.{bad}").rglob("*.json")
    whole = record.read_text()
    record.write_text("{")
    world.add_topic(f"{prefix}-a-new", b"1")  # planned, it would be the first
    words = ("db", "adopt", "demo", "--why", "the database is lost")
    dry = json.loads(world.here(*words, "--dry-run", "--json").stdout)
    assert dry[f"demo.{good}"]["manifests"]
    assert dry[f"demo.{gone}"]["manifests"]
    adopted = world.here(*words)
    assert adopted.exit_code == 1
    assert f"1 topic of demo failed, the others are done: demo.{bad}: " in adopted.stderr
    assert f"demo.{gone}: manifest" in adopted.stdout
    planned = world.here("run", "demo")  # comes in between: it must give nobody the ids of what is not adopted yet
    assert planned.exit_code == 1
    assert rows(world) == {topic: [b"1"] for topic in (good, gone, bad, f"{prefix}-a-new")}
    record.write_text(whole)
    assert f"demo.{bad}: manifest" in world.ok(*words)
    assert "there is nothing to do" in world.here(*words).stderr
    world.ok("retire", "pipeline", f"demo.{gone}", "--why", "its topic is gone")
    world.ok("run", "demo")
    assert rows(world) == {topic: [b"1"] for topic in (good, gone, bad, f"{prefix}-a-new")}
    assert world.ok("audit", "demo", "--deep") == ""


def group_and_solo(make_table_world: MakeWorld, prefix: str) -> tuple[World, str]:
    """A group, and a topic of it that the pipeline `solo` has copied to the same table."""
    world = group_with_tables(make_table_world, prefix)
    topic = f"{prefix}-orders"
    world.add_topic(topic, b'{"id": 1}')
    own = yaml.safe_load(world.ok("print", "member", f"demo.{topic}"))
    (world.pipelines / "solo.yaml").write_text(yaml.safe_dump({**own, "pipeline": "solo", "on_error": "fail"}))
    world.ok("run", "solo")
    return world, topic


def test_a_topic_that_a_pipeline_of_its_own_copies_to_the_same_table_is_refused_with_the_way_in(
    make_table_world: MakeWorld, prefix: str
) -> None:
    world, topic = group_and_solo(make_table_world, prefix)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"tidemark rename pipeline solo demo.{topic} --why TEXT" in refused.stderr
    (world.pipelines / "solo.yaml").unlink()
    world.ok("rename", "pipeline", "solo", f"demo.{topic}", "--why", "it is as the others")
    world.ok("run", "demo")
    assert states(world) == {f"demo.{topic}": "ok"}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_retired_pipeline_does_not_keep_a_group_from_the_table_that_it_wrote(
    make_table_world: MakeWorld, prefix: str
) -> None:
    world, topic = group_and_solo(make_table_world, prefix)
    assert world.here("run", "demo").exit_code == 1
    (world.pipelines / "solo.yaml").unlink()
    world.ok("retire", "pipeline", "solo", "--why", "the group does it")
    send(world, topic, b'{"id": 2}')
    world.ok("run", "demo")
    assert states(world) == {f"demo.{topic}": "ok"}
    assert world.query("SELECT id FROM orders ORDER BY id") == [{"id": 1}, {"id": 2}]
    assert world.ok("audit", "demo", "--deep") == ""
