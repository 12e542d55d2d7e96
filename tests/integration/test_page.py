"""The page's app with a real manifest database and real files; of Airflow only who asks is replaced."""

import contextlib
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock
from urllib.parse import unquote
from uuid import uuid4

import psycopg
import pytest
import yaml
from airflow import settings
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user, is_safe_url
from airflow.exceptions import AirflowException, DagRunAlreadyExists
from airflow.models import import_all_models
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.team import Team, dag_bundle_team_association_table
from airflow.models.trigger import Trigger
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from fastapi import Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import scoped_session, sessionmaker

import tidemark
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.faults.model_world import SCHEMAS, ModelWorld, ScheduleSettings
from tidemark.airflow.page import actions, content, pages, peeking, plan_tasks
from tidemark.airflow.page.actions import Action, Wish
from tidemark.airflow.page.app import build_app
from tidemark.airflow.run_conf import PARAMS
from tidemark.airflow.trigger import AttemptsEnd
from tidemark.cli import main
from tidemark.database import watch
from tidemark.database.client import ManifestDatabase
from tidemark.errors import TopicChanged, WorkFailed
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.event_hours import HourSelection
from tidemark.model.json_values import json_value
from tidemark.model.manifest import ManifestState, RunKind, count_of
from tidemark.model.order import Order
from tidemark.operations.lag import Lag
from tidemark.operations.lags import Answer, Lags
from tidemark.views.lanes import lane_views

RIGHTS = {"operator": {"GET", "POST", "PUT"}, "reader": {"GET"}, "stranger": set[str]()}
ROUTES = [route for route in build_app().routes if isinstance(route, APIRoute)]
START = "/pipelines/demo/start"
MANIFESTS = "/pipelines/demo/manifests"
ANY_REQUEST = {"type": "http", "scheme": "http", "server": ("testserver", 80), "path": "/", "headers": []}


class Rights(SimpleAuthManager):
    """Airflow's simple manager of users with rights by DAG, which it has not: those of one DAG are in `RIGHTS`."""

    of = "demo"

    def is_authorized_dag(self, *, method: Any, user: Any, details: Any = None, **_: Any) -> bool:
        return bool(details and details.id == self.of and str(method) in RIGHTS[user.username])


@pytest.fixture
def _metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What authorization and links ask of Airflow's metadata: two DAGs, and runs, of which there are none yet."""
    import_all_models()  # the tables refer to others, which are not made
    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db")
    asked = DagBundleModel, Team, DagModel, DagRun, TaskInstance, Trigger, AssetModel, TaskOutletAssetReference
    tables = [dag_bundle_team_association_table, *(model.__table__ for model in asked)]
    DagModel.metadata.create_all(engine, tables=tables)
    sessions = sessionmaker(engine, expire_on_commit=False)
    session = scoped_session(sessions)  # as Airflow has it
    session.add(DagBundleModel(name="files"))
    session.flush()
    for dag_id in ("demo", "other"):
        session.add(DagModel(dag_id=dag_id, bundle_name="files", is_paused=False, is_stale=False))
    session.commit()
    monkeypatch.setattr(settings, "Session", session)
    monkeypatch.setattr(settings, "NonScopedSession", sessions)
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", Rights())
    monkeypatch.setenv("AIRFLOW__API__SECRET_KEY", "of this test")
    yield
    session.remove()
    engine.dispose()


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    """Manifest 1 is done and has a dead letter, 2 is planned, 3 has failed. The file names a Kafka that is absent."""
    with contextlib.closing(ModelWorld(postgres, template, ScheduleSettings(max_records=10), Counter())) as made:
        (made.folder / "pipelines").mkdir()
        text = {
            "pipeline": "demo",
            "source": {"kafka": {"bootstrap_servers": "127.0.0.1:1", "topics": ["a"]}},
            "decode": {"format": "json", "schema": SCHEMAS[0]},
            "on_error": "dead_letter",
            "sinks": made.entries(),
        }
        (made.folder / "pipelines" / "demo.yaml").write_text(yaml.safe_dump(text))
        made.produce(bad=True)
        made.produce(14)
        made.produce(15, partition=1)
        made.finish(made.plan())
        made.finish(made.process(1))
        with pytest.raises(WorkFailed):
            process(made.onlooker(), 3, without_spark)
        yield made


def without_spark(_: Order) -> NoReturn:
    raise WorkFailed("there is no Spark", next_step="start one")


def environment(world: ModelWorld) -> dict[str, str]:
    pipelines = world.folder / "pipelines"
    return {"TIDEMARK_DB": world.dsn, "TIDEMARK_PIPELINES": str(pipelines), "TIDEMARK_HOME": str(world.folder)}


def commanded(world: ModelWorld, *words: str) -> Result:
    return CliRunner().invoke(main.main, words, env=environment(world), catch_exceptions=False)


def printed(world: ModelWorld, *words: str) -> str:
    """What a command prints."""
    return commanded(world, *words).stdout


@pytest.fixture
def ask(world: ModelWorld, _metadata: None) -> Iterator[Callable[..., TestClient]]:
    """A client of the app as a user; None is nobody."""

    def client(user: str | None = "operator") -> TestClient:
        app = build_app()
        if user is not None:
            app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username=user, role="user")
        return TestClient(app, follow_redirects=False)

    with (
        mock.patch.dict(os.environ, environment(world)),
        mock.patch.object(content, "lags", Lags(limit=0.01)),
    ):
        yield client


def filled(route: APIRoute, dag_id: str = "demo") -> str:
    values = {
        "dag_id": dag_id,
        "manifest_id": "1",
        "action": "retry",
        "start": "2026-03-01T00:00Z",
        "name": "page.css",
        "path:path": "no/where",
    }
    return re.sub(r"{([\w:]+)}", lambda match: values[match[1]], route.path)


def requests(routes: list[APIRoute]) -> list[tuple[str, APIRoute]]:
    return [(method, route) for route in routes for method in sorted(route.methods)]


def token_of(html: str) -> str:
    field = re.search(r'name="token" value="([^"]+)"', html)
    assert field is not None, html
    return field[1]


def test_every_route_refuses_who_is_not_logged_in(ask: Callable[..., TestClient]) -> None:
    nobody = ask(None)
    assert len(build_app().routes) == len(ROUTES), "routes of another kind would not be walked here"
    answers = {f"{method} {route.path}": nobody.request(method, filled(route)) for method, route in requests(ROUTES)}
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 401), (
        "I28 no stranger"
    )
    assert "log in to Airflow" in answers["GET /"].text
    others = ("GET", "/nowhere"), ("GET", "/api/no/where"), ("POST", "/"), ("HEAD", "/where"), ("PUT", "/api/pipelines")
    for method, path in others:
        assert nobody.request(method, path).status_code == 401, "nobody learns which addresses there are"
        assert ask().request(method, path).status_code == 404
    assert ask().get("/api/nowhere").json()["detail"] == "there is no such page, or not by this method"


def test_every_route_of_a_pipeline_refuses_who_may_not_read_its_dag(ask: Callable[..., TestClient]) -> None:
    of_dag = [route for route in ROUTES if "{dag_id}" in route.path]
    assert len(of_dag) > 10
    codes = {ask("stranger").request(method, filled(route)).status_code for method, route in requests(of_dag)}
    assert codes == {403}
    codes = {ask().request(method, filled(route, "other")).status_code for method, route in requests(of_dag)}
    assert codes == {403}, "rights on one DAG are none on another"
    stranger = ask("stranger")
    assert stranger.get("/api/pipelines").json() == []
    assert stranger.get("/api/where?topic=a&partition=0&offset=1").json() == []
    assert "demo" not in stranger.get("/").text
    assert "demo" not in stranger.get("/api/metrics").text


def test_who_may_read_a_dag_and_start_no_run_of_it_sees_all_and_starts_nothing(ask: Callable[..., TestClient]) -> None:
    reader = ask("reader")
    for path in ("/pipelines/demo", f"{MANIFESTS}/1", f"{MANIFESTS}/3"):
        page = reader.get(path)
        assert page.status_code == 200
        assert "/start/" not in page.text, "a button that ends in a 403"
        assert "/start/" in ask().get(path).text
    assert 'name="manifest"' not in reader.get("/pipelines/demo").text
    assert "you need the right to trigger runs of the DAG demo" in reader.get("/pipelines/demo").text
    for method in ("GET", "POST"):
        assert reader.request(method, f"{START}/retry").status_code == 403


def test_who_may_start_no_run_sees_counts_and_no_values_of_records(ask: Callable[..., TestClient]) -> None:
    reader, letters = ask("reader"), "/pipelines/demo/dead-letters"
    assert reader.get("/pipelines/demo/peek").status_code == 403
    assert "/peek" not in reader.get("/pipelines/demo").text
    assert 'href="/pipelines/demo/peek"' in ask().get("/pipelines/demo").text
    page = reader.get(letters).text
    assert "1 record in 1 manifest." in page
    assert "{bad 1" not in page
    assert "you need the right to trigger runs of the DAG" in page
    assert reader.get(f"/api{letters}").json()["count"] == 1
    assert reader.get(f"/api{letters}?limit=1").status_code == 403


def test_who_is_not_logged_in_is_led_to_the_login_and_back(ask: Callable[..., TestClient]) -> None:
    nobody = ask(None)

    def back(method: str, path: str) -> str:
        answer = nobody.request(method, path)
        [address] = re.findall(r'href="/api/v2/auth/login\?next=([^"]+)">Log in to Airflow</a>', answer.text)
        assert answer.status_code == 401
        assert is_safe_url(unquote(address), Request(ANY_REQUEST)), "Airflow would refuse it"
        return unquote(address)

    assert back("GET", f"{MANIFESTS}/3?compare=true") == f"{MANIFESTS}/3?compare=true"
    assert back("GET", f"{START}/replay?manifest=1&manifest=3") == f"{START}/replay?manifest=1&manifest=3"
    assert back("POST", f"{START}/retry") == "/pipelines/demo", "the form is shown again from there"
    assert "auth/login" not in nobody.get("/api/pipelines").text


def test_after_a_run_was_started_the_page_looks_again_until_it_has_ended(ask: Callable[..., TestClient]) -> None:
    client, run_id = ask(), "retry__2026-03-01T09:00:00Z_0a1b2c3d"
    page = f"/pipelines/demo?started={run_id}"
    assert "Airflow no longer has it" in client.get(page).text
    row = {"dag_id": "demo", "run_id": run_id, "run_type": "manual", "run_after": datetime.now(UTC)}
    runs = DagRun.__table__
    settings.Session.execute(runs.insert().values(**row, span_status="ended", log_template_id=None, state="queued"))
    for state, looks_again in (("queued", True), ("running", True), ("failed", False), ("success", False)):
        settings.Session.execute(runs.update().values(state=state))
        settings.Session.commit()
        shown = client.get(page).text
        assert ('data-reload="3"' in shown) is looks_again
        assert (f"It is {state};" if looks_again else f"It has ended: <strong>{state}</strong>") in shown
    assert "data-reload" not in client.get("/pipelines/demo").text


def test_the_json_is_what_the_commands_print(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    client, api = ask(), "/api/pipelines/demo"

    def command(*words: str) -> Any:
        return json.loads(printed(world, *words, "--json"))

    assert client.get(f"{api}/manifests").json() == command("manifests", "demo")
    assert client.get(f"{api}/manifests?state=done").json() == command("manifests", "--state", "done")
    assert [manifest["id"] for manifest in client.get(f"{api}/manifests?limit=1&after=3").json()] == [2]
    assert client.get(f"{api}/manifests/3").json() == command("show", "3")
    assert client.get(f"{api}/hours").json() == command("hours", "demo")
    assert client.get(f"{api}/dead-letters?limit=20").json() == command("dead-letters", "demo", "--show")
    assert client.get("/api/metrics").text == printed(world, "monitor", "metrics")
    pipeline, [status] = client.get(api).json(), command("status", "demo", "--no-source")
    *problems, unheard = pipeline["problems"]
    assert {key: pipeline[key] for key in status} | {"problems": problems} == status
    assert (unheard["kind"], pipeline["lag"]) == ("unknown", None)
    assert pipeline["manifests"] == {"planned": 1, "running": 0, "failed": 1, "blocked": 0, "done": 1}
    assert client.get("/api/pipelines").json() == [pipeline]
    [chain] = client.get("/api/where?topic=a&partition=1&offset=3").json()
    [asked] = command("where", "a", "1", "3")
    assert (chain["manifest"], chain["range"]) == (asked["manifest"], asked["range"])
    assert chain["sinks"][0]["place"] == asked["sinks"][0]["place"]
    of_python: dict[str, list[Any]] = {"lanes": tidemark.lanes("demo", dsn=world.dsn)}
    of_python["timeline?by=day"] = [tidemark.timeline("demo", by="day", dsn=world.dsn)]
    for path, views in of_python.items():
        plain = json.loads(json.dumps(views, default=json_value))
        assert client.get(f"{api}/{path}").json() == (plain if path == "lanes" else plain[0])
    assert client.get(f"{api}/manifests?limit=0").status_code == 422
    assert client.get(f"{api}/manifests/99").status_code == 404
    assert "/api/pipelines/{dag_id}/lanes" in client.get("/api/openapi.json").json()["paths"]


def test_a_silent_kafka_leaves_the_lag_unknown_and_everything_else_there(ask: Callable[..., TestClient]) -> None:
    client, why = ask(), "Connection refused, so the source has not answered within 0.01 s"
    lag = "/api/pipelines/demo/lag"
    wait_until(lambda: client.get(lag).json() == {"parts": None, "why": why}, "the reason", timeout=30)
    [pipeline] = client.get("/api/pipelines").json()
    assert (pipeline["lag"], pipeline["why_no_lag"], pipeline["dead_lettered"]) == (None, why, 1)
    assert f"unknown: {why}" in client.get("/pipelines/demo").text
    assert 'tidemark_lag_known{pipeline="demo"} 0' in client.get("/api/metrics").text


def test_the_metrics_are_text_that_scrapers_read(ask: Callable[..., TestClient]) -> None:
    answer = ask().get("/api/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    *lines, end, empty = answer.text.split("\n")
    assert (end, empty) == ("# EOF", "")
    sample = r'tidemark_\w+\{pipeline="demo"(,\w+="[\w ]+")*\} -?[\d.e+]+'
    assert [line for line in lines if not re.fullmatch(rf"# (TYPE|HELP) tidemark_.+|{sample}", line)] == []
    assert 'tidemark_records_read{pipeline="demo"} 10' in lines
    assert 'tidemark_rows_written{pipeline="demo"} 9' in lines
    [took] = [line for line in lines if line.startswith("tidemark_last_attempt_seconds{")]
    assert 0 < float(took.split()[1]) < 300


def test_the_lanes_show_what_is_done_planned_and_failed(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    lanes = ask().get("/api/pipelines/demo/lanes").json()
    assert [(lane["partition"], lane["start"], lane["end"]) for lane in lanes] == [(0, 0, 15), (1, 0, 15)]
    parts = [
        [(part["state"], part["start"], part["end"], part["first_manifest"]) for part in lane["parts"]]
        for lane in lanes
    ]
    assert parts == [[("planned", 5, 10, 2), ("failed", 10, 15, 3)]] * 2
    stamps = [lane["last_record_at"] for lane in lanes]
    assert stamps == [world.log("a", partition).entries[4].stamp.isoformat() for partition in (0, 1)]


def test_the_coverage_counts_what_is_complete_and_tells_of_the_others_what_is_done_taken_and_not_planned(
    ask: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, address = ask(), "/api/pipelines/demo/coverage"
    silent = client.get(address).json()
    assert (silent["partitions"], silent["complete"], silent["more"]) == (2, 0, 0)
    assert silent["why_no_ends"].endswith("the source has not answered within 0.01 s")
    first = silent["lanes"][0]
    assert (first["topic"], first["partition"], first["start"], first["end"]) == ("a", 0, 0, 15)
    assert first["offsets"] == {"done": 5, "planned": 5, "failed": 5}
    assert first["cells"] == [["done", 40], ["planned", 40], ["failed", 40]]
    gone = Lag("a", 0, log_start=20, planned=15, last_stable=30, log_end=30, unpublished=0, open_transaction=None)
    monkeypatch.setattr(content, "ask_sources", lambda _, asked, *__: dict.fromkeys(asked, Answer((gone,))))
    lanes = client.get(address).json()["lanes"]
    [lane] = [lane for lane in lanes if lane["partition"] == 0]
    assert lane["offsets"] == {"done": 5, "taken by retention": 15, "not planned": 10}
    assert lane["cells"] == [["done", 20], ["taken by retention", 60], ["not planned", 40]]
    page = client.get("/pipelines/demo").text
    assert "taken by retention [15, 20)" in page
    assert "Coverage in numbers" in page


def test_a_picture_has_as_many_parts_as_cells_however_many_manifests_there_are(world: ModelWorld) -> None:
    world.produce(400)
    for _ in range(10):
        world.finish(world.plan())
    with psycopg.connect(world.dsn, options="-c search_path=tidemark -c tidemark.actor=test") as connection:
        connection.execute("UPDATE manifest SET state = 'failed', reason = 'a test' WHERE id > 3 AND id % 2 = 0")
    with ManifestDatabase(world.dsn, "a test") as database:
        exact, [drawn, other] = database.ranges.not_done("demo", ()), lane_views(database, "demo", 8)
    of_first = [part for part in exact if part["chain_id"] == min(part["chain_id"] for part in exact)]
    assert len(of_first) > 30
    assert len(drawn.parts) <= 2 * 8
    assert sum(part.offsets for part in drawn.parts) == sum(part["offsets"] for part in of_first) == drawn.end - 5
    assert sum(part.manifests for part in drawn.parts) == sum(part["manifests"] for part in of_first)
    assert [part.state for part in other.parts] == ["planned", "failed"]


def test_the_pages_say_what_is_wrong_where_and_what_to_do(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    client = ask()
    assert "<dt>last audit</dt><dd>never</dd>" in client.get("/pipelines/demo").text
    printed(world, "audit", "demo")
    told = client.get("/pipelines/demo").text.partition("<dt>last audit</dt>")[2].partition("</dd>")[0]
    assert "ago, by " in told
    assert re.search(r": no difference$|named below</a>$", told)
    overview = client.get("/").text
    assert 'href="/pipelines/demo"' in overview
    assert "there is no Spark" in overview
    pipeline = client.get("/pipelines/demo").text
    assert "Retry what is not done" in pipeline
    assert re.search(r"<dt>oldest not done</dt><dd><a [^>]+>manifest 2</a>, planned \d+ s ago:<br>", pipeline)
    assert "<dt>accepted loss</dt>" not in pipeline
    oldest = pipeline.partition("<dt>oldest not done</dt>")[2].partition("</dd>")[0]
    assert "a-0 [5, 10)<br>a-1 [5, 10)" in oldest
    assert pipeline.count("the last published record is of") == 2
    assert "0 of 2 partitions complete" in pipeline
    assert 'data-words="a-0: 5 failed, 5 waiting, 5 ok, 1 dead letter"' in pipeline
    assert ">failed [10, 15), manifest 3</a>" in pipeline
    assert client.get("/pipelines/demo?state=failed").text.count('name="manifest" value=') == 1
    assert client.get("/pipelines/demo?state=").text.count('name="manifest" value=') == 3
    failed = client.get("/pipelines/demo/manifests/3").text
    assert "Nothing is published of its 10 offsets" in failed
    assert "<p><strong>there is no Spark</strong></p>" in failed
    assert '<p class="soft">start one</p>' in failed
    assert "error=work-failed" not in failed.partition("<h2>History</h2>")[0]
    done = client.get("/pipelines/demo/manifests/1").text
    assert "10 read + 0 invisible = 10 offsets" in done
    assert "10 read = 9 written + 1 dead-lettered" in done
    assert "adds up" in done
    assert 'href="/pipelines/demo/manifests/1"' in client.get("/where?topic=a&partition=0&offset=3").text
    assert "write a number" in client.get("/where?topic=a&partition=x&offset=1").text
    letters = client.get("/pipelines/demo/dead-letters").text
    assert f'href="{START}/replay?manifest=1">Replay this manifest</a>' in letters
    assert "1 record in 1 manifest." in letters
    assert "{bad 1" in letters
    assert client.get("/pipelines/demo/manifests/99").status_code == 404


def planned_up_to(world: ModelWorld, moment: datetime | None) -> None:
    """As if the run of the world had read up to another time."""
    with ManifestDatabase(world.dsn, "a test") as database, database.transaction():
        database.session.execute("UPDATE run SET planned_up_to = %s, planned_at = '2026-03-01 08:30Z'", [moment])


def test_along_time_each_period_has_the_manifests_of_its_runs_by_state(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client, address = ask(), "/api/pipelines/demo/timeline"
    timeline = client.get(address).json()
    assert (timeline["by"], len(timeline["periods"]), timeline["undone_before"]) == ("hour", 48, 0)
    [period] = [period for period in timeline["periods"] if period["runs"]]
    assert (period["runs"], period["manifests"]) == (1, {"done": 1, "failed": 1, "planned": 1})
    assert (period["first_undone"], period["read"]) == (2, 10)
    pairs = zip(timeline["periods"], timeline["periods"][1:], strict=False)
    assert all(earlier["end"] == then["start"] for earlier, then in pairs)

    planned_up_to(world, datetime(2026, 3, 1, 9, tzinfo=UTC))
    timeline = client.get(f"{address}?by=hour&until=2026-03-01T12:00").json()
    [period] = [period for period in timeline["periods"] if period["runs"]]
    assert period["end"] == "2026-03-01T09:00:00+00:00", "what a cut reads is stamped before it"
    assert timeline["periods"][-1]["end"] == "2026-03-01T12:00:00+00:00"
    week = client.get(f"{address}?by=week&until=2026-03-01T12:00:00Z").json()
    assert (week["periods"][-1]["start"], week["periods"][-1]["runs"]) == ("2026-02-23T00:00:00+00:00", 1)
    later = client.get(f"{address}?until=2026-04-01T00:00Z&by=hour").json()
    assert {period["runs"] for period in later["periods"]} == {0}
    assert (later["undone_before"], later["first_undone_before"]) == (2, 2)
    planned_up_to(world, None)
    timeline = client.get(f"{address}?by=hour&until=2026-03-01T12:00").json()
    assert [period["start"] for period in timeline["periods"] if period["runs"]] == ["2026-03-01T08:00:00+00:00"]
    assert client.get(f"{address}?until=0001-01-01").status_code == 200
    assert client.get(f"{address}?by=month").status_code == 422


def test_the_drawing_along_time_says_the_same_in_words_and_leads_to_other_times(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    planned_up_to(world, datetime(2026, 3, 1, 9, tzinfo=UTC))
    page = client.get("/pipelines/demo?by=day&to=2026-03-02T12:00").text
    words = "2026-03-01: 1 ok, 1 waiting, 1 failed, 10 records"
    assert f"<title>{words}</title>" in page
    assert f'<a href="/pipelines/demo/manifests/2">{words}</a>' in page
    assert 'aria-label="48 days from 2026-01-14 to 2026-03-02 UTC: 1 with failed manifests, 47 without a run"' in page
    assert 'href="/pipelines/demo?by=day&amp;to=2026-01-14T00%3A00%3A00%2B00%3A00#time">older</a>' in page
    newer = re.search(r'href="([^"]+)#time">newer</a>', page)
    assert newer is not None
    after = client.get(newer[1].replace("&amp;", "&")).text
    assert re.search(r"Before that <span [^>]+>2 not done</span>: <a [^>]+>manifest 2</a> and later ones", after)
    assert client.get("/pipelines/demo?by=hour").text.count("<strong>by hour</strong>") == 1


def test_hours_of_a_page_are_the_newest_and_the_open_ones_and_json_has_them_in_pages(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    with ManifestDatabase(world.dsn, "a test") as database, database.transaction():
        database.session.execute("DELETE FROM hour")
        database.session.execute(
            "INSERT INTO hour (pipeline, hour, revision, complete_at) "
            "SELECT 'demo', '2020-01-01Z'::timestamptz + number * interval '1 hour', 1, "
            "       CASE WHEN number %% 10 > 0 THEN now() END FROM generate_series(0, 99) AS number",
            [],
        )

    def asked(newest: int | None, *, incomplete: bool = False) -> list[int]:
        with ManifestDatabase(world.dsn, "a test") as database:
            rows = database.hours.find("demo", HourSelection(incomplete, newest, limit=newest and 2 * newest))
        return [(row["hour"] - datetime(2020, 1, 1, tzinfo=UTC)) // timedelta(hours=1) for row in rows]

    assert asked(None) == list(range(100))
    assert asked(3) == [70, 80, 90, 97, 98, 99]
    assert asked(48)[:6] == [0, 10, 20, 30, 40, 50]
    assert asked(2, incomplete=True) == [60, 70, 80, 90]
    client, address = ask(), "/api/pipelines/demo/hours"
    pages = [client.get(f"{address}?limit=40").json()]
    while len(pages[-1]) == 40:
        pages.append(client.get(address, params={"limit": 40, "before": pages[-1][0]["start"]}).json())
    assert [len(page) for page in pages] == [40, 40, 20]
    assert pages[2] + pages[1] + pages[0] == client.get(address).json()
    assert len(client.get(f"{address}?incomplete=true&before=2020-01-02").json()) == 3
    assert client.get(f"{address}?limit=1001").status_code == 422


def hours_of_the_world(world: ModelWorld, *hours: str) -> None:
    """The hours that a pipeline has in place of those of its records: start, revision, rows, late, complete."""
    with ManifestDatabase(world.dsn, "a test") as database, database.transaction():
        database.session.execute("DELETE FROM hour")
        for hour in hours:
            start, revision, rows, late, complete = hour.split()
            database.session.execute(
                "INSERT INTO hour (pipeline, hour, revision, rows, late, complete_at) "
                "VALUES ('demo', %s, %s, %s, %s, CASE WHEN %s THEN now() END)",
                [f"{start}:00Z", int(revision), int(rows), int(late), complete == "complete"],
            )


def test_the_calendar_has_a_row_for_each_day_and_a_cell_for_each_hour_that_leads_to_it(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    hours_of_the_world(
        world,
        "2026-02-01T07:00 0 5 0 open",
        "2026-02-28T23:00 1 0 0 complete",
        "2026-03-01T00:00 1 1200 0 complete",
        "2026-03-01T01:00 2 7 0 complete",
        "2026-03-01T02:00 1 7 3 complete",
        "2026-03-01T03:00 0 9 0 open",
    )
    planned_up_to(world, datetime(2026, 1, 1, tzinfo=UTC))  # its dead letter is of none of these hours
    client = ask()
    page = client.get("/pipelines/demo").text
    calendar = page.partition('<table class="calendar">')[2].partition("</table>")[0]
    cell = r'<a class="hour ([\w-]+)" href="([^"]+)" title="([^"]+)" aria-label="([^"]+)">([^<]*)</a>'
    cells = re.findall(cell, calendar)
    at = "/pipelines/demo/hours/2026-0"
    assert [(kind, href, sign) for kind, href, _, _, sign in cells] == [
        ("complete", f"{at}3-01T00:00Z", ""),
        ("revised", f"{at}3-01T01:00Z", "r"),
        ("late", f"{at}3-01T02:00Z", "l"),
        ("open", f"{at}3-01T03:00Z", "○"),
        ("empty", f"{at}2-28T23:00Z", "·"),
    ]
    assert all(title == label for _, _, title, label, _ in cells)
    assert cells[2][2] == "2026-03-01 02:00: complete, 7 rows, 3 late"
    assert calendar.count("<td>") == 48, "two days of 24 hours"
    assert f'<a href="{at}2-01T07:00Z">2026-02-01 07:00: open, 5 rows</a>' in page, "what is open is not forgotten"
    for _, href, words, _, _ in cells:
        answer = client.get(href)
        assert answer.status_code == 200
        assert words.partition(": ")[0] in answer.text
    for start in ("2026-03-01T04:00Z", "2026-03-01T00:30Z", "9999-12-31T23:00Z"):
        refused = client.get(f"/pipelines/demo/hours/{start}")
        assert refused.status_code == 404
        assert "<code><span>tidemark hours demo</span></code>" in refused.text
    assert [each["start"] for each in json.loads(printed(world, "hours", "demo", "--json"))][0].startswith("2026-02-01")
    assert client.get("/pipelines/demo/hours/noon").status_code == 422


def test_an_hour_has_its_manifests_with_their_words_and_its_files(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    [first, *_] = client.get("/api/pipelines/demo/hours").json()
    page = client.get(f"/pipelines/demo/hours/{first['start']}").text
    assert f'<th scope="row"><a href="{MANIFESTS}/1">1</a></th><td data-name="state"><span class="state ok">' in page
    [files] = re.findall(r"<h2>Files</h2>(.*)</table>", page, re.DOTALL)
    published = json.loads(printed(world, "objects", "demo", "--json"))
    shown = re.findall(r'class="path">([^<]+)</th><td data-name="sink">lake</td>', files)
    assert shown
    assert set(shown) <= {each["path"] for each in published}


def test_a_run_keeps_how_many_offsets_were_not_published_when_it_was_planned(world: ModelWorld) -> None:
    def lags() -> list[int]:
        return [row["lag"] for row in world.database.runs.recent("demo")]

    assert lags() == [30], "all that the source had"
    world.finish(world.process(2))
    world.produce(5)
    world.finish(world.plan())
    assert lags() == [30, 15], "what is new, and manifest 3, which has failed"
    world.produce(3)
    world.finish(world.plan(until=60))
    assert lags() == [30, 15, 18], "also what is beyond a run; where it ends below the chain, nothing counts twice"
    [first, *_, last] = world.database.runs.lags("demo", datetime.now(UTC) - timedelta(days=1), 0.000_001)
    assert (first["lag"], first["published_before"], last["lag"]) == (30, None, 18)


def test_the_newest_runs_are_a_strip_with_their_words_and_a_table_of_what_each_did(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    world.finish(world.plan())
    text = client.get("/").text
    assert 'href="/pipelines/demo#runs" aria-label="the last 2 runs: 1 failed, 1 nothing new">' in text
    assert re.findall(r'<span class="run ([\w-]+)"[^>]+title="[^"]+: ([\w ]+)">(.)</span>', text) == [
        ("failed", "failed", "✕"),
        ("nothing-new", "nothing new", "·"),
    ]
    assert "<title>lag when the last 2 runs were planned, in offsets: 30 first, at most 30, 20 last</title>" in text
    page = client.get("/pipelines/demo").text
    strip = page.partition('<p class="strip">')[2].partition("</p>")[0]
    assert re.findall(r'href="([^"]+)" aria-label="[^"]+: ([\w ]+)"', strip) == [
        (f"{MANIFESTS}/3", "failed"),
        ("#runs-in-numbers", "nothing new"),
    ]
    [_, row] = table_rows(page, "runs-in-numbers")
    assert re.fullmatch(r"\S+ \S+Z failed 3 of 3 10 \d [\d.,]+ (Ki)?B", row), "read, files and their size; not done"
    now, *planned = table_rows(page, "lags")
    assert now.endswith("Z unknown unknown"), "Kafka is silent, and nothing is published up to a time"
    assert any(row.endswith("Z 30 unknown") for row in planned)
    assert 'data-value=""' not in page


@pytest.mark.parametrize(("retry", "word", "sign"), [(None, "failed", "✕"), (timedelta(hours=1), "retrying", "↻")])
def test_a_plan_that_failed_after_the_newest_run_ends_its_strip_until_a_run_is_planned(
    ask: Callable[..., TestClient], world: ModelWorld, retry: timedelta | None, word: str, sign: str
) -> None:
    client = ask()

    def cells() -> list[tuple[str, str]]:
        cell = r'<span class="run [\w-]+"[^>]+title="[^"]+: ([\w ]+)">(.)</span>'
        in_list, of_pipeline = (re.findall(cell, client.get(path).text) for path in ("/", "/pipelines/demo"))
        assert in_list == of_pipeline
        return in_list

    before = cells()
    world.database.tasks.note_begun("demo", "plan", "next")
    assert cells() == before, "a plan at work has not failed"
    retry_at = retry and world.database.now() + retry
    world.database.tasks.note_failed("demo", "plan", "Kafka is away", "start it", refused=False, retry_at=retry_at)
    assert cells() == [*before, (word, sign)]
    page = client.get("/pipelines/demo").text
    newest = table_rows(page, "runs-in-numbers")[0]
    assert newest.endswith(f"Z {word} none: the plan failed")
    world.finish(world.plan())
    world.database.tasks.forget_failed("demo", "plan")
    assert cells() == [*before, ("nothing new", "·")]


def table_rows(page: str, name: str) -> list[str]:
    """The words of each row."""
    body = page.partition(f'<details id="{name}">')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in body.split("</tr>")[:-1]]


@pytest.mark.parametrize(("runs", "shown"), [(0, 1), (19, 20), (10_000, 20)])
def test_pictures_are_as_large_after_years(
    ask: Callable[..., TestClient], world: ModelWorld, runs: int, shown: int
) -> None:
    with psycopg.connect(world.dsn, options="-c search_path=tidemark -c tidemark.actor=test") as session:
        session.execute(
            "INSERT INTO run (pipeline, run_key, kind, reached, manifests, covered_by, notes, planned_at, lag, "
            "published_before) SELECT 'demo', 'old ' || n, 'manual', true, '{}', '{}', '{}', "
            "now() - n * interval '1 minute', n, now() - 2 * n * interval '1 minute' FROM generate_series(1, %s) n",
            [runs],
        )
    client = ask()
    assert client.get("/").text.count('<span class="run ') == shown
    for window, parts in (("24h", 144), ("7d", 168)):
        page = client.get(f"/pipelines/demo?window={window}").text
        assert page.partition('<p class="strip">')[2].partition("</p>")[0].count("<a ") == shown
        assert len(table_rows(page, "runs-in-numbers")) == shown
        drawn = table_rows(page, "lags")
        assert min(runs // 100, 100) < len(drawn) <= parts + 2, "one is cut by the window's begin, and one is now"
    assert client.get("/pipelines/demo?window=year").status_code == 422


def test_a_done_manifest_whose_record_is_missing_is_damaged_and_never_ok(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    assert '<h1>Manifest 1 <span class="state ok">ok</span></h1>' in client.get(f"{MANIFESTS}/1").text
    [record] = world.lake.files("_manifests/demo/")
    (world.folder / "lake" / record).unlink()
    printed(world, "audit", "demo")
    page = client.get(f"{MANIFESTS}/1").text
    assert '<h1>Manifest 1 <span class="state damaged">damaged</span></h1>' in page
    [hour, *_] = [each for each in client.get("/api/pipelines/demo/hours").json() if 1 in each["manifests"]]
    of_hour = client.get(f"/pipelines/demo/hours/{hour['start']}").text
    assert re.search(r'<h1>Event hour [^<]+ <span class="state damaged">damaged</span></h1>', of_hour)
    for text in (page, of_hour):
        cause = text.partition('<div class="notice wrong">')[2].partition("<dl>")[0]
        assert "<strong>its record is missing or says something else</strong>" in cause
        assert f"<li>{record}</li>" in cause
        assert "<code><span>tidemark retry demo</span></code>" in cause
    assert '<a class="hour damaged"' in client.get("/pipelines/demo").text
    assert '<h1>Manifest 2 <span class="state waiting">waiting</span></h1>' in client.get(f"{MANIFESTS}/2").text
    assert '<h1>Manifest 3 <span class="state failed">failed</span></h1>' in client.get(f"{MANIFESTS}/3").text


def test_a_pipeline_says_where_it_writes_and_by_which_file_without_values_of_variables(
    ask: Callable[..., TestClient], world: ModelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file = ask(), world.folder / "pipelines" / "demo.yaml"
    monkeypatch.setenv("BROKER", "broker.example:9092")
    file.write_text(file.read_text().replace("127.0.0.1:1", "${BROKER}"))
    page = client.get("/pipelines/demo").text
    sinks = page.partition('<h2 id="sinks">')[2].partition("</table>")[0]
    assert f'<th scope="row">lake</th><td data-name="target">{world.folder / "lake"}</td>' in sinks
    text = page.partition('<h2 id="file">')[2].partition("<h2>Decisions</h2>")[0]
    assert "<summary>demo.yaml</summary>" in text
    assert "bootstrap_servers: ${BROKER}" in text
    assert "broker.example" not in text


def test_what_is_zero_everywhere_has_no_column_and_what_is_done_no_retry(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    assert re.findall(r'<th scope="col" class="number">([^<]+)</th>', client.get("/").text) == [
        "lag", "behind", "last done", "not done", "dead letters",
    ]  # fmt: skip
    assert '<td data-name="not done" class="number">1 failed</td>' in client.get("/").text
    page = client.get("/pipelines/demo").text
    assert page.count('class="legend"') == 1, "of all pictures"
    assert page.index("there is no Spark") < page.index("<dt>lag</dt>"), "the cause stands before the numbers"
    assert "/start/retry" in page
    world.finish(world.process(2))
    world.finish(world.process(3))
    page = client.get("/pipelines/demo").text
    assert "/start/retry" not in page
    assert "Replay the selected" in page


def test_a_link_to_a_dag_run_leads_to_the_dag_that_made_it_or_is_text_when_airflow_has_it_no_more(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    """A pipeline that was renamed, or that is a group of a larger DAG, has runs of a DAG with another name."""
    client, run_id = ask(), "scheduled__2026-03-01T09:00:00+00:00"
    with ManifestDatabase(world.dsn, f"airflow earlier {run_id} plan try 1") as database:
        database.manifests.hand_out(database.manifests.find(ids=[3]), run_id)
        failed = database.manifests.get(3)
    process_try = f"airflow earlier {run_id} copy.process[0] try 2"
    with ManifestDatabase(world.dsn, process_try) as database:
        assert database.attempts.start(3, "code") == failed.attempt + 1
        database.attempts.fail(3, failed.attempt + 1, "it fails again")
    page = client.get("/pipelines/demo/manifests/3").text
    assert f"<dd>{run_id}, which Airflow no longer has; of DAG earlier</dd>" in page
    assert "task&nbsp;log" not in page
    row = {"dag_id": "earlier", "run_id": run_id, "run_type": "scheduled", "run_after": datetime.now(UTC)}
    run = DagRun.__table__.insert().values(**row, span_status="ended", log_template_id=None)
    settings.Session.execute(run)
    settings.Session.commit()
    page = client.get("/pipelines/demo/manifests/3").text
    path = "/dags/earlier/runs/scheduled__2026-03-01T09%3A00%3A00%2B00%3A00"
    assert f'<dd><a data-airflow href="{path}">{run_id}</a>; of DAG earlier</dd>' in page
    assert f'<a data-airflow href="{path}/tasks/copy.process/mapped/0?try_number=2">task&nbsp;log</a>' in page


def test_an_address_with_the_name_that_a_pipeline_had_before_leads_on_to_its_new_name(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    with ManifestDatabase(world.dsn, "a person") as database, database.because("another team has it"):
        database.pipelines.rename("demo", "flights")
    client = ask()
    pipeline = "/pipelines/demo"
    for path in (pipeline, f"{pipeline}/manifests/3?compare=true", f"/api{pipeline}/manifests?limit=1"):
        answer = client.get(path)
        assert answer.status_code == 307
        assert answer.headers["location"] == path.replace("demo", "flights")
    assert ask("stranger").get("/pipelines/demo").status_code == 403


def test_a_manifest_is_compared_with_its_sinks_on_request_and_shows_its_receipt(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client, path = ask(), "/pipelines/demo/manifests/1"
    page = client.get(path).text
    assert 'manifests/1?compare=true#compared"' in page
    assert "database and target agree" not in page, "nothing was asked for"
    assert "Receipt of attempt 1" in page
    assert "&#34;dead_lettered&#34;: 1" in page or '"dead_lettered": 1' in page
    assert "database and target agree" in client.get(f"{path}?compare=true").text
    assert commanded(world, "show", "1", "--compare").exit_code == 0
    [compared] = client.get(f"/api{path}/compared").json()
    assert (compared["sink"], compared["verdict"], compared["next_step"]) == ("lake", "in step", "")
    [record] = world.lake.files("_manifests/demo/")
    (world.folder / "lake" / record).unlink()
    page = client.get(f"{path}?compare=true").text
    assert "its record is missing or says something else: _manifests/demo/0000000001.0001.json" in page
    [compared] = client.get(f"/api{path}/compared").json()
    assert compared["verdict"] == "evidence missing"
    assert compared["next_step"] == "tidemark retry demo"
    assert "<code><span>tidemark retry demo</span></code>" in page
    assert json.loads(printed(world, "show", "1", "--compare", "--json"))["compared"] == [compared]
    told = commanded(world, "show", "1", "--compare")
    assert told.exit_code == 1, "a difference was found"
    assert "compared with the sinks" in told.stdout
    assert "evidence missing" in told.stdout
    assert "compared" not in json.loads(printed(world, "show", "1", "--json"))
    view = client.get("/api/pipelines/demo").json()
    [damage] = [problem["what"] for problem in view["problems"] if problem["kind"] == "damaged"]
    assert "found 1 difference, first manifest 1: its record is missing" in damage, "it looks as an audit does"
    assert [audit["actor"].split()[0] for audit in view["audits"]] == ["cli"], "the newest one"


def test_a_manifest_names_the_fields_that_its_schema_does_not_have(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    assert "that the schema does not have" not in ask().get("/pipelines/demo/manifests/1").text
    field = {"path": "<b>zip", "count": 1_200, "topic": "a", "partition": 2, "offset": 17}
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE tidemark.attempt SET receipt = jsonb_set(receipt, '{unknown_fields}', %s) WHERE manifest_id = 1",
            [json.dumps([field])],
        )
    page = ask().get("/pipelines/demo/manifests/1").text
    assert "1 field that the schema does not have" in page
    assert "<code><span>tidemark peek demo</span> <span>--drift</span></code>" in page
    assert '<tr><td>&lt;b&gt;zip</td><td class="number">1,200</td><td>a-2 offset 17</td></tr>' in page
    assert ask().get("/api/pipelines/demo/manifests/1").json()["unknown_fields"] == [field]


def test_a_manifest_that_one_sink_has_already_is_not_finished_and_says_who_sees_it(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO tidemark.publication SELECT (jsonb_populate_record(p, '{\"manifest_id\": 3}')).* "
            "FROM tidemark.publication p WHERE manifest_id = 1"
        )
    page = ask().get("/pipelines/demo/manifests/3").text
    assert "readers of sink lake see attempt 1, those of the other sinks nothing of it" in page
    assert "not finished" in page
    assert "the numbers are of sink lake, which has it already" in page


def test_a_page_loads_nothing_from_elsewhere_and_is_framed_by_airflow_alone(ask: Callable[..., TestClient]) -> None:
    client = ask()
    for path in ("/", "/pipelines/demo", "/pipelines/demo/manifests/3", "/where", f"{START}/retry", "/nowhere"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'self'" in policy
        assert re.findall(r'(?:src|href|action)="(?!/|#|data:,)', answer.text) == []
        assert " style=" not in answer.text
    assert client.get("/static/page.css").headers["content-type"].startswith("text/css")
    for name in re.findall(r'(?:src|href)="/static/([^"]+)"', client.get("/pipelines/demo").text):
        assert client.get(f"/static/{name}").status_code == 200, name
    assert client.get("/static/app.py").status_code == 404


def test_a_retry_shows_what_it_would_do_and_starts_one_run_with_the_reason_in_the_callers_name(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    shown = client.get(f"{START}/retry")
    assert "2 manifests, 20 offsets" in shown.text
    form = {"token": token_of(shown.text), "why": "the producer was mended"}
    airflow = {"AIRFLOW__API__BASE_URL": "https://example.org"}
    with (
        mock.patch.object(actions, "trigger_dag") as trigger,  # the real one is called in tests/e2e
        mock.patch.dict(os.environ, airflow),
    ):
        answer = client.post(f"{START}/retry", data=form)
    assert answer.status_code == 303
    called = trigger.call_args
    assert called.kwargs["conf"] == {"retry_unfinished": True}
    assert called.kwargs["triggering_user_name"] == "operator"
    note, author = trigger.return_value.note
    pages = "https://example.org/tidemark/pipelines/demo"
    linked = [f"pipeline demo: {pages}", *(f"manifest {number}: {pages}/manifests/{number}" for number in (2, 3))]
    assert note.split("\n") == [form["why"], "", *linked]
    assert author == "operator", "a note without an author would be replaced when the run ends"
    assert answer.headers["location"] == f"/pipelines/demo?started={called.kwargs['run_id']}"
    [decision] = json.loads(printed(world, "history", "demo", "--json"))
    assert (decision["decision"], decision["why"]) == ("retry", form["why"])
    assert "airflow page operator" in decision["actor"]


def asked_for(world: ModelWorld) -> list[tuple[str, str, str]]:
    """(reason, line, who) of each decision."""
    decisions = json.loads(printed(world, "history", "demo", "--json"))
    return [(each["why"], *each["lines"], each["actor"]) for each in decisions]


def test_history_tells_once_who_asked_for_a_run_however_often_the_form_is_sent(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    form = {"token": token_of(client.get(f"{START}/retry").text), "why": "the producer was mended"}
    there = DagRunAlreadyExists(mock.Mock(dag_id="demo", run_id="of the form", logical_date=None))
    with mock.patch.object(actions, "trigger_dag") as trigger:
        for answer in (mock.DEFAULT, there, there):
            trigger.side_effect = [answer]
            assert client.post(f"{START}/retry", data=form).status_code == 303
    [(why, line, actor)] = asked_for(world)
    assert why == form["why"]
    assert re.fullmatch(r"DAG run retry__\S+, asked for on the page by operator", line)
    assert actor == "airflow page operator"


def test_a_run_that_airflow_does_not_start_is_told_with_who_asked_for_it_and_may_be_asked_for_again(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    form = {"token": token_of(client.get(f"{START}/retry").text), "why": "the producer was mended"}
    with mock.patch.object(actions, "trigger_dag", side_effect=AirflowException("the DAG is gone")):
        answer = client.post(f"{START}/retry", data=form)
    assert answer.status_code == 409
    assert "Airflow does not start a run of demo: the DAG is gone" in answer.text
    asked, not_started = (line for _, line, _ in asked_for(world))
    assert asked.endswith(", asked for on the page by operator")
    assert not_started == asked.replace(", asked for on the page by operator", " was not started: the DAG is gone")
    lost = OperationalError("COMMIT", {}, Exception("the server closed the connection, password=secret"))
    with mock.patch.object(actions, "trigger_dag", side_effect=lost):
        answer = client.post(f"{START}/retry", data=form)
    assert answer.status_code == 503
    assert "has not said whether DAG run" in answer.text
    assert "secret" not in answer.text
    with mock.patch.object(actions, "trigger_dag") as trigger:
        assert client.post(f"{START}/retry", data=form).status_code == 303
    assert trigger.called
    assert len(asked_for(world)) == 2, "who asked for it is told once"


def test_no_run_is_started_that_the_history_cannot_tell(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    client = ask()
    form = {"token": token_of(client.get(f"{START}/retry").text), "why": "the producer was mended"}
    with psycopg.connect(world.dsn, autocommit=True) as full:
        full.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE 'the disk is full' USING ERRCODE = 'disk_full'; END$$"
        )
        full.execute("CREATE TRIGGER refuse BEFORE INSERT ON tidemark.event EXECUTE FUNCTION refuse()")
        with mock.patch.object(actions, "trigger_dag") as trigger:
            assert client.post(f"{START}/retry", data=form).status_code == 503
            trigger.assert_not_called()
            full.execute("DROP TRIGGER refuse ON tidemark.event")
            assert client.post(f"{START}/retry", data=form).status_code == 303
            trigger.assert_called_once()
    assert [why for why, _, _ in asked_for(world)] == [form["why"]]


def test_a_reason_of_blanks_starts_nothing(ask: Callable[..., TestClient]) -> None:
    client = ask()
    form = {"token": token_of(client.get(f"{START}/retry").text), "why": "   "}
    with mock.patch.object(actions, "trigger_dag") as trigger:
        assert client.post(f"{START}/retry", data=form).status_code == 422
    assert not trigger.called


def test_a_blocked_manifest_is_retried_from_its_own_page(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    """Not with the others: a person must have read its reason."""
    attempt = world.database.attempts.start(3, "a test") or 0
    assert world.database.attempts.block(3, attempt, "the numbers do not agree")
    world.database.attempts.release(3, attempt)
    client = ask()
    others = client.get(f"{START}/retry").text
    assert "1 manifest, " in others
    assert f'Blocked, and not retried: look first at <a href="{MANIFESTS}/3"' in others
    assert f'href="{START}/retry?manifest=3">Retry this manifest</a>' in client.get(f"{MANIFESTS}/3").text
    shown = client.get(f"{START}/retry?manifest=3").text
    assert "Retry manifest 3: preview" in shown
    assert world.database.manifests.get(3).state is ManifestState.BLOCKED, "a preview changes nothing"
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/retry", data={"token": token_of(shown), "why": "the sums were wrong"})
    assert trigger.call_args.kwargs["conf"] == {"retry": [3]}


def test_a_loss_that_nobody_has_decided_about_is_on_the_list_and_among_the_gauges(
    ask: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ask()
    gone = Lag("a", 0, log_start=20, planned=15, last_stable=30, log_end=30, unpublished=0, open_transaction=None)
    monkeypatch.setattr(content, "ask_sources", lambda _, asked, *__: dict.fromkeys(asked, Answer((gone,))))
    assert "retention took offsets [15, 20) of a-0 before they were planned" in client.get("/").text
    assert 'tidemark_problems{pipeline="demo",kind="lost"} 1' in client.get("/api/metrics").text


def test_a_replay_does_what_its_preview_showed_and_refuses_manifests_of_others(ask: Callable[..., TestClient]) -> None:
    client = ask()
    shown = client.get(f"{START}/replay?manifest=1&manifest=1")
    form = {"token": token_of(shown.text), "why": "a mended decoder"}
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/replay", data=form)
    assert trigger.call_args.kwargs["conf"] == {"replay": [1]}
    assert client.get(f"{START}/replay?manifest=99").status_code == 404
    assert client.get(f"{START}/replay").status_code == 409
    assert {key for action in Action for key in Wish(action, topic="a", partition=0).conf("why")} <= set(PARAMS)


def test_a_sink_that_lacks_manifests_is_named_and_filled(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    file = world.folder / "pipelines" / "demo.yaml"
    text = yaml.safe_load(file.read_text())
    second = {"files": {"name": "second", "root": str(world.folder / "second"), "layout": "raw/{stream}"}}
    file.write_text(yaml.safe_dump({**text, "sinks": [*text["sinks"], second]}))
    client = ask()
    assert (
        f'href="{START}/fill?sink=second">Fill sink second: it lacks 1 manifest</a>'
        in client.get("/pipelines/demo").text
    )
    shown = client.get(f"{START}/fill?sink=second").text
    assert "<h1>Fill sink second: preview</h1>" in shown
    assert "1 manifest, 10 offsets." in shown
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/fill", data={"token": token_of(shown), "why": "a new sink"})
    assert trigger.call_args.kwargs["conf"] == {"fill": "second"}
    assert client.get(f"{START}/fill?sink=third").status_code == 404


@pytest.mark.parametrize(("depth", "title"), [("light", "Audit"), ("deep", "Audit row by row")])
def test_an_audit_is_a_run_of_its_own(ask: Callable[..., TestClient], depth: str, title: str) -> None:
    client = ask()
    assert f'href="{START}/audit?depth={depth}">{title}</a>' in client.get("/pipelines/demo").text
    shown = client.get(f"{START}/audit?depth={depth}").text
    assert f"<h1>{title}: preview</h1>" in shown
    assert (", row by row" in shown) == (depth == "deep")
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/audit", data={"token": token_of(shown), "why": "a disk was changed"})
    assert trigger.call_args.kwargs["conf"] == {"audit": depth}
    assert client.get(f"{START}/audit?depth=all").status_code == 422


def test_what_is_gone_for_good_is_given_up_on_the_page_of_its_manifest(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    button = f'href="{START}/accept-damage?manifest=1">Accept damage</a>'
    assert button not in client.get(f"{MANIFESTS}/1").text
    for file in world.lake.files("raw/"):
        (world.folder / "lake" / file).unlink()
    printed(world, "audit", "demo")
    assert button in client.get(f"{MANIFESTS}/1").text
    with mock.patch.object(content, "context_of", return_value=contextlib.nullcontext(world.onlooker())):
        held = client.get(f"{START}/accept-damage?manifest=1")
        assert (held.status_code, "still holds its offsets" in held.text) == (409, True)
        world.log("a", 0).start = 10
        shown = client.get(f"{START}/accept-damage?manifest=1").text
        assert client.get(f"{START}/accept-damage").status_code == 409, "without a manifest"
    assert "<h1>Accept damage of manifest 1: preview</h1>" in shown
    assert "It cannot be taken back" in shown
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/accept-damage", data={"token": token_of(shown), "why": "the disk died"})
    accepted = {"decision": "accept-damage", "manifest": 1, "why": "the disk died"}
    assert trigger.call_args.kwargs["conf"] == {"accept": accepted}


def test_a_dag_is_paused_and_goes_on_by_a_button_of_those_who_may_change_it(
    ask: Callable[..., TestClient],
) -> None:
    client, pause = ask(), "/pipelines/demo/pause"
    for button, paused in (("Pause", True), ("Unpause", False)):
        page = client.get("/pipelines/demo").text
        assert f"<button>{button} the DAG</button>" in page
        form = {"token": token_of(page)}
        for _ in range(2):  # a form that is sent twice means the same
            assert client.post(pause, data=form).status_code == 303
        assert pages.dag_states(["demo"])["demo"].paused == paused
        words = "its DAG demo is paused, and no run starts"
        told = [each["what"].partition(": ")[0] for each in client.get("/api/pipelines/demo").json()["problems"]]
        assert (words in told) == (words in client.get("/pipelines/demo").text) == paused
        assert client.post(pause, data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        with mock.patch.dict(RIGHTS, second={"GET", "POST"}):
            second = ask("second")
            assert "the DAG</button>" not in second.get("/pipelines/demo").text
            assert second.post(pause, data=form).status_code == 403
    other = {"token": token_of(client.get(f"{START}/retry").text)}
    assert client.post(pause, data=other).status_code == 403, "a form for something else"


def test_a_topic_that_was_recreated_is_accepted_with_a_preview_and_a_reason(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    world.recreate()
    with pytest.raises(TopicChanged):
        plan(world.onlooker(), Tick("refused", RunKind.MANUAL, None))
    client = ask()
    page = client.get("/pipelines/demo").text
    assert page.count(f'href="{START}/accept-topic?topic=a">Accept topic a</a>') == 2, "one for each partition"
    context = mock.patch.object(content, "context_of", return_value=contextlib.nullcontext(world.onlooker()))
    with context:
        shown = client.get(f"{START}/accept-topic?topic=a").text
        assert client.get(f"{START}/accept-loss").status_code == 404, "nothing is lost"
        assert client.get(f"{START}/accept-topic").status_code == 409, "without a topic"
    assert "<h1>Accept topic a: preview</h1>" in shown
    assert "a-0: planned and unread offsets [5, 15) are lost" in shown.replace("[5, 10)", "[5, 15)")
    assert "reading begins at offset 0 of the new topic" in shown
    assert json.loads(printed(world, "history", "demo", "--json")) == [], "a preview decides nothing"
    with mock.patch.object(actions, "trigger_dag") as trigger:
        client.post(f"{START}/accept-topic", data={"token": token_of(shown), "why": "it is meant"})
    accepted = {"decision": "accept-topic", "topic": "a", "why": "it is meant"}
    assert trigger.call_args.kwargs["conf"] == {"accept": accepted}


def test_a_form_from_another_site_of_another_user_or_for_something_else_starts_nothing(
    ask: Callable[..., TestClient],
) -> None:
    token = token_of(ask().get(f"{START}/retry").text)
    form = {"token": token, "why": "because"}
    wrong: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
        ("operator", "retry", form, {"sec-fetch-site": "cross-site"}),
        ("operator", "retry", form, {"sec-fetch-site": "same-site"}),
        ("operator", "retry", form, {"origin": "https://example.org"}),
        ("operator", "retry", form, {"origin": "null"}),
        ("operator", "retry", {**form, "token": f"{token}x"}, {}),
        ("operator", "replay", form, {}),
        ("second", "retry", form, {}),
    ]
    with mock.patch.object(actions, "trigger_dag") as trigger, mock.patch.dict(RIGHTS, second={"GET", "POST", "PUT"}):
        codes = [
            ask(user).post(f"{START}/{action}", data=sent, headers=headers).status_code
            for user, action, sent, headers in wrong
        ]
        assert codes == [403] * len(wrong)
        assert ask().post(f"{START}/retry", data={"why": "because"}).status_code == 422
        trigger.assert_not_called()
        assert ask().post(f"{START}/retry", data=form, headers={"sec-fetch-site": "same-origin"}).status_code == 303


def test_a_page_is_there_soon_and_says_why_the_lag_is_unknown_when_kafka_is_silent() -> None:
    release, asked = threading.Event(), []

    def silent() -> tuple[()]:
        asked.append("demo")
        assert release.wait(30)
        return ()

    lags = Lags(limit=0.5)
    for _ in range(3):
        assert lags.of({"demo": silent}) == {"demo": Answer(None, "the source has not answered within 0.5 s")}
    assert asked == ["demo"], "one thread for a pipeline"
    release.set()
    wait_until(lambda: lags.of({"demo": silent}) == {"demo": Answer(())}, "the answer", timeout=30)


def test_a_comparison_names_the_file_that_is_gone(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    [file, *_] = [Path(each["path"]) for each in json.loads(printed(world, "objects", "demo", "--json"))]
    file.unlink()
    for page in (f"{MANIFESTS}/1?compare=true", "/pipelines/demo", "/"):
        shown = ask().get(page).text
        assert "<strong>its file is missing or cut</strong>" in shown or "its file is missing or cut: " in shown, page
        assert file.name in shown, page


def test_what_the_last_audit_found_is_named_with_its_manifest_and_the_next_step(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    published = json.loads(printed(world, "objects", "demo", "--json"))
    assert printed(world, "audit", "demo") == ""
    assert 'id="audits"' not in ask().get("/pipelines/demo").text
    for each in published:
        Path(each["path"]).unlink()
    differences = json.loads(printed(world, "audit", "demo", "--json"))
    page = ask().get("/pipelines/demo").text
    earlier = page.partition('id="audits"')[2].partition("</details>")[0]
    assert "The last 2 audits, 1 with differences" in earlier
    assert re.findall(r'data-name="differences">(\d+)<', earlier) == [str(len(differences)), "0"]
    assert '<a href="#audit-1">named below</a>' in page
    named = page.partition('id="audit-1"')[2].partition("</details>")[0]
    assert f'<a href="{MANIFESTS}/1">manifest 1</a>: ' in named
    assert all(each["path"].rpartition("/")[2] in named for each in published)
    assert "<code><span>tidemark replay demo</span> <span>--manifest 1</span></code>" in named
    [audit] = ask().get("/api/pipelines/demo").json()["audits"]
    assert audit["differences"] == len(differences) >= len(published)
    assert audit["first_differences"] == differences


def test_dead_letters_are_in_the_lanes_in_words_and_on_the_drawing(ask: Callable[..., TestClient]) -> None:
    client = ask()
    with_letters, without = client.get("/api/pipelines/demo/lanes").json()
    assert with_letters["dead_letters"] == [{"start": 0, "end": 5, "records": 1, "manifest_id": 1}]
    assert without["dead_letters"] == []
    page, words = client.get("/pipelines/demo").text, "1 dead letter in [0, 5), manifest 1"
    assert re.search(
        r'data-words="a-0: [^"]*, 1 dead letter" [^>]*data-letters="\[\[0, 0.2\], [^"]+, \[39, 0.2\]\]"', page
    )
    assert f'<a href="/pipelines/demo/dead-letters?manifest=1">{words}</a>' in page


def listed(html: str) -> list[int]:
    return [int(number) for number in re.findall(r'name="manifest" value="(\d+)"', html)]


def test_manifests_are_listed_by_time_partition_and_missing_sink_alike_on_page_api_and_command_line(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    planned_up_to(world, datetime(2026, 3, 1, 9, tzinfo=UTC))
    with ManifestDatabase(world.dsn, "a test") as database, database.transaction():
        database.pipelines.remember("demo", {"second": str(world.folder / "second")})
    filters: dict[str, list[int]] = {
        "": [3, 2, 1],
        "since=2026-03-01T08:00&until=2026-03-01T09:00": [3, 2, 1],
        "since=2026-03-01T09:00": [],
        "until=2026-03-01T08:59": [],
        "until=2026-03-01T09:59%2B01:00": [],
        "topic=a": [3, 2, 1],
        "topic=b": [],
        "partition=1": [3, 2, 1],
        "partition=2": [],
        "topic=b&partition=1": [],
        "topic=a&partition=1&state=failed&since=2026-03-01T08:00": [3],
        "lacks=second": [1],
        "lacks=lake": [],
    }
    for query, expected in filters.items():
        assert [each["id"] for each in client.get(f"/api{MANIFESTS}?{query}").json()] == expected, query
        assert listed(client.get(f"/pipelines/demo?{query}").text) == expected, query
        given = [part.split("=") for part in query.replace("%2B", "+").split("&") if part]
        words = [word for name, value in given for word in (f"--{name}", value)]
        assert [each["id"] for each in json.loads(printed(world, "manifests", "demo", *words, "--json"))] == expected
    assert client.get(f"/api{MANIFESTS}?since=yesterday").status_code == 422


@pytest.mark.parametrize(
    "address",
    [
        "/api/pipelines/demo/manifests?since=",
        "/api/pipelines/demo/manifests?until=",
        "/api/pipelines/demo/hours?before=",
        "/api/pipelines/demo/timeline?until=",
        "/pipelines/demo?since=",
        "/pipelines/demo?until=",
        "/pipelines/demo?to=",
    ],
)
def test_a_time_at_the_edge_of_the_years_is_answered_or_told_as_wrong(
    ask: Callable[..., TestClient], address: str
) -> None:
    client = ask()
    for inside in ("0001-01-01T00:00", "0001-01-01T00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999"):
        assert client.get(f"{address}{inside}").status_code == 200, inside
    for outside in ("0001-01-01T00:00%2B01:00", "9999-12-31T23:59-01:00"):
        refused = client.get(f"{address}{outside}")
        assert refused.status_code == 422, outside
        assert "it is in UTC before the year 1 or after the year 9999" in refused.text


def test_a_long_list_says_that_it_has_more_than_it_counts(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    with mock.patch.object(pages, "PAGE", 1), mock.patch("tidemark.model.manifest.COUNTED", 1):
        page = ask().get("/pipelines/demo").text
    assert "1 of more than 1, newest first" in page
    assert "older: more than 1</a>" in page


def test_pages_of_filtered_manifests_keep_the_filter(ask: Callable[..., TestClient], world: ModelWorld) -> None:
    planned_up_to(world, datetime(2026, 3, 1, 9, tzinfo=UTC))
    client = ask()
    with mock.patch.object(pages, "PAGE", 1):
        page = client.get("/pipelines/demo?state=&topic=a&partition=1&lacks=&since=2026-03-01T08:00&until=").text
        assert "1 of 3 that match" in page
        assert "<option selected>a</option>" in page
        assert 'type="datetime-local" value="2026-03-01T08:00"' in page
        older = re.search(r'href="([^"]+)#manifests">older: 2</a>', page)
        assert older is not None
        following = client.get(older[1].replace("&amp;", "&")).text
    assert (listed(page), listed(following)) == ([3], [2])
    assert "older: 1</a>" in following
    done = commanded(world, "manifests", "demo", "--since", "2026-03-01T08:00", "--partition", "1", "--limit", "1")
    command = "tidemark manifests demo --since 2026-03-01T08:00:00 --partition 1 --limit 1 --after 3"
    assert f"1 of 3 manifests; the next: {command}" in done.stderr


def test_a_manifest_with_more_files_than_its_page_shows_says_how_many_there_are(
    ask: Callable[..., TestClient], world: ModelWorld
) -> None:
    client = ask()
    assert "The first" not in client.get(f"{MANIFESTS}/1").text
    view = json.loads(printed(world, "show", "1", "--json"))
    every = len(view["objects"]) + len(view["dead_letter_objects"])
    row_files = count_of(len(view["objects"]), "row file")
    assert f"<summary>{row_files}, 1 dead-letter file</summary>" in client.get(f"{MANIFESTS}/1").text
    with mock.patch.object(pages, "OBJECTS", 1):
        page = client.get(f"{MANIFESTS}/1").text
    assert f"The first 1 of {every}: <code>tidemark show 1 --json</code> has all of them." in page
    assert page.count('data-name="sink">lake</td>') == 1


def deployed_in(dag_id: str, pipeline: str, close: str) -> None:
    """As Airflow stores a DAG with the tasks of a pipeline when it has read the DAG's file."""
    asset = AssetModel(name=f"tidemark_{pipeline}", uri=f"tidemark://pipeline/{pipeline}", group="asset", extra={})
    hours = AssetModel(name=f"tidemark_{pipeline}_hours", uri=f"{asset.uri}/hours", group="asset", extra={})
    session = settings.Session
    if session.get(DagModel, dag_id) is None:
        session.add(DagModel(dag_id=dag_id, bundle_name="files", is_paused=False, is_stale=False))
    session.add_all([asset, hours])
    session.flush()
    for each in (asset, hours):
        session.add(TaskOutletAssetReference(asset_id=each.id, dag_id=dag_id, task_id=close))
    session.commit()


def ran(dag_id: str, run_id: str, task_id: str, state: str, run_type: str = "manual") -> None:
    """A run of a DAG, and how its task has ended."""
    now = datetime.now(UTC)
    row = {"dag_id": dag_id, "run_id": run_id, "run_type": run_type, "run_after": now}
    row["logical_date"] = now if run_type == "scheduled" else None
    settings.Session.execute(DagRun.__table__.insert().values(**row, span_status="ended", log_template_id=None))
    also_ran(dag_id, run_id, task_id, state)


def also_ran(dag_id: str, run_id: str, task_id: str, state: str) -> None:
    """How a task of a run has ended."""
    ended_at = None if state == "running" else datetime.now(UTC)
    row = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": -1, "try_number": 2, "state": state}
    row["end_date"] = ended_at
    task = {"pool": "default_pool", "pool_slots": 1, "id": uuid4(), "span_status": "ended"}
    settings.Session.execute(TaskInstance.__table__.insert().values(**row, **task))
    settings.Session.commit()


def test_a_pipeline_that_is_a_task_group_is_listed_for_who_may_read_the_larger_dag(
    ask: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.Session.execute(DagModel.__table__.update().where(DagModel.dag_id == "demo").values(is_stale=True))
    deployed_in("nightly", "demo", "copy.close")
    monkeypatch.setattr(Rights, "of", "nightly")
    client = ask()
    overview = client.get("/").text
    assert '<a href="/pipelines/demo">demo</a> <span class="soft">in DAG nightly</span>' in overview
    page = client.get("/pipelines/demo").text
    assert '<a data-airflow href="/dags/nightly">nightly</a>, of which this pipeline is a task group' in page
    assert [each["pipeline"] for each in client.get("/api/pipelines").json()] == ["demo"]
    shown = client.get(f"{START}/retry").text
    assert "task group of the DAG nightly" in shown
    assert "<form method" not in shown, "it would run the whole of the larger DAG"
    assert ask("stranger").get("/pipelines/demo").status_code == 403
    monkeypatch.setattr(Rights, "of", "demo")
    assert client.get("/pipelines/demo").status_code == 403, "the rights are those of the DAG that plans it"
    assert client.get("/api/pipelines").json() == []


def test_tasks_that_wait_in_the_triggerer_are_named_with_the_manifests_that_they_wait_for(
    ask: Callable[..., TestClient],
) -> None:
    client = ask()
    assert "waits in Airflow" not in client.get("/pipelines/demo").text
    for number in range(5):
        waits = Trigger.from_object(AttemptsEnd([2, 3], also_replays=False))
        settings.Session.add(waits)
        settings.Session.flush()
        ran("demo", f"run_{number}", "close", "deferred")
        chosen = TaskInstance.__table__.update().where(TaskInstance.run_id == f"run_{number}")
        settings.Session.execute(chosen.values(trigger_id=waits.id))
        settings.Session.commit()
    also_ran("demo", "run_0", "plan", "success")
    page = client.get("/pipelines/demo").text
    assert "<dt>waits in Airflow</dt><dd>5 tasks, without a slot: " in page
    log = '<a data-airflow href="/dags/demo/runs/run_0/tasks/close?try_number=2">close of run_0</a>'
    assert f'{log} for <a href="/pipelines/demo/manifests/2">manifest 2</a>, <a href=' in page
    assert "; and 2 more</dd>" in page


@pytest.mark.parametrize("run_type", ["scheduled", "asset_triggered"])
def test_the_newest_run_that_nobody_asked_for_is_told_when_its_plan_failed_also_while_the_next_is_at_work(
    ask: Callable[..., TestClient], run_type: str
) -> None:
    ask()
    deployed_in("first", "first", "close")
    tasks = {"first": plan_tasks.PlanTask("first", "plan")}
    for number, (state, of_type, told) in enumerate((
        ("success", run_type, None), ("failed", "manual", None), ("failed", run_type, 2), ("running", run_type, 2),
        ("success", "manual", 2), ("success", run_type, None),
    )):  # fmt: skip
        ran("first", f"run_{number}", "plan", state, of_type)
        failed = plan_tasks.failed_runs(tasks, asked_for=False).get("first")
        assert (failed and failed.what) == (told and f"task plan of DAG run run_{told} is failed")


def test_more_pipelines_are_no_more_statements(ask: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rights, "is_authorized_dag", lambda *_, **__: True)
    client = ask()
    statements: list[object] = []
    execute = psycopg.Connection.execute

    def counted(session: Any, statement: Any, *rest: Any, **more: Any) -> Any:
        statements.append(statement)
        return execute(session, statement, *rest, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    monkeypatch.setattr(watch, "BEAT_S", 600)  # a session that is idle for long, on a busy machine, asks by itself

    def asked() -> dict[str, int]:
        numbers = {}
        for path in ("/", "/api/pipelines", "/api/metrics"):
            statements.clear()
            assert "demo" in client.get(path).text
            numbers[path] = len(statements)
        return numbers

    of_one = asked()
    for number in range(5):
        deployed_in(f"new{number}", f"new{number}", "close")
    assert "new4" in client.get("/api/metrics").text
    assert asked() == of_one


def test_of_two_pipelines_in_one_dag_each_is_told_by_its_own_plan(ask: Callable[..., TestClient]) -> None:
    ask()
    tasks = {name: plan_tasks.PlanTask("both", f"{name}.plan") for name in ("one", "two")}
    deployed_in("both", "one", "one.close")
    deployed_in("both", "two", "two.close")
    ran("both", "run_0", "one.plan", "success", "scheduled")
    also_ran("both", "run_0", "two.plan", "failed")
    ran("both", "run_1", "one.plan", "failed", "scheduled")
    also_ran("both", "run_1", "two.plan", "running")
    failed = plan_tasks.failed_runs(tasks, asked_for=False)
    assert {name: told.what for name, told in failed.items()} == {
        "one": "task one.plan of DAG run run_1 is failed",
        "two": "task two.plan of DAG run run_0 is failed",
    }


def test_the_list_of_pipelines_can_be_narrowed_by_name_state_and_group(ask: Callable[..., TestClient]) -> None:
    client = ask()
    [listed] = client.get("/api/pipelines").json()
    assert 'data-reload="30"' in client.get("/").text, "it stays true"
    row, none = '<a href="/pipelines/demo">demo</a>', "None matches the filter."
    for words, shown in (
        ("", True), ("?name=em", True), (f"?state={listed['state']}&name=", True), ("?name=other", False),
        ("?state=blocked", listed["state"] == "blocked"), ("?group=", True), ("?group=demo", False),
    ):  # fmt: skip
        text = client.get(f"/{words}").text
        assert (row in text, none in text) == (shown, not shown), words
        assert ("all 1</a>" in text) == bool(words)
    assert client.get("/?state=green").status_code == 422


def test_of_sixty_pipelines_those_that_need_a_person_are_counted_in_the_title_and_stand_first_with_their_reason(
    ask: Callable[..., TestClient], world: ModelWorld, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rights, "is_authorized_dag", lambda *_, **__: True)
    client = ask()
    monkeypatch.setattr(content, "lags", Lags(limit=60))  # also on a busy machine all are known
    topic = f"sixty-{uuid4()}"
    broker.create_topic(topic)
    text = (world.folder / "pipelines" / "demo.yaml").read_text()
    for number in range(59):
        name = f"of{number:02}"
        deployed_in(name, name, "close")
        file = text.replace("pipeline: demo", f"pipeline: {name}").replace("127.0.0.1:1", broker.bootstrap_servers)
        (world.folder / "pipelines" / f"{name}.yaml").write_text(file.replace("- a\n", f"- {topic}\n"))
    ran("of41", "manual__1", "plan", "failed")
    text = client.get("/").text
    head, _, body = text.partition("</title>")
    assert "2 of 60 need a person" in head
    assert "2 of 60 need a person" in body.partition("<table")[0]
    rows = re.findall(r'<th scope="row">(?:<a [^>]*>)?(\w+)', body)
    assert sorted(rows) == ["demo", "of41"]
    *_, new = body.partition('<h2><span class="state never-planned">never planned</span>: 58</h2>')
    assert re.findall(r"<li>(\w+)", new) == [f"of{number:02}" for number in range(59) if number != 41]
    assert body.count("never planned</span>") == 1, "told once"
    [at] = [hit.start() for hit in re.finditer('<th scope="row">of41', body)]
    row, reason, *_ = body[at:].split("<tr>", 2)
    assert "failed" in row
    assert "task plan of DAG run manual__1 is failed" in reason.partition("</tr>")[0]
    assert re.findall(r'<th scope="row">(\w+)', client.get("/?state=failed").text) == ["of41"]


def test_a_broker_that_is_down_is_told_once_above_the_pipelines_that_wait_for_it(
    ask: Callable[..., TestClient], world: ModelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rights, "is_authorized_dag", lambda *_, **__: True)
    client = ask()
    monkeypatch.setattr(content, "lags", Lags(limit=3.0))
    text = (world.folder / "pipelines" / "demo.yaml").read_text()
    for name in ("first", "second"):
        deployed_in(name, name, "close")
        (world.folder / "pipelines" / f"{name}.yaml").write_text(text.replace("pipeline: demo", f"pipeline: {name}"))
    page = client.get("/").text
    told = "Kafka at 127.0.0.1:1 does not answer"
    because = f"Connection refused, so {told}"
    title, _, body = page.partition("</title>")
    assert because in title
    assert body.count(because) == body.count(told) == 1
    assert "3 pipelines wait for it: demo, first, second" in body
    assert "the lag is not known" not in body
    assert body.count('<span class="state unknown">unknown</span>') == 2, "demo has worse problems of its own"
    assert "1 of 3 needs a person" in body
    views = client.get("/api/pipelines").json()
    assert {view["problems"][-1]["shared_cause"] for view in views} == {told}


def test_a_pipeline_whose_first_plan_failed_is_listed_with_the_log_of_that_task(
    ask: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ask()
    deployed_in("first", "first", "close")
    monkeypatch.setattr(Rights, "of", "first")
    overview = client.get("/").text
    assert "never planned" in overview
    assert "no run has planned it yet" in overview
    ran("first", "manual__1", "plan", "success")
    ran("first", "manual__2", "plan", "failed")
    overview = client.get("/").text
    assert "1 of 1 needs a person" in overview
    assert '<span class="state failed">failed</span>' in overview
    assert "task plan of DAG run manual__2 is failed" in overview
    assert '<a data-airflow href="/dags/first/runs/manual__2/tasks/plan?try_number=2">first plan: failed' in overview
    assert "/dags/first" not in ask("stranger").get("/").text
    [view] = client.get("/api/pipelines").json()
    assert (view["pipeline"], view["state"], view["problems"][0]["kind"]) == ("first", "failed", "failed")
    assert 'tidemark_state{pipeline="first",state="failed"} 1' in client.get("/api/metrics").text
    path = "/dags/first/runs/manual__2/tasks/plan?try_number=2"
    assert client.get("/api/unplanned").json() == [
        {"pipeline": "first", "dag_id": "first", "state": "failed", "path": path}
    ]
    assert ask("stranger").get("/api/unplanned").json() == []
    deployed_in("first", "second", "copy.close")
    ran("first", "manual__3", "copy.plan", "up_for_retry")
    overview = client.get("/").text
    assert 'second <span class="soft">in DAG first</span>' in overview
    assert (
        '<a data-airflow href="/dags/first/runs/manual__3/tasks/copy.plan?try_number=2">first plan: up for retry'
        in overview
    )


@pytest.fixture
def orders(world: ModelWorld, broker: Broker) -> Callable[..., str]:
    """A topic with 30 records, of which 3 cannot be decoded, and the file of the pipeline that reads it from Kafka."""
    topic = f"orders-{uuid4()}"
    broker.create_topic(topic, 2)
    producer = broker.producer()
    for number in range(30):
        value = f'{{"n": {number}, "name": "secret {number}"}}'
        producer.produce(topic, value if number % 10 else "{bad secret", partition=number % 2)
    producer.flush(30)

    def write(**more: Any) -> str:
        file = world.folder / "pipelines" / "demo.yaml"
        text = yaml.safe_load(file.read_text()) | more
        text["source"]["kafka"] = {"connection": "shop", "topics": [topic]}
        file.write_text(yaml.safe_dump(text))
        return topic

    return write


def connected(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow has the connection, and the environment of the web server does not: no table of connections is here."""
    kafka = {"host": "", "extra": {"bootstrap.servers": broker.bootstrap_servers}}
    monkeypatch.setattr(content, "stored", {"shop": kafka}.get)


def test_records_are_looked_at_as_the_command_reads_them_and_nothing_is_logged_or_written(
    ask: Callable[..., TestClient],
    world: ModelWorld,
    broker: Broker,
    orders: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    connected(broker, monkeypatch)
    topic, client = orders(transform=[{"filter": "n <> 27"}, {"select": ["n", "upper(name) AS name"]}]), ask()
    manifests = len(world.database.manifests.find("demo"))
    page = client.get("/pipelines/demo/peek?count=10")
    assert page.status_code == 200, page.text
    assert "<strong>8 rows, 1 dead letter, 1 taken away by the transforms.</strong> Nothing was written." in page.text
    assert f'<th scope="row">{topic}-0 offset 14</th>' in page.text
    assert "{&#34;n&#34;:28,&#34;name&#34;:&#34;secret 28&#34;}</code><br>becomes <code>" in page.text
    assert "SECRET 28" in page.text
    assert "<code>{bad secret</code>" in page.text
    assert re.search(r"Removed by transforms</h2>.*secret 27", page.text, re.DOTALL)
    assert page.headers["cache-control"] == "no-store"
    from_three = client.get(f"/pipelines/demo/peek?count=2&topic={topic}&partition=1&from=3").text
    assert re.findall(r'<th scope="row">(.+?)</th>', from_three) == [f"{topic}-1 offset {offset}" for offset in (3, 4)]
    assert len(world.database.manifests.find("demo")) == manifests
    written = "".join(capfd.readouterr()) + caplog.text
    assert "secret" not in written.lower()


def test_why_no_records_can_be_looked_at_is_told_by_its_cause_and_in_time(
    ask: Callable[..., TestClient],
    world: ModelWorld,
    broker: Broker,
    orders: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, peek = ask(), "/pipelines/demo/peek"

    def told(words: str = "", status: int = 409) -> str:
        answer = client.get(f"{peek}{words}")
        assert answer.status_code == status, answer.text
        return answer.text

    assert "Kafka does not answer within 10 s at 127.0.0.1:1" in told(status=503)
    topic = orders()
    assert "connection shop" in told()
    connected(broker, monkeypatch)
    admin = broker.admin()
    for deleted in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        deleted.result(30)
    assert "there is no offset 3 to read: Kafka holds [7, 15)" in told("?partition=0&from=3", 404)
    assert "does not read topic nothere" in told("?topic=nothere", 404)
    assert "there is no partition 7" in told("?partition=7", 404)
    assert "needs one partition" in told("?from=9")
    for wrong in ("count=0", f"count={peeking.MOST_RECORDS + 1}", "partition=x"):
        told(f"?{wrong}", 422)
    with monkeypatch.context() as patched:
        patched.setattr(peeking, "LIMIT_S", 0.01)
        assert "the records were not read within 0.01 s" in told(status=503)
    for _ in range(peeking.AT_ONCE):
        peeking._free.acquire()
    assert "2 others look at records now" in told(status=503)
    peeking._free.release(peeking.AT_ONCE)
    told(status=200)

    registry = {"url": "http://127.0.0.1:1"}
    orders(decode={"format": "avro", "registry": registry, "schema": {"subject": "orders-value"}})
    silent = told(status=503)
    assert "the schema registry http://127.0.0.1:1 does not answer" in silent
    assert "<code><span>tidemark peek demo</span></code>" in silent
    assert "tidemark retry" not in silent, "a peek leaves no manifest to retry"
    (world.folder / "pipelines" / "logic").mkdir()
    (world.folder / "pipelines" / "logic" / "shop.py").write_text("def tax(batch):\n    raise SystemExit")
    orders(decode={"format": "json", "schema": SCHEMAS[0]}, code="logic", transform=[{"python": "shop:tax"}])
    assert "the page runs no code of a pipeline, and this one has some" in told()
    assert "<code><span>tidemark peek demo</span></code>" in told()
