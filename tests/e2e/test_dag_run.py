"""What a person does in Airflow, on a real one: scheduler, LocalExecutor, spark-submit, a kill on the way."""

import json
import os
import re
import signal
from datetime import timedelta
from urllib.parse import unquote

import httpx
import psycopg
import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.errors import SandboxFailed
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld, wake
from tests.worlds.records_of_hours import last_hour, last_tick, produce_hours

HOUR = timedelta(hours=1)
OVERVIEW = "/tidemark/"
pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine


def test_a_dag_run_publishes_what_was_planned_survives_a_kill_and_replays_what_is_cleared(
    airflow_world: AirflowWorld,
) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings["kafka"] = {"slice": {"max_records": 40}}
    world.settings["unfinished"] = "retry"
    world.write_pipeline()
    world.produce(60, bad_every=20)
    demo.deploy()

    # A task that waits to start bears its manifest already.
    airflow.set_pool_slots(1)
    try:
        run_id = demo.trigger()
        held = demo.hold_spark(1)
        waiting = demo.instance(run_id, "process", 1)
    finally:
        airflow.set_pool_slots(128)
    assert waiting["start_date"] is None
    assert re.fullmatch(rf"manifest 2 {world.topic} 0:\[\d+, \d+\)( 1:\[\d+, \d+\))?", waiting["rendered_map_index"])
    wake(held)
    demo.succeed(run_id)
    world.assert_complete()
    page = f"{airflow.url}/tidemark/pipelines/{DAG}"
    log = demo.logs(run_id, ("success",))
    assert f"page: {page}/manifests/1" in log
    assert f"page: {page}/manifests/2" in log
    [run] = airflow.runs(DAG)
    linked = [f"manifest {number}: {page}/manifests/{number}" for number in (1, 2)]
    assert run["note"].split("\n") == [f"pipeline {DAG}: {page}", *linked]
    manifests = world.manifests()
    assert [manifest["state"] for manifest in manifests] == ["done", "done"]
    assert sum(manifest["counts"]["dead_lettered"] for manifest in manifests) == 3
    [told] = [event["extra"] for event in airflow.asset_events(run_id)]
    assert (told["manifests"], told["read"], told["written"], told["reached"]) == ([1, 2], 60, 57, True)
    assert told["published"] == [{"manifest": number, "attempt": 1, "revision": 1} for number in (1, 2)]

    # A cleared, already successful task does its manifest once more: equal rows, so nothing moves.
    before = {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")}
    airflow.clear(DAG, run_id, [("process", 0)])
    demo.succeed(run_id)
    replayed = world.json("show", str(manifests[0]["id"]))
    assert (replayed["attempt"], replayed["published_attempt"]) == (2, 1)
    assert "airflow demo" in replayed["attempts"][-1]["actor"]
    assert len(airflow.asset_events(run_id)) == 1
    airflow.clear(DAG, run_id, [("close", -1)])
    demo.succeed(run_id)
    assert [event["extra"] for event in airflow.asset_events(run_id)] == [told, told], "once more, by the same run key"
    assert {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")} == before

    # Killed with SIGKILL in the middle of its work, the task is tried again by Airflow and loses nothing.
    world.produce(60)
    world.ok("plan", DAG)
    run_id = demo.trigger()
    spark = demo.hold_spark(1, manifest=3, staged=True)
    [note] = [run["note"] for run in airflow.runs(DAG) if run["dag_run_id"] == run_id]
    assert f"manifest 3: {page}/manifests/3" in note.split("\n")
    assert re.findall(r"not done: manifest (\d) .*; this run takes it along", note) == ["3", "4"], note
    os.killpg(spark[0].leader.pid, signal.SIGKILL)
    demo.succeed(run_id)
    world.assert_complete()
    assert demo.attempts(3) == [(1, "fenced"), (2, "published")]
    [told] = [event["extra"] for event in airflow.asset_events(run_id)]
    assert told["published"][0] == {"manifest": 3, "attempt": 2, "revision": 1}

    # A run with nothing new skips its mapped tasks and passes; what covers it is published.
    run_id = demo.trigger()
    demo.succeed(run_id)
    assert demo.states(run_id) == {("plan", -1): "success", ("process", -1): "skipped", ("close", -1): "success"}
    assert len(world.json("manifests", DAG)) == 4
    assert airflow.asset_events(run_id) == [], "nothing is new"


@pytest.mark.thorough
def test_the_page_is_for_who_is_logged_in_and_starts_a_run_in_their_name(served_world: AirflowWorld) -> None:
    demo, airflow = served_world, served_world.airflow
    demo.world.produce(40)
    demo.world.ok("plan", DAG)
    demo.deploy()
    airflow.pause(DAG)
    plugins = airflow._request("GET", "/plugins").json()["plugins"]
    [view] = [view for plugin in plugins for view in plugin["external_views"] if view["name"] == "Tidemark"]
    assert (view["href"], view["url_route"], view["nav_top_level"]) == ("/tidemark/", "tidemark", True)
    with httpx.Client(base_url=airflow.url, timeout=30, trust_env=False) as browser:
        for path in ("/tidemark/", "/tidemark/api/pipelines", f"/tidemark/pipelines/{DAG}/start/retry"):
            assert browser.get(path).status_code == 401
        login = {"username": airflow.user, "password": airflow.password}
        token = browser.post("/auth/token", json=login).json()["access_token"]
        with_token = browser.get("/tidemark/api/pipelines", headers={"Authorization": f"Bearer {token}"}).json()
        assert [(each["pipeline"], each["manifests"]["planned"]) for each in with_token] == [(DAG, 1)]
        browser.cookies.set("_token", token)
        assert f"/tidemark/pipelines/{DAG}" in browser.get("/tidemark/").text
        preview = browser.get(f"/tidemark/pipelines/{DAG}/start/retry").text
        assert "The DAG is paused" in preview
        form = {"token": re.findall(r'name="token" value="([^"]+)"', preview)[0], "why": "a test asks for it"}
        places = {browser.post(f"/tidemark/pipelines/{DAG}/start/retry", data=form).headers["location"] for _ in "ab"}
        assert f"{airflow.url}/dags" not in browser.get(places.pop()).text, "links are relative to Airflow"
        assert places == set(), "the second click starts no second run"
    [run] = airflow.runs(DAG)
    assert (run["conf"], run["triggering_user_name"]) == ({"retry_unfinished": True}, "admin")
    page = f"{airflow.url}/tidemark/pipelines/{DAG}"
    noted = [form["why"], "", f"pipeline {DAG}: {page}", f"manifest 1: {page}/manifests/1"]
    assert run["note"].split("\n") == noted
    airflow.unpause(DAG)
    demo.succeed(run["dag_run_id"])
    [run] = airflow.runs(DAG)
    assert run["note"].split("\n") == noted, "a person's reason stays when the run ends"
    assert [each["why"] for each in demo.world.json("history", DAG)] == [form["why"]]


@pytest.mark.thorough
def test_a_typo_in_the_pipeline_file_while_it_runs_stops_nothing_and_shows_where_people_look(
    airflow_world: AirflowWorld,
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    demo.world.settings["schedule"] = "@yearly"
    demo.world.write_pipeline()
    demo.world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    held = demo.hold_spark(1)  # the one run of the schedule, which found nothing, has ended
    before = airflow.dag(DAG)
    file = demo.pipelines / "demo.yaml"
    file.write_text(file.read_text().replace("source:", "sorce:"))
    airflow.parse()
    wait_until(lambda: "sorce: unknown key" in "".join(airflow.import_errors().values()), "the error", timeout=120)
    wait_until(lambda: "broken" in {tag["name"] for tag in airflow.dag(DAG)["tags"]}, "the new DAG", timeout=120)
    assert list(airflow.import_errors()) == ["tidemark_pipeline_files.py"]
    keys = ("is_stale", "has_import_errors", "timetable_summary", "next_dagrun_run_after")
    assert [airflow.dag(DAG)[key] for key in keys] == [before[key] for key in keys]
    wake(held)
    demo.succeed(run_id)
    assert demo.attempts(1) == [(1, "published")], "the running work ends as it began"

    run_id = demo.trigger()
    assert "sorce: unknown key" in demo.fail(run_id)
    assert demo.instance(run_id, "plan")["try_number"] == 1
    demo.world.produce(20)
    demo.update()
    wait_until(lambda: not airflow.import_errors(), "the error to be gone", timeout=120)
    demo.succeed(demo.trigger())
    demo.world.assert_complete()


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_pipeline_file_emptied_copied_renamed_and_deleted_while_it_runs_stops_nothing(
    airflow_world: AirflowWorld,
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    demo.world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    held = demo.hold_spark(1)
    file, others = demo.pipelines / "demo.yaml", [demo.pipelines / "copy.yaml", demo.pipelines / "renamed.yaml"]
    text = file.read_text()

    def shown(words: str) -> None:
        """Wait until Airflow shows an import error with these words, or none; the DAG must be there."""
        airflow.parse()
        wait_until(lambda: words in "".join(airflow.import_errors().values()), words, timeout=120)
        assert airflow.dag(DAG)["is_stale"] is False

    try:
        file.write_text("")
        shown("demo.yaml")
        file.write_text(text)
        others[0].write_text(text)
        shown("copy.yaml")
        others[0].unlink()
        file.rename(others[1])
        airflow.parse()
        wait_until(lambda: not airflow.import_errors(), "the error to be gone", timeout=120)
        others[1].unlink()
        shown("_pipelines/demo.json")
        wake(held)
        demo.succeed(run_id)
        assert demo.attempts(1) == [(1, "published")], "the running work ends as it began"
        assert "_pipelines/demo.json" in demo.fail(demo.trigger())
    finally:
        for other in others:
            other.unlink(missing_ok=True)
    demo.world.produce(20)
    demo.update()
    demo.succeed(demo.trigger())
    demo.world.assert_complete()


@pytest.mark.thorough
def test_the_run_after_a_failed_one_names_what_that_left_and_takes_it_along(airflow_world: AirflowWorld) -> None:
    demo, world = airflow_world, airflow_world.world
    world.settings |= {"on_error": "fail", "unfinished": "retry"}
    world.write_pipeline()
    world.produce(20, bad_every=20)
    demo.deploy()
    failed = demo.trigger()
    demo.fail(failed)
    assert demo.instance(failed, "process", 0)["try_number"] == 1, "a record that does not decode is not tried again"
    red = world.here("status")
    assert red.exit_code == 1
    assert f"in the pipeline file; then: tidemark retry {DAG}" in red.stdout

    world.settings["on_error"] = "dead_letter"
    world.write_pipeline()
    demo.update()
    world.produce(20)
    mended = demo.trigger()
    demo.succeed(mended)
    assert f"not done: manifest 1 of run {failed}" in demo.logs(mended, ("success",))
    [told] = [event["extra"] for event in demo.airflow.asset_events(mended)]
    assert (told["manifests"], told["read"]) == ([1, 2], 40)
    assert demo.attempts(1) == [(1, "failed"), (2, "published")]
    assert f"{mended} process[1] try 1" in world.json("show", "1")["attempts"][1]["actor"]
    assert world.here("status").exit_code == 0
    world.assert_complete()


def test_without_a_spark_connection_the_run_says_so_and_plans_nothing(airflow_world: AirflowWorld) -> None:
    demo = airflow_world
    demo.world.produce(10)
    demo.deploy()
    demo.airflow.delete_connection("spark_default")
    try:
        run_id = demo.trigger()
        logs = demo.fail(run_id)
    finally:
        demo.airflow.create_connection("spark_default", "spark", "local[2]")
    assert "there is no Airflow connection spark_default with a Spark master as its host" in logs
    assert "yarn" not in logs.lower()
    assert demo.instance(run_id, "plan")["try_number"] == 1, "what only a person can mend is not tried again"
    assert demo.world.json("manifests", DAG) == []


@pytest.mark.exhaustive
def test_a_task_skipped_by_hand_does_not_let_close_pass_until_it_is_done(airflow_world: AirflowWorld) -> None:
    demo = airflow_world
    demo.world.produce(60)
    demo.deploy()
    run_id = demo.trigger()
    demo.hold_spark(1)
    demo.airflow.set_task_state(DAG, run_id, ("process", 0), "skipped")
    logs = demo.fail(run_id)
    assert "1 of 1 manifests are not published: manifest 1 of run " in logs
    assert demo.states(run_id)["process", 0] == "skipped"
    assert demo.airflow.asset_events(run_id) == []
    demo.wait_spark_gone()
    demo.world.ok("retry", DAG)
    demo.airflow.clear(DAG, run_id, [("close", -1)])
    demo.succeed(run_id)
    demo.world.assert_complete()


@pytest.mark.thorough
def test_a_backfill_over_a_covered_interval_processes_nothing_and_before_the_anchor_it_fails(
    airflow_world: AirflowWorld,
) -> None:
    demo, hour = airflow_world, last_tick(HOUR)
    demo.world.settings["schedule"] = "@hourly"
    demo.world.write_pipeline(starting_offsets=(hour - 3 * HOUR).isoformat())
    produce_hours(demo.world, hour, 4)
    for back in (2, 1, 0):
        demo.world.ok("run", DAG, "--until", (hour - back * HOUR).isoformat(), "--run-key", f"by hand {back}")
    assert [manifest["id"] for manifest in demo.world.manifests()] == [1, 2, 3]
    demo.deploy()
    made = demo.airflow.backfill(DAG, hour - 4 * HOUR, hour - HOUR)
    before_the_anchor, at_the_anchor, *covered = made
    assert len(covered) == 2
    for run_id in (at_the_anchor, *covered):
        demo.succeed(run_id)
        states = demo.states(run_id)
        assert (states["plan", -1], states["process", -1], states["close", -1]) == ("success", "skipped", "success")
    logs = demo.logs(covered[0], ("success",)) + demo.logs(covered[1], ("success",))
    assert logs.count("nothing new up to offset ") == 2
    assert "; covered by manifests 1" in logs
    assert "; covered by manifests 2" in logs
    assert [manifest["attempt"] for manifest in demo.world.manifests()] == [1, 1, 1]

    logs = demo.fail(before_the_anchor)
    assert "the backfill ends before offset 10, where this pipeline's chain begins" in logs
    assert "tidemark extend-back demo --why TEXT" in logs
    demo.world.ok("extend-back", DAG, "--why", "the backfill said so")
    demo.world.ok("retry", DAG)
    demo.world.assert_complete()


@pytest.mark.thorough
def test_the_form_plans_until_a_moment_retries_what_is_unfinished_and_replays_what_is_named(
    served_world: AirflowWorld,
) -> None:
    demo, hour = served_world, last_hour()
    produce_hours(demo.world, hour, 2)
    demo.deploy()

    run_id = demo.trigger({"plan_until": (hour - HOUR).isoformat()})
    demo.succeed(run_id)
    assert sum(demo.world.exact().values()) == 20, "the hour after the moment is not read"
    assert demo.instance(run_id, "process", 0)["rendered_map_index"].startswith(f"manifest 1 {demo.world.topic} 0:[0, ")

    demo.world.ok("plan", DAG)
    run_id = demo.trigger({"retry_unfinished": True})
    demo.succeed(run_id)
    assert demo.instance(run_id, "process", 0)["rendered_map_index"].startswith("manifest 2 ")
    demo.world.assert_complete()

    run_id = demo.trigger({"replay": [1]})
    demo.succeed(run_id)
    assert demo.attempts(1) == [(1, "published"), (2, "unchanged")]
    assert demo.attempts(2) == [(1, "published")]
    demo.world.assert_complete()


@pytest.mark.thorough
def test_a_form_that_cannot_be_followed_fails_at_once_and_says_why_once(airflow_world: AirflowWorld) -> None:
    demo = airflow_world
    demo.deploy()
    run_id = demo.trigger({"replay": [999]})
    assert demo.fail(run_id).count("there is no such manifest [error=not-found pipeline=demo manifest=999]") == 1
    assert demo.instance(run_id, "plan")["try_number"] == 1
    with pytest.raises(SandboxFailed, match="'tomorrow' is not a 'date-time'"):
        demo.trigger({"plan_until": "tomorrow"})  # Airflow itself says so, where rfc3339-validator is installed


@pytest.mark.thorough
def test_the_form_foretells_in_a_dry_run_and_fills_a_sink_that_was_added(served_world: AirflowWorld) -> None:
    demo, world = served_world, served_world.world
    world.produce(20)
    world.ok("run", DAG)
    clean = f"{world.topic}-clean"
    world.broker.create_topic(clean, 1)
    servers = world.broker.bootstrap_servers
    world.settings["sinks"] = [world.lake_entry(), {"topic": {"topic": clean, "bootstrap_servers": servers, "key": []}}]
    world.write_pipeline()
    demo.deploy()

    dry = demo.trigger({"fill": "topic", "dry_run": True})
    demo.succeed(dry)
    assert f"would process manifest 1 {world.topic} 0:[0, 10) 1:[0, 10)" in demo.logs(dry, ("success",))
    assert demo.states(dry)["process", -1] == "skipped"
    assert demo.attempts(1) == [(1, "published")]

    demo.succeed(demo.trigger({"fill": "topic"}))
    shown = world.json("show", "1")["publications"]
    assert {(publication["sink"], publication["attempt"]) for publication in shown} == {("files", 1), ("topic", 2)}
    world.assert_complete()
    world.broker.delete_topic(clean)


@pytest.mark.exhaustive
def test_a_blocked_manifest_is_not_tried_again_and_says_what_a_person_must_decide(airflow_world: AirflowWorld) -> None:
    demo, world = airflow_world, airflow_world.world
    world.settings |= {"kafka": {"gaps": "none"}, "retries": 2}
    world.write_pipeline()
    world.transact(json.dumps({"n": 1, "at": "2024-03-01T00:00:00", "name": "x"}), commit=True)
    demo.deploy()
    run_id = demo.trigger()
    logs = demo.fail(run_id)
    assert "hold no record a reader may see" in logs
    assert "error=blocked" in logs
    assert "tidemark retry demo --manifest 1" in logs
    assert demo.instance(run_id, "process", 0)["try_number"] == 1
    assert "blocked" in world.here("status").stdout

    world.settings["kafka"] = {"gaps": "transactions"}
    world.write_pipeline()
    world.ok("retry", DAG, "--manifest", "1")
    assert demo.attempts(1) == [(1, "blocked"), (2, "published")]
    assert world.ok("audit", DAG, "--deep") == ""


@pytest.mark.thorough
def test_a_task_group_in_a_larger_dag_is_on_the_page_from_its_first_failed_plan_on_and_publishes_before_what_follows(
    served_world: AirflowWorld, browser: httpx.Client
) -> None:
    demo, world, airflow = served_world, served_world.world, served_world.airflow
    world.settings |= {"airflow": {"own_dag": True}, "kafka": {"slice": {"max_records": 40}}}
    world.write_pipeline()
    world.broker.delete_topic(world.topic)
    file = airflow.dags / "nightly.py"
    file.write_text(
        "from airflow.sdk import DAG, task\n"
        "from tidemark.airflow.dag import pipeline_tasks  # a DAG of airflow\n\n\n"
        "@task\ndef compute() -> None: ...\n\n\n"
        "with DAG('nightly', schedule=None) as dag:\n"
        f"    pipeline_tasks('{DAG}', group_id='copy') >> compute()\n"
    )

    def listed() -> str:
        """The text of the pipeline's row in the list of the page."""
        overview = browser.get(OVERVIEW).text
        row_and_reason = rf'<tr[^>]*>\s*<th scope="row">(?:<a [^>]*>)?{DAG}\s*<.*?</tr>\s*(?:<tr><td colspan.*?</tr>)?'
        [row] = re.findall(row_and_reason, overview, re.DOTALL)
        return str(row)

    try:
        airflow.delete_dag(DAG)  # of the test before, with its runs: Airflow keeps it for minutes
        demo.update()
        airflow.wait_dag("nightly")
        assert "no run has planned it yet" in listed()
        airflow.unpause("nightly")
        failed = airflow.trigger("nightly")
        assert airflow.wait_run("nightly", failed, lambda _: None, timeout=240) == "failed"
        row = listed()
        assert "failed" in row
        assert '<span class="soft">in DAG nightly</span>' in row
        [(run, number)] = re.findall(r'href="/dags/nightly/runs/([^"/]+)/tasks/copy\.plan\?try_number=(\d+)"', row)
        [tried] = [each for each in airflow.task_instances("nightly", failed) if each["task_id"] == "copy.plan"]
        assert (unquote(run), int(number)) == (failed, tried["try_number"])
        assert world.topic in airflow.task_log("nightly", failed, tried), "the log that the link leads to says why"
        [unplanned] = browser.get(f"{OVERVIEW}api/unplanned").json()
        assert (unplanned["pipeline"], unplanned["dag_id"], unplanned["state"]) == (DAG, "nightly", "failed")

        world.create_topic()
        world.produce(60)
        run_id = airflow.trigger("nightly")
        assert airflow.wait_run("nightly", run_id, lambda _: None, timeout=240) == "success"
        tasks = {(task["task_id"], task["map_index"]): task for task in airflow.task_instances("nightly", run_id)}
        assert {task["state"] for task in tasks.values()} == {"success"}
        assert set(tasks) == {
            ("copy.plan", -1),
            ("copy.process", 0),
            ("copy.process", 1),
            ("copy.close", -1),
            ("compute", -1),
        }
        assert str(tasks["copy.process", 1]["rendered_map_index"]).startswith(f"manifest 2 {world.topic} ")
        world.assert_complete()
        assert world.manifests()[0]["attempt"] == 1

        assert browser.get(f"{OVERVIEW}api/unplanned").json() == []
        assert f'<a href="/tidemark/pipelines/{DAG}">{DAG}</a> <span class="soft">in DAG nightly</span>' in listed()
        page = browser.get(f"{OVERVIEW}pipelines/{DAG}").text
        assert '<a data-airflow href="/dags/nightly">nightly</a>, of which this pipeline is a task group' in page
        manifest = browser.get(f"{OVERVIEW}pipelines/{DAG}/manifests/2").text
        links = re.findall(r'href="/dags/nightly/runs/([^"/]+)/tasks/copy\.process/mapped/1\?', manifest)
        assert {unquote(link) for link in links} == {run_id}, "from an attempt to the log of its task"
        start = browser.get(f"{OVERVIEW}pipelines/{DAG}/start/retry").text
        assert "task group of the DAG nightly" in start
        assert "<form method" not in start, "it would run the whole of the larger DAG"
    finally:
        file.unlink()
        airflow.delete_dag("nightly")


@pytest.mark.thorough
def test_a_dag_of_ones_own_runs_with_its_arguments_and_with_pauses_that_double(airflow_world: AirflowWorld) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings |= {"airflow": {"own_dag": True, "max_retry_delay": "2m"}, "retry_delay": "7s"}
    world.write_pipeline()
    world.produce(20)
    world.ok("run", DAG)
    file = airflow.dags / "own.py"
    file.write_text(
        "from datetime import timedelta\n"
        "from tidemark.airflow.dag import pipeline_dag  # a DAG of airflow\n\n"
        f"dag = pipeline_dag('{DAG}', dagrun_timeout=timedelta(hours=2), tags=['team-a'],\n"
        "    default_args={'owner': 'team-a', 'retries': 4},\n"
        "    process={'execution_timeout': timedelta(hours=1), 'doc_md': 'one manifest'})\n"
    )
    try:
        demo.deploy()
        details = airflow._request("GET", f"/dags/{DAG}/details").json()
        assert details["dag_run_timeout"] == "PT2H"
        assert {tag["name"] for tag in details["tags"]} == {"tidemark", "team-a"}
        tasks = {task["task_id"]: task for task in airflow._request("GET", f"/dags/{DAG}/tasks").json()["tasks"]}
        for task in tasks.values():
            assert (task["owner"], task["retries"]) == ("team-a", 4)
            assert task["retry_delay"]["seconds"] == 7
            assert task["retry_exponential_backoff"] == 2
        assert tasks["process"]["execution_timeout"]["seconds"] == 3600
        assert tasks["process"]["doc_md"] == "one manifest"
        run_id = demo.trigger()
        demo.succeed(run_id)
        assert demo.states(run_id)["process", -1] == "skipped", "nothing is new"
    finally:
        file.unlink()
        airflow.delete_dag(DAG)


@pytest.mark.thorough
def test_a_daily_dag_starts_when_its_24_hours_are_complete_and_once_more_for_late_rows(
    airflow_world: AirflowWorld,
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    first = last_tick(timedelta(days=1)) - timedelta(days=2)
    days = [f"{first + timedelta(days=number):%Y-%m-%d}" for number in range(2)]
    file = airflow.dags / "daily_roll_up.py"
    example = CHECKOUT / "include" / "pipelines" / "examples" / file.name
    file.write_text(example.read_text().replace('PIPELINE = "flights"', f'PIPELINE = "{DAG}"'))

    def rolled_up() -> list[str]:
        runs = airflow.runs(f"{DAG}_daily")
        assert {run["state"] for run in runs} <= {"queued", "running", "success"}
        return [run["partition_key"] for run in runs if run["state"] == "success"][::-1]

    def publish(value: int) -> None:
        """A record of the first day, published without Airflow, so that its run needs no Spark."""
        demo.world.send(
            json.dumps({"n": value, "at": (first + 5 * HOUR).isoformat(), "name": "x"}), at=first + 5 * HOUR
        )
        demo.world.ok("run", DAG)

    try:
        demo.deploy()
        airflow.wait_dag(f"{DAG}_daily")
        airflow.unpause(f"{DAG}_daily")
        publish(1)
        run_id = demo.trigger()
        demo.succeed(run_id)
        wait_until(lambda: sorted(rolled_up()) == days, "a run for each whole day", timeout=120)
        keys = [event["partition_key"] for event in airflow.asset_events(run_id)]
        assert len(keys) == len(set(keys)) >= 48
        publish(2)
        demo.succeed(demo.trigger())
        wait_until(lambda: len(rolled_up()) == 3, "a run for the late row", timeout=120)
        assert rolled_up()[-1] == days[0]
        assert len(airflow.runs(f"{DAG}_daily")) == 3, "the other day has no news"
    finally:
        file.unlink()
        airflow.delete_dag(f"{DAG}_daily")


def test_tasks_that_are_cleared_when_airflow_has_removed_its_xcoms_find_their_manifests(
    airflow_world: AirflowWorld,
) -> None:
    """As `airflow db clean` does with what is older than a date."""
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings["kafka"] = {"slice": {"max_records": 40}}
    world.write_pipeline()
    world.produce(60)
    demo.deploy()
    run_id = demo.trigger()
    demo.succeed(run_id)
    with psycopg.connect(airflow._metadata_dsn) as metadata:
        assert metadata.execute("DELETE FROM xcom").rowcount > 0
    airflow.clear(DAG, run_id, [("process", 1), ("close", -1)])
    demo.succeed(run_id)
    assert [manifest["attempt"] for manifest in world.manifests()] == [1, 2]
    [*_, told] = [event["extra"] for event in airflow.asset_events(run_id)]
    assert told["manifests"] == [1, 2]
    world.assert_complete()
