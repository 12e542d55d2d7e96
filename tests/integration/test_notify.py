"""People are told what needs them: once, once more when it is over, and never of what nobody has looked at."""

import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.worlds.inbox import Inbox
from tests.worlds.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(partitions=1, settings={"on_error": "fail"})


def fail(world: World) -> None:
    world.produce(10, bad_every=10)
    assert world.here("run", "demo").exit_code == 1


def test_a_failed_manifest_is_told_once_and_once_when_it_is_over(world: World, inbox: Inbox) -> None:
    world.produce(9)
    world.ok("run", "demo")
    world.ok("monitor", "notify")
    assert inbox.texts() == []
    fail(world)
    world.ok("monitor", "notify", "--after", "1h")
    assert inbox.texts() == [], "Airflow may be about to try again"
    world.ok("monitor", "notify", "--after", "0s")
    [told] = inbox.got
    assert told["text"].startswith("demo: failed: manifest 2 of run ")
    assert told["text"].endswith("in the pipeline file; then: tidemark retry demo")
    assert (told["pipeline"], told["kind"], told["manifest_id"], told["over"]) == ("demo", "failed", 2, False)
    inbox.got.clear()
    for _ in range(2):
        world.ok("monitor", "notify", "--after", "0s")
    assert inbox.texts() == []
    world.settings["on_error"] = "dead_letter"
    world.write_pipeline()
    world.ok("retry", "demo")
    for expected in (1, 0):
        world.ok("monitor", "notify", "--after", "0s")
        texts = inbox.texts()
        assert [text.partition(": manifest 2")[0] for text in texts] == ["demo: no longer failed"] * expected


def test_a_problem_that_lasts_is_told_when_it_has_lasted_and_a_loss_at_once(world: World, inbox: Inbox) -> None:
    fail(world)
    world.ok("monitor", "notify", "--after", "1h")
    memory = world.folder / "_notified.json"
    kept = json.loads(memory.read_text())
    memory.write_text(json.dumps([{**problem, "since": "2024-03-01T00:00:00+00:00"} for problem in kept]))
    world.ok("monitor", "notify", "--after", "1h")
    [told] = inbox.got
    assert told["since"] == "2024-03-01T00:00:00+00:00"
    inbox.got.clear()
    world.produce(10)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 15)])
    world.ok("monitor", "notify", "--after", "1h")
    [text] = [text for text in inbox.texts() if "lost" in text]
    assert text.startswith(f"demo: lost: retention took offsets [10, 15) of {world.topic}-0 before they were planned")
    assert text.endswith("next: tidemark accept loss demo --why TEXT")
    world.ok("monitor", "notify", "--after", "1h", "--no-source")
    assert inbox.texts() == [], "nobody has looked whether they are still lost"


def test_a_silent_source_is_not_over_while_nobody_asks_it(world: World, inbox: Inbox) -> None:
    world.produce(9)
    world.ok("run", "demo")
    world.write_pipeline(bootstrap_servers="127.0.0.1:1")
    world.ok("monitor", "notify", "--after", "0s")
    assert "demo: unknown: the lag is not known" in inbox.texts()[0]
    inbox.got.clear()
    world.ok("monitor", "notify", "--after", "0s", "--no-source")
    assert inbox.texts() == []
    world.write_pipeline()
    world.ok("monitor", "notify", "--after", "0s")
    assert inbox.texts()[0].startswith("demo: no longer unknown")


def test_a_broker_that_several_pipelines_wait_for_is_told_once_and_once_when_it_is_over(
    world: World, inbox: Inbox
) -> None:
    world.produce(9)
    world.ok("run", "demo")
    (world.pipelines / "second.yaml").write_text(world.another("second"))
    address = world.broker.bootstrap_servers
    for path in world.pipelines.glob("*.yaml"):
        path.write_text(path.read_text().replace(address, "127.0.0.1:1"))
    world.here("run", "demo")
    for expected in (1, 0):
        world.ok("monitor", "notify", "--after", "0s")
        assert [told["pipelines"] for told in inbox.got] == [["demo", "second"]] * expected
        inbox.got = [told for told in inbox.got if "127.0.0.1:1 does not answer" not in told["text"]]
        assert inbox.got == []
    world.ok("monitor", "notify", "second", "--after", "0s")
    for path in world.pipelines.glob("*.yaml"):
        path.write_text(path.read_text().replace("127.0.0.1:1", address))
    world.ok("run", "demo")
    world.ok("monitor", "notify", "second", "--after", "0s")
    assert inbox.texts() == [], "nobody has looked at the other one"
    world.ok("monitor", "notify", "--after", "0s")
    [over] = inbox.texts()
    assert over.startswith("demo, second: no longer ")
    assert over.endswith("127.0.0.1:1 does not answer")


def test_what_cannot_be_delivered_is_told_by_the_next_call_and_the_address_is_no_secret_told(
    world: World, inbox: Inbox
) -> None:
    fail(world)
    inbox.status = 500
    failed = world.here("monitor", "notify", "--after", "0s")
    assert failed.exit_code == 1
    assert "the webhook answered 500" in failed.stderr
    assert "[error=not-done]" in failed.stderr
    assert "the next tidemark monitor notify sends it again" in failed.stderr
    assert "very-secret" not in failed.output + (world.folder / "_notified.json").read_text()
    inbox.status = 200
    world.ok("monitor", "notify", "--after", "0s")
    assert len(inbox.texts()) == 1


def test_a_command_gets_the_message_and_its_failure_is_named(world: World, tmp_path: Path) -> None:
    fail(world)
    file = tmp_path / "told.json"
    script = f"import pathlib, sys; pathlib.Path({str(file)!r}).write_text(sys.stdin.read())"
    broken = shlex.join([sys.executable, "-c", "import sys; sys.exit('no network')"])
    failed = world.here("monitor", "notify", "--after", "0s", "--command", broken)
    assert failed.exit_code == 1
    assert "ended with 1: no network" in failed.stderr
    assert world.here("monitor", "notify", "--command", "no-such-program").exit_code == 0, (
        "it is too early to tell anybody"
    )
    assert "no-such-program" in world.here("monitor", "notify", "--after", "0s", "--command", "no-such-program").stderr
    printed = world.ok("monitor", "notify", "--after", "0s", "--command", shlex.join([sys.executable, "-c", script]))
    assert json.loads(file.read_text())["text"] == printed.strip()


def test_without_anybody_to_tell_it_is_wrong_use_and_a_dry_run_tells_nobody(world: World) -> None:
    fail(world)
    refused = world.here("monitor", "notify")
    assert refused.exit_code == 2
    assert "export TIDEMARK_WEBHOOK=" in refused.stderr
    for _ in range(2):
        assert "demo: failed: manifest 1" in world.ok("monitor", "notify", "--dry-run", "--after", "0s")
    assert not (world.folder / "_notified.json").exists()
    (world.folder / "_notified.json").write_text("{")
    damaged = world.here("monitor", "notify", "--dry-run")
    assert (damaged.exit_code, "is damaged" in damaged.stderr) == (2, True)


def test_a_problem_that_nobody_could_look_for_is_not_over(world: World, inbox: Inbox) -> None:
    world.settings["max_age"] = "1h"
    world.write_pipeline()
    world.produce(10)
    world.ok("run", "demo", "--until", "2024-03-02")
    world.ok("monitor", "notify", "--after", "0s")
    assert [text.split(": ")[1] for text in inbox.texts()] == ["late"]
    file = world.pipelines / "demo.yaml"
    right = file.read_text()
    file.write_text(right + "sinkz: 1\n")
    world.ok("monitor", "notify", "--after", "0s")
    assert [text.split(": ")[1] for text in inbox.texts()] == ["failed"]
    file.write_text(right)
    world.ok("monitor", "notify", "--after", "0s")
    assert [text.split(": ")[1] for text in inbox.texts()] == ["no longer failed"]
    world.ok("run", "demo")
    world.ok("monitor", "notify", "--after", "0s")
    assert [text.split(": ")[1] for text in inbox.texts()] == ["no longer late"]


def test_killed_after_a_delivery_it_tells_that_one_again_and_no_other(world: World, tmp_path: Path) -> None:
    world.settings |= {"kafka": {"slice": {"max_records": 10}}}
    world.write_pipeline()
    world.produce(30, bad_every=10)
    assert world.here("run", "demo").exit_code == 1
    told = tmp_path / "told"
    script = tmp_path / "page.py"
    script.write_text(
        "import json, os, pathlib, signal, sys\n"
        f"told = pathlib.Path({str(told)!r})\n"
        "with told.open('a') as file:\n"
        "    print(json.load(sys.stdin)['manifest_id'], file=file)\n"
        "if len(told.read_text().split()) == 2:\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    words = ("monitor", "notify", "--after", "0s", "--command", shlex.join([sys.executable, str(script)]))
    assert world.start(*words).wait() == -signal.SIGKILL
    assert told.read_text().split() == ["1", "2"]
    world.ok(*words)
    assert told.read_text().split() == ["1", "2", "2", "3"]
