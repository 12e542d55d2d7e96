"""Two attempts at one manifest, made by Airflow itself: a kill or a clear while Spark works changes nothing for
readers."""

import signal
import time

import pytest

from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld, Process, wake
from tests.worlds.world import wait_stopped
from tests.worlds.world import wake as wake_command

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine


@pytest.fixture
def planned(airflow_world: AirflowWorld) -> AirflowWorld:
    """One manifest for 60 records, three of them dead letters."""
    airflow_world.world.produce(60, bad_every=20)
    airflow_world.deploy()
    return airflow_world


def assert_done_by_attempt_2(demo: AirflowWorld, dead: Process, *first: str) -> None:
    """Attempt 2 is published, attempt 1 ended in (one of) ``first``, and nobody started a third; nothing is left."""
    wait_until(lambda: not dead.alive, "the overtaken task to end", timeout=60)
    demo.wait_spark_gone()
    assert demo.attempts() in [[(1, state), (2, "published")] for state in first]
    demo.world.assert_complete()


@pytest.mark.exhaustive
@pytest.mark.parametrize("staged", [False, True], ids=["spark starting", "output staged"])
def test_supervisor_killed_spark_lives_on_and_the_retry_overlaps_it(planned: AirflowWorld, staged: bool) -> None:
    run_id = planned.trigger()
    spark = planned.hold_spark(1, staged=staged)
    task = spark[0].leader
    task.parent.send(signal.SIGKILL)
    planned.spark(2)
    wake(spark)
    wait_until(lambda: not task.alive, "the task to notice that nobody reads its log", timeout=60)
    wait_until(lambda: not any(process.alive for process in spark), "its Spark to end with it", timeout=30)
    planned.succeed(run_id)
    assert_done_by_attempt_2(planned, task, "fenced")


@pytest.mark.exhaustive
def test_worker_paused_for_longer_than_the_heartbeat_wakes_after_its_retry_has_published(planned: AirflowWorld) -> None:
    run_id = planned.trigger()
    task = planned.spark(1).leader
    planned.wait_receipt(1)
    worker = [task, task.parent]
    for process in worker:
        process.send(signal.SIGSTOP)
    planned.succeed(run_id)
    planned.world.assert_readers_complete()
    wake(worker)
    assert_done_by_attempt_2(planned, task, "fenced")


@pytest.mark.exhaustive
def test_scheduler_killed_and_restarted_the_task_is_done_by_a_second_attempt(planned: AirflowWorld) -> None:
    """The first attempt may end either way: the new scheduler resets the task, and at once two things race.

    The old supervisor learns it at its next heartbeat, within a second, and ends the task, which says failed; the new
    try starts as soon as a worker has read the DAG, and fences whoever is not dead yet.
    """
    run_id = planned.trigger()
    spark = planned.hold_spark(1)
    task = spark[0].leader
    planned.airflow.kill_component("scheduler")
    assert task.alive
    planned.airflow.start_component("scheduler")
    planned.spark(2)
    wake(spark)
    planned.succeed(run_id)
    assert_done_by_attempt_2(planned, task, "failed", "fenced")


@pytest.mark.exhaustive
def test_cleared_while_running_it_is_done_by_a_second_attempt(planned: AirflowWorld) -> None:
    """Airflow starts the next try only when the process of this one has ended; tests/characterization pins that."""
    run_id = planned.trigger()
    spark = planned.hold_spark(1, staged=True)
    task = spark[0].leader
    planned.airflow.clear(DAG, run_id, [("process", 0)])
    planned.spark(2)
    planned.succeed(run_id)
    assert not any(process.alive for process in spark), "on_kill ends Spark, also one that is stopped"
    assert_done_by_attempt_2(planned, task, "failed")


@pytest.mark.exhaustive
@pytest.mark.parametrize("staged", [False, True], ids=["spark starting", "output staged"])
def test_marked_failed_while_running_no_process_is_left_and_nothing_half(planned: AirflowWorld, staged: bool) -> None:
    run_id = planned.trigger()
    spark = planned.hold_spark(1, staged=staged)
    task = spark[0].leader
    planned.airflow.set_task_state(DAG, run_id, ("process", 0), "failed")
    planned.fail(run_id)
    wait_until(lambda: not task.alive, "the task to end", timeout=60)
    planned.wait_spark_gone()
    assert planned.attempts() == [(1, "failed")]
    assert planned.world.exact() == planned.world.listing() == planned.world.recorded()
    assert not planned.world.exact()
    assert not list(planned.world.lake.glob("_staging/*/*/*"))
    planned.world.ok("retry", "demo")
    planned.world.assert_complete()


@pytest.mark.exhaustive
def test_marked_failed_while_it_publishes_the_manifest_is_whole_or_absent(planned: AirflowWorld) -> None:
    run_id = planned.trigger()
    task = planned.spark(1).leader
    planned.wait_receipt(1)
    task.send(signal.SIGSTOP)
    planned.airflow.set_task_state(DAG, run_id, ("process", 0), "failed")
    time.sleep(2)  # the next heartbeat, one second away, answers with SIGTERM; SIGKILL follows 5 s later
    task.send(signal.SIGCONT)
    planned.fail(run_id)
    wait_until(lambda: not task.alive, "the task to end", timeout=60)
    planned.wait_spark_gone()
    planned.world.assert_whole()
    planned.world.ok("retry", "demo")
    planned.world.assert_complete()


@pytest.mark.exhaustive
def test_the_command_line_takes_over_and_airflows_task_ends_well_without_a_second_try(planned: AirflowWorld) -> None:
    run_id = planned.trigger()
    spark = planned.hold_spark(1)
    assert "attempt 1 is at work" in planned.world.here("retry", "demo").stderr
    refused = planned.world.here("replay", "demo", "--manifest", "1")
    assert refused.exit_code == 1
    planned.world.produce(20)
    planned.world.ok("run", "demo")  # plans what came since, beside the task
    planned.world.assert_whole()
    planned.world.ok("replay", "demo", "--manifest", "1", "--take-over")
    planned.world.assert_readers_complete()
    wake(spark)
    planned.succeed(run_id)
    assert planned.instance(run_id, "process", 0)["try_number"] == 1
    assert planned.attempts() == [(1, "fenced"), (2, "published")]
    planned.world.assert_complete()


@pytest.mark.exhaustive
def test_a_task_that_the_command_line_has_fenced_fails_without_a_second_try_and_fences_nobody(
    planned: AirflowWorld,
) -> None:
    """The newer attempt has not published when the task learns of it, so there is nothing yet to end well with."""
    run_id = planned.trigger()
    spark = planned.hold_spark(1)
    takes_over = ("replay", "demo", "--manifest", "1", "--take-over")
    command = planned.world.start(*takes_over, failpoint="publish.receipt:stop")
    wait_stopped(command)
    wake(spark)
    assert "attempt 1 is fenced: attempt 2 is the newest" in planned.fail(run_id)
    task = planned.instance(run_id, "process", 0)
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert planned.attempts() == [(1, "fenced"), (2, "running")]
    ended = wake_command(command)
    assert ended.returncode == 0, ended.stderr
    planned.wait_spark_gone()
    assert planned.attempts() == [(1, "fenced"), (2, "published")]
    planned.world.assert_complete()
