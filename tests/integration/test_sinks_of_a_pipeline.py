"""Issue 13, schedule 1: a sink is renamed, taken out of the pipeline file, or added later."""

import json
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tests.worlds.table_world import TableWorld, table_sink
from tests.worlds.world import wait_stopped, wake
from tidemark.paths import TARGET

MakeTableWorld = Callable[..., TableWorld]
WHY = ("--why", "the schedule says so")
REFUSED = [
    ("plan",), ("run",), ("retry",), ("replay", "--manifest", "1"), ("lag",), ("audit",), ("repair", *WHY),
    ("db adopt", *WHY), ("accept loss", *WHY), ("accept topic", "--topic", "t", *WHY), ("extend-back", *WHY),
    ("accept truncation", "--topic", "t", "--partition", "0", *WHY), ("retire sink", "postgres", *WHY),
    ("fill", "ledger", *WHY),
]  # fmt: skip


def lake_sink(root: Path, **options: Any) -> dict[str, Any]:
    return {"files": {"root": str(root), "layout": "raw/{stream}/%Y/%m/%d/%H", **options}}


def write_sinks(world: TableWorld, *sinks: dict[str, Any]) -> None:
    world.settings["sinks"] = list(sinks)
    world.write_pipeline()


def publications(world: TableWorld, manifest: int = 1) -> dict[str, int]:
    return {
        publication["sink"]: publication["attempt"] for publication in world.json("show", str(manifest))["publications"]
    }


@pytest.fixture
def world(make_table_world: MakeTableWorld) -> TableWorld:
    """60 records in two manifests, published to a lake and a table."""
    world = make_table_world(has_lake=True)
    world.produce(60)
    world.ok("run", "demo")
    return world


def renamed(world: TableWorld) -> None:
    """The pipeline file has the table under another name from here on."""
    write_sinks(world, lake_sink(world.lake), table_sink(name="ledger"))


def test_a_renamed_sink_is_refused_by_every_verb_until_it_is_renamed_in_the_database(world: TableWorld) -> None:
    renamed(world)
    command = "tidemark rename sink demo postgres ledger --why TEXT"
    for verb, *words in (*REFUSED, ("validate",)):
        refused = world.here(*verb.split(), *([] if verb == "validate" else ["demo"]), *words)
        assert refused.exit_code == 2, (verb, refused.stderr)
        assert command in refused.stderr, verb
    rename = ("rename", "sink", "demo", "postgres", "ledger", *WHY)
    assert "sink postgres is ledger from here on: 2 published manifests" in world.ok(*rename, "--dry-run")
    assert command in world.here("plan", "demo").stderr, "a dry run changes nothing"
    assert world.json(*rename)["lines"]
    assert publications(world) == {"files": 1, "ledger": 1}
    assert world.ok("audit", "demo", "--deep") == ""
    before = world.object_keys(), world.rows()
    assert world.here("repair", "demo", *WHY).stdout == ""
    replayed = world.here("replay", "demo", "--manifest", "1")
    assert "unchanged" in replayed.stderr, "the code is the same, and so are the rows"
    assert (world.object_keys(), world.rows()) == before
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    assert {row["sink"] for row in world.query("SELECT sink FROM tidemark_target.marker")} == {"ledger"}
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"]) == ("rename-sink", "the schedule says so")


def test_a_target_is_adopted_by_the_name_that_its_sink_had_and_renamed_after_that(world: TableWorld) -> None:
    world.lose_manifest_database()
    renamed(world)
    refused = world.here("db", "adopt", "demo", *WHY)
    assert refused.exit_code == 1
    assert "then rename it: tidemark rename sink demo OLD ledger --why TEXT" in refused.stderr
    write_sinks(world, lake_sink(world.lake), table_sink())
    world.ok("db", "adopt", "demo", *WHY)
    renamed(world)
    world.ok("rename", "sink", "demo", "postgres", "ledger", *WHY)
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_name_that_is_wrong_is_not_taken_for_a_renamed_sink(world: TableWorld) -> None:
    write_sinks(world, lake_sink(world.lake), table_sink(name="ledger", table="other"))
    assert "sink ledger has another target (connection warehouse, table public.other) than sink postgres" in (
        refusal := world.here("rename", "sink", "demo", "postgres", "ledger", *WHY).stderr
    ), refusal
    for old, new, message in (
        ("nobody", "ledger", "the database knows no sink nobody of this pipeline; it knows: files, postgres"),
        ("files", "postgres", "the pipeline file has no sink postgres; it has: files, ledger"),
        ("postgres", "files", "sink files is known already"),
    ):
        refused = world.here("rename", "sink", "demo", old, new, *WHY)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    write_sinks(world, lake_sink(world.lake), table_sink())
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_renaming_killed_between_database_and_target_is_repeated_and_nothing_else_is_allowed(
    world: TableWorld,
) -> None:
    renamed(world)
    rename = ("rename", "sink", "demo", "postgres", "ledger", *WHY)
    with psycopg.connect(world.targets["warehouse"]) as holder:
        holder.execute("LOCK TABLE tidemark_target.marker IN SHARE MODE")
        killed = world.start(*rename)
        waits = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
            "AND query LIKE '%%renamed AS%%'"
        )
        deadline = time.monotonic() + 60
        while not (waiting := world.query(waits)):
            assert killed.poll() is None, killed.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        killed.kill()
        killed.wait()
        world.query("SELECT pg_terminate_backend(%s, 30000)", waiting[0]["pid"])
    end = "end it: tidemark rename sink demo postgres ledger --why TEXT"
    for verb, *words in (*REFUSED, ("validate",)):
        assert end in world.here(*verb.split(), *([] if verb == "validate" else ["demo"]), *words).stderr, verb
    renamed_before = dict(world.settings)
    write_sinks(world, lake_sink(world.lake), table_sink())
    assert end in world.here("plan", "demo").stderr, "also under the old name: the database has the new one"
    world.settings = renamed_before
    world.write_pipeline()
    world.ok(*rename)
    assert world.ok("audit", "demo", "--deep") == ""
    again = world.here(*rename)
    assert (again.exit_code, "it knows: files, ledger" in again.stderr) == (2, True)
    world.assert_complete()


def test_what_only_lacks_its_mark_is_recovered_under_the_new_name(make_table_world: MakeTableWorld) -> None:
    """The receipt names the sink, and so does the fingerprint of the code that made it."""
    world = make_table_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    assert world.tidemark("run", "demo", failpoint="publish.before_mark:kill9@2").returncode == -signal.SIGKILL
    renamed(world)
    world.ok("rename", "sink", "demo", "postgres", "ledger", *WHY)
    world.administer("delete_records", [TopicPartition(world.topic, at, 30) for at in range(2)])
    world.ok("retry", "demo")
    world.assert_complete()
    assert publications(world) == {"files": 1, "ledger": 1}


def test_an_attempt_without_its_session_publishes_nothing_under_the_old_name(
    make_table_world: MakeTableWorld,
) -> None:
    world = make_table_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.receipt:stop")
    wait_stopped(paused)
    renamed(world)
    rename = ("rename", "sink", "demo", "postgres", "ledger", *WHY)
    assert "attempt 1 is alive and at work" in world.here(*rename).stderr
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid, 30000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.objsubid = 1"
        )
    while "alive" in world.here(*rename, "--dry-run").stderr:
        time.sleep(0.1)
    world.ok(*rename)
    assert wake(paused).returncode == 1
    world.assert_nothing_is_seen()
    assert not world.recorded()
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_sink_taken_out_of_the_file_stays_known_until_it_is_retired(world: TableWorld) -> None:
    seen, kept = world.data_paths(), world.object_keys()
    write_sinks(world, table_sink())
    note = f"sink files ({world.lake}) is known and not in the pipeline file"
    assert note in world.here("plan", "demo", "--dry-run").stderr
    audited = world.here("audit", "demo", "--deep")
    assert (audited.exit_code, audited.stdout) == (0, "")
    assert note in audited.stderr
    assert world.here("repair", "demo", *WHY).stdout == ""
    world.produce(20)
    world.ok("run", "demo")
    assert world.data_paths() == seen, "its publications stay"
    assert world.object_keys() == kept, "and so does its output"
    assert world.json("show", "3")["unfilled"] == ["files"]
    write_sinks(world, lake_sink(world.lake, name="second"), table_sink())
    assert "tidemark rename sink demo files second --why TEXT" in world.here("plan", "demo").stderr
    write_sinks(world, lake_sink(world.lake / "raw", name="second"), table_sink())
    assert "tidemark retire sink demo files --why TEXT" in world.here("plan", "demo").stderr
    write_sinks(world, table_sink())
    assert "sink postgres is in the pipeline file" in world.here("retire", "sink", "demo", "postgres", *WHY).stderr
    assert "no sink nobody" in world.here("retire", "sink", "demo", "nobody", *WHY).stderr
    retire = ("retire", "sink", "demo", "files", *WHY)
    lines = world.ok(*retire, "--dry-run").splitlines()
    assert lines == [
        "sink files: 2 published manifests do not count any more",
        f"{world.lake}: the output stays there, nobody removes it, and readers that list it still see it",
        f"{world.lake} can be used again by a sink of another name",
    ]
    assert world.data_paths() == seen
    assert world.ok(*retire).splitlines() == lines
    assert world.data_paths() == []
    assert publications(world) == {"postgres": 1}
    assert note not in world.here("audit", "demo").stderr
    assert "the database knows no sink files" in world.here(*retire).stderr


def test_the_target_of_a_retired_sink_is_used_again_and_what_lies_there_is_no_stray(world: TableWorld) -> None:
    kept = world.object_keys()
    write_sinks(world, table_sink())
    world.ok("retire", "sink", "demo", "files", *WHY)
    write_sinks(world, lake_sink(world.lake), table_sink())
    assert "give the sink another name" in world.here("plan", "demo").stderr
    write_sinks(world, lake_sink(world.lake, name="second"), table_sink())
    world.produce(20)
    world.ok("run", "demo")
    for line in world.here("audit", "demo", "--deep").stdout.splitlines():
        assert line.endswith("next: tidemark fill demo second --why TEXT"), "no record there is taken for its own"
    assert world.here("repair", "demo", *WHY).stdout == ""
    assert world.here("db", "adopt", "demo", *WHY).stdout == ""
    world.ok("fill", "demo", "second", *WHY)
    assert world.exact() == world.everything()
    assert set(kept) < set(world.object_keys()), "nobody removes what the retired sink had"
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    assert set(kept) < set(world.object_keys())


@pytest.mark.parametrize("retired", [True, False])
def test_a_folder_without_a_note_that_another_path_leads_to_is_that_of_the_sink_that_published_there(
    world: TableWorld, *, retired: bool
) -> None:
    """As an older version has left it. Who retires the sink and takes the other path would have its files removed."""
    note = world.lake / TARGET
    note.unlink()
    kept = set(world.object_keys())
    link = world.folder / "link"
    link.symlink_to(world.lake)
    standing = [] if retired else [lake_sink(world.lake)]
    if retired:
        write_sinks(world, table_sink())
        world.ok("retire", "sink", "demo", "files", *WHY)
    write_sinks(world, *standing, lake_sink(link, name="second"), table_sink())
    for words in (("plan", "demo"), ("repair", "demo", *WHY)):
        world.here(*words)
        assert kept <= set(world.object_keys()), words
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"{link} and {world.lake} are one place, which sink files of pipeline demo writes" in refused.stderr
    assert not note.exists() or json.loads(note.read_text())["target"] == str(world.lake)
    write_sinks(world, *standing, table_sink())
    world.here("retire", "sink", "demo", "second", *WHY)
    if retired:
        write_sinks(world, lake_sink(world.lake, name="third"), table_sink())
    world.produce(20)
    world.ok("run", "demo")
    assert kept <= set(world.object_keys())
    assert json.loads(note.read_text())["target"] == str(world.lake)


def test_the_table_of_a_retired_sink_is_used_again(world: TableWorld) -> None:
    write_sinks(world, lake_sink(world.lake))
    world.ok("retire", "sink", "demo", "postgres", *WHY)
    write_sinks(world, lake_sink(world.lake), table_sink(name="ledger"))
    world.produce(20)
    world.ok("run", "demo")
    world.ok("fill", "demo", "ledger", *WHY)
    world.assert_complete()


def test_retiring_the_only_sink_that_has_a_manifest_says_which_are_published_nowhere_else(world: TableWorld) -> None:
    write_sinks(world, lake_sink(world.folder / "other", name="other"))
    world.produce(20)
    produced = datetime.now(UTC)  # to the microsecond: in a whole second some of it would come after the time
    world.ok("run", "demo")
    world.ok("retire", "sink", "demo", "postgres", *WHY)
    retired = world.ok("retire", "sink", "demo", "files", *WHY)
    assert "2 manifests published nowhere else: 1, 2" in retired
    assert "is done without a publication" in world.here("audit", "demo").stdout
    assert [view["unfilled"] for view in world.manifests()] == [["other"], ["other"], []]
    incomplete = world.here("complete", "demo", "--until", produced.isoformat(), "--json")
    assert incomplete.exit_code == 1
    assert {part["sink"] for part in json.loads(incomplete.stdout)["missing"]} == {"other"}
    world.ok("fill", "demo", "other", *WHY)
    assert world.exact() == world.everything()
    assert world.ok("audit", "demo", "--deep") == ""


def with_a_table_added_later(make_table_world: MakeTableWorld) -> TableWorld:
    """Three manifests are published in the lake; the table came to the pipeline file after them."""
    world = make_table_world(has_lake=True)
    both = world.settings["sinks"]
    write_sinks(world, both[0])
    world.produce(100)
    world.ok("run", "demo")
    write_sinks(world, *both)
    return world


def test_a_sink_added_later_lacks_what_was_done_until_it_is_filled(make_table_world: MakeTableWorld) -> None:
    world = with_a_table_added_later(make_table_world)
    lake = world.files()
    assert "tidemark fill demo postgres" in world.here("audit", "demo").stdout, "before a plan knows it, too"
    world.produce(4)
    world.ok("run", "demo")
    line = (
        "sink postgres is not filled: it lacks 3 done manifests (1, 2, 3); next: tidemark fill demo postgres --why TEXT"
    )
    audited = world.here("audit", "demo", "--deep")
    assert (audited.exit_code, audited.stdout.count("next: tidemark fill demo postgres --why TEXT\n")) == (1, 3)
    assert line in world.ok("manifests", "demo")
    assert "it lacks 1 done manifest (1)" in world.ok("show", "1")
    assert [view["unfilled"] for view in world.manifests()] == [["postgres"]] * 3 + [[]]
    fill = ("fill", "demo", "postgres", *WHY)
    assert world.json(*fill, "--dry-run")["filled"] == [1, 2, 3]
    assert len(world.rows()) == 4, "a dry run fills nothing"
    assert "manifest 3: published to postgres" in world.ok(*fill)
    world.assert_complete()
    assert publications(world) == {"files": 1, "postgres": 2}, "the lake keeps what it has"
    assert {path: world.files()[path] for path in lake} == lake
    assert [view["unfilled"] for view in world.manifests()] == [[]] * 4
    assert world.here(*fill).stderr == "sink postgres lacks no manifest that is done\n"
    assert [decision["decision"] for decision in world.json("history", "demo")] == ["fill"]
    unknown = world.here("fill", "demo", "nobody", *WHY)
    assert (unknown.exit_code, "it has: files, postgres" in unknown.stderr) == (2, True)


def test_filling_says_what_the_source_lost_and_goes_on_with_the_others(make_table_world: MakeTableWorld) -> None:
    world = with_a_table_added_later(make_table_world)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 5)])
    fill = ("fill", "demo", "postgres", *WHY)
    for words in ((*fill, "--dry-run"), fill):
        done = world.here(*words, "--json")
        assert done.exit_code == 1
        result = json.loads(done.stdout)
        assert result["filled"] == [2, 3]
        [lost] = result["not_filled"]
        assert lost["manifest_id"] == 1
        assert "retention took offsets [0, 5)" in lost["what"]
        assert "accept loss" not in lost["next_step"], "nothing of it is unpublished in the lake"
    assert world.merged_spans() == world.published_spans("postgres")
    assert publications(world, 2) == {"files": 1, "postgres": 2}
    assert world.exact() == world.everything()
    assert {view["state"] for view in world.manifests()} == {"done"}
    again = world.here(*fill)
    assert again.exit_code == 1
    assert again.stdout.startswith("manifest 1: not filled: retention took offsets [0, 5)")


def test_a_fill_that_died_is_repeated(make_table_world: MakeTableWorld) -> None:
    world = with_a_table_added_later(make_table_world)
    fill = ("fill", "demo", "postgres", *WHY)
    assert world.tidemark(*fill, failpoint="publish.before_mark:kill9@2").returncode == -signal.SIGKILL
    world.ok("retry", "demo")
    world.ok(*fill)
    world.assert_complete()


def test_a_target_that_is_lost_is_told_once_and_given_up_for_one_in_another_place(world: TableWorld) -> None:
    write_sinks(world, lake_sink(world.lake))
    world.ok("retire", "sink", "demo", "postgres", *WHY)
    shutil.rmtree(world.lake)
    audit = world.here("audit", "demo").stdout.splitlines()
    [told] = [line for line in audit if "is empty, and manifests are published there" in line]
    assert not any("tidemark replay" in line for line in audit), audit
    replay = world.here("replay", "demo", "--manifest", "1")
    assert (replay.exit_code, "tidemark retire sink demo files --why TEXT" in replay.stderr) == (1, True), told
    world.settings["sinks"] = [lake_sink(world.lake.with_name("again"), name="again")]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "files", *WHY)
    world.ok("fill", "demo", "again", *WHY)
    assert len(world.data_paths()) > 0
    assert world.ok("audit", "demo", "--deep") == ""


def test_validate_says_when_no_database_answered(world: TableWorld) -> None:
    renamed(world)
    world.dsn = "postgresql://nobody@127.0.0.1:1/none"
    done = world.here("validate")
    assert (done.exit_code, "demo.yaml: ok" in done.stdout) == (0, True)
    assert "not compared with the sinks that the manifest database knows" in done.stderr
