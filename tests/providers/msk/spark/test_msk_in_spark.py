"""Spark's Kafka client logs in at MSK's door by AWS's own jar, which the door's check takes as AWS does."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import STATE
from sandbox.bootstrap.jars import fetch_for_tests
from tests.worlds.msk_world import CONNECTION, KEYS, Msk
from tests.worlds.world import World
from tidemark.spark.jars import fitting_jars


@pytest.fixture
def world(
    tmp_path: Path, database: str, msk: Msk, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    jars = tmp_path / "jars"
    shutil.copytree(fitting_jars(spark_jars), jars)
    kafka = {"bootstrap_servers": None, "connection": CONNECTION}
    opened = World(tmp_path, database, msk.broker, jars, settings={"kafka": kafka}, targets=msk.targets())
    yield opened
    opened.stop()


@pytest.mark.thorough  # three starts of Spark
def test_spark_reads_with_jar_and_rights_and_says_which_it_lacks(msk: Msk, world: World) -> None:
    world.produce(60, bad_every=20)
    refused = world.tidemark("run", "demo", spark=True)
    assert refused.returncode != 0
    assert "its class path lacks software.amazon.msk.auth.iam.IAM" in refused.stderr
    assert "tidemark spark jars fetches it" in refused.stderr
    for jar in fetch_for_tests(STATE, "msk")[0].iterdir():
        shutil.copy(jar, world.spark_jars)
    msk.gate.refused.add("AWS_MSK_IAM")  # of executors without rights; librdkafka of this machine has some
    refused = world.tidemark("retry", "demo", spark=True)
    assert "Kafka does not let Spark read" in refused.stderr
    assert "on Spark's machines: give the identity that `aws sts get-caller-identity` shows" in refused.stderr
    msk.gate.refused.clear()
    before = len(msk.gate.logins)
    done = world.tidemark("retry", "demo", spark=True)
    assert done.returncode == 0, done.stderr
    world.assert_complete()
    assert "AWS_MSK_IAM" in {login.mechanism for login in msk.gate.logins[before:]}
