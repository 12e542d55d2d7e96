"""Schedules on a real Airflow: what was missed is caught up, changed, filled in by a backfill, or told to be late."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import FINAL
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.inbox import Inbox
from tests.worlds.records_of_hours import last_tick, produce_at

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]  # Spark takes 20 s a manifest, more on a busy machine


def midnight() -> datetime:
    """When a daily schedule was due last, and is not due again while a test runs."""
    return last_tick(DAY)


def ended(demo: AirflowWorld, number: int, run_type: str = "scheduled") -> list[str]:
    """The ids of the runs of a type in the order of their dates, when there are so many and all have ended well."""

    def runs() -> list[tuple[str, str, str]]:
        listed = [run for run in demo.airflow.runs(DAG) if run["run_type"] == run_type]
        return sorted((run["logical_date"], run["dag_run_id"], run["state"]) for run in listed)

    wait_until(
        lambda: len(runs()) >= number and all(state in FINAL for _, _, state in runs()),
        f"{number} {run_type} runs to end",
        timeout=300,
        interval=0.5,
    )
    assert [state for _, _, state in runs()] == ["success"] * number, demo.logs(runs()[-1][1])
    return [run_id for _, run_id, _ in runs()]


def dates(demo: AirflowWorld, run_ids: list[str]) -> list[datetime]:
    """The dates of runs in the order in which they started."""
    runs = sorted(demo.airflow.runs(DAG), key=lambda run: str(run["start_date"]))
    return [datetime.fromisoformat(run["logical_date"]) for run in runs if run["dag_run_id"] in run_ids]


def planned(demo: AirflowWorld) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """(run key, [(partition, start, end)]) of each manifest."""
    return [
        (manifest["run_key"], [(part["partition"], part["start"], part["end"]) for part in manifest["ranges"]])
        for manifest in demo.world.manifests()
    ]


def both(start: int, end: int) -> list[tuple[int, int, int]]:
    """The same range of both partitions."""
    return [(partition, start, end) for partition in (0, 1)]


def assert_complete_until(demo: AirflowWorld, *times: datetime) -> None:
    demo.world.assert_complete()
    for time in times:
        demo.world.ok("complete", DAG, "--until", time.isoformat())
    hours = demo.world.json("hours", DAG)
    assert all(hour["complete"] for hour in hours)
    assert sum(hour["rows"] for hour in hours) == demo.world.produced


def test_catchup_makes_a_run_of_each_past_interval_in_order_and_names_what_is_covered(
    served_world: AirflowWorld,
) -> None:
    demo, today = served_world, midnight()
    tasks = {"pool": "catching_up", "priority_weight": 7, "queue": "spark"}
    start_date = (today - 4 * DAY).date()
    demo.world.settings |= {"schedule": "@daily", "start_date": start_date, "catchup": True, "airflow": tasks}
    demo.world.write_pipeline()
    for back in (4, 3, 2, 1):
        produce_at(demo.world, 20, today - back * DAY + 12 * HOUR)
    demo.world.ok("run", DAG, "--until", (today - 2 * DAY).isoformat(), "--run-key", "by hand")
    demo.airflow.create_pool("catching_up", 1)
    try:
        demo.deploy()
        runs = ended(demo, 5)
    finally:
        demo.airflow.delete_pool("catching_up")

    ticks = [today - back * DAY for back in (4, 3, 2, 1, 0)]
    assert dates(demo, runs) == ticks, "one after the other"
    assert [demo.states(run_id)["plan", -1] for run_id in runs] == ["success"] * 5
    covered = ["covered by manifests 1" in demo.logs(run_id, ("success",)) for run_id in runs]
    assert covered == [False, True, True, False, False], "there was nothing before the first one"
    assert planned(demo) == [
        ("by hand", both(0, 20)),
        (ticks[3].isoformat(), both(20, 30)),
        (ticks[4].isoformat(), both(30, 40)),
    ]
    assert [manifest["attempt"] for manifest in demo.world.manifests()] == [1, 1, 1]
    task = demo.instance(runs[-1], "process", 0)
    assert (task["pool"], task["queue"]) == ("catching_up", "spark")
    assert task["priority_weight"] == 7 + 1, "Airflow adds the weight of close, which follows"
    assert_complete_until(demo, *ticks)


def test_a_changed_schedule_goes_on_where_the_chain_ended(served_world: AirflowWorld) -> None:
    demo, today = served_world, midnight()
    world, airflow, before = demo.world, demo.airflow, today - 2 * DAY

    def change(schedule: str) -> None:
        world.settings["schedule"] = schedule
        world.write_pipeline()

    yearly = f"0 0 {before.day} {before.month} *"
    change(yearly)
    produce_at(world, 20, before - HOUR)
    demo.deploy()
    ended(demo, 1)
    assert planned(demo) == [(before.isoformat(), both(0, 10))]

    produce_at(world, 20, today - HOUR)
    change("@daily")
    demo.update()
    assert dates(demo, ended(demo, 2)) == [before, today]
    assert planned(demo)[1:] == [(today.isoformat(), both(10, 20))], "the first day that was due, with all before it"
    assert_complete_until(demo, before, today)

    produce_at(world, 20, datetime.now(UTC))
    change(yearly)
    demo.update()
    wait_until(
        lambda: datetime.fromisoformat(airflow.dag(DAG)["next_dagrun_run_after"]) > today + 300 * DAY,
        "the next run to be due in a year",
        timeout=120,
    )
    run_id = demo.trigger()
    demo.succeed(run_id)
    assert planned(demo)[2][1] == both(20, 30)
    assert_complete_until(demo, before, today)
    revisions = [hour["revision"] for hour in world.json("hours", DAG)]
    assert revisions == [2, 2, 2, 1, 2], "of each hour but one two runs had rows"


def test_a_later_start_date_with_catchup_has_the_runs_from_that_date_on(served_world: AirflowWorld) -> None:
    demo, world, today = served_world, served_world.world, midnight()
    before = today - 3 * DAY
    world.settings["schedule"] = f"0 0 {before.day} {before.month} *"
    world.write_pipeline()
    produce_at(world, 20, before - HOUR)
    demo.deploy()
    ended(demo, 1)

    for back in (2, 1, 0):
        produce_at(world, 20, today - back * DAY - HOUR)
    world.settings |= {"schedule": "@daily", "catchup": True, "start_date": (today - DAY).date()}
    world.write_pipeline()
    [file] = world.json("validate", "--against-history")
    assert file["changes"] == [], "the only scheduled run was at a time that the new schedule has, too"
    demo.update()
    runs = ended(demo, 4)
    assert dates(demo, runs) == [before, today - 2 * DAY, today - DAY, today]
    assert demo.states(runs[1]) == {}
    keys = [before.isoformat(), (today - DAY).isoformat(), today.isoformat()]
    assert planned(demo) == list(zip(keys, [both(0, 10), both(10, 30), both(30, 40)], strict=True))
    assert_complete_until(demo, today)


def test_a_backfill_over_what_nobody_has_read_plans_it_in_order_and_reprocesses_only_what_it_is_told_to(
    served_world: AirflowWorld,
) -> None:
    demo, today = served_world, midnight()
    demo.world.settings["schedule"] = "@daily"
    demo.world.write_pipeline()
    demo.deploy()
    ended(demo, 1)
    assert planned(demo) == [], "the run of today has found nothing"
    for back in (3, 2):
        produce_at(demo.world, 20, today - back * DAY + 12 * HOUR)
    first, second = today - 2 * DAY, today - DAY
    made = demo.airflow.backfill(DAG, first, today, max_active_runs=1)
    assert ended(demo, 2, "backfill") == made, "today has a run, which is not reprocessed"
    assert planned(demo) == [(first.isoformat(), both(0, 10)), (second.isoformat(), both(10, 20))]
    assert_complete_until(demo, first, second)

    demo.airflow.wait_backfilled(DAG)
    assert demo.airflow.backfill(DAG, first, first, reprocess="completed") == []
    demo.succeed(made[0])
    assert demo.attempts(1) == [(1, "published"), (2, "unchanged")]
    assert demo.attempts(2) == [(1, "published")]
    assert_complete_until(demo, first, second)


@contextmanager
def told_at(airflow: Airflow, address: str) -> Iterator[None]:
    """Tasks and callbacks have the address of a webhook in their environment; none may be running before and after."""
    airflow.env["TIDEMARK_WEBHOOK"] = address
    airflow.restart_scheduler()
    try:
        yield
    finally:
        del airflow.env["TIDEMARK_WEBHOOK"]
        airflow.restart_scheduler()
        airflow.wait_healthy()


def test_a_run_past_its_deadline_is_told_once_and_one_in_time_can_be_cleared(
    served_world: AirflowWorld, inbox: Inbox
) -> None:
    demo, airflow = served_world, served_world.airflow
    demo.world.settings["airflow"] = {"deadline": "1h"}
    demo.world.write_pipeline()
    demo.deploy()
    with told_at(airflow, inbox.address):
        in_time = demo.trigger({"replay": [999]})
        demo.fail(in_time)
        airflow.clear(DAG, in_time, [("plan", -1)])
        assert "there is no such manifest" in demo.fail(in_time)

        demo.world.settings["airflow"] = {"deadline": "1s"}
        demo.world.write_pipeline()
        demo.deploy()
        demo.world.produce(20)
        late = demo.trigger()
        demo.succeed(late)
        wait_until(lambda: inbox.got, "the deadline to be told", timeout=60)
    [told] = inbox.got
    text = f"demo: late: DAG run {late} was to be done 0:00:01 after it was queued, and is not; "
    assert told["text"].startswith(text)
    assert told["kind"] == "late"
    [log] = (airflow.home / "logs" / "executor_callbacks" / DAG / late).iterdir()
    assert text in log.read_text()
