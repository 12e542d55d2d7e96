"""Spark itself fills a sink of each kind: in a process of its own, and on a server that stays up.

Every other test of sinks stages without Spark. `make test-spark VERSION=..` runs this folder with another PySpark.
"""

from collections.abc import Callable

import pytest

from sandbox.services.spark_server import SparkServer
from tests.worlds.world import World

# PySpark 4.0 leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


@pytest.mark.parametrize("on_server", [False, True], ids=["submit", "connect"])
def test_a_sink_of_each_kind_has_every_row_once_and_a_replay_moves_nothing(
    make_all_sinks_world: Callable[..., World], spark_server: SparkServer, *, on_server: bool
) -> None:
    world = make_all_sinks_world(partitions=2)
    how = {"on": spark_server.remote} if on_server else {"spark": True}
    world.produce(60)
    for command in ("run", "demo"), ("replay", "demo", "--manifest", "1"):
        done = world.tidemark(*command, **how)
        assert done.returncode == 0, done.stderr
        world.assert_readers_complete()
    assert [(manifest["attempt"], manifest["published_attempt"]) for manifest in world.manifests()] == [
        (2, 1), (1, 1),
    ]  # fmt: skip
    assert world.ok("audit", "demo", "--deep") == ""
