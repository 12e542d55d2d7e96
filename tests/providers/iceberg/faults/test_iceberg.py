"""What a reader of an Iceberg table sees: after kills, lost answers, and when others commit, compact or roll back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.faults.documented_kills import killed_and_done_again, table
from tests.faults.postgres_proxy import Armed, Fault, Proxy
from tests.faults.runs_with_lost_answers import FAULTS, Fresh, lose_each
from tests.worlds.iceberg_others import current, roll_back
from tests.worlds.iceberg_world import IcebergWorld, KeyedIcebergWorld
from tests.worlds.world import World, wait_stopped, wake
from tidemark.failpoints import FAILPOINTS
from tidemark.providers.iceberg.change import SnapshotChange
from tidemark.providers.lake_tables.table import TRIES

SEEN = table("### A table")
Make = Callable[..., IcebergWorld]
MakeKeyed = Callable[..., KeyedIcebergWorld]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point.startswith("publish.before") else pytest.mark.exhaustive)
        for point in FAILPOINTS
    ],
)
def test_killed_for_the_first_time_a_reader_of_the_table_sees_what_the_document_says(
    make_iceberg_world: Make, point: str
) -> None:
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    seen, published = killed_and_done_again(world, point, world.exact, world.everything)
    assert seen == SEEN[point][0]
    assert published == (2 if SEEN[point][2].startswith("attempt 2 does") else 1)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point.startswith("publish.before") else pytest.mark.exhaustive)
        for point in FAILPOINTS
    ],
)
def test_killed_for_the_first_time_a_reader_of_a_table_with_a_key_sees_the_same(
    make_keyed_iceberg_world: MakeKeyed, point: str
) -> None:
    world = make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    seen, published = killed_and_done_again(world, point, world.current, lambda: world.latest(world.everything()))
    assert seen == SEEN[point][0]
    assert published == (2 if SEEN[point][2].startswith("attempt 2 does") else 1)


@pytest.fixture(params=[IcebergWorld, KeyedIcebergWorld])
def fresh(
    request: pytest.FixtureRequest,
    postgres: Postgres,
    template: str,
    postgres_proxy: Proxy,
    broker: Broker,
    tmp_path: Path,
    spark_jars: Path,
) -> Fresh:
    """Makes one pipeline with an Iceberg table after the other; manifest database and catalog are behind the proxy."""

    @contextmanager
    def make() -> Iterator[World]:
        with postgres.temporary_database("test", template) as dsn, postgres.temporary_database("catalog") as catalog:
            folder, targets = tmp_path / dsn.rpartition("/")[2], {"warehouse": postgres_proxy.dsn(catalog)}
            with request.param(folder, postgres_proxy.dsn(dsn), broker, spark_jars, targets=targets) as made:
                yield made

    return make


@FAULTS
def test_F4_a_commit_of_the_catalog_that_is_unknown_is_looked_for_in_the_table(
    fresh: Fresh, postgres_proxy: Proxy, fault: Fault
) -> None:
    with fresh() as world:
        world.produce(30)
        world.ok("run", "demo", "--run-key", "nought")  # creates the table
        world.produce(30)
        armed = postgres_proxy.arm(Armed(fault, having="UPDATE iceberg_tables"))
        done = world.here("run", "demo", "--run-key", "one")
        assert armed.struck
        assert done.exit_code in (0, 1), "a commit that was done may be found at once"
        world.finish()


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@FAULTS
def test_F4_every_commit_of_a_run_into_a_table_may_be_unknown(
    fresh: Fresh, postgres_proxy: Proxy, fault: Fault
) -> None:
    """Of the catalog, and of the manifest database from the receipt on: what comes before knows no sink, and
    test_lost_answers.py loses it."""
    met = [
        statements
        for having in ("iceberg_tables", "SET receipt", "INSERT INTO publication")
        for statements in lose_each(fresh, postgres_proxy, fault, every=False, having=having)
    ]
    assert sum("iceberg_tables" in statements for statements in met) >= 2
    assert len(met) >= 6, "and a receipt and a mark of each of two manifests"


def test_F8_an_attempt_paused_right_before_its_commit_is_refused_by_the_catalog(make_iceberg_world: Make) -> None:
    """Its fence has agreed already, so only the state of the table can tell it."""
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    [manifest] = world.json("manifests", "demo")
    world.ok("replay", "demo", "--manifest", str(manifest["id"]), "--take-over")
    world.assert_readers_complete()
    before = world.shown()
    assert wake(paused).returncode == 0
    assert world.shown() == before == {manifest["id"]: 2}
    world.ok("retry", "demo")
    world.assert_complete()


def test_F8_an_attempt_with_a_key_that_is_paused_right_before_its_commit_changes_no_row_when_it_wakes(
    make_keyed_iceberg_world: MakeKeyed,
) -> None:
    """What it has merged is of the table as it was before the higher attempt."""
    world = make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    [manifest] = world.json("manifests", "demo")
    world.settings["transform"] = [{"select": ["* EXCLUDE (n)", "coalesce(n - 1000, 0) AS n"]}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", str(manifest["id"]), "--take-over")
    before = world.all_rows()
    assert {(row["_attempt"], row["n"] < 0) for row in before} == {(2, True)}
    assert wake(paused).returncode == 0
    assert sorted(world.all_rows(), key=str) == sorted(before, key=str)
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("retry", "demo")
    assert world.staging() == []


def test_F8_an_older_life_of_the_database_that_commits_with_the_same_number_is_noticed_and_adopted(
    make_iceberg_world: Make, postgres: Postgres
) -> None:
    """Both lives give out attempt 1 of manifest 1; the rows of the older one are in the table when the other puts."""
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    world.ok("plan", "demo")
    with postgres.temporary_database("restored", world.dsn.rpartition("/")[2]) as restored:
        older = world.start("retry", "demo", failpoint="attempt.started:stop")
        wait_stopped(older)
        world.dsn = restored
        world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
        world.write_pipeline()
        newer = world.start("retry", "demo", failpoint="publish.receipt:stop")
        wait_stopped(newer)
        assert wake(older).returncode == 0
        woken = wake(newer)
        assert woken.returncode == 1
        assert "another attempt of this number has put other rows" in woken.stderr
        assert world.shown() == {1: 1}
        assert "Read the records back with: tidemark db adopt demo --why TEXT" in world.here("retry", "demo").stderr
        world.ok("db", "adopt", "demo", "--why", "restored")
        world.assert_complete()
        world.ok("replay", "demo", "--manifest", "1")
        world.produce(20)
        world.ok("run", "demo")
        world.assert_complete()


def test_F8_a_table_rolled_back_while_an_attempt_is_at_work_is_refused_before_its_commit_hides_it(
    make_iceberg_world: Make,
) -> None:
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    snapshots = []
    for number in range(2):
        world.produce(30)
        world.ok("run", "demo", "--run-key", str(number))
        snapshots.append(current(world))
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.receipt:stop")
    wait_stopped(paused)
    roll_back(world, snapshots[0])
    woken = wake(paused)
    assert woken.returncode == 1
    assert "went back: it stands at position 1, and this database has published up to position 2" in woken.stderr
    assert "next: tidemark replay demo --manifest 2" in world.ok("db", "adopt", "demo", "--why", "rolled back")
    world.ok("replay", "demo", "--manifest", "2")
    world.ok("retry", "demo")
    world.assert_complete()


def test_F9_a_clean_up_beside_an_attempt_that_is_about_to_commit_leaves_a_table_that_can_be_read(
    make_iceberg_world: Make,
) -> None:
    """The replay loses its lock while it is paused, so that it is taken for dead; its files are removed."""
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    world.ok("run", "demo")
    [manifest] = world.manifests()
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
    world.write_pipeline()  # so that the replay makes other rows
    paused = world.start("replay", "demo", "--manifest", str(manifest["id"]), failpoint="publish.before_record:stop")
    wait_stopped(paused)
    sink = world.context().sinks[0]
    with world_environment(world):
        sink.staging.clear(manifest["id"], 2)
    woken = wake(paused)
    assert woken.returncode == 1, woken.stderr
    assert "Traceback" not in woken.stderr
    assert world.shown() == {manifest["id"]: 1}
    world.assert_readers_complete()
    world.ok("retry", "demo")
    world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.assert_complete()


@contextmanager
def world_environment(world: IcebergWorld) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment().items():
            patch.setenv(name, value)
        yield


def test_F9_a_clean_up_beside_a_merge_that_is_about_to_commit_leaves_a_table_that_can_be_read(
    make_keyed_iceberg_world: MakeKeyed,
) -> None:
    """Also the files that delete rows are removed."""
    world = make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    world.ok("run", "demo")
    [manifest] = world.manifests()
    world.settings["transform"] = [{"select": ["*", "1::BIGINT AS version"]}]
    world.write_pipeline()
    paused = world.start("replay", "demo", "--manifest", str(manifest["id"]), failpoint="publish.before_record:stop")
    wait_stopped(paused)
    sink = world.context().sinks[0]
    with world_environment(world):
        sink.staging.clear(manifest["id"], 2)
    woken = wake(paused)
    assert woken.returncode == 1, woken.stderr
    assert "Traceback" not in woken.stderr
    assert world.shown() == {manifest["id"]: 1}
    world.assert_readers_complete()
    world.ok("retry", "demo")
    world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.assert_complete()


@pytest.mark.parametrize("make", ["make_iceberg_world", "make_keyed_iceberg_world"])
def test_F5_slices_and_others_that_commit_at_once_wait_for_each_other(
    request: pytest.FixtureRequest, make: str
) -> None:
    world: IcebergWorld = request.getfixturevalue(make)()
    world.produce(40)
    world.ok("run", "demo", "--run-key", "nought")
    world.produce(120)
    world.ok("plan", "demo", "--run-key", "one")
    ids = [str(manifest["id"]) for manifest in world.manifests() if manifest["state"] == "planned"]
    assert len(ids) == 3

    def commit_often(over: threading.Event) -> None:
        """Not as often as a slice tries, with the other two: on a busy machine a try may take longer than the pause."""
        with world.catalog() as catalog:
            for number in range(TRIES - len(ids)):
                others = catalog.load_table(world.written)
                with suppress(CommitFailedException), others.transaction() as change:
                    change.set_properties({"somebody": str(number)})
                if over.wait(0.3):
                    return

    for verb in ("retry", "replay"):
        over = threading.Event()
        other = threading.Thread(target=commit_often, args=[over])
        other.start()
        try:
            at_once = [world.start(verb, "demo", "--manifest", manifest) for manifest in ids]
            for process in at_once:
                _, err = process.communicate(timeout=120)
                assert process.returncode == 0, err
        finally:
            over.set()
            other.join()
    world.assert_complete()


def remove_orphan_files(world: IcebergWorld) -> None:
    """As Spark's procedure of this name does; it skips folders whose names begin with ``_``."""
    table = world.table()
    assert table is not None
    names = {path.removeprefix("file://") for path in table.inspect.all_files()["file_path"].to_pylist()}
    for path in (world.location / "data").rglob("*.parquet"):
        if str(path) not in names:
            path.unlink()


@pytest.mark.parametrize("make", ["make_iceberg_world", "make_keyed_iceberg_world"])
@pytest.mark.parametrize("point", ["publish.mid", "publish.before_record"])
def test_staged_files_that_are_removed_before_the_commit_are_missed_and_no_snapshot_names_them(
    request: pytest.FixtureRequest, make: str, point: str
) -> None:
    world: IcebergWorld = request.getfixturevalue(make)(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(30)
    before = world.all_rows()
    paused = world.start("run", "demo", failpoint=f"{point}:stop")
    wait_stopped(paused)
    remove_orphan_files(world)
    woken = wake(paused)
    assert woken.returncode == 1
    assert ("of the table is gone" if point == "publish.before_record" else "is missing") in woken.stderr
    assert world.all_rows() == before
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.mark.parametrize("make", ["make_iceberg_world", "make_keyed_iceberg_world"])
def test_files_that_are_removed_right_at_the_commit_are_told_and_the_next_steps_mend_it(
    request: pytest.FixtureRequest, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world: IcebergWorld = request.getfixturevalue(make)(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    commit = SnapshotChange.commit

    def removed(self: SnapshotChange, keep_snapshots: int | None) -> None:
        remove_orphan_files(world)
        commit(self, keep_snapshots)

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotChange, "commit", removed)
        failed = world.here("run", "demo")
    assert failed.exit_code == 1
    assert "right when the table was to name it, a file of the table is gone" in failed.stderr
    assert "tidemark retry demo marks the manifest as published" in failed.stderr
    world.ok("retry", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
