"""The copy of totals in DynamoDB: what becomes of an attempt that ends, or pauses, while it puts it."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from sandbox.services.dynamodb import DynamoDB
from tests.faults.attempts_at_once import retried_and_replayed_at_once
from tests.faults.dynamodb_proxy import DynamoProxy
from tests.faults.s3_proxy import Answer, Rule
from tests.worlds.dynamo_world import DynamoWorld
from tests.worlds.world import wait_stopped, wake

Make = Callable[..., DynamoWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 5000}}}
RECORDS = 1_200  # each is a key: two pages
BY_RECORD = {"group_by": ["n"], "values": {"records": "count", "least": "min(n)", "n_sum": "sum(n)"}}
IN_THE_COPY = "publish.mid:{}@2"  # the first is that of PostgreSQL


@pytest.fixture
def proxy(dynamodb: DynamoDB) -> Iterator[DynamoProxy]:
    with DynamoProxy(dynamodb.endpoint_url) as opened:
        yield opened


def by_record(make: Make, **settings: Any) -> DynamoWorld:
    """A world with a total for each record, in one manifest."""
    world = make(settings=ONE_MANIFEST, **settings)
    world.settings["sinks"] = [world.entry(aggregate=BY_RECORD)]
    world.write_pipeline()
    world.produce(RECORDS)
    return world


def assert_each_record_once(world: DynamoWorld, expected: range) -> None:
    totals = {item["n"]: (item["_rows"], item["records"], item["least"], item["n_sum"]) for item in world.items()}
    assert totals == {n: (1, 1, n, n) for n in expected}
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize(
    "point", [IN_THE_COPY.format("kill9"), "publish.before_record:kill9", "publish.before_mark:kill9"]
)
def test_killed_on_the_way_the_next_attempt_ends_with_every_key_once(make_dynamo_world: Make, point: str) -> None:
    """What PostgreSQL has committed is put and marked, without reading it again; else the next one makes other rows."""
    world = by_record(make_dynamo_world)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.settings["transform"] = [{"filter": "n >= 30"}]
    world.write_pipeline()
    world.ok("retry", "demo")
    whole = not point.startswith("publish.before_record")
    assert_each_record_once(world, range(0 if whole else 30, RECORDS))
    world.ok("replay", "demo", "--manifest", "1")
    assert_each_record_once(world, range(30, RECORDS))
    assert world.staging() == []


def test_an_attempt_that_wakes_between_pages_changes_nothing(make_dynamo_world: Make) -> None:
    world = by_record(make_dynamo_world)
    paused = world.start("run", "demo", "--run-key", "one", failpoint=IN_THE_COPY.format("stop"))
    wait_stopped(paused)
    world.settings["transform"] = [{"filter": "n >= 30"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1", "--take-over")
    assert_each_record_once(world, range(30, RECORDS))
    wake(paused)
    paused.wait()
    assert_each_record_once(world, range(30, RECORDS))


def test_manifests_that_change_the_same_totals_at_once_miss_nothing_of_each_other(make_dynamo_world: Make) -> None:
    world = make_dynamo_world()
    world.produce(120)
    assert retried_and_replayed_at_once(world) > 2
    world.assert_complete()


@pytest.mark.parametrize("answer", [Answer.LOST, Answer.CUT_BEFORE])
def test_a_call_that_is_lost_or_whose_answer_is_lost_is_done_again(
    make_dynamo_world: Make, proxy: DynamoProxy, answer: Answer
) -> None:
    world = by_record(make_dynamo_world, endpoint_url=proxy.endpoint_url)
    rule = proxy.arm(Rule(answer, having="PutItem", skip=7))
    world.ok("run", "demo", "--run-key", "one")
    assert rule.struck == 3
    assert_each_record_once(world, range(RECORDS))


def test_what_was_put_half_goes_on_when_the_records_are_lost(make_dynamo_world: Make, proxy: DynamoProxy) -> None:
    world = by_record(make_dynamo_world, endpoint_url=proxy.endpoint_url)
    proxy.arm(Rule(Answer.REFUSED, having="PutItem", skip=50, times=-1, status=400, code="AccessDenied"))
    assert world.here("run", "demo", "--run-key", "one").exit_code == 1
    proxy.disarm()
    [manifest] = world.manifests()
    gone = [TopicPartition(world.topic, part["partition"], part["end"]) for part in manifest["ranges"]]
    world.administer("delete_records", gone)
    world.ok("retry", "demo")
    assert_each_record_once(world, range(RECORDS))
