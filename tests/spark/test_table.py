"""Tables, and sinks of every kind, fed by Spark: executors copy their rows into staging themselves."""

import signal
from collections.abc import Callable

import pytest

from tests.worlds.all_sinks_world import AllSinksWorld
from tests.worlds.table_world import TableWorld

MakeTableWorld = Callable[..., TableWorld]


@pytest.mark.thorough
def test_spark_fills_a_sink_of_each_kind_from_one_pass(make_all_sinks_world: Callable[..., AllSinksWorld]) -> None:
    world = make_all_sinks_world(partitions=3)
    world.produce(300, bad_every=17)
    done = world.tidemark("run", "demo", spark=True)
    assert done.returncode == 0, done.stderr
    world.assert_complete()


@pytest.mark.exhaustive
def test_killed_before_the_rows_of_executors_are_merged_a_table_is_as_if_nothing_happened(
    make_table_world: MakeTableWorld,
) -> None:
    world = make_table_world(partitions=3)
    world.produce(300, bad_every=17)
    point = "publish.before_record:kill9"
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=point, spark=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.finish()
