"""A Delta table as a sink: rows and evidence in one commit, and what other programs may do to the table."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.worlds.delta_world import (
    OTHERS,
    DeltaWorld,
    append_strangers,
    forget_the_log,
    restore,
    set_property,
    vacuum_at_once,
    z_order,
)
from tests.worlds.world import wait_stopped, wake

Make = Callable[..., DeltaWorld]
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}


@pytest.fixture
def world(make_delta_world: Make) -> DeltaWorld:
    """Two manifests, planned: 80 offsets in two partitions, every ninth record undecodable."""
    world = make_delta_world()
    world.produce(80, bad_every=9)
    assert len(world.json("plan", "demo")["manifests"]) == 2
    return world


def test_from_plan_to_done_every_record_is_there_once_and_the_log_says_what_it_is_of(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    world.assert_complete()
    assert [manifest["state"] for manifest in world.manifests()] == ["done", "done"]
    table = world.loaded()
    assert [table.transaction_version(f"tidemark/demo/delta/{manifest_id}") for manifest_id in (1, 2)] == [1, 1]
    newest = table.history(1)[0]
    assert newest["tidemark.pipeline"] == "demo"
    assert world.topic in newest["tidemark.ranges"]
    assert {Path(line).suffix for line in world.ok("objects", "demo").splitlines()} == {".parquet"}
    [row], [dead] = (world.json("where", world.topic, "0", str(offset)) for offset in (1, 0))
    assert row["sinks"][0]["place"].startswith(f"{world.location}/_manifest_id=1/")
    assert dead["sinks"][0]["place"].startswith(f"{world.location}/_dead_letters/")


def test_a_replay_by_other_code_takes_out_the_rows_of_before(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    before = world.loaded().version()
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
    assert world.shown() == {1: 2, 2: 1}
    assert {row["name"] is None for row in world.all_rows() if row["_manifest_id"] == 1} == {True}
    old = DeltaTable(world.location, version=before).to_pyarrow_table()
    assert old.num_rows == len(world.all_rows()), "the past can be read"


def test_a_replay_that_makes_the_same_rows_changes_nothing(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    before = world.loaded().version()
    world.ok("replay", "demo", "--manifest", "1")
    assert world.shown() == {1: 1, 2: 1}
    assert world.loaded().version() == before
    world.assert_complete()


def test_new_columns_are_added_when_the_file_says_so_and_named_when_not(world: DeltaWorld) -> None:
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("retry", "demo", "--manifest", "1")
    more = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING"}
    world.settings |= {"decode": more, "sinks": world.sinks(auto_create=False)}
    world.write_pipeline()
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "the table has no column name" in refused.stderr
    assert "auto_create: true, or add to it: name string" in refused.stderr
    world.settings["sinks"] = world.sinks()
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_table_that_is_not_there_is_made_only_when_the_file_says_so(make_delta_world: Make) -> None:
    world = make_delta_world(delta={"auto_create": False})
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "the table does not exist" in refused.stderr
    assert "partitioned by _manifest_id, with the columns _topic string, _topic_partition integer" in refused.stderr


def test_a_column_of_another_type_is_refused_before_anything_is_read(world: DeltaWorld) -> None:
    world.ok("retry", "demo", "--manifest", "1")
    world.settings["decode"] = {"format": "json", "schema": "n STRING NOT NULL, at TIMESTAMP NOT NULL, name STRING"}
    world.write_pipeline()
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "column n of the table is long, the rows have string" in refused.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.setTransactionRetentionDuration", "interval 1 day"),
        ("delta.enableDeletionVectors", "true"),
        ("delta.enableChangeDataFeed", "true"),
        ("delta.appendOnly", "true"),
    ],
)
def test_a_property_that_would_make_it_inexact_is_refused_by_name(world: DeltaWorld, name: str, value: str) -> None:
    world.ok("retry", "demo", "--manifest", "1")
    set_property(world, name, value)
    before = world.loaded().version()
    for words in (("doctor", "demo"), ("retry", "demo"), ("plan", "demo")):
        refused = world.here(*words)
        assert refused.exit_code == 1, words
        assert f"{name} = {value}" in refused.stdout + refused.stderr
    assert world.loaded().version() == before


def test_a_table_with_an_unknown_feature_or_a_constraint_is_refused(world: DeltaWorld) -> None:
    world.ok("retry", "demo", "--manifest", "1")
    world.loaded().alter.add_constraint({"positive": "n >= 0"})
    refused = world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "delta.constraints.positive" in refused.stderr


@pytest.mark.parametrize("what", OTHERS)
def test_what_others_do_to_a_table_that_stands_leaves_rows_evidence_and_replays_exact(
    world: DeltaWorld, what: str
) -> None:
    world.ok("retry", "demo")
    position = world.ledger().position()
    OTHERS[what](world)
    world.assert_complete()
    assert world.ledger().position() == position
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize("what", ["OPTIMIZE", "VACUUM", "clean-up of the log"])
@pytest.mark.parametrize("point", ["stage.done", "publish.before_record"])
def test_what_others_do_while_an_attempt_is_at_work_is_no_harm(world: DeltaWorld, what: str, point: str) -> None:
    """VACUUM without a retention time may take what has moved to its place and no version names yet: then the attempt
    fails before its commit, and the next one does the work."""
    world.ok("retry", "demo", "--manifest", "1")
    paused = world.start("retry", "demo", failpoint=f"{point}:stop")
    wait_stopped(paused)
    OTHERS[what](world)
    woken = wake(paused)
    if woken.returncode:
        assert (what, point) == ("VACUUM", "publish.before_record"), woken.stderr
        assert "right when the table was to name it, a file of the table is gone" in woken.stderr
    world.ok("retry", "demo")
    world.assert_complete()


def test_rows_of_others_in_the_table_are_named_and_stay(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    append_strangers(world)
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    assert "has rows of manifest 999999, which this database does not know" in audit.stdout


def test_rows_that_somebody_has_deleted_are_a_difference_whose_advice_mends_it(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    world.loaded().delete("_manifest_id = 1 AND _offset = 1")
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    written = world.manifests()[0]["counts"]["written"]
    assert audit.stdout == (
        f"manifest 1: the table has {written - 2} rows of it where {written} were published; "
        "next: tidemark replay demo --manifest 1\n"
    )
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()


def test_a_table_that_was_restored_is_refused_until_a_person_accepts_it(world: DeltaWorld) -> None:
    """RESTORE keeps the application transactions, so they alone would say that all is there."""
    world.ok("retry", "demo", "--manifest", "1")
    before = world.loaded().version()
    world.ok("retry", "demo")
    restore(world, before)
    assert world.loaded().transaction_version("tidemark/demo/delta/2") == 1
    for words in (("plan", "demo"), ("replay", "demo", "--manifest", "1")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "went back: it stands at position" in refused.stderr
    assert "went back" in world.here("audit", "demo").stdout
    adopted = world.ok("db", "adopt", "demo", "--why", "somebody restored it")
    assert "tidemark replay demo --manifest 2" in adopted
    world.ok("replay", "demo", "--manifest", "2")
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def test_a_table_that_was_restored_and_whose_log_was_cleaned_up_is_noticed_too(world: DeltaWorld) -> None:
    world.ok("retry", "demo", "--manifest", "1")
    before = world.loaded().version()
    world.ok("retry", "demo")
    restore(world, before)
    forget_the_log(world)
    vacuum_at_once(world)
    assert "went back: it stands at position" in world.here("plan", "demo").stderr
    world.ok("db", "adopt", "demo", "--why", "somebody restored it")
    world.ok("replay", "demo", "--manifest", "2")
    world.assert_complete()


def test_without_the_file_of_evidence_a_person_decides_and_replays_stay_exact(world: DeltaWorld) -> None:
    """Z-order rewrites all files, so one without rows is gone."""
    world.ok("retry", "demo")
    z_order(world)
    if world.shown():
        world.loaded().delete("_manifest_id = 0")
    assert "went back: it stands at position 0" in world.here("plan", "demo").stderr
    adopted = world.ok("db", "adopt", "demo", "--why", "z-order")
    for manifest_id in (1, 2):
        assert f"tidemark replay demo --manifest {manifest_id}" in adopted
        world.ok("replay", "demo", "--manifest", str(manifest_id))
    world.assert_complete()


def test_a_lost_database_reads_back_what_the_table_says(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    shown = world.shown()
    world.lose_manifest_database()
    assert "db adopt demo" in world.here("plan", "demo").stderr
    world.ok("db", "adopt", "demo", "--why", "the database is lost")
    assert world.shown() == shown
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def test_another_pipeline_may_not_write_the_same_table(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    (world.pipelines / "other.yaml").write_text(world.another("other"))
    refused = world.here("plan", "other")
    assert refused.exit_code == 1
    assert "the table belongs to pipeline demo" in refused.stderr or "demo" in refused.stderr
    world.assert_complete()


def test_a_renamed_pipeline_and_a_renamed_sink_go_on(make_delta_world: Make) -> None:
    world = make_delta_world()
    world.produce(40)
    world.ok("run", "demo")
    world.rename("orders")
    world.produce(40)
    world.ok("run", "orders")
    world.assert_complete()


def test_a_file_that_the_table_names_and_somebody_has_removed_is_missed_without_reading_any(world: DeltaWorld) -> None:
    world.ok("retry", "demo")
    removed = world.keys("_manifest_id=1/")[0]
    Path(world.location, removed).unlink()
    for words in (("audit", "demo"), ("audit", "demo", "--deep")):
        audited = world.here(*words)
        assert audited.exit_code == 1
        assert f"manifest 1: a file of the table is gone: {world.location}/{removed}" in audited.stdout
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
