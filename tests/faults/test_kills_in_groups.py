"""`kill -9` at every failpoint of a member of a group: the other members are published meanwhile, and a retry repairs
it."""

import signal
from collections import Counter
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.worlds.world import World
from tidemark.failpoints import FAILPOINTS

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

MakeWorld = Callable[..., World]
OF_PLANS = [point for point in FAILPOINTS if point.startswith("plan.")]
OF_ATTEMPTS = [point for point in FAILPOINTS if not point.startswith("plan.")]
NAMES = ("a", "b", "c")


class Group:
    """A world with a group of three topics, each of which gets a record for each kill."""

    def __init__(self, world: World, prefix: str) -> None:
        self.world = world
        self.topics = [f"{prefix}-{name}" for name in NAMES]
        self.sent: list[bytes] = []
        for topic in self.topics:
            world.add_topic(topic)

    def send(self, value: str) -> None:
        producer = self.world.broker.producer()
        for topic in self.topics:
            producer.produce(topic, value.encode())
        assert producer.flush(30) == 0
        self.sent.append(value.encode())

    def published(self, topic: str) -> Counter[bytes]:
        """What readers of the exact list of files see of a topic."""
        paths = self.world.ok("objects", f"demo.{topic}").splitlines()
        rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
        return Counter(row["value"] for row in rows if row["_topic"] == topic)

    def assert_none_twice(self) -> None:
        for topic in self.topics:
            if any(each["pipeline"] == f"demo.{topic}" for each in self.world.json("manifests", "demo")):
                assert max(self.published(topic).values(), default=1) == 1

    def assert_complete(self) -> None:
        for topic in self.topics:
            assert self.published(topic) == Counter(self.sent)
        assert {each["pipeline"]: each["state"] for each in self.world.status("demo")} == {
            f"demo.{topic}": "ok" for topic in self.topics
        }


@pytest.fixture
def group(make_world: MakeWorld, prefix: str) -> Group:
    kafka = {"topics": [], "topics_regex": rf"{prefix}-.*"}
    world = make_world(settings={"kafka": kafka, "decode": {"format": "raw"}, "event_time": {}, "each_topic": True})
    return Group(world, prefix)


def test_killed_while_a_member_is_planned_a_run_takes_up_all_and_nothing_is_there_twice(group: Group) -> None:
    world = group.world
    for at_pass in (1, 2):  # of three members
        for point in OF_PLANS:
            key = f"{point} {at_pass}"
            group.send(key)
            killed = world.tidemark("run", "demo", "--run-key", key, failpoint=f"{point}:kill9@{at_pass}")
            assert killed.returncode == -signal.SIGKILL, (key, killed.stderr)
            (world.folder / "_failpoints" / f"{point}-kill9").unlink()  # it acts once: the next pass is another one
            group.assert_none_twice()
            last = group.topics[2]
            world.ok("run", f"demo.{last}", "--run-key", f"{key} alone")
            assert group.published(last) == Counter(group.sent)
            world.ok("retry", "demo")
            world.ok("run", "demo", "--run-key", key)
            group.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_killed_while_a_member_is_processed_the_others_are_published_and_a_retry_finishes_it(group: Group) -> None:
    world, (victim, *others) = group.world, group.topics
    group.send("first")
    world.ok("run", "demo")
    for point in OF_ATTEMPTS:
        group.send(point)
        world.ok("plan", "demo", "--run-key", point)
        killed = world.tidemark("retry", f"demo.{victim}", failpoint=f"{point}:kill9")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        group.assert_none_twice()
        for topic in others:
            world.ok("retry", f"demo.{topic}")
            assert group.published(topic) == Counter(group.sent), point
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", point)
        group.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_killed_in_the_session_that_members_share_a_retry_finishes_each(group: Group) -> None:
    world = group.world
    for point in OF_ATTEMPTS:
        group.send(point)
        killed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:kill9@2")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        group.assert_none_twice()
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", point)
        group.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""
