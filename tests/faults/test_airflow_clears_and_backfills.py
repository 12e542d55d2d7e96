"""Clears and backfills that run the tasks again, on a real Airflow: each does what the user expects, and nothing
twice."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld, wake
from tests.worlds.records_of_hours import last_tick, produce_hours

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine


@pytest.mark.exhaustive
def test_a_cleared_failed_task_does_its_manifest_only_and_a_cleared_run_replays_all_of_it(
    airflow_world: AirflowWorld,
) -> None:
    demo = airflow_world
    demo.world.settings["kafka"] = {"slice": {"max_records": 40}}
    demo.world.write_pipeline()
    demo.world.produce(60)
    demo.deploy()
    run_id = demo.trigger()
    demo.hold_spark(1)
    demo.airflow.set_task_state(DAG, run_id, ("process", 0), "failed")
    demo.fail(run_id)
    assert demo.attempts(2) == [(1, "published")]
    assert demo.states(run_id)["close", -1] == "upstream_failed"

    demo.airflow.clear(DAG, run_id, [("process", 0), ("close", -1)])
    demo.succeed(run_id)
    assert demo.attempts(1) == [(1, "failed"), (2, "published")]
    assert demo.attempts(2) == [(1, "published")]
    demo.world.assert_complete()

    before = {path: path.stat().st_mtime_ns for path in demo.world.lake.rglob("*.parquet")}
    demo.airflow.clear(DAG, run_id)
    demo.succeed(run_id)
    assert demo.attempts(1) == [(1, "failed"), (2, "published"), (3, "unchanged")]
    assert demo.attempts(2) == [(1, "published"), (2, "unchanged")]
    assert {path: path.stat().st_mtime_ns for path in demo.world.lake.rglob("*.parquet")} == before
    demo.world.assert_complete()


@pytest.mark.exhaustive
def test_a_backfill_told_to_replay_does_the_manifests_of_its_interval_again(airflow_world: AirflowWorld) -> None:
    demo, hour = airflow_world, last_tick(HOUR)
    demo.world.settings |= {"schedule": "@hourly", "kafka": {"slice": {"max_records": 10}}}
    demo.world.write_pipeline()
    produce_hours(demo.world, hour, 3)
    for back in (2, 1, 0):
        demo.world.ok("run", DAG, "--until", (hour - back * HOUR).isoformat(), "--run-key", f"by hand {back}")
    assert len(demo.world.json("manifests", DAG)) == 6
    demo.deploy()
    (run_id,) = demo.airflow.backfill(DAG, hour - HOUR, hour - HOUR, {"replay": True})
    demo.succeed(run_id)
    assert [manifest["attempt"] for manifest in demo.world.manifests()] == [1, 1, 2, 2, 1, 1]
    demo.world.assert_complete()
    produce_hours(demo.world, hour, 2, 5)  # late, so none of it is in the interval; but the run plans it
    demo.succeed(demo.trigger({"replay": True, "plan_until": datetime.now(UTC).isoformat()}))
    demo.world.assert_complete()


@pytest.mark.exhaustive
def test_backfills_beside_a_scheduled_run_wait_for_it_and_everything_is_read_once(airflow_world: AirflowWorld) -> None:
    """I25 any schedule: a scheduled run and backfills beside it end in the same lake as one run would."""
    demo, hour = airflow_world, last_tick(HOUR)
    demo.world.settings |= {"schedule": "@hourly", "retry_delay": "10s"}
    demo.world.write_pipeline()
    produce_hours(demo.world, hour, 3)
    demo.deploy()  # off pause, the scheduler starts the newest hour by itself
    spark = demo.hold_spark(1)
    made = demo.airflow.backfill(DAG, hour - 2 * HOUR, hour - HOUR)
    assert len(made) == 2
    for run_id in made:
        wait_until(partial(waits, demo, run_id), f"{run_id} to have planned and to wait", timeout=120)
    assert demo.attempts() == [(1, "running")], "the scheduled run is at work on what covers the other two"
    wake(spark)
    runs = {run["dag_run_id"]: run["run_type"] for run in demo.airflow.runs(DAG)}
    assert sorted(runs.values()) == ["backfill", "backfill", "scheduled"]
    for run_id in runs:
        demo.succeed(run_id)
    demo.world.assert_complete()
    assert demo.attempts() == [(1, "published")]
    assert len(demo.world.json("manifests", DAG)) == 1


def waits(demo: AirflowWorld, run_id: str) -> bool:
    """Whether a run has planned, found nothing to process, and is not closed yet."""
    states = demo.states(run_id)
    steps = (("plan", "success"), ("process", "skipped"), ("close", "running"))
    return all(states.get((task, -1)) == state for task, state in steps)
