"""``tidemark manifests`` when there are many: pages, newest first, by id, or by the time of their runs."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.worlds.world import World
from tidemark.database.statements import QUERIES
from tidemark.model.manifest import ALL_MANIFESTS

START = datetime(2024, 3, 1, tzinfo=UTC)
MANY = 420  # of demo; every seventh failed, and as many of another pipeline between them


@pytest.fixture
def many(world: World) -> World:
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("SELECT set_config('tidemark.actor', 'test', false)")
        for name in ("demo", "other"):
            connection.execute("INSERT INTO pipeline (name) VALUES (%s)", [name])
            connection.execute(
                "INSERT INTO run (pipeline, run_key, kind, reached, manifests, covered_by, notes) "
                "VALUES (%s, 'r', 'manual', true, '{}', '{}', '{}')",
                [name],
            )
        connection.execute(
            "INSERT INTO manifest (run_id, pipeline, slice) SELECT r.id, r.pipeline, n "
            "FROM generate_series(1, %s) AS n CROSS JOIN run r ORDER BY n, r.pipeline",
            [MANY],
        )
        connection.execute("UPDATE manifest SET state = 'running', attempt = 1 WHERE slice %% 7 = 0", [])
        connection.execute("UPDATE manifest SET state = 'failed', reason = 'a test' WHERE state = 'running'")
    return world


def pages(world: World, *words: str) -> tuple[list[list[int]], list[str]]:
    """The ids page by page, by the command that each page names for the next; and those commands."""
    command, ids, messages = ["manifests", *words], [], []
    while True:
        done = world.here(*command)
        assert done.exit_code == 0, done.stderr
        ids.append([manifest["id"] for manifest in json.loads(done.stdout)])
        following = re.search(r"the next: tidemark (.*)", done.stderr)
        if following is None:
            return ids, messages
        messages.append(done.stderr.strip())
        command = shlex.split(following[1])


def test_pages_hold_every_manifest_once_newest_first(many: World) -> None:
    ids, messages = pages(many, "demo", "--limit", "100", "--json")
    assert [len(page) for page in ids] == [100, 100, 100, 100, 20]
    together = [manifest for page in ids for manifest in page]
    assert together == sorted(together, reverse=True)
    assert len(set(together)) == MANY
    assert together == [manifest["id"] for manifest in many.json("manifests", "demo")], (
        "without a limit JSON has them all"
    )
    assert messages[0] == (
        f"100 of 420 manifests; the next: tidemark manifests demo --limit 100 --after {ids[0][-1]} --json"
    )


def test_pages_of_a_state_are_full_pages(many: World) -> None:
    ids, messages = pages(many, "demo", "--state", "failed", "--limit", "25", "--json")
    assert [len(page) for page in ids] == [25, 25, 10]
    assert messages[0].startswith(
        "25 of 60 manifests; the next: tidemark manifests demo --state failed --limit 25 --after"
    )


def test_pages_of_all_pipelines(many: World) -> None:
    ids, _ = pages(many, "--limit", "500", "--json")
    assert [len(page) for page in ids] == [500, 340]


def test_a_table_is_a_page_of_50_and_says_how_to_go_on(many: World) -> None:
    done = many.here("manifests", "demo")
    assert done.stdout.count("│ demo ") == 50
    newest = many.json("manifests", "demo", "--limit", "50")
    assert f"50 of 420 manifests; the next: tidemark manifests demo --after {newest[-1]['id']}\n" in done.stderr
    last = many.here("manifests", "demo", "--after", "5")
    assert last.stdout.count("│ demo ") == 2
    assert "the next" not in last.stderr


def test_new_manifests_do_not_shift_the_pages_that_are_still_to_come(many: World) -> None:
    first = many.json("manifests", "demo", "--limit", "10")
    expected = many.json("manifests", "demo", "--limit", "10", "--after", str(first[-1]["id"]))
    with psycopg.connect(many.dsn) as connection:
        connection.execute("SELECT set_config('tidemark.actor', 'test', false)")
        connection.execute(
            "INSERT INTO tidemark.manifest (run_id, pipeline, slice) SELECT id, pipeline, 1000 FROM tidemark.run"
        )
    assert many.json("manifests", "demo", "--limit", "10", "--after", str(first[-1]["id"])) == expected


def plan_of_a_page(connection: psycopg.Connection, **values: object) -> str:
    """How PostgreSQL reads five manifests."""
    none = {"first_id": None, "end_id": None, "by_time": False, "behind": None, "after": None, **vars(ALL_MANIFESTS)}
    statement = b"EXPLAIN " + QUERIES["newest_manifests"].encode()
    return "\n".join(row[0] for row in connection.execute(statement, {**none, "limit": 5, **values}).fetchall())


@pytest.fixture
def of_many_times(many: World) -> World:
    """420 manifests more, three of each run; the runs read up to hours that are not in the order of their ids."""
    with psycopg.connect(many.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("SELECT set_config('tidemark.actor', 'test', false)")
        connection.execute(
            "INSERT INTO run (pipeline, run_key, kind, reached, manifests, covered_by, notes, planned_up_to) "
            "SELECT 'demo', 't' || n, 'scheduled', true, '{}', '{}', '{}', %s + n * 89 %% 140 * interval '1 hour' "
            "FROM generate_series(0, 139) AS n",
            [START],
        )
        connection.execute(
            "INSERT INTO manifest (run_id, pipeline, slice) SELECT id, pipeline, n FROM run "
            "CROSS JOIN generate_series(1, 3) AS n WHERE planned_up_to IS NOT NULL ORDER BY run.id, n"
        )
    return many


def test_a_list_by_time_is_in_the_order_of_times_page_by_page(of_many_times: World) -> None:
    until = ("--until", "2024-03-03T00:00")
    with psycopg.connect(of_many_times.dsn) as connection:
        expected = connection.execute(
            "SELECT m.id FROM tidemark.manifest m JOIN tidemark.run r ON r.id = m.run_id "
            "WHERE r.planned_up_to <= '2024-03-03 00:00Z' ORDER BY r.planned_up_to DESC, m.id DESC"
        ).fetchall()
    assert len(expected) == 3 * 49, "midnight of the third day is the 49th hour"
    in_order = [manifest for (manifest,) in expected]
    assert in_order != sorted(in_order, reverse=True)
    for limit in (10, 50):  # within a run, and behind its last
        ids, messages = pages(of_many_times, "demo", *until, "--limit", str(limit), "--json")
        assert [manifest for page in ids for manifest in page] == in_order
        assert messages[0].startswith(f"{limit} of 147 manifests; the next: tidemark manifests demo --until")
    since = [manifest["id"] for manifest in of_many_times.json("manifests", "demo", *until, "--since", "2024-03-02")]
    assert since == in_order[: 3 * 24]


def test_a_page_behind_a_manifest_that_is_not_there_goes_by_ids(of_many_times: World) -> None:
    words = ("manifests", "demo", "--until", "2024-03-03T00:00", "--after")
    assert len(of_many_times.json(*words, "100000")) == 3 * 49
    assert of_many_times.json(*words, "0") == []


def test_a_list_up_to_a_time_long_ago_is_found_by_an_index(of_many_times: World) -> None:
    with psycopg.connect(of_many_times.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("SET enable_hashjoin = off")  # as with more manifests
        connection.execute("ANALYZE")
        long_ago = START + timedelta(hours=40)
        until = plan_of_a_page(connection, pipeline_name="demo", until=long_ago, by_time=True)
        behind = plan_of_a_page(
            connection,
            pipeline_name="demo",
            until=long_ago,
            by_time=True,
            behind=START + timedelta(hours=30),
            after=100_000,
        )
    for plan in (until, behind):
        assert re.search(r"Index Scan Backward using run_time", plan), plan
        assert re.findall(r"(\w+) Sort  ", plan) == ["Incremental"], plan
        assert re.search(r"Index Cond: .*<= '2024", plan), plan


@pytest.mark.parametrize("pipeline", ["demo", None])
def test_a_page_far_down_is_found_by_an_index(many: World, pipeline: str | None) -> None:
    with psycopg.connect(many.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("ANALYZE")
        plan = plan_of_a_page(connection, pipeline_name=pipeline, end_id=700)
    assert re.search(r"Limit .*\n(.*\n)*?.*Index (Only )?Scan Backward using manifest_\w+", plan), plan
    assert "Sort" not in plan


def test_a_list_counts_up_to_a_thousand_manifests(many: World) -> None:
    with psycopg.connect(many.dsn) as connection:
        connection.execute("SELECT set_config('tidemark.actor', 'test', false)")
        connection.execute(
            "INSERT INTO tidemark.manifest (run_id, pipeline, slice) "
            "SELECT r.id, r.pipeline, n FROM tidemark.run r CROSS JOIN generate_series(1001, 1581) AS n"
        )
    first = many.here("manifests", "demo")
    assert "50 of more than 1,000 manifests; the next: tidemark manifests demo --after" in first.stderr
    failed = many.here("manifests", "demo", "--state", "failed")
    assert "50 of 60 manifests; the next: tidemark manifests demo --state failed --after" in failed.stderr


@pytest.mark.parametrize(("words", "told"), [(("--limit", "0"), "--limit"), (("--after", "x"), "--after")])
def test_a_page_that_is_none_is_wrong_use(world: World, words: tuple[str, str], told: str) -> None:
    done = world.here("manifests", "demo", *words)
    assert done.exit_code == 2
    assert told in done.stderr
