"""Measures the page in Airflow with a long history: the time of its app for each view, without Airflow's share.

The database is a real PostgreSQL, filled by SQL as planning and publishing would. The user and Kafka's answers are made
up, because they are not the page's work.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import yaml

from bench import planning
from sandbox.services.postgres import Postgres
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.environment import set_variables
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.operations.lag import Lag
from tidemark.operations.lags import Answer
from tidemark.operations.peek import Peeked
from tidemark.sinks.registry import open_sink
from tidemark.views.peeked import peeked_view

NAME = planning.NAME
MANIFESTS, PARTITIONS = 10_000, 100
REPEATS = 5
PIPELINE = f"/pipelines/{NAME}"
FIRST_HOUR = datetime(2024, 1, 1, tzinfo=UTC)

# Each manifest has a run of its own, one per hour up to now, and an hour of event time; all hours are complete.
RUNS = """
SET session_replication_role = replica;
INSERT INTO run (pipeline, run_key, kind, cut_at, planned_up_to, planned_at, reached, manifests, covered_by, notes, lag,
                 published_before)
SELECT pipeline, 'hour ' || slice, 'scheduled', hour, hour, hour, true, ARRAY[id], '{}', '{}', 1000, hour
FROM (SELECT id, pipeline, slice,
             date_trunc('hour', now()) - (count(*) OVER () - 1 - slice) * interval '1 hour' AS hour FROM manifest) m;
UPDATE manifest m SET run_id = r.id FROM run r WHERE r.run_key = 'hour ' || m.slice;
INSERT INTO run_end (run_id, chain_id, end_offset)
SELECT m.run_id, g.chain_id, g.end_offset FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id;
INSERT INTO manifest_hour (manifest_id, pipeline, hour, rows, late)
SELECT id, pipeline, '2024-01-01Z'::timestamptz + slice * interval '1 hour', 1000, 1 FROM manifest WHERE state = 'done';
INSERT INTO hour (pipeline, hour, revision, rows, late, complete_at)
SELECT pipeline, hour, 1, sum(rows), sum(late), now() FROM manifest_hour GROUP BY pipeline, hour;
SET session_replication_role = DEFAULT;
"""
FAILED = """
SET session_replication_role = replica;
DELETE FROM publication WHERE manifest_id > (SELECT max(id) - 20 FROM manifest);
UPDATE attempt SET state = 'failed', error = 'the disk is full'
WHERE manifest_id > (SELECT max(id) - 20 FROM manifest);
UPDATE manifest SET state = 'failed', reason = 'the disk is full', done_at = NULL
WHERE id > (SELECT max(id) - 20 FROM manifest);
SET session_replication_role = DEFAULT;
"""


def views(newest: int, manifests: int) -> dict[str, str]:
    """Return the addresses that users and programs open, by their names in the table: every address of the app, except
    files and the start of a run.
    """
    middle = newest - manifests // 2
    day = (
        f"since={datetime.now(UTC) - timedelta(days=3):%Y-%m-%d}&until={datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
    )
    offset = f"topic={NAME}&partition=1&offset={planning.RANGE_RECORDS * manifests // 2}"
    return {
        "all pipelines": "/",
        "a pipeline": PIPELINE,
        "a pipeline, by week": f"{PIPELINE}?by=week",
        "its failed manifests": f"{PIPELINE}?state=failed",
        "its manifests, half way back": f"{PIPELINE}?after={middle}",
        "its manifests of one day": f"{PIPELINE}?{day}",
        "its manifests of a partition": f"{PIPELINE}?topic={NAME}&partition=1",
        "its manifests of a topic": f"{PIPELINE}?topic={NAME}",
        "its manifests that a sink lacks": f"{PIPELINE}?lacks=files",
        "a manifest": f"{PIPELINE}/manifests/{middle}",
        "a manifest beside its sinks": f"{PIPELINE}/manifests/{middle}?compare=true",
        "dead letters": f"{PIPELINE}/dead-letters",
        "records": f"{PIPELINE}/peek",
        "an event hour": f"{PIPELINE}/hours/{FIRST_HOUR + timedelta(hours=manifests // 2):%Y-%m-%dT%H:%M:%SZ}",
        "an offset": f"/where?{offset}",
        "preview of a retry": f"{PIPELINE}/start/retry",
        "preview of a replay": f"{PIPELINE}/start/replay?manifest={middle}",
        "preview of a fill": f"{PIPELINE}/start/fill?sink=files",
        "metrics": "/api/metrics",
        "pipelines as JSON": "/api/pipelines",
        "pipelines without a plan as JSON": "/api/unplanned",
        "a pipeline as JSON": f"/api{PIPELINE}",
        "manifests as JSON": f"/api{PIPELINE}/manifests",
        "1,000 manifests as JSON": f"/api{PIPELINE}/manifests?limit=1000",
        "manifests of one day as JSON": f"/api{PIPELINE}/manifests?{day}",
        "manifests of a partition as JSON": f"/api{PIPELINE}/manifests?topic={NAME}&partition=1",
        "manifests of a topic as JSON": f"/api{PIPELINE}/manifests?topic={NAME}",
        "manifests that a sink lacks as JSON": f"/api{PIPELINE}/manifests?lacks=files",
        "a manifest as JSON": f"/api{PIPELINE}/manifests/{middle}",
        "the same beside its sinks": f"/api{PIPELINE}/manifests/{middle}/compared",
        "dead letters as JSON": f"/api{PIPELINE}/dead-letters",
        "lag as JSON": f"/api{PIPELINE}/lag",
        "lanes as JSON": f"/api{PIPELINE}/lanes",
        "coverage as JSON": f"/api{PIPELINE}/coverage",
        "timeline as JSON": f"/api{PIPELINE}/timeline",
        "hours as JSON": f"/api{PIPELINE}/hours",
        "an offset as JSON": f"/api/where?{offset}",
        "the description of the JSON": "/api/openapi.json",
    }


def measure(postgres: Postgres, manifests: int = MANIFESTS, partitions: int = PARTITIONS) -> list[dict[str, Any]]:
    """Return the median time of each view, in seconds, and the size of its answer."""
    with postgres.temporary_database("pages") as dsn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        newest = _fill(dsn, Path(folder), manifests, partitions)
        variables = {
            "TIDEMARK_DB": dsn, "TIDEMARK_HOME": folder, "TIDEMARK_PIPELINES": f"{folder}/pipelines",
            "AIRFLOW_HOME": f"{folder}/airflow", "AIRFLOW__API__SECRET_KEY": "of the measurement",
        }  # fmt: skip
        with set_variables(variables):
            return _measured(manifests, partitions, newest)


def _fill(dsn: str, folder: Path, manifests: int, partitions: int) -> int:
    """Fill the database. Return the id of the newest manifest."""
    migrate(dsn)
    pipeline = planning.pipeline(str(folder / "lake"))
    source = planning.MemorySource(pipeline, partitions, 0)
    with ManifestDatabase(dsn, "bench") as database:
        sinks = tuple(open_sink(NAME, settings, from_environment) for settings in pipeline.sinks)
        plan(Context(pipeline, database, source, sinks), Tick("first", RunKind.MANUAL, None))
    planning.write_records(folder / "lake", planning.fill(dsn, partitions, manifests))
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "bench.yaml").write_text(yaml.safe_dump(planning.file(str(folder / "lake"))))
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tidemark") as connection:
        connection.execute(RUNS.encode())
        connection.execute(FAILED.encode())  # the 20 newest manifests
        connection.execute("SELECT count_done()")  # no trigger has counted these rows
        connection.execute("VACUUM ANALYZE")
        row = connection.execute("SELECT max(id) FROM manifest").fetchone()
        assert row is not None
        return int(row[0])


def _measured(manifests: int, partitions: int, newest: int) -> list[dict[str, Any]]:
    figures = []
    with client(manifests * planning.RANGE_RECORDS, partitions) as asking:
        for name, address in views(newest, manifests).items():
            seconds = []
            for _ in range(REPEATS):
                began = time.monotonic()
                answer = asking.get(address)
                seconds.append(time.monotonic() - began)
                assert answer.status_code == 200, (address, answer.text)
            median = statistics.median(seconds)
            figures.append({"view": name, "seconds": median, "all_seconds": seconds, "bytes": len(answer.content)})
    return figures


@contextmanager
def client(end: int, partitions: int) -> Iterator[Any]:
    """Yield a client of the page's app in this process; ``end`` is the end of each partition in Kafka."""
    from fastapi.testclient import TestClient

    with app_of([NAME], end, partitions) as app:
        yield TestClient(app)


@contextmanager
def app_of(names: Sequence[str], end: int, partitions: int) -> Iterator[Any]:
    """Yield the page's app with these pipelines; ``end`` is the end of each partition in Kafka."""
    # Airflow takes seconds to import, and writes its configuration into its home: a folder of this measurement.
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user

    from tidemark.airflow.page import access, content, pages, plan_tasks
    from tidemark.airflow.page.actions import DagState
    from tidemark.airflow.page.app import build_app
    from tidemark.airflow.page.peeking import CHARACTERS

    lag = tuple(Lag(NAME, number, 0, end, end, end, 0, None) for number in range(partitions))
    app, unpaused = build_app(), DagState(paused=False, next_run=None)
    app.dependency_overrides |= {
        get_user: lambda: SimpleAuthManagerUser(username="bench", role="admin"),
        plan_tasks.plan_tasks: lambda: dict[str, Any](),
        access.unplanned_pipelines: lambda: list[Any](),
        access.states_in_airflow: lambda: dict[str, Any](),
        access.dags_of_listed: lambda: dict.fromkeys(names, unpaused),
        access.readable_pipelines: lambda: [*names],
        access.MAY_READ.dependency: lambda: None,
        access.MAY_START_RUNS.dependency: lambda: None,
        access.HAS_START_RIGHT.dependency: lambda: True,
        access.HAS_PAUSE_RIGHT.dependency: lambda: True,
    }
    with (
        mock.patch.object(content, "ask_sources", lambda _, asked, *__: dict.fromkeys(asked, Answer(lag))),
        mock.patch.object(content, "peeked", return_value=vars(peeked_view(Peeked([], [], None), CHARACTERS))),
        mock.patch.object(pages, "dag_states", return_value=dict.fromkeys(names, unpaused)),
    ):
        yield app
