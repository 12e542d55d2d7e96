"""A bucket fed by Spark: executors put their files there themselves, with keys from their environment."""

import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.worlds.s3_world import S3World
from tidemark.storage.s3.uploads import UPLOADED_BYTES


@pytest.mark.exhaustive
def test_killed_with_spark_at_work_a_bucket_is_as_if_nothing_happened(make_s3_world: Callable[..., S3World]) -> None:
    world = make_s3_world(partitions=3, settings={"kafka": {"slice": {"max_records": 200}}})
    world.produce(300, bad_every=17)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint="stage.mid:kill9", spark=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    retried = world.tidemark("retry", "demo", spark=True)
    assert retried.returncode == 0, retried.stderr
    world.ok("run", "demo", "--run-key", "one")
    world.assert_complete()
    paths = [object_["path"] for object_ in world.json("objects", "demo")]
    assert paths
    assert all(path.startswith(f"{world.root}/raw/") for path in paths)


@pytest.mark.exhaustive
def test_a_file_that_is_really_large_is_uploaded_once_and_completed_by_whoever_publishes(
    make_s3_world: Callable[..., S3World],
) -> None:
    world = make_s3_world(settings={"kafka": {"slice": {"max_records": 200}}})
    at = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)
    records = [{"n": number, "at": at.isoformat(), "name": os.urandom(400_000).hex(), "k": 1} for number in range(48)]
    world.send(*(json.dumps(record) for record in records))
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint="publish.receipt:kill9", spark=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(world.uploads()) == 1
    retried = world.tidemark("retry", "demo", spark=True)
    assert retried.returncode == 0, retried.stderr
    (large,) = world.json("objects", "demo")
    assert large["bytes"] >= UPLOADED_BYTES
    assert large["rows"] == len(records)
    assert large["path"].endswith("-10000000.parquet")
    assert world.uploads() == world.staging() == []
    world.ok("audit", "demo", "--deep")
