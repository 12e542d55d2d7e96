"""A table of a lake with one row per key, of either format: what stands after merges in any order."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.delta_world import KeyedDeltaWorld
from tests.worlds.iceberg_world import KeyedIcebergWorld
from tests.worlds.world import KEYS

KeyedWorld = KeyedDeltaWorld | KeyedIcebergWorld
Make = Callable[..., KeyedWorld]
WHY = ("--why", "a test")


@pytest.fixture(params=["iceberg", "delta"])
def make_keyed_world(request: pytest.FixtureRequest) -> Make:
    make: Make = request.getfixturevalue(f"make_keyed_{request.param}_world")
    return make


@pytest.fixture
def world(make_keyed_world: Make) -> KeyedWorld:
    return make_keyed_world(settings={"kafka": {"slice": {"max_records": 1000}}})


def run(world: KeyedWorld, count: int, **options: Any) -> int:
    """Produce records and process them; the id of their manifest."""
    world.produce(count, **options)
    world.ok("run", "demo", "--run-key", str(world.produced))
    return int(world.manifests()[-1]["id"])


def code(world: KeyedWorld, *transforms: dict[str, Any]) -> None:
    """From here on the pipeline makes other rows of the same records."""
    world.settings["transform"] = list(transforms)
    world.write_pipeline()


def counts(world: KeyedWorld, manifest: int) -> tuple[int, int]:
    [published] = world.json("show", str(manifest))["publications"]
    return published["counts"]["superseded"], published["counts"]["stale"]


def test_an_older_manifest_that_changes_nothing_leaves_its_evidence_and_no_file(make_keyed_world: Make) -> None:
    world = make_keyed_world()
    world.produce(80)
    world.ok("plan", "demo")
    older, newer = (manifest["id"] for manifest in world.manifests())
    world.ok("retry", "demo", "--manifest", str(newer))
    before, seen, files = world.commits(), world.all_rows(), world.files()
    assert len(seen) == KEYS
    world.ok("retry", "demo", "--manifest", str(older))
    assert world.commits() == before + 1
    assert world.all_rows() == seen
    assert world.files() == files
    assert world.shown() == {older: 1, newer: 1}
    assert counts(world, older) == (40 - KEYS, KEYS)
    assert counts(world, newer) == (40 - KEYS, 0)
    world.assert_complete()
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", *WHY)
    assert counts(world, older) == (40 - KEYS, KEYS), "the table remembers them"
    world.assert_complete()


def test_a_deleted_key_stays_deleted_when_an_older_manifest_comes_after_it(make_keyed_world: Make) -> None:
    world = make_keyed_world(partitions=1, settings={"kafka": {"slice": {"max_records": 20}}})
    world.settings["decode"] = {**world.settings["decode"], "tombstones": ["k"]}
    world.settings["sinks"] = world.sinks(order_by="_timestamp")
    world.write_pipeline()
    world.produce(20)
    world.send(None, key=b'{"k": 3}')
    world.ok("plan", "demo")
    older, newer = (str(manifest["id"]) for manifest in world.manifests())
    for manifest in (newer, older):
        world.ok("retry", "demo", "--manifest", manifest)
    [deleted] = [row for row in world.all_rows() if row["_is_deleted"]]
    assert (deleted["k"], deleted["n"], deleted["_manifest_id"]) == (3, None, int(newer))
    assert sorted(world.current()) == [k for k in range(KEYS) if k != 3]
    assert world.ok("audit", "demo", "--deep") == ""
    [place] = world.json("where", world.topic, "0", "20")
    assert place["sinks"][0]["message"] == "a row that marks its key as deleted"
    assert "a newer row of its key is in" in world.here("where", world.topic, "0", "0").stdout


def test_a_row_that_new_code_orders_lower_replaces_its_own_and_no_other(world: KeyedWorld) -> None:
    first, second = run(world, 30), run(world, 5)
    code(world, {"select": ["* EXCLUDE (n)", "coalesce(n - 1000, 0) AS n"]})
    world.ok("replay", "demo", "--manifest", str(first))
    by_key = {row["k"]: row for row in world.all_rows()}
    assert len(by_key) == KEYS
    for key, row in by_key.items():
        of_second = key in {number % KEYS for number in range(30, 35)}
        assert row["_manifest_id"] == (second if of_second else first)
        assert (row["n"] < 0, row["_attempt"]) == ((False, 1) if of_second else (True, 2))
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_row_that_new_code_does_not_make_stays_and_is_counted(world: KeyedWorld) -> None:
    first = run(world, 30)
    code(world, {"filter": "k <> 4"})
    world.ok("replay", "demo", "--manifest", str(first))
    assert {row["k"]: row["_attempt"] for row in world.all_rows()} == {k: 1 if k == 4 else 2 for k in range(KEYS)}
    assert world.left_by_the_last_commit() == 1
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_row_to_which_new_code_gives_another_key_stands_beside_the_old_one(world: KeyedWorld) -> None:
    first = run(world, 30)
    code(world, {"select": ["* EXCLUDE (k)", "coalesce(k + 100, 0) AS k"]})
    world.ok("replay", "demo", "--manifest", str(first))
    attempts = {row["k"]: row["_attempt"] for row in world.all_rows()}
    assert attempts == dict.fromkeys(range(KEYS), 1) | {k + 100: 2 for k in range(KEYS)}
    assert world.left_by_the_last_commit() == KEYS
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_replay_with_the_same_code_puts_nothing_and_one_after_a_loss_puts_it_again(world: KeyedWorld) -> None:
    first = run(world, 30)
    second = run(world, 20)
    assert "unchanged" in world.here("replay", "demo", "--manifest", str(first)).stderr, "all of it is stale"
    assert "unchanged" in world.here("replay", "demo", "--manifest", str(second)).stderr
    world.delete_key(2)
    audited = world.here("audit", "demo", "--deep").stdout
    assert "rows were taken away" in audited
    assert "unchanged" not in world.here("replay", "demo", "--manifest", str(second)).stderr
    world.assert_complete()


def test_a_key_that_another_program_has_given_two_rows_is_reported_and_has_one_after_the_next_merge(
    world: KeyedWorld,
) -> None:
    run(world, 30)
    world.append_key_again(3)
    assert f"has {KEYS + 1} rows of {KEYS} keys" in world.here("audit", "demo", "--deep").stdout
    run(world, 30)
    world.assert_complete()
