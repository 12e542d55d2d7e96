"""The answer to a COMMIT gets lost, or the COMMIT itself: the outcome is unknown, so it is looked up and never guessed.

A proxy in front of PostgreSQL loses it, at the COMMIT of the transaction that ran a certain statement, or at each one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.faults.postgres_proxy import Armed, Fault, Proxy
from tests.faults.runs_with_lost_answers import FAULTS, Fresh, fails, lose, lose_each
from tests.worlds.world import World


@pytest.fixture
def world(world: World, postgres_proxy: Proxy) -> World:
    """A pipeline that reaches its database through the proxy."""
    world.dsn = postgres_proxy.dsn(world.dsn)
    return world


@pytest.fixture
def fresh(
    postgres: Postgres, template: str, postgres_proxy: Proxy, broker: Broker, tmp_path: Path, spark_jars: Path
) -> Fresh:
    """Makes one such pipeline after the other, each with a database of its own: 0.3 s."""

    @contextmanager
    def make() -> Iterator[World]:
        with postgres.temporary_database("test", template) as dsn:
            folder = tmp_path / dsn.rpartition("/")[2]
            with World(folder, postgres_proxy.dsn(dsn), broker, spark_jars) as made:
                yield made

    return make


@FAULTS
def test_P3_a_plan_whose_commit_is_unknown_is_planned_once_under_its_key(
    world: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    world.produce(100)
    armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO run"))
    fails(world, "plan", "demo", "--run-key", "one")
    assert armed.struck
    stored = [manifest["id"] for manifest in world.manifests()]
    assert len(stored) == (3 if fault is Fault.ANSWER_LOST else 0)
    world.produce(50)
    again = world.json("plan", "demo", "--run-key", "one")
    if fault is Fault.ANSWER_LOST:
        assert (again["manifests"], again["repeated"]) == (stored, True), "its ends are those of the first time"
    else:
        assert (len(again["manifests"]), again["repeated"]) == (4, False)
    world.ok("retry", "demo")
    world.finish("two")


@FAULTS
def test_R1_an_attempt_whose_start_is_unknown_is_followed_by_another(
    world: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    world.produce(30)
    armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO attempt"))
    fails(world, "run", "demo", "--run-key", "one")
    assert armed.struck
    [manifest] = world.json("manifests", "demo")
    assert manifest["attempt"] == (1 if fault is Fault.ANSWER_LOST else 0)
    assert manifest["published_attempt"] is None
    assert world.listing() == {}
    world.finish()
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == (2 if fault is Fault.ANSWER_LOST else 1)


@FAULTS
def test_F2_a_receipt_that_may_be_stored_or_not_publishes_nothing(
    world: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    world.produce(30)
    armed = postgres_proxy.arm(Armed(fault, having="SET receipt"))
    fails(world, "run", "demo", "--run-key", "one")
    assert armed.struck
    assert (world.exact(), world.listing(), world.recorded()) == ({}, {}, {})
    world.finish()
    assert world.manifests()[0]["published_attempt"] == 2


@FAULTS
def test_F3_a_mark_that_is_unknown_is_found_or_set_and_nothing_is_read_again(
    world: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    world.produce(30)
    armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO publication"))
    fails(world, "run", "demo", "--run-key", "one")
    assert armed.struck
    done = fault is Fault.ANSWER_LOST
    assert world.exact() == (world.everything() if done else {})
    assert world.recorded() == world.listing() == world.everything(), "the record is there before the mark"
    before = {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")}
    world.finish()
    [manifest] = world.json("manifests", "demo")
    assert (manifest["attempt"], manifest["published_attempt"]) == (1 if done else 2, 1)
    assert {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")} == before


@FAULTS
def test_M1_a_replay_whose_mark_is_unknown_leaves_one_of_the_two_whole(
    world: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    world.produce(30)
    world.ok("run", "demo")
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}  # other rows
    world.write_pipeline()
    manifest = str(world.manifests()[0]["id"])
    armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO publication"))
    fails(world, "replay", "demo", "--manifest", manifest)
    assert armed.struck
    assert world.json("show", manifest)["published_attempt"] == (2 if fault is Fault.ANSWER_LOST else 1)
    world.ok("retry", "demo")
    world.assert_complete()
    world.ok("replay", "demo", "--manifest", manifest)
    world.assert_complete()


@FAULTS
def test_every_commit_of_a_run_may_be_unknown(fresh: Fresh, postgres_proxy: Proxy, fault: Fault) -> None:
    met = lose_each(fresh, postgres_proxy, fault, every=False)
    assert sum("INSERT INTO publication" in statement for statement in met) == 2, (
        "plan; start, receipt and mark of two manifests"
    )
    assert len(met) >= 7


@pytest.mark.exhaustive
@FAULTS
def test_the_connection_may_break_at_any_statement_of_a_run(fresh: Fresh, postgres_proxy: Proxy, fault: Fault) -> None:
    with fresh() as world:  # every sixth statement below need not be this one
        assert "pg_advisory_lock" in lose(world, postgres_proxy, Armed(fault, having="pg_advisory_lock", every=True))
    assert len(lose_each(fresh, postgres_proxy, fault, every=True, step=6)) > 8
