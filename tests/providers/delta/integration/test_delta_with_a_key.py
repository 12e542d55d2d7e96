"""A Delta table with one row per key: what stands after merges in any order, and beside other programs."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.worlds.delta_world import (
    KeyedDeltaWorld,
    forget_the_log,
    optimize,
    restore,
    set_property,
    vacuum_at_once,
    z_order,
)
from tests.worlds.world import KEYS, wait_stopped, wake

Make = Callable[..., KeyedDeltaWorld]
WHY = ("--why", "a test")
UNKEPT = [
    ("delta.enableDeletionVectors", "true"),
    ("delta.enableChangeDataFeed", "true"),
    ("delta.setTransactionRetentionDuration", "interval 1 day"),
]


@pytest.fixture
def world(make_keyed_delta_world: Make) -> KeyedDeltaWorld:
    return make_keyed_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})


def run(world: KeyedDeltaWorld, count: int, **options: Any) -> int:
    """Produce records and process them; the id of their manifest."""
    world.produce(count, **options)
    world.ok("run", "demo", "--run-key", str(world.produced))
    return int(world.manifests()[-1]["id"])


def code(world: KeyedDeltaWorld, *transforms: dict[str, Any]) -> None:
    """From here on the pipeline makes other rows of the same records."""
    world.settings["transform"] = list(transforms)
    world.write_pipeline()


def append_a_stranger(world: KeyedDeltaWorld) -> None:
    """A row of no manifest with a key of its own, in the bucket of another key."""
    rows = world.loaded().to_pyarrow_table().slice(0, 1)
    [row] = rows.to_pylist()
    strange = pa.Table.from_pylist([{**row, "k": 1000 + row["k"], "_manifest_id": None}], rows.schema)
    write_deltalake(world.loaded(), strange, mode="append")


def append_a_key_again(world: KeyedDeltaWorld) -> None:
    world.append_key_again(3)


def test_rows_of_a_key_replace_each_other_in_one_file_for_each_bucket(world: KeyedDeltaWorld) -> None:
    for number in range(6):
        run(world, 30, bad_every=13 if number else 0)
    world.assert_complete()
    files = pa.table(world.loaded().get_add_actions(flatten=True)).to_pylist()
    rows = [file for file in files if file["partition._bucket"] >= 0]
    assert len(rows) <= 4
    assert sum(file["num_records"] for file in rows) == KEYS
    paths = world.ok("objects", "demo").splitlines()
    assert len(paths) == len(rows), "files have the rows that are current, and no others"


@pytest.mark.parametrize("other", [append_a_stranger, append_a_key_again, optimize, z_order, vacuum_at_once])
def test_what_another_program_commits_right_before_our_commit_is_merged_too(
    world: KeyedDeltaWorld, other: Callable[[KeyedDeltaWorld], None]
) -> None:
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    other(world)
    woken = wake(paused)
    if other is z_order:  # which may remove the evidence: then a person decides
        world.ok("db", "adopt", "demo", *WHY)
    else:
        assert woken.returncode == 0 or other is vacuum_at_once, woken.stderr
    world.ok("retry", "demo")
    strangers = {key for key in world.current() if key >= 1000}
    world.loaded().delete("k >= 1000")
    assert len(strangers) == (other is append_a_stranger)
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.assert_complete()


def test_files_that_another_program_joins_right_before_our_commit_leave_no_key_twice(world: KeyedDeltaWorld) -> None:
    """With a retry of deltalake's own, the file that OPTIMIZE has made of the old rows would stay."""
    run(world, 30)
    append_a_stranger(world)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    before = len(world.loaded().file_uris())
    optimize(world)
    assert len(world.loaded().file_uris()) < before
    woken = wake(paused)
    assert woken.returncode == 0, woken.stderr
    world.loaded().delete("k >= 1000")
    world.assert_complete()


def test_a_vacuum_without_a_retention_time_takes_nothing_of_what_is_staged(world: KeyedDeltaWorld) -> None:
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="stage.done:stop")
    wait_stopped(paused)
    vacuum_at_once(world)
    woken = wake(paused)
    assert woken.returncode == 0, woken.stderr
    world.assert_complete()


@pytest.mark.parametrize(("name", "value"), UNKEPT)
def test_a_property_that_is_set_right_before_our_commit_is_refused_by_name_too(
    world: KeyedDeltaWorld, name: str, value: str
) -> None:
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    set_property(world, name, value)
    version = world.loaded().version()
    woken = wake(paused)
    assert woken.returncode == 1
    assert f"the table has the property {name} = {value}" in woken.stderr
    assert world.loaded().version() == version


@pytest.mark.parametrize("other", [optimize, forget_the_log, vacuum_at_once])
def test_a_table_that_others_have_tidied_up_goes_on(
    world: KeyedDeltaWorld, other: Callable[[KeyedDeltaWorld], None]
) -> None:
    for _ in range(3):
        run(world, 30, bad_every=13)
    other(world)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert world.ok("audit", "demo", "--deep") == ""
    code(world, {"select": ["*", "1::BIGINT AS version"]})
    world.ok("replay", "demo", "--manifest", "3")
    run(world, 5)
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("forgets", [False, True], ids=["with its log", "and its log was cleaned up"])
def test_a_table_that_was_restored_is_refused_until_a_person_adopts_it(world: KeyedDeltaWorld, forgets: bool) -> None:
    run(world, 30)
    before = world.loaded().version()
    last = run(world, 30)
    restore(world, before)
    if forgets:
        forget_the_log(world)
    assert "went back: it stands at position" in world.here("run", "demo").stderr
    assert f"next: tidemark replay demo --manifest {last}" in world.ok("db", "adopt", "demo", *WHY)
    world.ok("replay", "demo", "--manifest", str(last))
    world.assert_complete()


def test_a_table_restored_while_an_attempt_is_at_work_is_not_hidden_by_its_commit(world: KeyedDeltaWorld) -> None:
    run(world, 30)
    before = world.loaded().version()
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    restore(world, before)
    woken = wake(paused)
    assert woken.returncode == 1
    assert "another program restored an older version of the table" in woken.stderr
    assert "went back: it stands at position" in world.here("retry", "demo").stderr


def test_a_lower_attempt_that_wakes_changes_nothing(world: KeyedDeltaWorld) -> None:
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    [manifest] = world.json("manifests", "demo")
    code(world, {"select": ["* EXCLUDE (n)", "coalesce(n - 1000, 0) AS n"]})
    world.ok("replay", "demo", "--manifest", str(manifest["id"]), "--take-over")
    before = world.all_rows()
    assert wake(paused).returncode == 0
    assert world.all_rows() == before
    assert world.shown() == {manifest["id"]: 2}


def test_a_table_with_another_key_other_buckets_or_all_rows_is_refused(world: KeyedDeltaWorld) -> None:
    run(world, 30)
    for options, message, exit_code in (
        ({"key": ["k", "n"]}, 'the table was made with tidemark.key = ["k"], but the pipeline file says ["k", "n"]', 1),
        ({"buckets": 8}, "the table was made with tidemark.buckets = 4, but the pipeline file says 8", 1),
        (
            {"key": None, "order_by": None, "buckets": None},
            "has ordered the rows of a key by n, the pipeline file now orders them by their offsets",
            2,
        ),
    ):
        settings = world.entry(**options)["delta"]
        world.settings["sinks"] = [{"delta": {name: value for name, value in settings.items() if value is not None}}]
        world.write_pipeline()
        world.produce(10)
        refused = world.here("run", "demo", "--run-key", message)
        assert refused.exit_code == exit_code
        assert message in refused.stderr
    world.settings["sinks"] = world.sinks()
    world.write_pipeline()
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize(("name", "value"), UNKEPT)
def test_a_property_that_would_make_it_inexact_is_refused_by_name(
    world: KeyedDeltaWorld, name: str, value: str
) -> None:
    run(world, 30)
    set_property(world, name, value)
    version = world.loaded().version()
    world.produce(10)
    assert f"the table has the property {name} = {value}" in world.here("run", "demo").stderr
    assert world.loaded().version() == version


def test_rows_of_many_keys_are_written_in_files_of_the_size_that_the_file_says(make_keyed_delta_world: Make) -> None:
    world = make_keyed_delta_world(
        settings={"kafka": {"slice": {"max_records": 10_000}}, "transform": [{"select": ["* EXCLUDE (k)", "n AS k"]}]},
        delta={"max_file_bytes": "1KiB"},
    )
    world.produce(400)
    world.ok("run", "demo")
    assert len(world.all_rows()) == 400
    assert {row["_bucket"] for row in world.all_rows()} == {0, 1, 2, 3}
    world.produce(400)
    world.ok("run", "demo")
    assert sorted(row["k"] for row in world.all_rows()) == list(range(800))
    assert world.ok("audit", "demo", "--deep") == ""
