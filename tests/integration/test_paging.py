"""``tidemark manifests`` when there are many: pages, newest first, by id."""

import json
import re
import shlex

import psycopg
import pytest

from tests.worlds.world import World
from tidemark.database.client import QUERIES
from tidemark.manifest import ALL_MANIFESTS

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


@pytest.mark.parametrize("pipeline", ["demo", None])
def test_a_page_far_down_is_found_by_an_index(many: World, pipeline: str | None) -> None:
    with psycopg.connect(many.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("ANALYZE")
        values = {"pipeline_name": pipeline, "first_id": None, "end_id": 700, "limit": 5, **vars(ALL_MANIFESTS)}
        rows = connection.execute(b"EXPLAIN " + QUERIES["newest_manifests"].encode(), values).fetchall()
    plan = "\n".join(row[0] for row in rows)
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
