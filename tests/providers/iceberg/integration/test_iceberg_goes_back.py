"""An Iceberg table that other programs roll back, commit to and expire: no row twice, none missing, no file gone that
a snapshot names."""

import re
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
from tidemark.providers.iceberg.evidence import NEWEST, OLD_EVIDENCE

pytestmark = pytest.mark.thorough

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


def test_a_table_that_an_earlier_version_wrote_is_refused_by_name_before_anything_changes(
    make_iceberg_world: Make,
) -> None:
    world, _ = published(make_iceberg_world, 1)
    with world.catalog() as catalog, catalog.load_table(TABLE).transaction() as change:
        change.set_properties({OLD_EVIDENCE: "as version 0.3 wrote it"})
    before = world.table()
    assert before is not None
    world.produce(10)
    for words in (("plan", "demo"), ("run", "demo"), ("replay", "demo", "--manifest", "1")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "the table was written by version 0.3 or an earlier one" in refused.stderr
        assert "give the sink a new table (sinks.iceberg.table) in a pipeline of another name" in refused.stderr
    after = world.table()
    assert after is not None
    assert after.metadata_location == before.metadata_location
    assert len(world.manifests()) == 1


def test_a_table_rolled_back_and_committed_to_whose_past_has_expired_is_refused(make_iceberg_world: Make) -> None:
    """Nothing on main says any more which publications there were; older metadata does."""
    world, [_, _, third, *_] = published(make_iceberg_world, 5)
    roll_back(world, third)
    two_commits_and_nothing_before(world, log=True)
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
    world, [*_, second] = published(make_iceberg_world, 2)
    other_rows(world, FEWER_COLUMNS)
    world.ok("replay", "demo", "--manifest", "2")
    roll_back(world, second)
    two_commits_and_nothing_before(world, log=True)
    assert world.shown() == {1: 1, 2: 1}
    assert "went back: it stands at position 2" in world.here("run", "demo").stderr
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2"]
    assert_right(world)


@pytest.mark.parametrize("rolled_back", [False, True], ids=["as it was", "rolled back"])
def test_when_nothing_that_is_left_says_what_a_table_holds_a_person_decides(
    make_iceberg_world: Make, rolled_back: bool
) -> None:
    """Snapshots and older metadata are gone. Who knows that nobody rolled it back takes it to its tag; else every
    manifest is replayed."""
    world, [first, *_] = published(make_iceberg_world, 3)
    if rolled_back:
        roll_back(world, first)
    two_commits_and_nothing_before(world)
    for words in (("run", "demo"), ("plan", "demo")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "went back: it stands at position 0, and this database has published up to position 3" in refused.stderr
        assert "Nothing that is left says what it holds" in refused.stderr
        assert f"set_current_snapshot(table => '{TABLE}', ref => 'tidemark_newest')" in refused.stderr
    assert world.here("audit", "demo").exit_code == 1
    if rolled_back:
        replays = [f"replay demo --manifest {manifest}" for manifest in (1, 2, 3)]
        assert adopt_and_do_what_it_prints(world) == replays
    else:
        with world.catalog() as catalog:
            catalog.load_table(TABLE).manage_snapshots().set_current_snapshot(ref_name=NEWEST).commit()
    assert_no_alarm(world)
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


def test_without_its_file_of_evidence_a_person_decides_and_replays_stay_exact(make_iceberg_world: Make) -> None:
    world, _ = published(make_iceberg_world, 2)
    for file in world.location.glob("_evidence/*"):
        file.unlink()
    assert "went back: it stands at position 0" in world.here("run", "demo").stderr
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 1", "replay demo --manifest 2"]
    assert_right(world)


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


@pytest.mark.parametrize("newest", ["first attempt", "replay"])
def test_a_table_compacted_twice_whose_past_has_expired_is_no_alarm(make_iceberg_world: Make, newest: str) -> None:
    """A nightly job that compacts, rewrites and expires the rest; it may remove the tag too."""
    world, _ = published(make_iceberg_world, 2)
    if newest == "replay":
        other_rows(world)
        world.ok("replay", "demo", "--manifest", "1")
        remove_the_tag(world)
    two_commits_and_nothing_before(world, log=True)
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
    two_commits_and_nothing_before(world, log=True)
    assert world.shown() == {1: 1, 2: 1}
    assert_no_alarm(world)
    assert "tidemark replay demo --manifest 2" in world.here("audit", "demo", "--deep").stdout
    world.ok("replay", "demo", "--manifest", "2")
    assert world.rows().total() == 60 - len(world.bad) + 1, "the row of no manifest stays"


def test_a_table_rolled_back_behind_a_publication_without_rows_is_refused(make_iceberg_world: Make) -> None:
    world, [first, _] = published(make_iceberg_world, 2)
    world.send("{", "{", "{")
    world.ok("run", "demo")
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    roll_back(world, first)
    two_commits_and_nothing_before(world, log=True)
    assert "went back: it stands at position 1" in world.here("run", "demo").stderr
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2", "replay demo --manifest 3"]
    assert world.ok("audit", "demo", "--deep") == ""
    assert set(world.rows().values()) == {1}


def remove_the_tag(world: IcebergWorld) -> None:
    with world.catalog() as catalog:
        catalog.load_table(TABLE).manage_snapshots().remove_tag(NEWEST).commit()


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


def assert_whole_after_adopting(world: IcebergWorld, *manifests: int) -> None:
    assert adopt_and_do_what_it_prints(world) == [f"replay demo --manifest {manifest}" for manifest in manifests]
    assert_right(world)
    world.produce(10)
    world.ok("run", "demo")
    assert_right(world)


@pytest.mark.parametrize("rewritten", [False, True], ids=["files", "compacted"])
def test_rows_of_rolled_back_replays_are_entered_when_the_manifest_database_was_lost(
    make_iceberg_world: Make, rewritten: bool
) -> None:
    """Rows and evidence are those of the first attempts again. The replays have removed their dead letters."""
    world, [*_, third] = published(make_iceberg_world, 3)
    replayed_and_rolled_back(world, third, 1, 2)
    if rewritten:
        compact(world)
    world.lose_manifest_database()
    assert_whole_after_adopting(world, 1, 2)


def test_rows_of_rolled_back_replays_are_refused_by_an_older_copy_of_the_database(
    make_iceberg_world: Make, postgres: Postgres
) -> None:
    """The copy ends at manifest 1, and the table has more."""
    world, _ = published(make_iceberg_world, 1)
    with postgres.temporary_database("older", copy_of(world)) as older:
        two_more_replayed_and_rolled_back(world)
        world.dsn = older
        before = world.rows()
        for words in (("plan", "demo"), ("run", "demo", "--run-key", "refused")):
            refused = world.here(*words)
            assert refused.exit_code == 1
            assert "holds a record of manifest 3, this database ends at 1" in refused.stderr
            assert "tidemark db adopt demo --why TEXT" in refused.stderr
        assert world.here("audit", "demo").exit_code == 1
        assert world.rows() == before
        assert_whole_after_adopting(world, 2, 3)


def nothing_is_left(world: IcebergWorld) -> None:
    """Neither the table nor a database says what the table holds."""
    two_commits_and_nothing_before(world)
    world.lose_manifest_database()


def test_rows_without_evidence_are_entered_by_their_records_when_the_manifest_database_was_lost_too(
    make_iceberg_world: Make,
) -> None:
    world, _ = published(make_iceberg_world, 2)
    nothing_is_left(world)
    assert_whole_after_adopting(world, 1, 2)


def test_rows_without_evidence_and_record_must_be_deleted_before_they_are_adopted(make_iceberg_world: Make) -> None:
    """Nobody knows their offsets then; the rest of the table, and what is planned again, is whole afterwards."""
    world, _ = published(make_iceberg_world, 2)
    for record in world.folder.glob("**/_manifests/demo/0000000001*"):
        record.unlink()
    nothing_is_left(world)
    refused = world.here("db", "adopt", "demo", *WHY)
    assert refused.exit_code == 1
    assert "has rows of manifest 1, which this database does not know, and no evidence of it exists" in refused.stderr
    assert "delete the rows WHERE _manifest_id = 1" in refused.stderr
    with world.catalog() as catalog:
        catalog.load_table(TABLE).delete("_manifest_id = 1")
    assert adopt_and_do_what_it_prints(world) == ["replay demo --manifest 2"]
    world.ok("retry", "demo")
    assert_right(world)
