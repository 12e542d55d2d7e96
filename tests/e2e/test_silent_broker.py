"""A broker of this module alone says nothing for minutes, and a real Airflow tells."""

from collections.abc import Iterator

import pytest

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from tests.worlds.airflow_world import AirflowWorld, wake

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Beside the broker that all tests share: this one may stand still."""
    with Broker(tmp_path_factory.mktemp("silent"), STATE / "jars" / "kafka") as server:
        yield server


def test_a_broker_that_is_silent_for_minutes_is_one_failed_run_with_its_cause_and_the_next_one_heals(
    airflow_world: AirflowWorld, mortal: Broker
) -> None:
    demo = airflow_world
    demo.world.broker = mortal
    demo.world.create_topic()
    demo.world.settings |= {"unfinished": "retry", "retries": 1}
    demo.world.write_pipeline()
    demo.world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    held = demo.hold_spark(1)
    mortal.stop_signal()
    try:
        wake(held)
        assert "Kafka" in demo.fail(run_id)
        assert "next: " in demo.logs(run_id)
        silent = demo.trigger()
        assert "Kafka does not answer within" in demo.fail(silent)
        assert demo.states(silent)["plan", -1] == "failed"
    finally:
        mortal.cont_signal()
    demo.world.produce(20)
    mended = demo.trigger()
    demo.succeed(mended)
    assert f"not done: manifest 1 of run {run_id}" in demo.logs(mended, ("success",))
    demo.world.assert_complete()
