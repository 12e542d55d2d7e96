"""docs/tutorial.md without its browser: the program and the settings of the page do what it says."""

import os
import re
import subprocess
import sys

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.broker import Broker
from tests.worlds.world import World

PAGE = (CHECKOUT / "docs" / "tutorial.md").read_text()
SETTING = re.compile(r"```yaml\non_error: (\w+)\n```")


def test_a_broken_record_fails_its_manifest_until_it_may_be_a_dead_letter(world: World, broker: Broker) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    first, then = SETTING.findall(PAGE)
    world.settings["on_error"] = first
    world.write_pipeline()
    world.produce(30)
    sent = subprocess.run(
        [sys.executable, "-c", program, world.topic],
        env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sent.stdout == "sent\n"
    failed = world.here("run", "demo")
    assert failed.exit_code == 1
    assert re.search(rf"error=undecodable-record .*topic={world.topic} partition=\d+ offset=\d+", failed.stderr)
    [unfinished] = [manifest for manifest in world.manifests() if manifest["state"] == "failed"]
    assert unfinished["published_attempt"] is None, "readers see nothing of it"
    world.settings["on_error"] = then
    world.write_pipeline()
    world.ok("retry", "demo")
    for command in ("audit demo --deep", "dead-letters demo", "history demo"):
        assert f"tidemark {command.replace('demo', 'orders')} " in PAGE
    assert world.ok("audit", "demo", "--deep") == ""
    [letter] = world.json("dead-letters", "demo")["groups"]
    assert letter["count"] == 1
    assert sum(world.exact().values()) == 31
