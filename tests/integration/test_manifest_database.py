"""The promises that PostgreSQL keeps by itself, whoever plans and whatever the code does: raw SQL is refused too."""

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.stored_dump import pg_dump
from tests.worlds.world import World, wait_stopped
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate, migrations
from tidemark.database.statements import QUERIES
from tidemark.errors import ConfigurationError, IllegalTransition, PlanRefused
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import ManifestState, RangeKind, RunKind, StagedRecord
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import LastRecord
from tidemark.model.receipt import PartitionCount, Receipt

AT = TopicPartition("orders", "topic-id", 0)
NEWEST = len(migrations())
READ = PartitionCount(
    "orders", 0, read=20, bytes=1, distinct=20, first=0, last=19, last_timestamp_ms=5, last_digest="digest",
    decoded=20, dead_lettered=0, filtered=0, deduplicated=0, exploded=0, gap_count=0, gaps=(),
)  # fmt: skip
Sql = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def chain(database: str) -> int:
    """The id of a chain with the ranges [0, 10) and [10, 20), both of manifest 1."""
    with ManifestDatabase(database, "test") as manifests, manifests.transaction():
        manifests.pipelines.remember("demo", {"files": "a lake"})
        chain = manifests.chains.insert("demo", [AT])[AT]
        run = manifests.runs.insert(
            "demo", "one", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[]
        )  # fmt: skip
        manifest = manifests.manifests.insert(run, "demo", 1)[0]
        manifests.ranges.insert(RangeKind.ANCHOR, [(chain, None, 0, None)])
        manifests.ranges.insert(RangeKind.DATA, [(chain, 0, 10, manifest), (chain, 10, 20, manifest)])
    return chain


@pytest.fixture
def sql(database: str, chain: int) -> Iterator[Sql]:
    """A plain session, as a person with psql has it; the actor is set, so that only the rule in question refuses."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("SET tidemark.actor = 'a person'")
        yield connection


def rows(sql: Sql, query: str) -> list[tuple[object, ...]]:
    return sql.execute(query).fetchall()  # type: ignore[arg-type]


BROKEN_CHAINS = {
    "overlap": ("15, 25, 'lost', NULL", "range_no_gap"),
    "overlap over all of it": ("5, 30, 'lost', NULL", "range_no_gap"),
    "gap": ("21, 30, 'lost', NULL", "range_no_gap"),
    "fork": ("10, 30, 'data', 1", "range_no_fork"),
    "the same range twice": ("10, 20, 'data', 1", "range_no_fork"),
    "two ranges with one end": ("5, 10, 'lost', NULL", "range_one_end"),
    "a second anchor": ("NULL, 30, 'anchor', NULL", "range_one_anchor"),
    "an anchor with a start": ("20, 30, 'anchor', NULL", "range_anchor_has_no_start"),
    "a range without a start": ("NULL, 30, 'lost', NULL", "range_anchor_has_no_start"),
    "data without a manifest": ("20, 30, 'data', NULL", "range_data_has_manifest"),
    "lost offsets with a manifest": ("20, 30, 'lost', 1", "range_data_has_manifest"),
    "an empty range": ("20, 20, 'lost', NULL", "range_not_empty"),
    "a range backwards": ("20, 19, 'lost', NULL", "range_not_empty"),
}


@pytest.mark.parametrize("case", BROKEN_CHAINS)
def test_a_chain_cannot_be_broken_by_an_insert(sql: Sql, chain: int, case: str) -> None:
    values, constraint = BROKEN_CHAINS[case]
    with pytest.raises(psycopg.IntegrityError) as refused:
        sql.execute(f"INSERT INTO manifest_range VALUES ({chain}, {values})")  # type: ignore[arg-type]
    assert refused.value.diag.constraint_name == constraint
    assert rows(sql, "SELECT count(*) FROM manifest_range") == [(3,)]


def test_a_chain_goes_on_where_it_ended(sql: Sql, chain: int) -> None:
    sql.execute("INSERT INTO manifest_range VALUES (%s, 20, 30, 'lost', NULL)", [chain])
    assert rows(sql, "SELECT max(end_offset) FROM manifest_range") == [(30,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE manifest_range SET end_offset = 30 WHERE end_offset = 20",
        "UPDATE manifest_range SET manifest_id = manifest_id",
        "DELETE FROM manifest_range WHERE end_offset = 20",
        "DELETE FROM manifest",
        "DELETE FROM run",
        "DELETE FROM sink",
        "UPDATE sink SET target = 'another lake'",
        "UPDATE event SET actor = 'nobody'",
        "DELETE FROM event",
        *(f"TRUNCATE {table} CASCADE" for table in ("manifest", "run_end", "sink", "event", "pipeline")),
    ],
)
def test_what_was_recorded_is_neither_changed_nor_deleted(sql: Sql, statement: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        sql.execute(statement)  # type: ignore[arg-type]
    assert refused.value.sqlstate == "TM002"


def test_a_chain_belongs_to_one_pipeline_topic_id_partition_and_generation(sql: Sql) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute("INSERT INTO chain (pipeline, topic, topic_id, partition) VALUES ('demo', 'x', 'topic-id', 0)")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE manifest SET state = 'running', attempt = 1",
        "INSERT INTO pipeline VALUES ('another')",
        "INSERT INTO sink (pipeline, name, target) VALUES ('demo', 'table', 'a table')",
        "UPDATE chain SET blocked = 'x', blocked_since = now()",
        "INSERT INTO manifest_range VALUES (1, 20, 30, 'lost', NULL)",
    ],
)
def test_nothing_changes_without_saying_who_acts(sql: Sql, statement: str) -> None:
    sql.execute("RESET tidemark.actor")
    with pytest.raises(psycopg.Error) as refused:
        sql.execute(statement)  # type: ignore[arg-type]
    assert refused.value.sqlstate == "TM001"


def test_history_tells_who_did_what_in_order(database: str, chain: int) -> None:
    with ManifestDatabase(database, "cli anna") as manifests:
        assert manifests.attempts.start(1, "fingerprint") == 1
        manifests.attempts.fail(1, 1, "the broker is gone")
        told = [
            (event["actor"], event["what"].get("state"))
            for event in manifests.manifests.events(1)
            if event["subject"] == "manifest"
        ]
    assert told == [("test", "planned"), ("cli anna", "running"), ("cli anna", "failed")]


LEGAL = {
    ("planned", "running"), ("running", "done"), ("running", "failed"), ("running", "blocked"),
    ("failed", "running"), ("blocked", "planned"), ("planned", "failed"),
}  # fmt: skip


@pytest.mark.parametrize("before", list(ManifestState))
@pytest.mark.parametrize("after", list(ManifestState))
def test_only_legal_edges_between_states(sql: Sql, before: ManifestState, after: ManifestState) -> None:
    sql.execute("ALTER TABLE manifest DISABLE TRIGGER legal_edge")
    done = "now()" if before == "done" else "NULL"
    sql.execute(f"UPDATE manifest SET state = '{before}', attempt = 3, reason = 'r', done_at = {done}")  # type: ignore[arg-type]
    sql.execute("ALTER TABLE manifest ENABLE TRIGGER legal_edge")
    done = "coalesce(done_at, now())" if after == "done" else "NULL"
    move = f"UPDATE manifest SET state = '{after}', attempt = attempt + %s, done_at = {done}"
    if (before, after) in LEGAL or before == after:  # an adopt skips numbers that are staged, in each state
        sql.execute(move, [1 if after == "running" or before == after else 0])  # type: ignore[arg-type]
        return
    with pytest.raises(psycopg.Error) as refused:
        sql.execute(move, [1])  # type: ignore[arg-type]
    assert refused.value.sqlstate == "TM003"


def test_an_attempts_number_never_goes_down(sql: Sql) -> None:
    sql.execute("UPDATE manifest SET state = 'running', attempt = 2")
    with pytest.raises(psycopg.Error) as refused:
        sql.execute("UPDATE manifest SET attempt = 1")
    assert refused.value.sqlstate == "TM003"


def test_a_lower_attempt_cannot_replace_what_a_higher_one_published(database: str, sql: Sql) -> None:
    with ManifestDatabase(database, "test") as manifests:
        assert [manifests.attempts.start(1, "f"), manifests.attempts.start(1, "f")] == [1, 2]
        assert manifests.publications.publish(1, 2, "files", 2, "digest", {})
        assert not manifests.publications.publish(1, 1, "files", 1, "other", {}), "attempt 1 is not the newest"
        assert not manifests.publications.publish(1, 2, "files", 1, "other", {}), "attempt 1 is below the published one"
    with pytest.raises(psycopg.Error) as refused:
        sql.execute("UPDATE publication SET attempt = 1")
    assert refused.value.sqlstate == "TM003"
    assert rows(sql, "SELECT attempt, digest FROM publication") == [(2, "digest")]


def test_a_publication_names_a_known_sink_that_is_not_retired(database: str, sql: Sql) -> None:
    with ManifestDatabase(database, "test") as manifests:
        assert manifests.attempts.start(1, "f") == 1
        with pytest.raises(IllegalTransition, match="no sink table is known"):
            manifests.publications.publish(1, 1, "table", 1, "digest", {})
        assert manifests.publications.publish(1, 1, "files", 1, "digest", {})
        sql.execute("UPDATE sink SET retired_at = now()")
        assert manifests.manifests.get(1).publications == ()
        with pytest.raises(IllegalTransition, match="no sink files is known"):
            manifests.publications.publish(1, 1, "files", 1, "digest", {})


def test_two_names_for_one_target_are_refused_until_one_is_retired(sql: Sql) -> None:
    second = "INSERT INTO sink (pipeline, name, target) VALUES ('demo', 'second', 'a lake')"
    with pytest.raises(psycopg.errors.UniqueViolation):
        sql.execute(second)
    sql.execute("UPDATE sink SET retired_at = now()")
    sql.execute(second)


def receipt(attempt: int) -> Receipt:
    return Receipt(1, attempt, ("files",), (), (), {})


def test_only_the_newest_attempt_stores_a_receipt_or_ends_the_manifest(database: str, chain: int) -> None:
    with ManifestDatabase(database, "old") as old, ManifestDatabase(database, "new") as new:
        assert old.attempts.start(1, "f") == 1
        assert new.attempts.start(1, "f") == 2
        assert [attempt["state"] for attempt in new.attempts.of_manifest(1)] == ["fenced", "running"]
        assert not old.attempts.store_receipt(receipt(1), {}, ["files"], ["files"])
        assert new.attempts.store_receipt(receipt(2), {}, ["files"], ["files"])
        assert not old.publications.publish(1, 1, "files", 1, "digest", {})
        assert not new.attempts.finish(1, 2, ["files"]), "no sink has published"
        assert new.publications.publish(1, 2, "files", 2, "digest", {})
        assert not old.attempts.fail(1, 1, "too late")
        assert not old.attempts.block(1, 1, "too late")
        assert not old.attempts.finish(1, 1, ["files"])
        assert new.manifests.get(1).state is ManifestState.RUNNING
        assert new.attempts.finish(1, 2, ["files"])
        assert new.manifests.get(1).state is ManifestState.DONE


STAGED = replace(receipt(1), sinks=("files", "table"), partitions=(READ,))


def known(attempt: int, leader_epoch: int | None = None) -> StagedRecord:
    return StagedRecord(AT, 1, attempt, LastRecord(19, 5, "digest", leader_epoch), 20)


@pytest.fixture
def staged(database: str, chain: int) -> Iterator[tuple[ManifestDatabase, int]]:
    """Attempt 1 at manifest 1 has stored its receipt for two sinks; with the id of a manifest for [20, 30)."""
    with ManifestDatabase(database, "test") as manifests:
        with manifests.transaction():
            manifests.pipelines.remember("demo", {"files": "a lake", "table": "a table"})
            run = manifests.runs.insert(
                "demo", "two", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[]
            )  # fmt: skip
            above = manifests.manifests.insert(run, "demo", 1)[0]
            manifests.ranges.insert(RangeKind.DATA, [(chain, 20, 30, above)])
        manifests.attempts.start(1, "f")
        assert manifests.ranges.staged_below(above, 1, ["files"]) == []
        assert manifests.attempts.store_receipt(STAGED, asdict(STAGED), STAGED.sinks, ["files"])
        yield manifests, above


def test_what_an_attempt_has_staged_is_seen_from_above_until_nothing_of_it_can_be_published(
    staged: tuple[ManifestDatabase, int],
) -> None:
    manifests, above = staged
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1)]
    manifests.attempts.store_epochs(STAGED.with_epochs({("orders", 0): 7}))
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1, 7)]
    assert manifests.ranges.staged_below(1, 1, ["files"]) == [], "nothing lies below"
    manifests.attempts.start(1, "f")
    manifests.attempts.store_epochs(STAGED.with_epochs({("orders", 0): 8}))
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1, 7)], "attempt 1 stores nothing any more"
    again = replace(STAGED, attempt=2)
    assert manifests.attempts.store_receipt(again, asdict(again), STAGED.sinks, ["files"])
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1, 7), known(2)], (
        "1 may still be found in the table"
    )
    assert manifests.publications.publish(1, 2, "files", 2, "digest", {})
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1, 7), known(2)]
    assert manifests.publications.publish(1, 2, "table", 2, "digest", {})
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [], "what is published is compared as that"


@pytest.mark.parametrize(("sinks", "seen"), [(["files", "table"], []), (["files"], [known(1)])])
def test_what_a_lower_attempt_staged_for_another_sink_is_seen_by_the_next_one(
    staged: tuple[ManifestDatabase, int], sinks: list[str], seen: list[StagedRecord]
) -> None:
    manifests, _ = staged
    manifests.attempts.start(1, "f")
    assert manifests.ranges.staged_below(1, 2, sinks) == seen


def test_what_was_staged_for_a_retired_sink_or_taken_back_is_not_seen(
    staged: tuple[ManifestDatabase, int], sql: Sql
) -> None:
    manifests, above = staged
    manifests.attempts.take_back(1, 1, "files")
    assert manifests.ranges.staged_below(above, 1, ["files"]) == [known(1)]
    sql.execute("UPDATE sink SET retired_at = now() WHERE name = 'table'")
    assert manifests.ranges.staged_below(above, 1, ["files"]) == []


def test_errors_of_the_database_say_what_to_do(database: str, chain: int) -> None:
    with ManifestDatabase(database, "test") as manifests:
        with pytest.raises(PlanRefused, match=r"another planner was faster.*range_no_fork"), manifests.transaction():
            manifests.ranges.insert(RangeKind.LOST, [(chain, 10, 15, None)])
        with pytest.raises(PlanRefused, match="range_no_gap"), manifests.transaction():
            manifests.ranges.insert(RangeKind.LOST, [(chain, 15, 25, None)])
        with pytest.raises(PlanRefused, match="run_pipeline_run_key"), manifests.transaction():
            manifests.runs.insert("demo", "one", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[])
        assert manifests.chains.of_pipeline("demo")[0].end == 20


PLANNERS = 20


def together(world: World, keys: list[str], produce: bool) -> list[tuple[int, ...] | Exception]:
    """One planner per key, each with connections of its own, started at one moment, while records come in or not."""
    gate = threading.Barrier(len(keys))

    def plan_up_to(key: str) -> tuple[int, ...] | Exception:
        context = world.context()
        gate.wait(30)
        try:
            return plan(context, Tick(key, RunKind.MANUAL, None)).manifests
        except PlanRefused as refused:
            return refused

    with ThreadPoolExecutor(len(keys)) as pool:
        planning = [pool.submit(plan_up_to, key) for key in keys]
        while produce and not all(future.done() for future in planning):
            world.produce(20)
            time.sleep(0.05)  # else the planners, which are threads of this process, hardly come to run
        return [future.result() for future in planning]


def test_twenty_planners_of_one_key_make_one_plan(world: World) -> None:
    world.produce(100)
    answers = together(world, ["one"] * PLANNERS, produce=False)
    assert len(set(answers)) == 1
    assert len(world.json("manifests", "demo")) == 3
    assert world.published_spans() == Counter()


def test_planners_of_different_keys_while_records_come_in_cover_all_of_them_once(world: World) -> None:
    world.produce(100)
    answers = together(world, [f"key {number}" for number in range(PLANNERS)], produce=True)
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize("meanwhile", ["only records", "records and a partition"])
def test_a_planner_that_asked_kafka_before_another_went_on_does_not_take_its_answer_for_a_truncated_topic(
    world: World, meanwhile: str
) -> None:
    world.produce(20)
    world.ok("plan", "demo")
    slow, fast = world.context(), world.context()
    lock = "SELECT {}(1414089812, hashtext('demo'))"
    fast.database.session.execute(lock.format("pg_advisory_lock"))
    with ThreadPoolExecutor(1) as pool, ManifestDatabase(world.dsn, "reader") as reader:
        planning = pool.submit(plan, slow, Tick("slow", RunKind.MANUAL, None))
        waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not reader.session.execute(waits).fetchall():
            assert not planning.done()
            time.sleep(0.01)
        world.produce(20)
        if meanwhile == "records and a partition":
            world.broker.add_partitions(world.topic, 3)
        assert plan(fast, Tick("fast", RunKind.MANUAL, None)).manifests
        fast.database.session.execute(lock.format("pg_advisory_unlock"))
        assert planning.result(30).manifests == ()
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_migrating_twice_changes_nothing(postgres: Postgres) -> None:
    with postgres.temporary_database("migrate") as dsn:
        assert migrate(dsn)
        with ManifestDatabase(dsn, "test") as manifests:
            first = manifests.id()
        assert not migrate(dsn)
        with ManifestDatabase(dsn, "test") as manifests:
            assert manifests.id() == first


def test_migrating_at_once_migrates_once(postgres: Postgres) -> None:
    with postgres.temporary_database("migrate") as dsn, ThreadPoolExecutor(10) as pool:
        made = [version for versions in pool.map(migrate, [dsn] * 10) for version in versions]
    assert sorted(made) == list(range(1, NEWEST + 1)), "each version once, by whoever is first"


def test_airflows_own_database_is_refused(postgres: Postgres) -> None:
    with postgres.temporary_database("migrate") as dsn:
        with psycopg.connect(dsn) as airflow:
            airflow.execute("CREATE TABLE public.dag_run (id int)")
        with pytest.raises(ConfigurationError, match="Airflow's own metadata database"):
            migrate(dsn)
        with psycopg.connect(dsn) as airflow:
            assert airflow.execute("SELECT to_regnamespace('tidemark')").fetchall() == [(None,)]


def test_tables_of_another_version_are_refused(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE tidemark.database SET version = 99")
    with pytest.raises(ConfigurationError, match=f"of version 99, this Tidemark needs {NEWEST}"):
        migrate(database)


@pytest.mark.parametrize(
    ("statement", "theirs"),
    [("UPDATE tidemark.database SET schema = 'older'", "older"),
     ("ALTER TABLE tidemark.database DROP COLUMN schema", "unknown")],
)  # fmt: skip
def test_tables_made_by_another_schema_are_refused(database: str, statement: str, theirs: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(statement)  # type: ignore[call-overload]
    expected = rf"a state of Tidemark that was never released \(version {NEWEST}, schema {theirs}\)"
    for opened in (migrate, lambda dsn: ManifestDatabase(dsn, "test").close()):
        with pytest.raises(ConfigurationError, match=expected) as refused:
            opened(database)
        assert "or set TIDEMARK_DB to another database" in refused.value.next_step


EVERY_COMMAND_WITH_THE_DATABASE = [
    ("plan", "demo"), ("plan", "demo", "--dry-run"), ("run", "demo"), ("retry", "demo"),
    ("replay", "demo", "--manifest", "1"),
    ("manifests",), ("show", "1"), ("objects", "demo"), ("lag", "demo"), ("audit", "demo"), ("where", "t", "0", "1"),
    ("history", "demo"), ("db", "migrate"),
    *((*words, "--why", "a test") for words in [
        ("accept", "loss", "demo"), ("accept", "topic", "demo", "--topic", "t"),
        ("accept", "truncation", "demo", "--topic", "t", "--partition", "0"), ("extend-back", "demo"),
        ("db", "adopt", "demo"), ("repair", "demo"),
    ]),
]  # fmt: skip


def test_every_command_refuses_tables_of_another_version_and_changes_nothing(world: World) -> None:
    world.produce(3)
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("UPDATE tidemark.database SET version = 99")
        for words in EVERY_COMMAND_WITH_THE_DATABASE:
            done = world.here(*words)
            assert done.exit_code == 2, (words, done.stderr)
            assert f"the tables are of version 99, this Tidemark needs {NEWEST}" in done.stderr, (words, done.stderr)
            assert "use the Tidemark version that upgraded them or a newer one" in done.stderr, words
        connection.execute("DELETE FROM tidemark.database")
        assert "never released (version unknown, schema unknown)" in world.here("manifests").stderr
        sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidemark'"
        deadline = time.monotonic() + 60  # a session ends a moment after its client has closed it
        while left := connection.execute(sessions).fetchall():
            assert time.monotonic() < deadline, f"whoever is refused leaves no session behind: {left}"
            time.sleep(0.05)
        assert connection.execute("SELECT 1 FROM tidemark.run").fetchall() == []
    assert not world.lake.exists()


def test_an_attempt_is_alive_while_its_session_is(database: str, chain: int) -> None:
    with ManifestDatabase(database, "reader") as reader:
        worker = ManifestDatabase(database, "worker")
        assert not reader.manifests.get(1).alive
        assert worker.attempts.start(1, "f") == 1
        assert reader.manifests.get(1).alive
        assert worker.attempts.start(1, "f") == 2
        worker.attempts.release(1, 2)
        assert not reader.manifests.get(1).alive, "the newest attempt counts, not an older one"
        worker.attempts.start(1, "f")
        worker.close()
        wait_dead(reader, 1)


def wait_dead(reader: ManifestDatabase, manifest: int) -> None:
    deadline = time.monotonic() + 60
    while reader.manifests.get(manifest).alive:
        assert time.monotonic() < deadline, "still alive a minute after its end"
        time.sleep(0.02)


def test_a_killed_worker_is_not_alive_and_a_stopped_one_is(world: World) -> None:
    world.produce(40)
    worker = world.start("run", "demo", failpoint="read.before:stop")
    wait_stopped(worker)
    with ManifestDatabase(world.dsn, "reader") as reader:
        manifest = reader.manifests.find("demo")[0].id
        assert reader.manifests.get(manifest).alive
        busy = world.here("retry", "demo", "--manifest", str(manifest))
        assert busy.exit_code == 1
        assert "attempt 1 is alive and at work" in busy.stderr
        assert "there is nothing to retry" in world.here("retry", "demo").stderr
        os.killpg(worker.pid, signal.SIGKILL)
        wait_dead(reader, manifest)
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_blocked_manifest_starts_only_when_a_person_released_it(database: str, chain: int) -> None:
    with ManifestDatabase(database, "test") as manifests:
        manifests.attempts.start(1, "f")
        assert manifests.attempts.block(1, 1, "numbers differ")
        assert manifests.attempts.start(1, "f") is None
        assert manifests.manifests.unblock(1)
        assert manifests.manifests.get(1).reason == "released: numbers differ"
        assert manifests.attempts.start(1, "f") == 2
        with pytest.raises(IllegalTransition), manifests.transaction():
            manifests.session.execute("UPDATE manifest SET state = 'planned'")


RANGES = 100_000


def test_the_ends_of_chains_are_found_by_index_probes_whatever_their_history(sql: Sql, chain: int) -> None:
    sql.execute(
        "INSERT INTO manifest_range SELECT %s, 10 * n, 10 * n + 10, 'data', 1 FROM generate_series(2, %s) AS n",
        [chain, RANGES],
    )
    sql.execute("ANALYZE manifest_range")
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + QUERIES["chains"]
    explained = sql.execute(explain, {"pipeline_name": "demo"}).fetchall()[0][0]  # type: ignore[arg-type]
    nodes = [node for node in flattened(explained[0]["Plan"]) if node.get("Relation Name") == "manifest_range"]  # type: ignore[index]
    assert [
        (node["Node Type"].removesuffix("Only Scan").removesuffix("Scan").strip(), node["Actual Rows"])
        for node in nodes
    ] == [("Index", 1), ("Index", 1)], json.dumps(nodes, indent=1)
    assert explained[0]["Plan"]["Shared Hit Blocks"] + explained[0]["Plan"]["Shared Read Blocks"] < 20  # type: ignore[index]


def flattened(node: dict[str, object]) -> Iterator[dict[str, object]]:
    yield node
    for below in node.get("Plans", []):  # type: ignore[attr-defined]
        yield from flattened(below)


def test_ids_that_an_open_plan_has_taken_are_not_given_out_again(database: str, chain: int) -> None:
    """An adoption beside it sets the sequence, and sees only what is committed."""
    planned = {"cut_at": None, "reached": True, "covered_by": [], "notes": []}
    with ManifestDatabase(database, "planner") as planner, ManifestDatabase(database, "adopter") as adopter:
        with planner.transaction():
            taken = planner.manifests.insert(planner.runs.insert("demo", "two", RunKind.MANUAL, **planned), "demo", 3)
            with adopter.transaction():
                adopter.manifests.keep_ids_above(2)
        with adopter.transaction():
            [later] = adopter.manifests.insert(
                adopter.runs.insert("demo", "three", RunKind.MANUAL, **planned), "demo", 1
            )
    assert later > max(taken)


def test_the_history_is_divided_by_time_as_the_docs_say_and_old_parts_can_go(
    database: str, chain: int, postgres: Postgres
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    [divide] = re.findall(r"```sql\n(BEGIN;.*?COMMIT;)\n```", page, re.DOTALL)
    soon = datetime.now(UTC) + timedelta(seconds=10)
    with psycopg.connect(database, autocommit=True, options="-c search_path=tidemark") as sql:
        [[before]] = sql.execute("SELECT max(id) FROM event").fetchall()
        sql.execute(divide.replace("2027-01-01Z", soon.isoformat()))
        with ManifestDatabase(database, "afterwards") as manifests:
            assert manifests.attempts.start(1, "code") == 1
            assert [event["actor"] for event in manifests.manifests.events(1)][-1] == "afterwards"
            assert migrate(database) == ()
        [[after]] = sql.execute("SELECT max(id) FROM event").fetchall()
        assert after > before, "ids go on"
        with pytest.raises(psycopg.Error, match="DELETE of event_before_2027 is not allowed"):
            sql.execute("DELETE FROM event")
        aside = pg_dump(postgres, database, "--table=tidemark.event_before_2027")
        assert "afterwards" in aside
        time.sleep(max(0, (soon - datetime.now(UTC)).total_seconds()))
        sql.execute("ALTER TABLE event DETACH PARTITION event_before_2027")
        sql.execute("DROP TABLE event_before_2027")
    with ManifestDatabase(database, "later") as manifests:
        assert manifests.manifests.events(1) == []
        assert manifests.attempts.start(1, "code") == 2
