"""`make bench` works on a small scale; nothing is timed here."""

from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Match

from bench import commits, current_rows, ledger, pages, planning, sinks, streams
from bench.__main__ import Bench
from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tidemark.airflow.page.app import build_app
from tidemark.kinds import SINKS


def test_a_plan_is_measured_with_a_history(postgres: Postgres) -> None:
    figures = planning.measure(postgres, partitions=3, ranges=30)
    assert (figures["manifests"], figures["ranges"], len(figures["all_seconds"])) == (10, 30, planning.REPEATS)
    assert set(figures["nodes"]) == {"chains", "covering_manifests", "last_published"}


def test_each_view_of_the_page_is_measured_with_a_history(postgres: Postgres) -> None:
    figures = pages.measure(postgres, manifests=60, partitions=3)
    assert {figure["view"] for figure in figures} == set(pages.views(60, 60))
    assert all(len(figure["all_seconds"]) == pages.REPEATS for figure in figures)


def test_what_grows_with_a_history_is_named(postgres: Postgres) -> None:
    figures = ledger.measure(postgres, ranges=1_800, partitions=3)
    assert (figures["fewer"], figures["ranges"]) == (180, 1_800)
    verbs = {verb["verb"]: verb for verb in figures["verbs"]}
    asking = ["plan", "process", "close", "manifests, the newest", "lag", "page: a pipeline"]
    assert all(verbs[name]["statements"] and verbs[name]["blocks"][1] for name in asking)


def test_each_address_of_the_page_is_measured_except_files_and_what_starts_a_run() -> None:
    answered = {route.path for route in build_app().routes if isinstance(route, APIRoute) and "GET" in route.methods}
    router = build_app().router
    measured = set()
    for address in pages.views(60, 60).values():
        scope = {"type": "http", "method": "GET", "path": address.partition("?")[0], "headers": []}
        measured.add(next(route.path for route in router.routes if route.matches(scope)[0] is Match.FULL))
    assert answered - measured == {"/static/{name}", "/{path:path}"}


def test_a_commit_is_measured_with_as_many_snapshots_as_are_kept(postgres: Postgres) -> None:
    assert len(commits.measure(postgres, 7)["all_seconds"]) == commits.REPEATS


@pytest.mark.thorough
def test_a_merge_is_measured_beside_spark_which_has_the_same_rows_in_the_end(
    tmp_path: Path, postgres: Postgres
) -> None:
    figures = current_rows.measure(postgres, tmp_path, 500, (20, 100), 1)  # raises when the tables differ
    measured = [(figure["format"], figure["changed"]) for figure in figures]
    assert measured == [(kind, changed) for kind in current_rows.SINKS for changed in (20, 100)]
    assert all(figure[side]["whole"] > 0 for figure in figures for side in ("tidemark", "spark"))


@pytest.mark.thorough
# batch and noop have no line of their own; the checkout beside is this one, so it is `tidemark` too.
@pytest.mark.parametrize("kind", ["beside", "streaming", "flink"])
def test_every_contender_reads_all_there_is(kind: str, tmp_path: Path, broker: Broker, postgres: Postgres) -> None:
    bench = Bench(tmp_path, broker, postgres, beside=CHECKOUT)
    name = f"bench-{kind}"
    bench.fill(name, 2_000)
    timing = bench.once(kind, name, 2_000)  # raises when it wrote less or more
    assert 0 < timing.session < timing.session + timing.job + timing.publish < timing.whole
    assert timing.files > 0


@pytest.mark.thorough
def test_a_server_that_stays_up_does_one_run_after_the_other(
    tmp_path: Path, broker: Broker, postgres: Postgres
) -> None:
    bench = Bench(tmp_path, broker, postgres)
    bench.fill("bench-warm", 2_000)
    with bench.server("bench-warm", 2_000):
        timing = bench.once("warm", "bench-warm", 2_000)
    assert 0 < timing.session < timing.session + timing.job + timing.publish < timing.whole
    assert timing.files > 0


@pytest.mark.thorough
def test_streams_are_measured_beside_a_topic(tmp_path: Path, broker: Broker, postgres: Postgres) -> None:
    figures = streams.measure(Bench(tmp_path, broker, postgres), 2_000, 1)
    assert {kind: len(timings) for kind, timings in figures["timings"].items()} == {"kafka": 1, "rabbitmq": 1}


def test_a_sink_of_each_kind_is_measured(tmp_path: Path, broker: Broker, postgres: Postgres) -> None:
    figures = sinks.measure(broker, postgres, tmp_path, 2_000)
    assert {figure["sink"] for figure in figures} == set(sinks.SINKS)
    assert all(figure["stage"] > 0 and figure["publish"] > 0 for figure in figures)
    assert {kind for entry in sinks.SINKS.values() for kind in entry} == set(SINKS)
