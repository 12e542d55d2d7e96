"""librdkafka logs in at MSK's door with tokens of AWS's signer; the door checks them as AWS does, a broker answers."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.worlds.msk_world import CONNECTION, KEY_ID, KEYS, REGION, Msk
from tests.worlds.topic_world import committed
from tests.worlds.world import World
from tidemark.errors import AccessDenied
from tidemark.kafka.cluster import KafkaCluster
from tidemark.kafka.connection import named_connection


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def world(tmp_path: Path, database: str, msk: Msk, spark_jars: Path) -> Iterator[World]:
    kafka = {"bootstrap_servers": None, "connection": CONNECTION}
    opened = World(tmp_path, database, msk.broker, spark_jars, settings={"kafka": kafka}, targets=msk.targets())
    yield opened
    opened.stop()


def cluster_of(msk: Msk) -> KafkaCluster:
    opened = named_connection(CONNECTION, "demo", lambda _: {"extra": msk.extra()})
    return KafkaCluster(opened.bootstrap_servers, opened.config)


def test_a_pipeline_plans_and_reads_with_signed_tokens(msk: Msk, world: World) -> None:
    world.produce(60, bad_every=20)
    before = len(msk.gate.logins)
    world.ok("run", "demo")
    world.assert_complete()
    logins = msk.gate.logins[before:]
    assert {(login.mechanism, login.key_id, login.region) for login in logins} == {("OAUTHBEARER", KEY_ID, REGION)}
    assert all(login.expires > datetime.now(UTC) + timedelta(minutes=13) for login in logins)


def test_a_sink_writes_its_transactions_with_such_tokens(msk: Msk, world: World) -> None:
    out = f"{world.topic}-out"
    msk.broker.create_topic(out)
    sink = {"connection": CONNECTION, "topic": out}
    world.settings["sinks"] = [world.lake_entry(), {"topic": sink}]
    world.write_pipeline()
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    assert len(committed(msk.broker.bootstrap_servers, out)) == 20


@pytest.mark.parametrize("wrong", [{"AWS_SECRET_ACCESS_KEY": "another"}, {"AWS_REGION": "us-east-1"}])
def test_keys_that_the_cluster_does_not_take(msk: Msk, wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AccessDenied, match=r"Kafka refuses this client: .*Access denied") as refused:
        cluster_of(msk).partitions(["anything"])
    region = wrong.get("AWS_REGION", REGION)
    assert f"its login was for the region {region}, which must be the cluster's" in refused.value.next_step
    assert "kafka-cluster:Connect, DescribeCluster, DescribeTopic" in refused.value.next_step
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)


def test_librdkafka_asks_for_a_new_token_before_the_old_one_expires(
    msk: Msk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.providers.msk import tokens

    made: list[float] = []

    class Brief(tokens.Tokens):
        """Says of its tokens that they expire in 2 s, which librdkafka believes; they are valid for longer."""

        def token(self, config: str) -> tuple[str, float]:
            token, expires = super().token(config)
            made.append(expires)
            return token, expires - 898

    monkeypatch.setattr(tokens, "Tokens", Brief)
    cluster = cluster_of(msk)
    cluster.partitions([world.topic])
    first = len(made)
    while len(made) < first + 2:  # the timeout of the test ends this
        cluster.partitions([world.topic])
    assert made == sorted(made)


def test_doctor_names_missing_keys_and_the_missing_jar(world: World) -> None:
    done = world.tidemark("doctor", "demo", "--json", env={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""})
    findings = {(each["check"], each["severity"]): each for each in json.loads(done.stdout)}
    jars = findings["spark jars", "failed"]
    assert "aws-msk-iam-auth is not in " in jars["message"]
    assert "tidemark spark jars" in jars["next_step"]
    source = findings["demo: kafka", "failed"]
    assert source["message"].startswith("keys of AWS for the Kafka connection were not found")
