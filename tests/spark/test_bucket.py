"""A bucket fed by Spark: executors put their files there themselves, with keys from their environment."""

import signal
from collections.abc import Callable

import pytest

from tests.worlds.s3_world import S3World


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
