"""The one word for a pipeline: never ok when something is wrong or unknown, with the step that leads back to ok."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from confluent_kafka import TopicPartition

import tidemark
from sandbox.services.processes import wait_until
from tests.worlds.world import World
from tidemark.airflow import shell
from tidemark.database import watch
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Unavailable, WorkFailed
from tidemark.lifecycle import close as closing
from tidemark.lifecycle import plan as planning
from tidemark.model.offsets import TopicPartition as TopicAt
from tidemark.model.partitions import Bounds
from tidemark.operations import audit as auditing
from tidemark.operations.lag import Lag, Planned, behind
from tidemark.operations.lags import AT_ONCE, Lags, ask_sources
from tidemark.operations.status import PROBLEMS, State
from tidemark.pipeline.deployed import deployed
from tidemark.pipeline.loader import find
from tidemark.views.open_metrics import HELP

MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A partition with ten published records."""
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("run", "demo")
    assert state(world) == "ok"
    return world


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def state(world: World, *words: str) -> str:
    """The word, after looking that the command line, Python and the metrics have the same one."""
    printed = world.here("status", "demo", *words)
    [view] = tidemark.status("demo", dsn=world.dsn, pipelines=world.pipelines)
    assert printed.stdout.startswith(f"demo: {view.state}")
    assert printed.exit_code == (1 if view.state in PROBLEMS else 0)
    assert view.healthy == (view.state not in PROBLEMS) == (not view.problems)
    assert not view.problems or view.problems[0].kind is view.state
    assert f'tidemark_state{{pipeline="demo",state="{view.state}"}} 1' in world.ok("monitor", "metrics", "demo")
    return view.state.value


def reason(world: World) -> tuple[str, str]:
    """What, and the next step, of the worst problem."""
    [view] = tidemark.status("demo", dsn=world.dsn, pipelines=world.pipelines)
    return view.problems[0].what, view.problems[0].next_step


def test_a_pipeline_that_nothing_runs_is_late_by_its_schedule_and_before_its_first_plan_is_no_more_than_new(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1, settings={"schedule": "@hourly"})
    world.produce(10)
    assert state(world) == "never planned"
    for hours, word in ((4, "late"), (1, "ok")):
        world.ok("run", "demo", "--until", f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%dT%H:%M}")
        assert state(world) == word
    world.settings["max_age"] = "30m"
    world.write_pipeline()
    assert state(world) == "late"
    assert reason(world)[1] == "look at the runs of the DAG, or: tidemark run demo"
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_a_pipeline_with_a_trigger_is_late_when_no_triggerer_starts_its_runs(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"trigger": {"lag": 1_000, "at_least_every": "2h"}})
    for hours, word in ((3, "late"), (2, "ok")):
        world.ok("run", "demo", "--until", f"{datetime.now(UTC) - timedelta(hours=hours):%Y-%m-%dT%H:%M}")
        assert state(world) == word
    world.settings["schedule"] = "@yearly"
    world.settings["trigger"] = {"lag": 1_000}
    world.write_pipeline()
    assert state(world) == "late"
    assert reason(world)[1] == "look at the runs of the DAG and at Airflow's triggerer, or: tidemark run demo"
    world.settings["airflow"] = {"own_dag": True}
    world.write_pipeline()
    assert state(world) == "ok"


def test_a_pipeline_that_airflow_has_and_that_no_run_has_planned_is_late_after_two_runs_of_its_schedule(
    make_world: MakeWorld,
) -> None:
    """As when its DAG is paused, or what runs a plan is killed before it can leave a note."""
    world = make_world(partitions=1, settings={"schedule": "@hourly"})
    deployed(world.pipelines, world.environment())  # as Airflow reads it
    kept = world.folder / "_pipelines" / "demo.json"
    for hours, start_date, word in (
        (0, None, "never planned"), (1, None, "never planned"), (3, None, "late"),
        (3, "2099-01-01", "never planned"), (3, None, "late"),
    ):  # fmt: skip
        world.settings["start_date"] = start_date or "2024-01-01"
        world.write_pipeline()
        deployed(world.pipelines, world.environment())
        os.utime(kept, (time.time(), time.time() - 3600 * hours))
        printed = world.here("status")
        assert printed.stdout.startswith(f"demo: {word}")
        assert printed.exit_code == (word == "late")
    assert "late: no run has planned anything since Airflow has its file, from " in printed.stdout
    assert "next: look at the runs of the DAG, or: tidemark run demo" in printed.stdout
    assert "demo: late: " in world.ok("monitor", "notify", "--dry-run", "--after", "0s")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_a_run_that_ended_before_its_cut_leaves_a_pipeline_as_late_as_it_was(make_world: MakeWorld) -> None:
    world = make_world(
        partitions=1, settings={"schedule": "@hourly", "kafka": {"slice": {"max_records": 10, "max_slices": 1}}}
    )
    world.produce(5)
    world.ok("run", "demo", "--until", f"{datetime.now(UTC) - timedelta(hours=4):%Y-%m-%dT%H:%M}")
    assert state(world) == "late"
    world.produce(30)
    world.ok("run", "demo")
    assert state(world) == "late", "more waits than one slice has read"
    for _ in range(3):
        world.ok("run", "demo")
    assert state(world) == "ok"


def test_most_records_of_a_manifest_may_not_be_dead_letters_unless_the_file_says_so(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(1, bad_every=1)
    world.ok("run", "demo")
    world.produce(10, bad_every=2)
    world.ok("run", "demo")
    world.produce(10, bad_every=1)
    assert world.here("run", "demo").exit_code == 1
    assert state(world) == "failed"
    assert "and max_dead_letters is 50%: " in reason(world)[0]


def test_plans_that_fail_are_told_until_one_succeeds(world: World) -> None:
    world.write_pipeline(topics=[world.topic, "no-such-topic"])
    for _ in range(2):
        assert world.here("run", "demo").exit_code == 2
    world.write_pipeline()
    what, next_step = reason(world)
    assert state(world) == "failed"
    assert what.startswith("plan has failed 2 times since ")
    assert "no-such-topic" in what + next_step
    world.ok("run", "demo")
    assert state(world) == "ok"


@pytest.mark.parametrize("point", ["plan.before_commit", "plan.after_commit"])
def test_a_plan_that_was_killed_is_told_when_it_should_have_ended_unless_it_had_planned(
    world: World, point: str
) -> None:
    assert world.tidemark("plan", "demo", failpoint=f"{point}:kill9").returncode == -signal.SIGKILL
    assert state(world) == "ok", "it may still be at work"
    with psycopg.connect(world.dsn) as connection:
        connection.execute("UPDATE tidemark.failed_task SET since = since - interval '11 minutes'")
    if point == "plan.after_commit":
        assert state(world) == "ok"
        return
    what, next_step = reason(world)
    assert (state(world), next_step) == ("failed", "tidemark run demo")
    assert what.startswith("plan began ")
    assert what.endswith(" and has not ended: it was killed, or it hangs")
    world.ok(*next_step.removeprefix("tidemark ").split())
    assert state(world) == "ok"


def test_a_plan_up_to_a_time_that_was_killed_says_nothing_about_the_next_one(world: World) -> None:
    words = ("plan", "demo", "--until", "2024-03-01T01:00")
    assert world.tidemark(*words, failpoint="plan.before_commit:kill9").returncode == -signal.SIGKILL
    with ManifestDatabase(world.dsn, "test") as database:
        assert database.tasks.failed("demo") == []


def test_a_closing_that_was_killed_is_told_too(world: World) -> None:
    world.produce(10)
    assert world.tidemark("run", "demo", failpoint="hours.before_commit:kill9").returncode == -signal.SIGKILL
    with psycopg.connect(world.dsn) as connection:
        connection.execute("UPDATE tidemark.failed_task SET since = since - interval '11 minutes'")
    assert state(world) == "failed"
    assert reason(world)[0].startswith("close began ")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_closings_that_are_killed_one_after_the_other_are_told_too(world: World) -> None:
    world.produce(10)
    for point in ("hours.before_commit", "hours.after_commit"):
        assert world.tidemark("run", "demo", failpoint=f"{point}:kill9").returncode == -signal.SIGKILL
        with psycopg.connect(world.dsn) as connection:
            connection.execute("UPDATE tidemark.failed_task SET since = since - interval '6 minutes'")
    assert state(world) == "failed"
    world.ok("run", "demo")
    assert state(world) == "ok"


def hours_older(world: World, hours: int) -> None:
    """All that was planned and done was so many hours earlier, up to the same time."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        for table, columns in (
            ("run", ("planned_at",)), ("manifest", ("created_at", "done_at")), ("attempt", ("started_at", "ended_at")),
            ("hour", ("complete_at",)),
        ):  # fmt: skip
            earlier = ", ".join(f"{column} = {column} - interval '{hours} hours'" for column in columns)
            connection.execute(f"UPDATE tidemark.{table} SET {earlier}")


@pytest.mark.parametrize("unfinished", ["retry", "fail", "report"])
def test_hours_that_no_closing_closes_since_it_dies_before_it_begins_are_told(
    make_world: MakeWorld, unfinished: str
) -> None:
    world = make_world(partitions=1, settings={"schedule": "@hourly", "unfinished": unfinished})
    world.produce(10)
    world.ok("run", "demo")
    hours_older(world, 5)
    assert state(world) == "ok"
    world.produce(10)
    world.ok("plan", "demo")
    world.ok("retry", "demo")
    assert state(world) == "ok", "its closing may be about to begin"
    hours_older(world, 3)
    assert state(world) == "failed"
    what, next_step = reason(world)
    assert what.startswith("2 event hours could be complete since ")
    assert next_step == "look at the task close of the DAG, or: tidemark run demo"
    world.ok("run", "demo")
    assert state(world) == "ok"
    world.ok("replay", "demo", "--manifest", "1")
    assert state(world) == "ok", "the next run closes what a replay has opened"


@pytest.mark.parametrize("unfinished", ["retry", "fail"])
def test_hours_that_stay_open_since_a_manifest_fails_again_and_again_are_told_as_that(
    make_world: MakeWorld, unfinished: str
) -> None:
    world = make_world(
        partitions=1, settings={"schedule": "@hourly", "on_error": "fail", "unfinished": unfinished, "max_age": "30m"}
    )
    world.produce(1)
    world.ok("run", "demo")
    world.produce(1, bad_every=1)
    for count in (0, 3):
        world.produce(count)
        assert world.here("run", "demo").exit_code == 1
    hours_older(world, 1)
    assert state(world) == "failed"
    next_step = reason(world)[1]
    assert next_step.endswith("or set on_error: dead_letter in the pipeline file; then: tidemark retry demo")
    world.settings |= {"on_error": "dead_letter", "max_dead_letters": None}
    world.write_pipeline()
    world.ok("retry", "demo")
    assert [hour["complete"] for hour in world.json("hours", "demo", "--incomplete")] == [False]
    world.ok("run", "demo")
    assert state(world) == "ok"


@pytest.mark.parametrize("closed_before", [False, True])
def test_hours_that_a_shorter_lateness_makes_due_at_once_wait_for_the_next_run(
    make_world: MakeWorld, closed_before: bool
) -> None:
    """Known by the last closing, or by when Airflow read the file."""
    lateness = "24h" if closed_before else "200h"
    world = make_world(
        partitions=1, settings={"schedule": "@hourly", "event_time": {"field": "at", "allowed_lateness": lateness}}
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    for ages in ((*range(5, 11), 30), (0,)):
        world.send(*(f'{{"n": {age}, "at": "{(now - timedelta(hours=age)).isoformat()}"}}' for age in ages))
        world.ok("run", "demo")
        if ages != (0,):
            hours_older(world, 4)
    assert any(hour["complete"] for hour in world.json("hours", "demo")) == closed_before
    if closed_before:  # as the last run of the schedule did
        with psycopg.connect(world.dsn) as connection:
            connection.execute("UPDATE tidemark.hour SET complete_at = now() WHERE complete_at IS NOT NULL")
    world.settings["event_time"] = {"field": "at", "allowed_lateness": "1h"}
    world.write_pipeline()
    if not closed_before:
        assert state(world) == "failed", "nobody knows since when the file says so"
        deployed(world.pipelines, world.environment())  # as Airflow reads it
    assert world.ok("status").startswith("demo: ok")
    world.ok("run", "demo")
    assert state(world) == "ok"


def hour_ago(world: World, *manifests: int) -> None:
    """These manifests were planned, and done if they are, an hour ago."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE tidemark.manifest SET created_at = created_at - interval '1 hour', "
            "done_at = done_at - interval '1 hour' WHERE id = ANY (%s)",
            [list(manifests)],
        )


def test_what_no_attempt_has_started_waits_behind_its_run_and_earlier_ones_and_not_behind_later_ones(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1, settings={"kafka": {"slice": {"max_records": 5}}})
    world.produce(10)
    world.ok("plan", "demo")
    hour_ago(world, 1, 2)
    assert state(world) == "failed"
    world.ok("retry", "demo", "--manifest", "2")
    assert state(world) == "waiting", "it is of the run that is worked on"
    hour_ago(world, 2)
    world.produce(5)
    world.ok("run", "demo")
    assert state(world) == "failed", "a later run has overtaken it"
    assert reason(world)[1] == "tidemark retry demo"
    world.ok("retry", "demo")
    assert state(world) == "ok"


def test_a_topic_that_is_another_one_is_not_ok_before_a_plan_has_met_it(world: World) -> None:
    world.administer("delete_topics", [world.topic])
    wait_until(lambda: state(world) == "unknown", "the topic to be gone", timeout=30)
    world.broker.create_topic(world.topic, 1)
    for number in (0, 20):
        world.produce(number)
        assert state(world) == "unknown"
        assert "was recreated, or is of another cluster: its id was " in reason(world)[0]
        assert "was recreated, or is of another cluster: its id was " in world.ok("lag", "demo")
    assert reason(world)[1] == "tidemark plan demo --dry-run"
    refused = world.here("plan", "demo", "--dry-run").stderr
    accept = f"tidemark accept topic demo --topic {world.topic} --why TEXT"
    assert accept in refused
    assert world.here("run", "demo").exit_code == 1
    assert (state(world), reason(world)[1]) == ("blocked", accept)
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "a-test")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_a_log_that_ends_before_what_is_planned_is_not_ok() -> None:
    at = TopicAt("t", "id", 0)
    source = mock.Mock()  # a broker whose log lost its end is in tests/faults/test_broker_dies.py
    source.partitions.return_value = [at], []
    source.bounds.return_value = {at: Bounds(0, 7, 7)}
    source.open_transactions.return_value = {}
    [part] = behind(source, Planned({at: 10}, {}))
    assert (part.lag, part.changed) == (0, "t-0 was truncated: it ends at 7, the chain at 10")


def failing_plan(world: World, run_key: str) -> None:
    with mock.patch.object(planning, "check_for_plan", side_effect=Unavailable("the lake is read-only", next_step="-")):
        assert world.here("run", "demo", "--run-key", run_key).exit_code == 1
    assert state(world) == "failed"


def test_a_plan_that_fails_before_it_begins_is_told_also_after_one_that_was_killed_when_it_had_planned(
    world: World,
) -> None:
    assert world.tidemark("plan", "demo", failpoint="plan.after_commit:kill9").returncode == -signal.SIGKILL
    with mock.patch("tidemark.cli.run.opened", side_effect=Unavailable("no way to the broker", next_step="-")):
        assert world.here("run", "demo").exit_code == 1
    assert state(world) == "failed"
    assert reason(world)[0].endswith("no way to the broker")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_an_older_run_that_is_done_again_says_nothing_about_a_newer_plan_that_fails(world: World) -> None:
    world.ok("run", "demo", "--run-key", "one")
    failing_plan(world, "two")
    world.ok("run", "demo", "--run-key", "one")
    assert state(world) == "failed"
    world.ok("run", "demo", "--run-key", "two")
    assert state(world) == "ok"


def test_a_decision_answers_the_refusal_and_no_other_failure(world: World) -> None:
    world.produce(20)
    failing_plan(world, "two")
    told = ("monitor", "notify", "--command", "true", "--after", "0s")
    assert "the lake is read-only" in world.ok(*told)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 15)])
    [view] = world.status()
    assert [problem["kind"] for problem in view["problems"]] == ["lost", "failed"]
    assert "no longer" not in world.ok(*told)
    world.ok("accept", "loss", "demo", "--why", "a test")
    assert (state(world), reason(world)[0].endswith("the lake is read-only")) == ("failed", True)
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_dead_letters_are_not_over_when_the_file_breaks(world: World) -> None:
    world.settings["max_dead_letters"] = None
    world.write_pipeline()
    for _ in range(2):
        world.produce(20, bad_every=1)
        world.ok("run", "demo")
    assert state(world) == "dead letters"
    told = ("monitor", "notify", "--command", "true", "--after", "0s")
    assert "dead letters" in world.ok(*told)
    (world.pipelines / "demo.yaml").unlink()
    shutil.rmtree(world.folder / "_pipelines", ignore_errors=True)
    assert "no longer" not in world.ok(*told)
    world.write_pipeline()
    assert "are dead letters" not in world.ok(*told), "it has been told"


def test_a_plan_of_a_key_or_time_that_a_person_gave_wrong_says_nothing_about_the_next_run(world: World) -> None:
    world.ok("run", "demo", "--run-key", "one", "--until", "2024-03-01T01:00")
    assert world.here("plan", "demo", "--run-key", "one", "--until", "2024-03-01T02:00").exit_code == 1
    assert world.here("plan", "demo", "--until", "2099-01-01").exit_code == 1
    world.write_pipeline(topics=["no-such-topic"])
    assert world.here("plan", "demo", "--dry-run").exit_code == 2
    world.write_pipeline()
    assert state(world) == "ok"


def test_a_pipeline_whose_first_plan_failed_is_told_too(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"topics": ["no-such-topic"]}})
    assert world.here("run", "demo").exit_code == 2
    assert world.here("status").stdout.startswith("demo: failed")
    with ManifestDatabase(world.dsn, "test") as database:
        assert [failed["task"] for failed in database.tasks.failed("demo")] == ["plan"]


def test_a_file_that_is_wrong_now_is_the_pipelines_and_no_other(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    right = file.read_text()
    file.write_text(right + "sinkz: 1\n")
    printed = world.here("status")
    assert printed.stdout.startswith("demo: failed")
    assert "sinkz" in printed.stdout
    assert "demo.yaml: " not in printed.stdout.replace("/demo.yaml: ", "")
    file.write_text(right)
    assert state(world) == "ok"


def test_what_retention_took_is_told_by_partition_without_being_asked(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(10)
    world.ok("run", "demo")
    world.produce(20)
    ends = [TopicPartition(world.topic, 0, 15), TopicPartition(world.topic, 1, 15)]
    world.administer("delete_records", ends)
    assert state(world) == "lost"
    told = world.ok("monitor", "notify", "--dry-run", "--after", "0s")
    assert [f"{world.topic}-{partition} before they were planned" in told for partition in (0, 1)] == [True, True]
    assert reason(world)[1] == "tidemark accept loss demo --why TEXT"
    world.ok("accept", "loss", "demo", "--why", "a test")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_what_an_audit_has_found_stands_until_one_finds_nothing(world: World) -> None:
    world.data_paths()[0].unlink()
    assert world.here("audit", "demo").exit_code == 1
    assert state(world) == "damaged"
    what, next_step = reason(world)
    assert "the audit of " in what
    assert next_step.endswith("; then: tidemark audit demo")
    for command in next_step.replace("; then: ", "\n").splitlines():
        world.ok(*command.removeprefix("tidemark ").split())
    assert state(world) == "ok"


def test_what_a_comparison_of_one_manifest_has_found_stands_too_and_a_silent_sink_is_nothing_found(
    world: World,
) -> None:
    file = world.data_paths()[0]
    away = file.with_name("away")
    assert world.here("show", "1", "--compare").exit_code == 0
    with mock.patch.object(auditing, "judgement", side_effect=Unavailable("the store is silent", next_step="-")):
        assert world.here("show", "1", "--compare").exit_code == 1
    assert state(world) == "ok"
    file.rename(away)
    assert world.here("show", "1", "--compare").exit_code == 1
    assert state(world) == "damaged"
    assert "first manifest 1: " in reason(world)[0]
    away.rename(file)
    assert world.here("show", "1", "--compare").exit_code == 0
    assert state(world) == "damaged", "it looks at a part"
    world.ok("audit", "demo")
    assert state(world) == "ok"


def test_a_comparison_of_what_is_unfinished_says_nothing_about_damage(world: World) -> None:
    world.produce(10)
    assert world.tidemark("run", "demo", failpoint="publish.mid:kill9").returncode == -signal.SIGKILL
    world.here("show", "2", "--compare")
    assert [problem["kind"] for problem in world.status()[0]["problems"]] == ["failed"]
    world.ok("retry", "demo")
    assert state(world) == "ok"


def test_a_run_that_publishes_dead_letters_alone_is_not_ok(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"max_dead_letters": None})
    world.produce(10, bad_every=1)
    world.ok("run", "demo")
    assert state(world) == "dead letters"
    assert reason(world) == (
        "10 of the 10 records of the newest 1 manifest are dead letters", "tidemark dead-letters demo",
    )  # fmt: skip
    assert "not JSON" in world.ok("dead-letters", "demo")
    assert world.json("dead-letters", "demo")["count"] == 10
    world.produce(11)
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_the_next_step_is_that_of_the_error(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"on_error": "fail"})
    world.produce(10, bad_every=10)
    assert world.here("run", "demo").exit_code == 1
    assert state(world) == "failed"
    next_step = reason(world)[1]
    assert "correct the schema or the producer, or " in next_step
    assert next_step.endswith("tidemark retry demo")


def test_silent_sources_are_asked_side_by_side_and_are_never_ok(world: World, silent: str) -> None:
    right = (world.pipelines / "demo.yaml").read_text()
    for number in range(5):
        text = right.replace("pipeline: demo", f"pipeline: silent{number}")
        text = text.replace(world.broker.bootstrap_servers, silent).replace("/lake", f"/lake{number}")
        (world.pipelines / f"silent{number}.yaml").write_text(text)
    began = time.monotonic()
    printed = world.here("status")
    assert time.monotonic() - began < 30
    assert "\ndemo: ok" in f"\n{printed.stdout}"
    told = f"Kafka at {silent} does not answer; 5 pipelines wait for it: silent0, silent1, silent2, silent3, silent4\n"
    assert printed.stdout.count(told) == printed.stdout.count(silent) == 1, printed.stdout
    assert "unknown" not in printed.stdout
    assert printed.exit_code == 1
    alone = world.here("status", "silent0")
    assert alone.stdout.startswith("silent0: unknown\n  unknown: the lag is not known: Kafka")
    assert " s at " in alone.stdout or " within 8 s" in alone.stdout
    assert silent in alone.stdout
    assert {problem["shared_cause"] for problem in world.status("silent0")[0]["problems"]} == {told.partition(";")[0]}
    assert "unknown" not in world.here("status", "--no-source").stdout


def test_an_airflow_whose_database_is_silent_holds_nobody_up_and_is_never_ok(
    world: World, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (world.pipelines / "demo.yaml").read_text().replace("pipeline: demo", "pipeline: other")
    here = f"bootstrap_servers: {world.broker.bootstrap_servers}"
    assert here in text
    text = text.replace(here, "connection: of_airflow").replace("/lake", "/other")
    (world.pipelines / "other.yaml").write_text(text)
    monkeypatch.setenv(shell.DATABASE, f"postgresql+psycopg2://airflow:canary@{silent}/airflow")
    began = time.monotonic()
    printed = world.here("status")
    assert time.monotonic() - began < 30
    assert "\ndemo: ok" in f"\n{printed.stdout}"
    assert "other: unknown" in printed.stdout
    assert "next: " in printed.stdout.partition("other: unknown")[2]
    assert f"Airflow ({shell.DATABASE} of this shell) cannot be asked for connections of_airflow" in printed.stderr
    assert "canary" not in printed.stdout + printed.stderr
    assert printed.exit_code == 1


def test_many_pipelines_are_as_known_as_each_alone_and_no_more_statements_are_needed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (world.pipelines / "demo.yaml").read_text()
    verbs = {"done": "run", "lossy": "run", "new": "", "planned": "plan"}
    for name, verb in verbs.items():
        (world.pipelines / f"{name}.yaml").write_text(
            text.replace("pipeline: demo", f"pipeline: {name}").replace("/lake", f"/{name}")
        )
        if verb:
            world.ok(verb, name)
    (world.lake.parent / "lossy").rename(world.folder / "away")
    assert world.here("audit", "lossy").exit_code == 1
    statements: list[object] = []
    execute = psycopg.Connection.execute

    def counted(session: Any, statement: Any, *rest: Any, **more: Any) -> Any:
        statements.append(statement)
        return execute(session, statement, *rest, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    monkeypatch.setattr(watch, "BEAT_S", 600)  # a session that is idle for long, on a busy machine, asks by itself

    def asked(name: str | None) -> list[tidemark.Status]:
        statements.clear()
        return tidemark.status(name, dsn=world.dsn, pipelines=world.pipelines, source=False)

    each = [view for name in ("demo", *verbs) for view in asked(name)]
    alone = len(statements)
    every = asked(None)
    assert sorted(every, key=lambda view: view.pipeline_name) == each
    assert every[0].state == "damaged", "the worst stands first"
    assert [view.state for view in each] == ["ok", "ok", "damaged", "never planned", "waiting"]
    assert len(statements) <= alone + 2, statements


def test_without_its_file_a_pipeline_is_not_ok_and_a_file_is_charged_to_no_other(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    right = file.read_text()
    wrong = right.replace("pipeline: demo", "pipeline: b") + "sinkz: 1\n"
    (world.pipelines / "other.yaml").write_text(f"# made from pipeline: demo\n{wrong}")
    assert "demo: ok" in world.here("status").stdout
    assert "other.yaml: failed" in world.here("status").stdout
    (world.pipelines / "other.yaml").unlink()
    file.rename(world.folder / "away.yaml")
    assert world.here("status").stdout.startswith("demo: unknown")
    world.pipelines.rename(world.folder / "elsewhere")
    assert world.here("status").exit_code == 1
    (world.folder / "elsewhere").rename(world.pipelines)
    (world.folder / "away.yaml").rename(file)
    assert state(world) == "ok"


def test_a_transaction_that_hangs_is_told_by_the_schedule_since_its_partition_last_grew(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, settings={"schedule": "@hourly", "kafka": {"gaps": "transactions"}})
    world.produce(10)
    world.ok("run", "demo")
    hanging = world.broker.producer(transactional_id=f"{world.topic}-hangs")
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(world.topic, '{"n": 1, "at": "2024-03-01T00:00:00"}', partition=0)
    assert hanging.flush(30) == 0
    assert state(world) == "ok", "it may have begun a moment ago"
    world.produce(10)
    for hours, word in ((1, "ok"), (2, "late")):
        world.ok("run", "demo")
        hours_older(world, hours)
        world.ok("run", "demo")
        assert state(world) == word
    what, next_step = reason(world)
    assert what.startswith(f"{world.topic}-0: an open transaction holds back ")
    assert " from offset 5 on, " in what
    assert f"; nothing of {world.topic}-0 was planned since " in what
    assert next_step.startswith("when its producer hangs, stop it, or end the transaction at the broker; ")
    hanging.abort_transaction(30)
    wait_until(lambda: world.json("lag", "demo")[0]["open_transaction"] is None, "the end of it", timeout=30)
    assert state(world) == "ok"


def test_a_transaction_of_a_moment_in_a_quiet_partition_is_not_late_beside_busy_ones_elsewhere(
    make_world: MakeWorld,
) -> None:
    """No run stands for a time, since a transaction of the other partition is open at each cut."""
    world = make_world(partitions=2, settings={"schedule": "@hourly", "kafka": {"gaps": "transactions"}})
    world.produce(10)
    world.ok("run", "demo")
    busy, quiet = (world.broker.producer(transactional_id=f"{world.topic}-{name}") for name in ("busy", "quiet"))

    def begin(producer: Any, partition: int) -> None:
        producer.begin_transaction()
        producer.produce(world.topic, '{"n": 1, "at": "2024-03-01T00:00:00"}', partition=partition)
        assert producer.flush(30) == 0

    for producer in (busy, quiet):
        producer.init_transactions(30)
    begin(busy, 1)
    for _ in range(3):
        world.ok("run", "demo")
        hours_older(world, 1)
        busy.commit_transaction(30)
        begin(busy, 1)
    world.ok("run", "demo")
    begin(quiet, 0)
    assert state(world) == "ok", "it began a moment ago"
    hours_older(world, 3)
    world.ok("run", "demo")
    assert state(world) == "late", "it has been open for three hours"
    assert reason(world)[0].startswith(f"{world.topic}-0: an open transaction holds back ")
    for producer in (busy, quiet):
        producer.abort_transaction(30)


def test_what_only_a_retired_sink_showed_and_the_source_has_lost_is_given_up_as_fill_says(world: World) -> None:
    entry = world.lake_entry()["files"]
    world.settings["sinks"] = [{"files": {**entry, "name": "second", "root": f"{world.lake}2"}}]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "files", "--why", "a test")
    world.administer("delete_records", [TopicPartition(world.topic, 0, 10)])
    world.produce(10)
    world.ok("run", "demo")
    _, next_step = reason(world)
    assert next_step == "tidemark fill demo second --why TEXT"
    refused = world.here(*next_step.removeprefix("tidemark ").split())
    assert refused.exit_code == 1
    give_up = "tidemark accept damage demo --manifest 1 --why TEXT"
    assert refused.stdout.splitlines()[0].endswith(f"damaged or missing in a sink: {give_up}")
    world.ok(*give_up.removeprefix("tidemark ").split())
    assert state(world) == "ok"
    world.ok("audit", "demo")
    assert state(world) == "ok"


def test_what_only_a_retired_sink_showed_is_damaged_until_another_sink_is_filled(world: World) -> None:
    entry = world.lake_entry()["files"]
    world.settings["sinks"] = [{"files": {**entry, "name": "second", "root": f"{world.lake}2"}}]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "files", "--why", "a test")
    assert state(world) == "damaged"
    assert reason(world) == (
        "no sink shows these manifests, which are done; those that did are retired: 1",
        "tidemark fill demo second --why TEXT",
    )
    world.produce(10)
    world.ok("run", "demo")
    assert state(world) == "damaged", "the new sink is known and lacks it"
    world.ok("fill", "demo", "second", "--why", "a test")
    assert state(world) == "ok"


@pytest.mark.parametrize("airflow_has_read_it", [False, True])
def test_of_two_files_with_one_name_the_second_is_told_with_the_pipeline_too(
    world: World, airflow_has_read_it: bool
) -> None:
    if airflow_has_read_it:
        deployed(world.pipelines, world.environment())
    copy = world.pipelines / "demo2.yaml"
    copy.write_text((world.pipelines / "demo.yaml").read_text())
    for words in ((), ("demo",)):
        printed = world.here("status", *words)
        assert printed.exit_code == 1
        assert "demo: ok" in printed.stdout
        assert "demo2.yaml: failed" in printed.stdout
        assert 'is "demo", as in ' in printed.stdout
        assert "demo2.yaml: failed" in world.ok("monitor", "notify", *words, "--dry-run", "--after", "0s")
        told = ("monitor", "notify", *words, "--after", "0s", "--command", "true")
        for _ in range(2):  # it is over in between
            copy.write_text((world.pipelines / "demo.yaml").read_text())
            assert "demo2.yaml: failed" in world.ok(*told)
            assert world.ok(*told) == ""
            copy.unlink()
            assert "demo2.yaml: no longer failed" in world.ok(*told)
        copy.write_text((world.pipelines / "demo.yaml").read_text())
    copy.unlink()
    assert state(world) == "ok"


def test_a_file_that_is_wrong_before_the_first_plan_is_told_by_its_name_too(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    file = world.pipelines / "demo.yaml"
    right = file.read_text()
    for name in ("demo.yaml", "demo"):  # Airflow has kept it the second time
        file.write_text(f"{right}sinkz: 1\n")
        for words in ((), ("demo",)):
            printed = world.here("status", *words)
            assert printed.exit_code == 1
            assert printed.stdout.startswith(f"{name}: failed")
            assert "sinkz: unknown key" in printed.stdout
            told = world.ok("monitor", "notify", *words, "--dry-run", "--after", "0s")
            assert f"{name}: failed" in told
        file.write_text(right)
        deployed(world.pipelines, world.environment())
    file.unlink()
    assert "demo: failed" in world.here("status", "demo").stdout
    assert world.here("status", "other").exit_code == 2


def test_a_file_that_airflow_has_read_and_that_is_gone_or_emptied_is_why_plans_fail(world: World) -> None:
    """As on the page: the DAG is still there, and each plan fails."""
    file = world.pipelines / "demo.yaml"
    right = file.read_text()
    deployed(world.pipelines, world.environment())  # as Airflow reads it
    world.produce(10)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 20)])
    for text, why in (("", "is empty"), (None, "does not exist any more; put it back")):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        printed = world.here("status").stdout
        assert printed.startswith("demo: lost")
        assert f"  failed: {file}: {why}" in printed
        assert "demo.yaml: failed" not in printed.replace(str(file), "")
    file.write_text(right)
    world.ok("accept", "loss", "demo", "--why", "a test")
    assert state(world) == "ok"


def test_a_close_that_fails_is_told_until_one_succeeds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        full = WorkFailed("the disk is full", next_step="free some space")
        patched.setattr(closing, "close_hours", mock.Mock(side_effect=full))
        assert world.here("run", "demo").exit_code == 1
    assert state(world) == "failed"
    assert reason(world)[0].startswith("close has failed since ")
    world.ok("run", "demo")
    assert state(world) == "ok"


def test_what_failed_after_the_plan_was_stored_is_over_when_it_is_planned_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(1)
    with monkeypatch.context() as patched:
        gone = Unavailable("the database is gone", next_step="wait")
        patched.setattr(planning, "failpoint", mock.Mock(side_effect=[None, gone]))
        assert world.here("plan", "demo", "--run-key", "one").exit_code == 1
    assert state(world) == "failed"
    world.ok("plan", "demo", "--run-key", "one")
    assert state(world) == "waiting"


def test_one_bad_manifest_is_over_with_the_next_good_one_and_a_large_good_one_hides_no_bad_ones(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1, settings={"max_dead_letters": None})
    for count, bad_every, word in ((30, 0, "ok"), (3, 1, "ok"), (3, 1, "dead letters"), (3, 0, "ok")):
        world.produce(count, bad_every=bad_every)
        world.ok("run", "demo")
        assert state(world) == word


def test_a_slow_source_is_known_by_its_last_answer() -> None:
    asked: list[int] = []
    end = threading.Event()

    def slow() -> tuple[Lag, ...]:
        asked.append(1)
        if len(asked) > 1:
            end.wait(30)
        return ()

    lags = Lags(limit=2)  # for what answers at once, on a busy machine too
    try:
        assert lags.of({"demo": slow})["demo"].parts == ()
        with mock.patch("tidemark.operations.lags.FRESH", -1.0):
            assert lags.of({"demo": slow})["demo"].parts == ()
        assert len(asked) == 2
    finally:
        end.set()


def test_the_answer_of_a_source_that_the_file_does_not_name_any_more_is_none() -> None:
    end = threading.Event()

    def silent() -> tuple[Lag, ...]:
        end.wait(30)
        return ()

    lags = Lags(limit=2)  # for what answers at once, on a busy machine too
    try:
        assert lags.of({"demo": lambda: ()}, {"demo": "topic a"})["demo"].parts == ()
        assert lags.of({"demo": silent}, {"demo": "topic a"})["demo"].parts == (), "it was asked a moment ago"
        assert lags.of({"demo": silent}, {"demo": "topic b"})["demo"].parts is None
    finally:
        end.set()


def test_a_changed_file_is_asked_about_at_once(world: World) -> None:
    lags = Lags()
    with ManifestDatabase(world.dsn, "test") as database, mock.patch.dict(os.environ, world.environment()):

        def asked() -> set[str]:
            answers = ask_sources(database, {"demo": find(world.pipelines, "demo")}, lambda _: None, lags)
            parts = answers["demo"].parts
            assert parts is not None
            return {part.topic for part in parts}

        assert asked() == {world.topic}
        other = f"{world.topic}-other"
        world.broker.create_topic(other, 1)
        world.write_pipeline(topics=[world.topic, other])
        assert asked() == {world.topic, other}


def test_one_that_answers_is_heard_behind_many_that_are_silent() -> None:
    end = threading.Event()

    def silent() -> tuple[Lag, ...]:
        end.wait(30)
        return ()

    try:
        asks = {f"silent-{number}": silent for number in range(3 * AT_ONCE)}
        answers = Lags(limit=4).of({**asks, "demo": lambda: ()})
        assert answers["demo"].parts == ()
        assert {answers[name].why for name in asks} == {"the source has not answered within 4 s"}
    finally:
        end.set()


def test_a_connection_that_cannot_be_read_is_one_pipelines_and_no_others(world: World) -> None:
    def lookup(conn_id: str) -> Any:
        raise ValueError(conn_id)

    with ManifestDatabase(world.dsn, "test") as database, mock.patch.dict(os.environ, world.environment()):
        right = find(world.pipelines, "demo")
        wrong = right.model_copy(
            update={"source": right.source.model_copy(update={"connection": "sealed", "bootstrap_servers": None})}
        )
        answers = ask_sources(database, {"demo": right, "wrong": wrong}, lookup, Lags())
    assert answers["demo"].parts
    assert answers["wrong"].why == "ValueError: sealed"


def test_a_thousand_sources_are_asked_by_a_few_threads() -> None:
    begun = threading.active_count()
    most: list[int] = []

    def quick() -> tuple[Lag, ...]:
        most.append(threading.active_count() - begun)
        time.sleep(0.001)
        return ()

    answers = Lags().of({str(number): quick for number in range(1000)})
    assert {answer.parts for answer in answers.values()} == {()}
    assert 1 <= max(most) <= AT_ONCE


def test_every_word_is_a_gauge_and_is_explained(world: World) -> None:
    printed = world.ok("monitor", "metrics", "demo")
    assert [word for word in State if f'tidemark_state{{pipeline="demo",state="{word}"}}' not in printed] == []
    assert "tidemark_state" in HELP
