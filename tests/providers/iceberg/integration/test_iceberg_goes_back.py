"""An Iceberg table that other programs roll back, commit to and expire: no row twice, none missing, no file gone that
a snapshot names."""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable

import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.iceberg_others import (
    append_a_stranger,
    compact,
    current,
    delete_a_row,
    expire,
    forget_older_metadata,
    roll_back,
    rows_of_snapshots,
    tag,
)
from tests.worlds.iceberg_world import TABLE, IcebergWorld
from tidemark.providers.iceberg.evidence import MANIFESTS, NEWEST, Evidence, _decoded
from tidemark.providers.iceberg.sink import IcebergOutput

Make = Callable[..., IcebergWorld]
WHY = ("--why", "a test")
MORE_COLUMNS = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT"
FEWER_COLUMNS = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"
ONE_SLICE = {"kafka": {"slice": {"max_records": 1000}}, "max_dead_letters": None}
NEXT = re.compile(r"next: tidemark (replay demo --manifest \d+)")


def published(make: Make, manifests: int, **iceberg: object) -> tuple[IcebergWorld, list[int]]:
    """A world with so many manifests, each in a run of its own, and the snapshot after each."""
    world = make(settings=ONE_SLICE, iceberg=iceberg)
    snapshots = []
    for number in range(manifests):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
        snapshots.append(current(world))
    return world, snapshots


def other_rows(world: IcebergWorld, schema: str = MORE_COLUMNS) -> None:
    """From here on the pipeline makes other rows of the same records, so that a replay has to move."""
    world.settings["decode"] = {"format": "json", "schema": schema}
    world.write_pipeline()


def adopt_and_do_what_it_prints(world: IcebergWorld) -> list[str]:
    steps = NEXT.findall(world.ok("db", "adopt", "demo", *WHY))
    for step in steps:
        world.ok(*step.split())
    return steps


def assert_right(world: IcebergWorld) -> None:
    """Readers of main see every record once, and readers of the past find all files."""
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""
    assert all(count == 1 for rows in rows_of_snapshots(world).values() for count in rows.values())


def assert_no_alarm(world: IcebergWorld) -> None:
    planned = world.here("plan", "demo")
    assert planned.exit_code == 0, planned.stderr
    assert "shows no record" not in planned.stderr
    assert world.ok("audit", "demo") == ""


@pytest.mark.parametrize("expired", [False, True], ids=["kept", "expired"])
def test_replays_that_were_rolled_back_and_are_done_again_leave_every_row_once(
    make_iceberg_world: Make, expired: bool
) -> None:
    world, [*_, third] = published(make_iceberg_world, 3)
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "1")
    world.ok("replay", "demo", "--manifest", "2")
    roll_back(world, third)
    if expired:
        expire(world)
    assert "went back" in world.here("audit", "demo").stdout
    assert "went back: it stands at position 3" in world.here("run", "demo").stderr
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 1", "replay demo --manifest 2"]
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


def test_a_table_that_an_earlier_version_wrote_is_asked_for_rows_it_does_not_name(make_iceberg_world: Make) -> None:
    """Its property forgot what was rolled back: of a manifest that it does not name there may be rows."""
    world, [*_, third] = published(make_iceberg_world, 3)
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "2")
    roll_back(world, third)
    with world.catalog() as catalog:
        table = catalog.load_table(TABLE)
        entries, _ = _decoded(table.metadata.properties[MANIFESTS])
        forgotten = {manifest_id: entry for manifest_id, entry in entries.items() if manifest_id != 2}
        with table.transaction() as change:
            change.set_properties({MANIFESTS: as_earlier_versions_wrote(forgotten)})
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2"]
    assert_right(world)
    _, unsure = _decoded(world_properties(world)[MANIFESTS])
    assert unsure == 3, "it was looked for once, in all snapshots"
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


def world_properties(world: IcebergWorld) -> dict[str, str]:
    table = world.table()
    assert table is not None
    return dict(table.metadata.properties)


def as_earlier_versions_wrote(entries: dict[int, tuple[int, int]]) -> str:
    rows = sorted((manifest_id, *entry) for manifest_id, entry in entries.items())
    ids = [row[0] for row in rows]
    steps = [after - before for before, after in zip([0, *ids], ids, strict=False)]
    ahead = [row[2] - position for position, row in enumerate(rows)]
    return b64encode(zlib.compress(json.dumps([steps, [row[1] for row in rows], ahead]).encode())).decode()


@pytest.mark.parametrize("keep", ["by default", "a tag"])
def test_files_that_a_snapshot_names_stay_when_the_one_that_added_them_has_expired(
    make_iceberg_world: Make, keep: str
) -> None:
    world, snapshots = published(make_iceberg_world, 3, **({"keep_snapshots": 2} if keep == "a tag" else {}))
    if keep == "a tag":
        tag(world, snapshots[2], "report")
    with world.catalog() as catalog:  # as Spark does of all that is older than some days
        table = catalog.load_table(TABLE)
        old = {snapshot.snapshot_id for snapshot in table.metadata.snapshots} & set(snapshots[:2])
        table.maintenance.expire_snapshots().by_ids(list(old)).commit()
    before = rows_of_snapshots(world)[snapshots[2]]
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "1")
    world.ok("replay", "demo", "--manifest", "1")
    assert rows_of_snapshots(world)[snapshots[2]] == before, "who reads the past, finds its files"
    assert_right(world)
    with world.catalog() as catalog:
        catalog.load_table(TABLE).manage_snapshots().set_current_snapshot(snapshots[2]).commit()
    assert world.rows() == before
    adopt_and_do_what_it_prints(world)
    assert_right(world)


def two_commits_and_nothing_before(world: IcebergWorld, *, log: bool = False) -> None:
    """After it no snapshot of main is Tidemark's, nor has one as its parent; with ``log`` older metadata has."""
    compact(world)
    compact(world)
    expire(world)
    if not log:
        forget_older_metadata(world)


LOGS = pytest.mark.parametrize("log", [True, False], ids=["log", "no log"])


@LOGS
def test_a_table_rolled_back_and_committed_to_whose_past_has_expired_is_refused(
    make_iceberg_world: Make, log: bool
) -> None:
    """Nothing on main says any more which publications there were; the newest of them is kept by a tag."""
    world, [_, _, third, *_] = published(make_iceberg_world, 5)
    roll_back(world, third)
    two_commits_and_nothing_before(world, log=log)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    for words in (("run", "demo"), ("plan", "demo"), ("replay", "demo", "--manifest", "1")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert f"table {TABLE} went back: it stands at position 3, and this database has published" in refused.stderr
        assert "tidemark db adopt demo --why TEXT" in refused.stderr
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert "went back" in audited.stdout
    assert "manifest 4" in audited.stdout
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 4", "replay demo --manifest 5"]
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


def test_a_replay_rolled_back_and_committed_to_whose_past_has_expired_is_refused(make_iceberg_world: Make) -> None:
    """The rows of the first attempt are there, as many as the second has made; what they hold tells them apart."""
    world, [*_, second] = published(make_iceberg_world, 2)
    other_rows(world, FEWER_COLUMNS)
    world.ok("replay", "demo", "--manifest", "2")
    roll_back(world, second)
    two_commits_and_nothing_before(world)
    assert "went back: it stands at position 1" in world.here("run", "demo").stderr, "that of manifest 1"
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2"]
    assert_right(world)


@LOGS
@pytest.mark.parametrize("made", ["more", "other, then the same"])
def test_a_replay_rolled_back_to_rows_that_it_has_made_too_is_refused(
    make_iceberg_world: Make, made: str, log: bool
) -> None:
    """Some of its rows, or all of them, are there, and are those of the first attempt: manifest 2 is missing."""
    world = make_iceberg_world(settings=ONE_SLICE)
    of_all: list[dict[str, str]] = []
    before = [{"sql": "SELECT * FROM batch WHERE n % 2 = 0"}] if made == "more" else of_all
    made_before(world, before)
    world.produce(30)
    world.ok("run", "demo", "--run-key", "0")
    first = current(world)
    world.produce(30)
    world.ok("run", "demo", "--run-key", "1")
    for transform in [of_all] if made == "more" else [[{"sql": "SELECT * FROM batch WHERE n % 2 = 0"}], of_all]:
        made_before(world, transform)
        world.ok("replay", "demo", "--manifest", "1")
    roll_back(world, first)
    two_commits_and_nothing_before(world, log=log)
    assert "went back: it stands at position" in world.here("run", "demo").stderr
    assert "replay demo --manifest 2" in adopt_and_do_what_it_prints(world)
    assert world.rows().total() == 60


def made_before(world: IcebergWorld, transform: list[dict[str, str]]) -> None:
    world.settings["transform"] = transform
    world.write_pipeline()


def test_a_row_of_a_replay_that_others_have_deleted_before_the_past_expired_is_no_alarm(
    make_iceberg_world: Make,
) -> None:
    """The rows that are left could be those of the first attempt; the table's older metadata says that they are not."""
    world, _ = published(make_iceberg_world, 2)
    other_rows(world)
    world.ok("replay", "demo", "--manifest", "1")
    delete_a_row(world, 1)
    left = world.rows()
    two_commits_and_nothing_before(world, log=True)
    assert world.shown() == {1: 2, 2: 1}
    assert_no_alarm(world)
    world.produce(10)
    world.ok("run", "demo")
    assert not left - world.rows()
    assert world.rows().total() == left.total() + 10, "what others have deleted stays deleted"


@pytest.mark.parametrize("kept", [True, False], ids=["tag", "no tag"])
@pytest.mark.parametrize("newest", ["first attempt", "replay"])
def test_a_table_compacted_twice_whose_past_has_expired_is_no_alarm(
    make_iceberg_world: Make, newest: str, kept: bool
) -> None:
    """A nightly job that compacts, rewrites and expires the rest; without the tag as an earlier version left it."""
    world, _ = published(make_iceberg_world, 2)
    if newest == "replay":
        other_rows(world)
        world.ok("replay", "demo", "--manifest", "1")
    if not kept:
        remove_the_tag(world)
    two_commits_and_nothing_before(world)
    if newest == "replay" and not kept:
        assert world.here("plan", "demo").exit_code == 1, "nothing shows that the rows are those of the replay"
        assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 1"]
    assert_no_alarm(world)
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    other_rows(world, FEWER_COLUMNS)
    world.ok("replay", "demo", "--manifest", "2")
    assert_right(world)


def test_rows_that_others_have_deleted_or_added_before_the_past_expired_are_no_alarm(make_iceberg_world: Make) -> None:
    world, _ = published(make_iceberg_world, 2)
    delete_a_row(world, 2)
    append_a_stranger(world)
    two_commits_and_nothing_before(world)
    assert world.shown() == {1: 1, 2: 1}
    assert_no_alarm(world)
    assert "tidemark replay demo --manifest 2" in world.here("audit", "demo", "--deep").stdout
    world.ok("replay", "demo", "--manifest", "2")
    assert world.rows().total() == 60 - len(world.bad) + 1, "the row of no manifest stays"


@pytest.mark.parametrize("kept", [True, False], ids=["tag", "no tag"])
def test_a_publication_without_rows_is_no_alarm_when_the_past_has_expired(make_iceberg_world: Make, kept: bool) -> None:
    """Without the tag, as an earlier version left the table, its record says that it has no rows to be there."""
    world, _ = published(make_iceberg_world, 2)
    world.send("{", "{", "{")
    world.ok("run", "demo")
    if not kept:
        remove_the_tag(world)
    two_commits_and_nothing_before(world)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert_no_alarm(world)
    assert set(world.rows().values()) == {1}


def test_a_table_rolled_back_behind_a_publication_without_rows_is_refused_also_without_the_tag(
    make_iceberg_world: Make,
) -> None:
    world, [first, _] = published(make_iceberg_world, 2)
    world.send("{", "{", "{")
    world.ok("run", "demo")
    remove_the_tag(world)
    roll_back(world, first)
    two_commits_and_nothing_before(world)
    assert "went back: it stands at position 1" in world.here("run", "demo").stderr
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2", "replay demo --manifest 3"]
    assert world.ok("audit", "demo", "--deep") == ""
    assert set(world.rows().values()) == {1}


def remove_the_tag(world: IcebergWorld) -> None:
    with world.catalog() as catalog:
        catalog.load_table(TABLE).manage_snapshots().remove_tag(NEWEST).commit()


def test_files_that_were_not_rewritten_show_the_publication_without_reading_a_row(
    make_iceberg_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have added rows twice and expired the rest: the files of the newest publication are still those."""
    world, _ = published(make_iceberg_world, 2)
    append_a_stranger(world)
    append_a_stranger(world)
    expire(world)

    def read(*_: object, **__: object) -> None:
        raise AssertionError("no row is needed")

    monkeypatch.setattr("tidemark.providers.iceberg.history.rows_of_tasks", read)
    table = world.table()
    assert table is not None
    assert Evidence.of(table, "demo").attempts == {1: 1, 2: 1}


def test_files_of_a_snapshot_are_not_written_over_by_an_attempt_that_has_their_number(make_iceberg_world: Make) -> None:
    """The table was rolled back and the manifest database lost: manifest 2 and its attempt 1 are given out again."""
    world, [first, second] = published(make_iceberg_world, 2)
    table = world.table()
    assert table is not None
    before = table.scan(snapshot_id=second).to_arrow().sort_by("n")
    roll_back(world, first)
    world.lose_manifest_database()
    other_rows(world, FEWER_COLUMNS)
    world.ok("db", "adopt", "demo", *WHY)
    world.ok("run", "demo")
    assert world.shown() == {1: 1, 2: 1}
    assert_right(world)
    table = world.table()
    assert table is not None
    assert table.scan(snapshot_id=second).to_arrow().sort_by("n") == before


def replayed_and_rolled_back(world: IcebergWorld, third: int, *manifests: int) -> None:
    other_rows(world)
    for manifest in manifests:
        world.ok("replay", "demo", "--manifest", str(manifest))
    roll_back(world, third)


def two_more_replayed_and_rolled_back(world: IcebergWorld) -> None:
    for number in (2, 3):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", f"run {number}")
    replayed_and_rolled_back(world, current(world), 2, 3)


def copy_of(world: IcebergWorld) -> str:
    return world.dsn.rpartition("/")[2].partition("?")[0]


def assert_refused_and_red(world: IcebergWorld, what: str) -> None:
    before = world.rows()
    for words in (("plan", "demo"), ("run", "demo", "--run-key", "refused")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert what in refused.stderr
        assert "tidemark db adopt demo --why TEXT" in refused.stderr
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert "which this database does not know" in audited.stdout
    assert world.rows() == before


def assert_whole_after_adopting(world: IcebergWorld, *manifests: int) -> None:
    assert adopt_and_do_what_it_prints(world) == [f"replay demo --manifest {manifest}" for manifest in manifests]
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


@pytest.mark.parametrize("rewritten", [False, True], ids=["files", "compacted"])
def test_rows_of_a_rolled_back_replay_are_entered_when_the_manifest_database_was_lost(
    make_iceberg_world: Make, rewritten: bool
) -> None:
    """Nobody vouches for its rows, which are of the first attempt: their offsets are not planned again."""
    world, [*_, third] = published(make_iceberg_world, 3)
    replayed_and_rolled_back(world, third, 1)
    if rewritten:
        compact(world)
    world.lose_manifest_database()
    assert_whole_after_adopting(world, 1)


def test_rows_of_rolled_back_replays_alone_are_entered_when_the_manifest_database_was_lost(
    make_iceberg_world: Make,
) -> None:
    """No manifest has evidence: the table has nothing but their rows."""
    world, [*_, second] = published(make_iceberg_world, 2)
    replayed_and_rolled_back(world, second, 1, 2)
    world.lose_manifest_database()
    assert_whole_after_adopting(world, 1, 2)


def test_rows_of_rolled_back_replays_are_refused_by_an_older_copy_of_the_database(
    make_iceberg_world: Make, postgres: Postgres
) -> None:
    """The copy ends at manifest 1, and so does the evidence: the table stands at a higher position than the copy."""
    world, _ = published(make_iceberg_world, 1)
    with postgres.temporary_database("older", copy_of(world)) as older:
        two_more_replayed_and_rolled_back(world)
        world.dsn = older
        assert_refused_and_red(world, "has rows of the manifests 2, 3, which this database does not know")
        assert_whole_after_adopting(world, 2, 3)


def test_rows_that_nobody_vouches_for_and_that_have_no_record_must_be_deleted_before_they_are_adopted(
    make_iceberg_world: Make,
) -> None:
    """Nobody knows their offsets then; the rest of the table, and what is planned again, is whole afterwards."""
    world, [*_, third] = published(make_iceberg_world, 3)
    replayed_and_rolled_back(world, third, 1)
    for record in world.folder.glob("**/_manifests/demo/0000000001*"):
        record.unlink()
    world.lose_manifest_database()
    refused = world.here("db", "adopt", "demo", *WHY)
    assert refused.exit_code == 1
    assert "has rows of manifest 1, which this database does not know, and no record of it is left" in refused.stderr
    assert "delete the rows WHERE _manifest_id = 1" in refused.stderr
    with world.catalog() as catalog:
        catalog.load_table(TABLE).delete("_manifest_id = 1")
    world.ok("db", "adopt", "demo", *WHY)
    world.ok("retry", "demo")
    assert_right(world)


@pytest.mark.parametrize("lost_again", [False, True], ids=["known", "lost again"])
def test_offsets_that_an_earlier_version_planned_twice_are_told_apart_and_the_way_out_that_is_printed_leads_out(
    make_iceberg_world: Make, monkeypatch: pytest.MonkeyPatch, lost_again: bool
) -> None:
    """It took the rows of manifest 1, which a rollback had brought back, for none, and planned their offsets again."""
    world, [*_, third] = published(make_iceberg_world, 3)
    replayed_and_rolled_back(world, third, 1)
    world.lose_manifest_database()
    with monkeypatch.context() as earlier:
        earlier.setattr(IcebergOutput, "unvouched", lambda *_: {})
        world.ok("db", "adopt", "demo", *WHY)
        world.ok("retry", "demo")
    assert max(world.rows().values()) == 2
    if lost_again:
        world.lose_manifest_database()
    else:
        assert_refused_and_red(world, "has rows of the manifests 1, which this database does not know")
    refused = world.here("db", "adopt", "demo", *WHY)
    assert refused.exit_code == 1
    assert "offsets that they cover were planned once more: their records are there twice" in refused.stderr
    assert "delete the rows WHERE _manifest_id = 1 from it" in refused.stderr
    with world.catalog() as catalog:
        catalog.load_table(TABLE).delete("_manifest_id = 1")
    world.ok("db", "adopt", "demo", *WHY)
    world.assert_readers_complete()
    world.produce(10)
    world.ok("run", "demo")
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_rows_that_an_earlier_version_forgot_are_refused_by_an_older_copy_of_the_database(
    make_iceberg_world: Make, postgres: Postgres
) -> None:
    """The property names neither of the manifests 2 and 3: the rows are asked."""
    world, _ = published(make_iceberg_world, 1)
    with postgres.temporary_database("older", copy_of(world)) as older:
        two_more_replayed_and_rolled_back(world)
        entries, _ = _decoded(world_properties(world)[MANIFESTS])
        with world.catalog() as catalog, catalog.load_table(TABLE).transaction() as change:
            change.set_properties({MANIFESTS: as_earlier_versions_wrote({1: entries[1]})})
        world.dsn = older
        assert_refused_and_red(world, "has rows of the manifests 2, 3, which this database does not know")
        assert_whole_after_adopting(world, 2, 3)
