"""Measures in a browser how soon the list of pipelines is there: ``python -m bench.browser``.

Chromium opens it over HTTP from a server in this process, each time without a cache. The database is a real PostgreSQL
with pipelines in all states, each with 20 runs. User, DAGs and Kafka's answers are made up, as in ``pages.py``.
"""

import importlib
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import psycopg
import yaml

from bench import pages, planning
from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.browser import chromium
from sandbox.services.postgres import Postgres
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.environment import set_variables
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.registry import open_sink

PIPELINES, RUNS, PARTITIONS = 200, 20, 4
REPEATS = 7
WINDOWS = {"wide": (1440, 900), "phone": (375, 812)}
READ = 1_000  # offsets of each run, in each partition

# One manifest for each of 20 runs, with 1,000 offsets of 4 partitions. The last digit of a pipeline's name decides
# whether its newest manifest is not done, or its oldest one is damaged.
HISTORY = """
SET session_replication_role = replica;
CREATE TEMPORARY TABLE step AS
SELECT p.name AS pipeline, n AS number,
       CASE WHEN n < 19 THEN 'done'
            ELSE coalesce((ARRAY['failed', 'blocked', 'running', 'planned'])[right(p.name, 1)::int + 1], 'done')
       END AS state
FROM pipeline p, generate_series(0, 19) n;
INSERT INTO run (pipeline, run_key, kind, cut_at, planned_up_to, planned_at, reached, manifests, covered_by, notes, lag,
                 published_before)
SELECT pipeline, 'hour ' || number, 'scheduled', at, at, at, true, '{}', '{}', '{}', 1000 * number, at
FROM step, LATERAL (SELECT date_trunc('hour', now()) - (19 - number) * interval '1 hour' AS at) hour;
INSERT INTO manifest (run_id, pipeline, slice, state, attempt, reason, done_at)
SELECT r.id, s.pipeline, 0, s.state::manifest_state, CASE WHEN s.state = 'planned' THEN 0 ELSE 1 END,
       CASE WHEN s.state IN ('failed', 'blocked') THEN '11 records cannot be used: field id: absent' END,
       CASE WHEN s.state = 'done' THEN now() END
FROM step s JOIN run r ON r.pipeline = s.pipeline AND r.run_key = 'hour ' || s.number ORDER BY r.id;
UPDATE run r SET manifests = ARRAY[m.id] FROM manifest m WHERE m.run_id = r.id;
INSERT INTO manifest_range (chain_id, start_offset, end_offset, kind, manifest_id)
SELECT c.id, number * 1000, (number + 1) * 1000, 'data', m.id
FROM manifest m JOIN run r ON r.id = m.run_id JOIN chain c ON c.pipeline = m.pipeline,
     LATERAL (SELECT split_part(r.run_key, ' ', 2)::int AS number) n;
INSERT INTO run_end (run_id, chain_id, end_offset)
SELECT m.run_id, g.chain_id, g.end_offset FROM manifest m JOIN manifest_range g ON g.manifest_id = m.id;
INSERT INTO attempt (manifest_id, attempt, state, fingerprint, actor, ended_at)
SELECT id, 1, CASE state WHEN 'done' THEN 'published' ELSE state::text END::attempt_state, 'bench', 'bench',
       CASE WHEN state <> 'running' THEN now() END
FROM manifest WHERE attempt = 1;
INSERT INTO publication (manifest_id, sink, attempt, settled, digest, counts)
SELECT id, 'files', 1, 1, repeat('0', 48), jsonb_build_object(
           'read', 4000, 'invisible', 0, 'written', 4000, 'dead_lettered', 0,
           'filtered', 0, 'deduplicated', 0, 'exploded', 0, 'superseded', 0, 'stale', 0)
FROM manifest WHERE state = 'done';
INSERT INTO missing_output (manifest_id, sink, settled, only_evidence, lost_values, what, next_step)
SELECT min(id), 'files', 1, false, false, 'a file is missing', 'tidemark replay ' || pipeline || ' --damaged'
FROM manifest WHERE state = 'done' AND pipeline LIKE '%7' GROUP BY pipeline;
SET session_replication_role = DEFAULT;
SELECT count_done();
"""
TIMES = """() => new Promise((done) => {
  const look = () => {
    const [painted] = performance.getEntriesByName("first-contentful-paint");
    const [opened] = performance.getEntriesByType("navigation");
    if (!painted || !opened.loadEventEnd) requestAnimationFrame(look);
    else done({ response: opened.responseEnd, painted: painted.startTime, loaded: opened.loadEventEnd });
  };
  look();
})"""


def measure(postgres: Postgres, browser: Any, pipelines: int = PIPELINES) -> dict[str, Any]:
    """Return the median milliseconds from the click to the end of the answer, to the first paint and to ``load``, by
    the window's width.
    """
    names = [f"events-{number:03}" for number in range(pipelines)]
    with postgres.temporary_database("browser") as dsn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        variables = {
            "TIDEMARK_DB": dsn, "TIDEMARK_HOME": folder, "TIDEMARK_PIPELINES": f"{folder}/pipelines",
            "AIRFLOW_HOME": f"{folder}/airflow", "AIRFLOW__API__SECRET_KEY": "of the measurement",
        }  # fmt: skip
        _fill(dsn, Path(folder), names)
        with set_variables(variables), _served(names) as address:
            return {width: _opened(browser, address, width) for width in WINDOWS}


def _fill(dsn: str, folder: Path, names: list[str]) -> None:
    migrate(dsn)
    (folder / "pipelines").mkdir()
    with ManifestDatabase(dsn, "bench") as database:
        for name in names:
            file = planning.file(str(folder / "lake" / name)) | {"pipeline": name}
            (folder / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(file))
            pipeline = Pipeline.model_validate(file)
            sinks = tuple(open_sink(name, settings, from_environment) for settings in pipeline.sinks)
            source = planning.MemorySource(pipeline, PARTITIONS, 0)
            plan(Context(pipeline, database, source, sinks), Tick("first", RunKind.MANUAL, None))
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tidemark") as connection:
        connection.execute(HISTORY.encode())
        connection.execute("VACUUM ANALYZE")


@contextmanager
def _served(names: list[str]) -> Iterator[str]:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    with listening, pages.app_of(names, RUNS * READ, PARTITIONS) as app:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def _opened(browser: Any, address: str, width: str) -> dict[str, Any]:
    times: list[dict[str, float]] = []
    viewport = dict(zip(("width", "height"), WINDOWS[width], strict=True))
    for _ in range(REPEATS):
        context = browser.new_context(viewport=viewport)  # without a cache
        page = context.new_page()
        page.goto(address, wait_until="load")
        times.append(page.evaluate(TIMES))
        rows, words = page.locator("tbody").count(), page.get_by_role("status").inner_text()
        context.close()
    medians = {name: round(statistics.median(each[name] for each in times)) for name in times[0]}
    return {**medians, "all": times, "rows": rows, "status": words, "load_average": os.getloadavg()[0]}


def main() -> None:
    sys.path.append(str(packages_of("browser")))
    playwright = importlib.import_module("playwright.sync_api").sync_playwright()
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        Postgres(Path(folder)) as postgres,
        playwright as started,
        redirect_stdout(sys.stderr),  # so that Airflow's log lines go there
    ):
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        figures = measure(postgres, browser)
        browser.close()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
