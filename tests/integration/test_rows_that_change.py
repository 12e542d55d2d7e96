"""What tables of current rows hold after changes in any order: the same in each kind of sink."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.worlds.current_rows import CurrentRows
from tests.worlds.table_world import TableWorld
from tests.worlds.world import wait_stopped, wake

DECODE: dict[str, Any] = {
    "format": "json", "schema": "id BIGINT NOT NULL, state STRING, note STRING", "tombstones": ["id"],
    "envelope": "debezium",
}  # fmt: skip
PLACEHOLDER = "__debezium_unavailable_value"
MakeRows = Callable[..., CurrentRows]


@pytest.fixture
def make_rows(make_table_world: Callable[..., TableWorld], tmp_path: Path) -> MakeRows:
    def make(*, partitions: int = 1, options: dict[str, Any] | None = None, **settings: Any) -> CurrentRows:
        sinks = CurrentRows.entries(tmp_path / "tables", **(options or {}))
        return CurrentRows(
            make_table_world(
                partitions=partitions, settings={"decode": DECODE, "sinks": sinks, "event_time": {}} | settings
            )
        )

    return make


def send(
    rows: CurrentRows, key: int, op: str | None, *, partition: int = 0, lsn: int | None = None, **row: Any
) -> None:
    """A change as Debezium writes it; without ``op`` a tombstone."""
    after = None if op == "d" else {"id": key, **row}
    value = None if op is None else json.dumps({"op": op, "before": None, "after": after, "source": {"lsn": lsn}})
    rows.world.send(value, key=json.dumps({"id": key}).encode(), partition=partition)


def plan(rows: CurrentRows) -> str:
    """Plan what was sent since; returns the id of the manifest."""
    rows.world.ok("plan", "demo", "--run-key", f"run {len(rows.world.manifests())}")
    return str(rows.world.manifests()[-1]["id"])


@pytest.mark.parametrize("first", ["d", None], ids=["a deletion alone", "a tombstone alone"])
def test_either_of_the_two_records_of_a_deletion_deletes(make_rows: MakeRows, first: str | None) -> None:
    rows = make_rows()
    send(rows, 1, "c", state="new")
    send(rows, 2, "c", state="new")
    send(rows, 1, first)
    rows.world.ok("run", "demo")
    assert rows.seen("state") == {2: ("new",)}
    rows.finish()


@pytest.mark.parametrize("lsn", [None, 7])
def test_a_row_of_a_snapshot_counts_at_its_offset(make_rows: MakeRows, lsn: int | None) -> None:
    rows = make_rows()
    send(rows, 1, "u", lsn=900, state="newer in the log")
    send(rows, 1, "r", lsn=lsn, state="as the snapshot read it")
    rows.world.ok("run", "demo")
    assert rows.seen("state") == {1: ("as the snapshot read it",)}
    rows.finish()


def test_an_older_manifest_after_a_newer_changes_nothing(make_rows: MakeRows) -> None:
    rows = make_rows()
    send(rows, 1, "c", state="old")
    older = plan(rows)
    send(rows, 1, "u", state="new")
    newer = plan(rows)
    for manifest in (newer, older, newer, older):
        rows.publish(manifest)
        assert rows.seen("state") == {1: ("new",)}
    rows.finish()


def test_a_deletion_holds_when_an_older_manifest_comes_after_it(make_rows: MakeRows) -> None:
    rows = make_rows()
    send(rows, 1, "c", state="old")
    older = plan(rows)
    send(rows, 1, "d")
    newer = plan(rows)
    for manifest in (newer, older, older):
        rows.publish(manifest)
        assert rows.seen("state") == {}
    send(rows, 1, "c", state="born again")
    rows.publish(plan(rows))
    assert rows.seen("state") == {1: ("born again",)}
    rows.finish()


def test_a_purged_deletion_lets_an_older_manifest_bring_the_key_back_as_the_promise_says(make_rows: MakeRows) -> None:
    rows = make_rows()
    send(rows, 1, "c", state="old")
    older = plan(rows)
    send(rows, 1, "d")
    send(rows, 2, "c", state="new")
    rows.publish(plan(rows))
    rows.publish(older)
    rows.purge_deletions()
    assert rows.seen("state") == {2: ("new",)}
    rows.publish(older)
    assert rows.seen("state") == {1: ("old",), 2: ("new",)}


def test_records_that_a_connector_sends_again_in_another_manifest_end_at_the_newest(make_rows: MakeRows) -> None:
    rows = make_rows()
    changes = [(1, "c", "a"), (2, "c", "b"), (1, "u", "c"), (2, "d", None)]
    for key, op, state in changes:
        send(rows, key, op, **({} if state is None else {"state": state}))
    first = plan(rows)
    for key, op, state in changes[1:]:
        send(rows, key, op, **({} if state is None else {"state": state}))
    second = plan(rows)
    for manifest in (second, first):
        rows.publish(manifest)
        assert rows.seen("state") == {1: ("c",)}
    rows.finish()


def test_a_value_that_was_not_told_does_not_replace_the_one_of_an_older_manifest(make_rows: MakeRows) -> None:
    rows = make_rows(on_error="dead_letter")
    send(rows, 1, "c", state="new", note="a long text")
    older = plan(rows)
    send(rows, 1, "u", state="paid", note=PLACEHOLDER)
    newer = plan(rows)
    for manifest in (newer, older):
        rows.publish(manifest)
    assert rows.seen("state", "note") == {1: ("new", "a long text")}
    assert "REPLICA IDENTITY FULL" in rows.world.ok("dead-letters", "demo")
    rows.finish()


def test_an_emptied_table_leaves_its_rows_and_a_dead_letter(make_rows: MakeRows) -> None:
    rows = make_rows(on_error="dead_letter")
    send(rows, 1, "c", state="new")
    rows.world.send(json.dumps({"op": "t", "before": None, "after": None}))
    rows.world.ok("run", "demo")
    assert rows.seen("state") == {1: ("new",)}
    assert "the table was truncated" in rows.world.ok("dead-letters", "demo")
    rows.finish()


def test_an_emptied_table_whose_records_the_file_skips_leaves_its_rows(make_rows: MakeRows) -> None:
    rows = make_rows(decode={**DECODE, "envelope": {"debezium": {"truncate": "skip"}}})
    send(rows, 1, "c", state="new")
    rows.world.send(json.dumps({"op": "t", "before": None, "after": None}))
    send(rows, 2, "c", state="new")
    rows.world.ok("run", "demo")
    assert rows.seen("state") == {1: ("new",), 2: ("new",)}
    [manifest] = rows.world.manifests()
    assert [manifest["counts"][name] for name in ("read", "written", "filtered")] == [3, 2, 1]
    rows.finish()


def test_a_lower_attempt_that_wakes_changes_no_table(make_rows: MakeRows) -> None:
    rows = make_rows()
    send(rows, 1, "c", state="new")
    send(rows, 2, "c", state="new")
    manifest = plan(rows)
    paused = rows.world.start("retry", "demo", failpoint="publish.receipt:stop")
    wait_stopped(paused)
    rows.world.settings["transform"] = [{"select": ["* EXCLUDE (state)", "state || ' 2' AS state"]}]
    rows.world.write_pipeline()
    rows.world.ok("replay", "demo", "--manifest", manifest, "--take-over")
    assert rows.seen("state", "_attempt") == {1: ("new 2", 2), 2: ("new 2", 2)}
    wake(paused)
    assert rows.seen("state", "_attempt") == {1: ("new 2", 2), 2: ("new 2", 2)}
    rows.finish()


def test_other_code_replaces_its_rows_and_leaves_those_that_it_no_longer_makes(make_rows: MakeRows) -> None:
    """It changes the state of key 1, drops key 2, and makes key 13 of what was key 3."""
    rows = make_rows(code="code", transform=[{"python": "orders:changed"}])
    code = rows.world.pipelines / "code"
    code.mkdir()
    text = """
        import pyarrow as pa
        import pyarrow.compute as pc

        def changed(batch):
            at = batch.schema.get_field_index("id")
            kept = pc.or_(pc.not_equal(batch.column("id"), DROPPED), pc.is_null(batch.column("state")))
            batch = batch.filter(kept)  # deletions stay
            ids = pc.if_else(pc.equal(batch.column("id"), 3), MOVED, batch.column("id"))
            states = pc.binary_join_element_wise(batch.column("state"), pa.scalar("VERSION"), " ")
            batch = batch.set_column(at, batch.schema.field(at), ids)
            state = batch.schema.get_field_index("state")
            return batch.set_column(state, batch.schema.field(state), states)
    """
    first = text.replace("DROPPED", "-1").replace("MOVED", "3").replace("VERSION", "1")
    second = text.replace("DROPPED", "2").replace("MOVED", "13").replace("VERSION", "2")
    (code / "orders.py").write_text(dedent(first))
    rows.world.write_pipeline()
    for key in (1, 2, 3):
        send(rows, key, "c", state="new")
    manifest = plan(rows)
    rows.publish(manifest)
    assert rows.seen("state") == {1: ("new 1",), 2: ("new 1",), 3: ("new 1",)}
    (code / "orders.py").write_text(dedent(second))
    rows.publish(manifest)
    assert rows.seen("state") == {1: ("new 2",), 2: ("new 1",), 3: ("new 1",), 13: ("new 2",)}
    send(rows, 2, "d")
    send(rows, 1, "u", state="paid")
    rows.publish(plan(rows))
    rows.publish(manifest)
    assert rows.seen("state") == {1: ("paid 2",), 3: ("new 1",), 13: ("new 2",)}
    rows.finish()


def test_a_row_that_other_code_orders_behind_another_of_its_key_gives_way_to_that(make_rows: MakeRows) -> None:
    """Both are made again by the same attempt, so no row of the code of before may stay."""
    decode = {"format": "json", "schema": "id BIGINT NOT NULL, version BIGINT NOT NULL"}
    rows = make_rows(decode=decode, options={"order_by": "version"})
    for version in (10, 20):
        rows.world.send(json.dumps({"id": 1, "version": version}))
    manifest = plan(rows)
    rows.publish(manifest)
    assert rows.seen("version", "_offset") == {1: (20, 1)}
    other = "CASE version WHEN 20 THEN 5 ELSE coalesce(version, 0) END"
    rows.world.settings["transform"] = [{"select": ["id", f"coalesce({other}, 0) AS version"]}]
    rows.world.write_pipeline()
    rows.publish(manifest)
    assert rows.seen("version", "_offset") == {1: (10, 0)}
    rows.finish()


def test_a_key_that_moved_to_another_partition_has_no_order_which_the_guide_says(make_rows: MakeRows) -> None:
    """More partitions: the later record of the lower partition loses. This is what the guide warns of."""
    rows = make_rows(partitions=2)
    send(rows, 1, "c", partition=1, state="first")
    send(rows, 1, "u", partition=0, state="second")
    rows.world.ok("run", "demo")
    assert rows.seen("state") == {1: ("first",)}
    guide = (Path(__file__).parents[2] / "docs/change-stream.md").read_text()
    assert "Do not add partitions to the topic" in guide
    rows.finish()


def test_numbers_of_order_by_that_start_again_are_told_of_every_table(make_rows: MakeRows) -> None:
    decode = {"format": "json", "schema": "id BIGINT NOT NULL, version BIGINT NOT NULL"}
    rows = make_rows(decode=decode, options={"order_by": "version"})
    for version in (900, 1):  # of the old server, and of a new one
        rows.world.send(json.dumps({"id": 1, "version": version}))
        rows.world.ok("run", "demo")
    assert rows.seen("version") == {1: (900,)}
    [told] = rows.world.status("demo")
    assert told["state"] == "stale"
    assert [problem["what"].partition(" in sink ")[2].partition(":")[0] for problem in told["problems"]] == [
        "delta", "iceberg", "postgres",
    ]  # fmt: skip
