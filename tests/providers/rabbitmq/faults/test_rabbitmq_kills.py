"""`kill -9` of our process and of the server while a stream of RabbitMQ is read: a retry has every record once."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from sandbox.services.rabbitmq import RabbitMQ
from tests.worlds.stream_world import StreamWorld
from tests.worlds.world import World, wait_stopped
from tidemark.failpoints import FAILPOINTS

MakeWorld = Callable[..., World]
BEFORE_PUBLICATION = FAILPOINTS[: FAILPOINTS.index("publish.marked")]
PLANS = tuple(point for point in FAILPOINTS if point.startswith("plan."))
READS = ("attempt.started", "read.before", "stage.mid", "stage.done")
PUBLICATIONS = tuple(point for point in FAILPOINTS if point.startswith("publish."))


def assert_whole(world: World) -> None:
    """Readers see each published manifest completely, and nothing twice; offsets that are stored have no record."""
    seen, spans = world.exact(), world.published_spans()
    without = sum(manifest["counts"]["invisible"] for manifest in world.manifests() if manifest["published_attempt"])
    assert max(seen.values(), default=1) == 1
    assert seen <= spans
    assert seen.total() + without == spans.total()


def killed_at(pipeline: StreamWorld, point: str, *, sent: int, spark: bool = False) -> int:
    """Kill a run of three manifests there and retry it; the number of records that were ever sent."""
    world = pipeline.world
    before = len(world.manifests())
    pipeline.produce(60, bad_every=9)
    pipeline.streams.store_offset(pipeline.name, "a reader", sent)  # takes an offset
    pipeline.produce(40, codec="lz4")
    killed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:kill9", spark=spark)
    assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
    assert_whole(world)
    published = [manifest for manifest in world.manifests()[before:] if manifest["published_attempt"]]
    assert len(published) == (0 if point in BEFORE_PUBLICATION else 1), point
    world.ok("retry", "demo")
    world.ok("run", "demo", "--run-key", point)
    assert len(world.manifests()) == before + 3, point
    pipeline.read_once(sent + 100)
    assert world.staging() == []
    return sent + 100


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("read.before", "stage.mid", "publish.receipt", "publish.before_mark"), id="quick"),
        pytest.param(PLANS + READS, id="plan and read", marks=pytest.mark.exhaustive),
        pytest.param(PUBLICATIONS, id="publish", marks=pytest.mark.exhaustive),
    ],
)
def test_killed_at_a_failpoint_every_record_of_the_stream_is_there_once(
    rabbit: RabbitMQ, make_world: MakeWorld, points: tuple[str, ...]
) -> None:
    pipeline = StreamWorld(rabbit, make_world, {"slice": {"max_records": 40}, "gaps": "tracking"})
    sent = 0
    for point in points:
        sent = killed_at(pipeline, point, sent=sent)
    pipeline.streams.delete_stream(pipeline.name)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_killed_while_spark_reads_the_stream_every_record_is_there_once(
    rabbit: RabbitMQ, make_world: MakeWorld
) -> None:
    pipeline = StreamWorld(rabbit, make_world, {"slice": {"max_records": 40}})
    sent = killed_at(pipeline, "read.before", sent=0, spark=True)
    killed_at(pipeline, "stage.mid", sent=sent, spark=True)
    pipeline.streams.delete_stream(pipeline.name)


@pytest.mark.parametrize(
    ("point", "ends"),
    [
        ("read.before", "RabbitMQ does not answer"),
        ("stage.done", ""),
        ("publish.mid", ""),
    ],
)
def test_a_server_that_dies_under_a_run_costs_at_most_an_attempt(
    mortal_rabbit: RabbitMQ, make_world: MakeWorld, point: str, ends: str
) -> None:
    """What is staged needs no server any more, but a look whether the stream is still the one that was read."""
    pipeline = StreamWorld(mortal_rabbit, make_world, {"slice": {"max_records": 1000}})
    pipeline.produce(100, bad_every=9)
    process = pipeline.world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(process)
    mortal_rabbit.kill()
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(1)
    if not ends:
        mortal_rabbit.restart()
    _, err = process.communicate(timeout=120)
    if ends:
        mortal_rabbit.restart()
    assert process.returncode in (0, 1)
    assert "Traceback" not in err
    assert ends in err
    assert_whole(pipeline.world)
    pipeline.world.ok("retry", "demo")
    pipeline.world.ok("run", "demo", "--run-key", "one")
    pipeline.read_once(100)
    assert pipeline.world.staging() == []
