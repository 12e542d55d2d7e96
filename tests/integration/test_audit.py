"""What the audit says of a damaged lake, and how a replay or a person mends it."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.worlds.file_of_rows import file_of
from tests.worlds.world import World
from tidemark.operations.audit import KEPT, KEPT_CHARACTERS, audit
from tidemark.paths import RecordName
from tidemark.sinks.files.sink import FilesLedger
from tidemark.text import storable

MakeWorld = Callable[..., World]


def rename(world: World, path: Path) -> None:
    path.rename(path.with_name("part-00000.parquet"))


def rename_across(world: World, path: Path) -> None:
    other = world.lake / "raw" / world.topic / "1999"
    other.mkdir()
    path.rename(other / path.name)


def flip_magic(world: World, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"PAR2")


def change_rows_in_place(path: Path) -> None:
    """Another good file of the same size and number of rows: its rows claim to be of another manifest."""
    size = path.stat().st_size
    table = pq.read_table(path, partitioning=None)
    at = table.schema.get_field_index("_manifest_id")
    for other in range(2, 200):
        claimed = pa.array([other] * table.num_rows, pa.int64())
        changed = table.set_column(at, table.schema.field(at), claimed)
        path.write_bytes(file_of(changed)[0])
        if path.stat().st_size == size:
            return
    raise AssertionError("no file of this size")


def record_of(world: World, manifest: int) -> Path:
    return world.lake / "_manifests" / "demo" / f"{manifest:010d}.0001.json"


def delete_record(world: World, path: Path) -> None:
    record_of(world, int(path.name[:10])).unlink()


def rewrite_record(world: World, path: Path) -> None:
    record = record_of(world, int(path.name[:10]))
    record.write_text(json.dumps({**json.loads(record.read_text()), "digest": "0"}))


MENDED_BY_REPLAY: dict[str, tuple[Callable[[World, Path], Any], str]] = {
    "deleted": (lambda _, path: path.unlink(), "is missing: raw/"),
    "truncated": (lambda _, path: path.write_bytes(path.read_bytes()[:-1]), "bytes instead of"),
    "emptied": (lambda _, path: path.write_bytes(b""), "has 0 bytes instead of"),
    "replaced by garbage of the same size": (flip_magic, "cannot be read"),
    "renamed": (rename, "is missing: raw/"),
    "moved to another hour": (rename_across, "is missing: raw/"),
    "its record deleted": (delete_record, "is missing or says something else"),
    "its record rewritten": (rewrite_record, "is missing or says something else"),
}


@pytest.mark.parametrize("damage", MENDED_BY_REPLAY)
def test_damage_is_one_line_that_names_the_manifest_and_a_replay_mends_it(world: World, damage: str) -> None:
    inflict, message = MENDED_BY_REPLAY[damage]
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    assert world.ok("audit", "demo") == ""
    path = world.data_paths()[1]
    manifest = int(path.name[:10])
    others = {key: file for key, file in world.files().items() if f"{manifest:010d}" not in key}
    inflict(world, path)
    report = world.here("audit", "demo")
    assert report.exit_code == 1
    lines = [line for line in report.stdout.splitlines() if message in line]
    assert len(lines) == 1, report.stdout
    assert lines[0].startswith(f"manifest {manifest}: ")
    verb = "retry" if "record" in damage else "replay"
    by_id = "" if damage == "its record deleted" else f" --manifest {manifest}"
    advice = f"tidemark {verb} demo{by_id}"
    assert lines[0].endswith(f"next: {advice}")
    world.ok("replay", "demo", "--manifest", str(manifest))
    for line in world.here("audit", "demo").stdout.splitlines():  # what was moved is a stray now
        if "tidemark repair" not in line:
            (world.lake / line.split()[0]).unlink()  # its name is not ours any more: a person removes it
    world.ok("repair", "demo", "--why", "moved by hand")
    assert {key: file for key, file in world.files().items() if f"{manifest:010d}" not in key} == others
    world.assert_complete()


@pytest.mark.parametrize("kind", ["data", "dead letters"])
def test_rows_changed_in_place_are_found_by_a_deep_audit_and_mended_by_a_replay(world: World, kind: str) -> None:
    world.produce(40, bad_every=4)
    world.ok("run", "demo")
    path = world.data_paths(*(["--dead-letters"] if kind == "dead letters" else []))[0]
    change_rows_in_place(path)
    assert world.ok("audit", "demo") == "", "size and footer are as they were"
    report = world.here("audit", "demo", "--deep")
    assert report.exit_code == 1
    manifest = int(path.name[:10])
    assert report.stdout.startswith(
        f"manifest {manifest}: a file holds other rows than were written: {path.relative_to(world.lake)} "
    )
    world.ok("replay", "demo", "--manifest", str(manifest))
    world.assert_complete()


def another_part(path: Path) -> Path:
    return path.with_name(
        path.name.replace("-00000.parquet", "-00099.parquet").replace("-00001.parquet", "-00098.parquet")
    )


STRAYS: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "a copy under another part number": (another_part, True),
    "a copy under another attempt": (lambda path: path.with_name(path.name.replace("-a0001-", "-a0007-")), True),
    "a copy under a name of no manifest": (lambda path: path.with_name("9999999999" + path.name[10:]), False),
    "a copy in another folder": (lambda path: path.parents[1] / path.name, True),
    "a copy under a name of its own": (lambda path: path.with_name("copy.parquet"), False),
    "a hidden copy, which DuckDB reads": (lambda path: path.with_name("." + path.name), False),
    "an underscored copy, which DuckDB reads": (lambda path: path.with_name("_" + path.name), False),
    "notes of a person": (lambda path: path.with_name("notes.txt"), False),
    "a copy under a name that is no UTF-8": (lambda path: path.with_name("\udcff.parquet"), False),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_a_file_added_by_hand_is_one_line_and_taking_it_away_is_enough(world: World, stray: str) -> None:
    elsewhere, names_manifest = STRAYS[stray]
    world.produce(60)
    world.ok("run", "demo")
    path = world.data_paths()[0]
    added = elsewhere(path)
    shutil.copy(path, added)
    report = world.here("audit", "demo")
    assert report.exit_code == 1
    [line] = report.stdout.splitlines()
    assert storable(str(added.relative_to(world.lake))) in line
    assert line.startswith(f"manifest {int(path.name[:10])}: ") == names_manifest
    assert world.json("objects", "demo") == [
        object_ for object_ in world.json("objects", "demo") if object_["path"] != str(added)
    ]
    added.unlink()
    assert world.ok("audit", "demo") == ""


@pytest.mark.parametrize("shift", [0, 1_000], ids=["published elsewhere", "nowhere else"])
def test_repair_removes_what_a_restored_database_forgot_only_when_its_rows_are_published(
    world: World, shift: int
) -> None:
    world.produce(60)
    world.ok("run", "demo")
    path = world.data_paths()[0]
    forgotten = path.with_name("0000000077" + path.name[10:])
    rows = pq.read_table(path, partitioning=None)
    at = rows.schema.get_field_index("_offset")
    moved = pa.array([offset + shift for offset in rows["_offset"].to_pylist()], rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, rows.schema.field(at), moved), forgotten)
    assert "belongs to no manifest; next: tidemark repair demo --why TEXT" in world.here("audit", "demo").stdout
    world.ok("repair", "demo", "--why", "restored", "--dry-run")
    assert forgotten.exists()
    world.ok("repair", "demo", "--why", "restored")
    assert forgotten.exists() == (shift > 0)
    if shift:
        assert "else it may be their only copy: move it out of the lake" in world.here("audit", "demo").stdout
        forgotten.unlink()
    assert world.ok("audit", "demo") == ""


@pytest.mark.parametrize("given_out", [False, True], ids=["a number it never gave out", "a number it had given out"])
def test_a_database_restored_from_before_a_replay_does_not_repair_the_replays_output_away(
    world: World, given_out: bool
) -> None:
    world.produce(30)
    world.ok("run", "demo")
    with psycopg.connect(world.dsn, autocommit=True) as sql:
        [before] = sql.execute("SELECT digest, counts::text FROM tidemark.publication").fetchall()
        world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
        world.write_pipeline()
        world.ok("replay", "demo", "--manifest", "1")
        whole = world.exact()
        sql.execute("SET session_replication_role = replica")  # no triggers, as a restore has none
        sql.execute("UPDATE tidemark.publication SET attempt = 1, digest = %s, counts = %s::jsonb", before)
        if given_out:
            sql.execute(
                "UPDATE tidemark.attempt SET state = 'running', receipt = NULL, ended_at = NULL WHERE attempt = 2"
            )
        else:
            sql.execute("DELETE FROM tidemark.attempt WHERE attempt = 2")
            sql.execute("UPDATE tidemark.manifest SET attempt = 1")
        sql.execute("SELECT tidemark.count_done()")
    printed = world.here("audit", "demo").stdout
    assert "has a record of attempt 2 that this database has no receipt of" in printed
    assert "next: tidemark db adopt demo --why TEXT" in printed
    lake = sorted(path for path in world.lake.rglob("*") if path.is_file())
    repaired = world.here("repair", "demo", "--why", "the audit says leftovers")
    assert "tidemark db adopt demo --why TEXT" in repaired.stdout + repaired.stderr
    assert sorted(path for path in world.lake.rglob("*") if path.is_file()) == lake
    world.ok("db", "adopt", "demo", "--why", "restored")
    assert world.exact() == whole
    world.assert_complete()


def test_files_of_another_pipeline_of_the_same_database_are_no_strays(make_world: MakeWorld) -> None:
    first = make_world()
    second = make_world(settings={"pipeline": "second", "sinks": [{"files": {"root": str(first.lake)}}]})
    first.produce(20)
    second.produce(20)
    first.ok("run", "demo")
    second.ok("run", "second")
    assert first.ok("audit", "demo") == second.ok("audit", "second") == ""
    assert {manifest["pipeline"] for manifest in first.json("manifests")} == {"demo", "second"}


def test_a_record_of_a_manifest_that_does_not_exist_is_a_difference(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    shutil.copy(record_of(world, 1), record_of(world, 77))
    report = world.here("audit", "demo")
    assert report.exit_code == 1
    assert "0000000077.0001.json belongs to no manifest; next: tidemark db adopt demo --why TEXT" in report.stdout


def test_the_audit_of_a_pipeline_that_never_ran_finds_nothing(world: World) -> None:
    assert world.ok("audit", "demo") == ""


def test_the_last_audit_and_the_last_deep_one_are_kept(world: World) -> None:
    def kept() -> list[tuple[bool, int]]:
        [status] = world.status("demo")
        return [(audit["deep"], audit["differences"]) for audit in status["audits"]]

    world.produce(40)
    world.ok("run", "demo")
    assert kept() == []
    world.ok("audit", "demo", "--deep")
    world.ok("audit", "demo")
    assert kept() == [(False, 0), (True, 0)]
    for path in world.data_paths():
        path.unlink()
    world.here("audit", "demo", "--deep")
    [newest, before] = kept()
    assert newest[0]
    assert newest[1] > 0
    assert before == (False, 0)


def test_the_newest_hundred_audits_of_each_depth_are_kept(world: World) -> None:
    world.produce(4)
    world.ok("run", "demo")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    with world.context().database as database:
        for number in [*range(1, 104), 0]:  # one that began before all others ends last
            database.audits.store(
                "demo", began + timedelta(hours=number), deep=bool(number % 103), differences=number, first=[]
            )
        kept = database.audits.history("demo", 1000)
        last = database.audits.last("demo")
        with database.transaction():
            database.pipelines.rename("demo", "renamed")
        assert database.audits.history("renamed", 1000) == kept
    assert [row["differences"] for row in kept if row["deep"]] == [*range(102, 2, -1)]
    assert [row["differences"] for row in kept if not row["deep"]] == [103, 0]
    assert [(row["deep"], row["differences"]) for row in last] == [(False, 103), (True, 102)]


def test_the_database_keeps_a_few_differences_of_an_audit_in_short_lines(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    folder = world.data_paths()[0].parent
    for number in range(KEPT + 5):
        folder.joinpath(f"{number:02}-{'x' * 200}.parquet").write_text("no file of ours")
    assert world.here("audit", "demo").exit_code == 1
    [status] = world.status("demo")
    [audit] = status["audits"]
    assert audit["differences"] > len(audit["first_differences"]) == KEPT
    assert all(0 < len(each["what"]) <= KEPT_CHARACTERS for each in audit["first_differences"])


def test_what_a_replay_publishes_while_the_audit_looks_is_no_difference(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(60)
    world.ok("run", "demo")
    honest, replayed = FilesLedger.record, False

    def replaying(ledger: FilesLedger, name: RecordName) -> dict[str, Any] | None:
        """The audit has looked up publications, and asks for the first record."""
        nonlocal replayed
        if not replayed:
            replayed = True
            world.data_paths()[0].unlink()  # else nothing moves
            world.ok("replay", "demo", "--manifest", "1")
        return honest(ledger, name)

    monkeypatch.setattr(FilesLedger, "record", replaying)
    assert audit(world.context(), deep=True) == []
    assert replayed
    world.assert_complete()


def test_an_audit_of_a_time_says_what_is_wrong_with_the_manifests_of_its_runs_alone(world: World) -> None:
    for number in (1, 2):
        world.produce(20)
        world.ok("run", "demo")
        with psycopg.connect(world.dsn, options="-c search_path=tidemark -c tidemark.actor=test") as sql:
            sql.execute(
                "UPDATE run SET planned_up_to = %s WHERE id = %s",
                [datetime(2026, 3, 1, 7 + number, tzinfo=UTC), number],
            )
    assert world.ok("audit", "demo", "--since", "2026-03-01T07:00") == ""
    assert [pipeline["audits"] for pipeline in world.status()] == [[]], "it has not looked at all"
    for path in world.lake.glob("raw/**/*.parquet"):
        path.unlink()

    def audited(*words: str) -> set[int]:
        done = world.here("audit", "demo", *words, "--json")
        differences = json.loads(done.stdout)
        assert done.exit_code == (1 if differences else 0)
        assert all(each["next_step"] for each in differences)
        return {each["manifest_id"] for each in differences}

    assert audited("--since", "2026-03-01T08:00") == {2}
    assert audited("--until", "2026-03-01T08:00") == {1}
    assert audited("--since", "2026-03-01T07:00", "--until", "2026-03-01T09:00") == {1, 2}
    assert audited("--since", "2026-03-01T09:00") == set()
    assert "0 of 0 manifests done" in world.here("audit", "demo", "--since", "2026-03-01T09:00").stderr
    [status] = world.status()
    assert (status["state"], status["audits"][0]["differences"]) == ("damaged", 2)
    for manifest in ("1", "2"):
        world.ok("replay", "demo", "--manifest", manifest)
    world.ok("audit", "demo", "--since", "2026-03-01T07:00")
    assert [pipeline["state"] for pipeline in world.status()] == ["damaged"], "a part cannot say that all is well"
    world.ok("audit", "demo")
    assert [pipeline["state"] for pipeline in world.status()] == ["ok"]
    assert world.here("audit", "demo", "--deep", "--since", "2026-03-01T08:00").exit_code == 2
