"""Files of rows that a table in a lake names and somebody has removed: who says so, and the way out."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld, optimize
from tests.worlds.iceberg_others import compact, delete_by_position
from tests.worlds.iceberg_world import IcebergWorld, KeyedIcebergWorld

Table = IcebergWorld | DeltaWorld
MAKERS = ["make_iceberg_world", "make_keyed_iceberg_world", "make_delta_world", "make_keyed_delta_world"]
ROUNDS = 4  # of the advice of audits, at most


@pytest.fixture(params=MAKERS)
def world(request: pytest.FixtureRequest) -> Table:
    """Three manifests published, each in a run of its own."""
    made: Table = request.getfixturevalue(request.param)(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        made.produce(40, bad_every=13 if number == 0 else 0)
        made.ok("run", "demo", "--run-key", str(number))
    return made


def named(world: Table, kind: str = "data_files") -> list[Path]:
    """The files with rows that the table names."""
    if isinstance(world, DeltaWorld):
        uris = [path for path in world.loaded().file_uris() if "/evidence-" not in path]
    else:
        table = world.table()
        assert table is not None
        uris = getattr(table.inspect, kind)()["file_path"].to_pylist()
    return sorted(Path(uri.removeprefix("file://")) for uri in uris)


def follow_the_audit(world: Table) -> None:
    """Type what each audit says, until one finds nothing."""
    for _ in range(ROUNDS):
        audited = world.here("audit", "demo")
        steps = dict.fromkeys(re.findall(r"tidemark (replay demo --manifest \d+)", audited.stdout))
        if audited.exit_code == 0:
            return
        assert steps, audited.stdout
        for step in steps:
            world.ok(*step.split())
    pytest.fail("the advice of audits leads in a circle")


def remove_one(world: Table) -> Path:
    removed = named(world)[-1]
    removed.unlink()
    return removed


def cut_one(world: Table) -> Path:
    cut = named(world)[-1]
    cut.write_bytes(cut.read_bytes()[:-1])
    return cut


@pytest.mark.parametrize(("lose", "what"), [(remove_one, "gone"), (cut_one, "bytes instead of")])
def test_an_audit_that_reads_no_row_names_a_file_that_is_not_as_it_was_written_and_replays_mend_it(
    world: Table, lose: Callable[[Table], Path], what: str
) -> None:
    lost = lose(world)
    for words in (("audit", "demo"), ("audit", "demo", "--deep")):
        audited = world.here(*words)
        assert audited.exit_code == 1
        assert re.search(rf"manifest \d: a file of the table (is|has [\d,]+) {what}[^:]*: {lost}; ", audited.stdout)
        assert "Traceback" not in audited.stderr
    assert world.here("status").exit_code == 1
    assert "damaged" in "".join(world.here("show", str(number), "--compare").stdout for number in (1, 2, 3))
    follow_the_audit(world)
    world.assert_complete()


def test_files_of_every_manifest_that_are_gone_are_mended_too(world: Table) -> None:
    for path in named(world):
        path.unlink()
    follow_the_audit(world)
    world.assert_complete()


def test_a_file_in_which_others_have_joined_the_rows_of_all_manifests_is_mended_by_replays_of_all(
    world: Table,
) -> None:
    (optimize if isinstance(world, DeltaWorld) else compact)(world)  # type: ignore[operator]
    remove_one(world)
    follow_the_audit(world)
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_run_goes_on_after_a_file_is_gone_or_names_it_and_the_way_out(world: Table) -> None:
    """A merge must read it, so it is refused; rows that replace no others are put beside it."""
    lost = remove_one(world)
    world.produce(40)
    done = world.here("run", "demo", "--run-key", "more")
    if done.exit_code:
        assert f"a file of the table is gone: {lost}" in done.stderr
        assert "tidemark audit demo names the manifests to replay" in done.stderr
    follow_the_audit(world)
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.fixture
def keyed(make_keyed_iceberg_world: Callable[..., KeyedIcebergWorld]) -> KeyedIcebergWorld:
    world = make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        world.produce(40)
        world.ok("run", "demo", "--run-key", str(number))
    return world


@pytest.mark.parametrize("others", [False, True])
def test_a_file_that_deletes_rows_and_is_gone_takes_no_key_a_second_row(keyed: KeyedIcebergWorld, others: bool) -> None:
    if others:
        delete_by_position(keyed, 1)
    deletes = named(keyed, "delete_files")
    if not deletes:
        pytest.fail("no file deletes rows")
    deletes[-1].unlink()
    audited = keyed.here("audit", "demo")
    assert f"a file of the table is gone: {deletes[-1]}" in audited.stdout
    follow_the_audit(keyed)
    keyed.ok("replay", "demo", "--manifest", "3")
    keyed.current()


def test_a_keyed_table_of_delta_without_its_file_of_evidence_is_accepted_and_replayed(
    make_keyed_delta_world: Callable[..., KeyedDeltaWorld],
) -> None:
    world = make_keyed_delta_world()
    world.produce(40)
    world.ok("run", "demo")
    [evidence] = [Path(uri) for uri in world.loaded().file_uris() if "/evidence-" in uri]
    evidence.unlink()
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert "went back" in audited.stdout
    world.ok("db", "adopt", "demo", "--why", "a test")
    follow_the_audit(world)
    world.assert_complete()
