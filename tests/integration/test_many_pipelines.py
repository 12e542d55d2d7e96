"""docs/many-pipelines.md: its files, and its commands that need no Airflow, over all of its pipelines."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from tests.worlds.used_topics import delete_later
from tests.worlds.world import World

PAGE = (CHECKOUT / "docs" / "many-pipelines.md").read_text()
FILE = re.compile(r"this as `([^`]+)`:\n\n```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MAKE, DOCTOR, _, WATCH, EACH, RETIRE = COMMANDS  # the third sets variables of Airflow


def typed(world: World, commands: str, *, status: int = 0) -> str:
    """What is printed; each command must succeed, or the last one must end with ``status``."""
    programs = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=world.folder, text=True, capture_output=True, timeout=240,
        env=world.environment(PATH=f"{programs}:{world.environment()['PATH']}"),
    )  # fmt: skip
    assert done.returncode == status, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.thorough
def test_the_pipelines_of_the_page_are_made_watched_audited_and_retired(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.targets["kafka_default"] = f"kafka://{world.broker.bootstrap_servers}"
    (world.pipelines / "demo.yaml").unlink()
    for name, text in FILE.findall(PAGE):
        (world.folder / name).write_text(text)
    listed = [line.split() for line in (world.folder / "pipelines.txt").read_text().splitlines()]
    assert len(listed) == 6
    made = typed(world, MAKE)
    names = sorted(f"{team}-{topic}" for team, topic in listed)
    assert sorted(path.stem for path in world.pipelines.glob("*.yaml")) == names
    assert made.count(": ok") == 6
    minutes = {re.findall(r'schedule: "(\d+) ', file.read_text())[0] for file in world.pipelines.glob("*.yaml")}
    assert len(minutes) > 3, "spread over the hour"

    topics = {topic: f"{world.topic}-{topic}" for _, topic in listed}  # of this test alone
    world.broker.create_topics([*topics.values()], 1, {"retention.ms": "-1"})
    producer = world.broker.producer()
    for topic, own in topics.items():
        [file] = world.pipelines.glob(f"*-{topic}.yaml")
        file.write_text(file.read_text().replace(f"topics: [{topic}]", f"topics: [{own}]"))
        for number in range(20):
            producer.produce(own, json.dumps({"id": number, "at": "2024-03-01T10:00:00Z"}))
    assert producer.flush(30) == 0
    for name in names:
        world.ok("run", name)
    assert "kafka" in typed(world, DOCTOR)
    watched = typed(world, WATCH)
    assert [f"{name}: ok" in watched for name in names] == [True] * 6
    for name in names:
        assert f'tidemark_records_read{{pipeline="{name}"}} 20' in (world.folder / "metrics.txt").read_text()
    away = world.pipelines / f"{names[0]}.yaml"
    text = away.read_text()
    away.unlink()
    done = typed(world, EACH, status=1)
    assert done.count(f"pipeline {names[0]} was planned and has no file in {world.pipelines}") == 1
    assert f"tidemark retire pipeline {names[0]} --why TEXT" in done
    assert done.count(": see above") == 1
    assert done.count("1 of 1 manifest done, 20 rows; 0 differences") == 5, "the others are done"
    away.write_text(text)
    typed(world, RETIRE)
    names.remove("web-searches")
    assert [each["pipeline"] for each in world.json("status")] == names
    delete_later(world.broker, *topics.values())
