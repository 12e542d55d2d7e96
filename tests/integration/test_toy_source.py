"""A kind of source that is one folder and one line in the registry works from a pipeline file, with every command."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.toys.toy_source.log import ABORTED, OPEN
from tests.toys.toy_source.topic import NOON, ToyTopic
from tests.worlds.world import World
from tidemark.kinds import SOURCES

MakeWorld = Callable[..., World]


@pytest.fixture(autouse=True)
def _the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "toy", "tests.toys.toy_source")


@pytest.fixture
def topic(tmp_path: Path) -> ToyTopic:
    return ToyTopic(tmp_path / "topics")


@pytest.fixture
def world(make_world: MakeWorld, topic: ToyTopic) -> World:
    """A pipeline that reads the toy and writes a lake."""
    return make_world(settings={"source": topic.source(slice={"max_records": 40})})


def test_from_plan_to_close_every_record_is_there_once(world: World, topic: ToyTopic) -> None:
    topic.produce(80, bad_every=9)
    run = world.json("plan", "demo", "--run-key", "one")
    assert (len(run["manifests"]), run["reached"]) == (2, True)
    world.ok("run", "demo", "--run-key", "one")
    assert world.exact() == topic.everything()
    assert [manifest["state"] for manifest in world.json("manifests", "demo")] == ["done", "done"]
    assert sum(manifest["counts"]["dead_lettered"] for manifest in world.json("manifests", "demo")) == 9
    assert world.ok("audit", "demo", "--deep") == ""
    assert [
        (partition["partition"], partition["planned"], partition["lag"]) for partition in world.json("lag", "demo")
    ] == [
        (0, 40, 0),
        (1, 40, 0),
    ]


def test_a_cut_ends_before_the_first_record_stamped_then_or_later(world: World, topic: ToyTopic) -> None:
    topic.produce(20)
    until = (NOON + timedelta(minutes=7)).isoformat()
    world.ok("run", "demo", "--until", until)
    assert sum(world.exact().values()) == 7
    world.ok("run", "demo")
    assert world.exact() == topic.everything()


def test_an_open_transaction_caps_the_plan_and_an_aborted_one_is_a_gap(world: World, topic: ToyTopic) -> None:
    world.settings["source"] = topic.source(gaps="transactions")
    world.write_pipeline()
    topic.produce(10)
    topic.produce(4, fate=OPEN)
    planned = world.here("plan", "demo")
    assert "toys-0: an open transaction holds back 2 offsets from offset 5 on" in planned.stderr
    world.ok("retry", "demo")
    assert sum(world.exact().values()) == 10
    for log in topic.logs:
        log.end_transaction(ABORTED)
    topic.produce(2)
    world.ok("run", "demo")
    assert sum(world.exact().values()) == 12
    assert [manifest["counts"]["invisible"] for manifest in world.manifests()] == [0, 4]


def test_what_retention_took_is_refused_and_given_up(world: World, topic: ToyTopic) -> None:
    topic.produce(20)
    world.ok("plan", "demo")
    topic.logs[0].delete_before(4)
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "retention took offsets [0, 4) of toys-0 before they were read" in refused.stderr
    world.ok("accept", "loss", "demo", "--why", "a test")
    world.ok("retry", "demo")
    assert world.exact() == topic.everything()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_topic_that_was_made_again_needs_a_person(world: World, topic: ToyTopic) -> None:
    topic.produce(20)
    world.ok("run", "demo")
    topic.create()
    topic.produce(10)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "topic toys was recreated" in refused.stderr
    world.ok("accept", "topic", "demo", "--topic", "toys", "--why", "a test")
    world.ok("run", "demo")
    assert sum(world.exact().values()) == 30
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_missing_topic_is_named_with_the_key_to_correct(world: World, topic: ToyTopic) -> None:
    world.settings["source"] = topic.source(topics=["toyz"])
    world.write_pipeline()
    refused = world.here("plan", "demo")
    assert refused.exit_code == 2
    assert "topic toyz does not exist; did you mean" in refused.stderr
    assert "source.toy.topics" in refused.stderr


def test_doctor_peek_and_replay_know_it(world: World, topic: ToyTopic) -> None:
    topic.produce(20)
    world.ok("run", "demo")
    findings = [finding for finding in world.json("doctor", "demo") if finding["check"] == "demo: toy"]
    assert [(finding["severity"], finding["message"]) for finding in findings] == [
        ("ok", f"{topic.folder} answers"),
        ("ok", "1 topic, 2 partitions, 20 offsets to read"),
        ("ok", "records can be read (toys)"),
    ]
    assert len(world.ok("peek", "demo", "-n", "5", "--json").splitlines()) == 5
    world.ok("replay", "demo", "--manifest", "1")
    assert world.exact() == topic.everything()


def test_gaps_that_nobody_announced_block_with_the_key_to_write(world: World, topic: ToyTopic) -> None:
    topic.produce(10)
    topic.produce(2, fate=ABORTED)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "gaps: compacted under source.toy" in refused.stderr


def test_its_settings_are_in_the_schema_for_editors() -> None:
    registered = "from tidemark.kinds import SOURCES; SOURCES['toy'] = 'tests.toys.toy_source'"
    command = f"{registered}; from tidemark.cli.main import main; main(['print', 'schema'])"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)["$defs"]["SourceEntry"]["properties"]) == {"kafka", "rabbitmq", "toy"}
