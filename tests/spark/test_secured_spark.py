"""Spark reads from a secured broker by the same connection that planned, whatever the way in."""

import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka.admin import AclOperation
from pyspark.sql import SparkSession

from tests.worlds.secured_world import CONNECTION, USER, Secured, environment
from tests.worlds.world import World
from tidemark.errors import AccessDenied, ConfigurationError
from tidemark.lifecycle.attempt import order_of, process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import RunKind
from tidemark.spark import job

# PySpark 4.0 leaves the sockets of collect() to the garbage collector.
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")]

MakeWorld = Callable[..., World]


def secrets_of(secured: Secured) -> tuple[str, ...]:
    return secured.password, secured.secret, secured.key_password


@pytest.mark.parametrize(
    "way",
    [
        "SCRAM-SHA-512",
        *(pytest.param(way, marks=pytest.mark.thorough) for way in ("mTLS", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256")),
    ],
)
def test_every_way_in_plans_reads_and_publishes(
    session: SparkSession, make_secured_world: MakeWorld, secured: Secured, way: str
) -> None:
    world = make_secured_world(way)
    world.produce(60, bad_every=20)
    context = world.context()
    planned = plan(context, Tick("one", RunKind.MANUAL, None))
    with environment(world):
        for manifest in planned.manifests:
            text = order_of(context, context.database.manifests.get(manifest), 1).to_json()
            assert f'"connection": "{CONNECTION}"' in text
            assert not any(secret in text for secret in (*secrets_of(secured), USER, "PRIVATE KEY", "sasl", "ssl"))
            assert process(context, manifest, partial(job.stage, session)).ending is Ending.PUBLISHED
    world.assert_complete()


def test_a_right_that_only_reading_needs_is_named_when_spark_lacks_it(
    session: SparkSession, make_secured_world: MakeWorld, secured: Secured
) -> None:
    world = make_secured_world("SCRAM-SHA-512")
    world.produce(10)
    secured.broker.allow(world.topic, USER, AclOperation.DESCRIBE)
    context = world.context()
    [manifest, *_] = plan(context, Tick("one", RunKind.MANUAL, None)).manifests
    started = time.monotonic()
    with environment(world), pytest.raises(AccessDenied) as caught:
        process(context, manifest, partial(job.stage, session))
    assert time.monotonic() - started < 60
    assert world.topic in caught.value.what
    assert "reading needs READ" in caught.value.next_step
    assert not any(secret in str(caught.value) for secret in secrets_of(secured))
    secured.broker.allow(world.topic, USER, AclOperation.READ)
    with environment(world):
        for waiting in unfinished(context):
            process(context, waiting.id, partial(job.stage, session))
    world.assert_complete()


def test_a_driver_that_does_not_know_the_connection_says_so(
    session: SparkSession, make_secured_world: MakeWorld, secured: Secured
) -> None:
    world = make_secured_world("SCRAM-SHA-512")
    world.produce(10)
    context = world.context()
    [manifest, *_] = plan(context, Tick("one", RunKind.MANUAL, None)).manifests
    with pytest.raises(ConfigurationError, match=f"the Kafka connection {CONNECTION} does not exist"):
        process(context, manifest, partial(job.stage, session))
