"""A pipeline goes on under another name: nothing is read twice, nothing is left out, and all it has stays its own."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.worlds.all_sinks_world import AllSinksWorld
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_stopped, wake
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.failpoints import FAILPOINTS_OF_RENAMES
from tidemark.lifecycle import plan as planning
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Renaming, open_context
from tidemark.operations.rename import rename_pipeline
from tidemark.pipeline.deployed import deployed
from tidemark.pipeline.kept import kept_path
from tidemark.pipeline.loader import find

MakeWorld = Callable[..., World]
WHY = ("--why", "a better word")
RENAME = ("rename", "pipeline", "demo", "orders", *WHY)
REFUSED = [
    ("plan",), ("run",), ("retry",), ("replay", "--manifest", "1"), ("lag",), ("audit",), ("repair", *WHY),
    ("db adopt", *WHY), ("accept loss", *WHY), ("extend-back", *WHY), ("rename sink", "files", "lake", *WHY),
    ("retire sink", "files", *WHY), ("fill", "files", *WHY),
]  # fmt: skip


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """60 records, 6 of them dead letters, published in two manifests."""
    world = make_world()
    world.produce(60, bad_every=10)
    world.ok("run", "demo")
    return world


def name_file(world: World, name: str = "orders") -> None:
    """The pipeline file has another name from here on."""
    (world.pipelines / f"{world.name}.yaml").unlink()
    world.name = name
    world.write_pipeline()


def planned(world: World) -> list[str]:
    """The pipelines that the database knows."""
    with ManifestDatabase(world.dsn, "reader") as database:
        return database.pipelines.names(retired=True)


def goes_on(world: World) -> None:
    """What follows is read where the last run ended, and each reader of all sees every record once."""
    before = len(world.manifests())
    world.produce(20)
    world.ok("run", world.name)
    assert len(world.manifests()) == before + 1
    world.assert_complete()


def test_a_renamed_pipeline_goes_on_where_it_ended_and_keeps_all_it_has(world: World) -> None:
    hours, complete = world.json("hours", "demo"), world.here("complete", "demo", "--until", "2024-03-02T00:00").stdout
    world.ok("audit", "demo")
    dead = world.json("dead-letters", "demo")["count"]
    name_file(world)
    assert "pipeline demo is orders from here on: 2 manifests" in world.ok(*RENAME, "--dry-run")
    assert planned(world) == ["demo"], "a dry run changes nothing"
    assert world.json(*RENAME)["lines"]
    assert planned(world) == ["orders"]
    assert [manifest["id"] for manifest in world.manifests()] == [1, 2]
    assert world.json("hours", "orders") == hours
    assert world.here("complete", "orders", "--until", "2024-03-02T00:00").stdout == complete.replace("demo", "orders")
    assert world.json("dead-letters", "orders")["count"] == dead > 0
    assert "unchanged" in world.here("replay", "orders", "--manifest", "1").stderr
    [answer] = world.json("where", world.topic, "0", "3")
    assert (answer["pipeline"], answer["manifest"]["id"]) == ("orders", 1)
    goes_on(world)
    assert not (world.lake / "_manifests" / "demo").exists()
    [decision] = world.json("history", "orders")
    assert (decision["decision"], decision["why"]) == ("rename", "a better word")
    assert "demo is orders" in decision["lines"][0]


def test_what_was_decided_under_the_old_name_is_in_the_history_of_the_new_one(world: World) -> None:
    (world.pipelines / "demo.yaml").unlink()
    world.ok("retire", "pipeline", "demo", *WHY)
    world.ok("retire", "pipeline", "demo", "--undo", *WHY)
    world.write_pipeline()
    before = world.json("history", "demo")
    assert before
    name_file(world)
    world.ok(*RENAME)
    assert world.json("history", "orders")[: len(before)] == before


def test_the_old_name_is_refused_wherever_somebody_still_uses_it(world: World) -> None:
    text = (world.pipelines / "demo.yaml").read_text()
    name_file(world)
    world.ok(*RENAME)
    (world.pipelines / "old.yaml").write_text(text)
    for verb, *words in (*REFUSED, ("manifests",), ("retire pipeline", *WHY)):
        refused = world.here(*verb.split(), "demo", *words)
        assert refused.exit_code == 2, (verb, refused.stderr)
        if verb != "retire pipeline":
            assert "it is orders now" in refused.stderr, (verb, refused.stderr)
    checked = world.here("validate")
    assert (checked.exit_code, "it is orders now" in checked.stdout + checked.stderr) == (2, True)
    (world.pipelines / "old.yaml").unlink()
    goes_on(world)


def test_an_older_run_of_the_old_name_stores_nothing_and_starts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the pipeline, and has asked the source, before the pipeline was renamed."""
    old, honest = world.context(), planning.observe
    world.produce(20)
    name_file(world)
    pipeline = find(world.pipelines, "orders")
    new = open_context(pipeline, old.database.reopened(), old.lookup, renaming=Renaming.PIPELINE)
    world.opened.append(new.database)

    def renaming(*words: Any, **names: Any) -> Any:
        rename_pipeline(new, "demo", WHY[1], dry_run=False)
        return honest(*words, **names)

    monkeypatch.setattr(planning, "observe", renaming)
    with pytest.raises(ConfigurationError, match="it is orders now"):
        planning.plan(old, planning.Tick.by_hand(None, None))
    monkeypatch.undo()
    with pytest.raises(TidemarkError, match="orders"):
        process(old, 1, arrow_stage, replay=True)
    assert {manifest["attempt"] for manifest in world.manifests()} == {1}
    world.ok("run", "orders")
    world.assert_complete()


def test_what_must_be_right_before_is_refused_by_name_and_changes_nothing(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    text = file.read_text()
    for words, message in (
        (RENAME, "the pipeline has a file under its old name"),
        (("rename", "pipeline", "demo", "demo", *WHY), "the pipeline has a file under its old name"),
    ):
        refused = world.here(*words)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    deployed(world.pipelines, world.environment())  # as Airflow reads it
    name_file(world)
    refused = world.here(*RENAME)
    assert f"rm {kept_path('demo', world.pipelines, world.environment())}" in refused.stderr
    kept_path("demo", world.pipelines, world.environment()).unlink()
    for words, message in (
        (("rename", "pipeline", "demp", "orders", *WHY), 'no pipeline demp was ever planned; did you mean "demo"?'),
        (("rename", "pipeline", "demo", "nobody", *WHY), "nobody"),
    ):
        refused = world.here(*words)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    world.settings["sinks"] = [{"files": {**world.lake_entry()["files"], "name": "lake"}}]
    world.write_pipeline()
    assert "which is known as sink files" in world.here(*RENAME).stderr
    world.settings["sinks"] = [{"files": {**world.lake_entry()["files"], "root": f"{world.lake}-2", "name": "two"}}]
    world.write_pipeline()
    assert "is known, but missing in the file of orders" in world.here(*RENAME).stderr
    (world.pipelines / "orders.yaml").unlink()
    world.ok("retire", "pipeline", "demo", *WHY)
    del world.settings["sinks"]
    world.write_pipeline()
    refused = world.here(*RENAME)
    assert (refused.exit_code, "tidemark retire pipeline demo --undo" in refused.stderr) == (1, True), refused.stderr
    (world.pipelines / "orders.yaml").unlink()
    world.ok("retire", "pipeline", "demo", "--undo", *WHY)
    file.write_text(text)
    world.name = "demo"
    world.assert_complete()


def test_a_name_that_another_pipeline_has_or_had_is_refused(world: World) -> None:
    other = (world.pipelines / "demo.yaml").read_text().replace("raw/", "other/").replace("demo", "orders", 1)
    (world.pipelines / "other.yaml").write_text(other.replace("name STRING", "name STRING, more STRING"))
    world.ok("run", "orders")
    (world.pipelines / "demo.yaml").unlink()
    assert "the name orders is known already" in world.here(*RENAME).stderr
    (world.pipelines / "other.yaml").write_text(
        (world.pipelines / "other.yaml").read_text().replace("orders", "late", 1)
    )
    world.ok("rename", "pipeline", "orders", "late", *WHY)
    world.name = "orders"
    world.write_pipeline()
    assert "the pipeline was renamed" in world.here("plan", "orders").stderr
    assert "the name orders is known already" in world.here(*RENAME).stderr
    assert world.ok("audit", "late", "--deep") == ""


def test_back_to_its_first_name_and_on_to_a_third(world: World) -> None:
    for old, new in (("demo", "orders"), ("orders", "demo"), ("demo", "third")):
        name_file(world, new)
        world.ok("rename", "pipeline", old, new, *WHY)
        goes_on(world)
    assert [row["decision"] for row in world.json("history", "third")] == ["rename"] * 3
    assert "it is third now" in world.here("manifests", "orders").stderr


def test_a_file_that_was_renamed_by_hand_alone_is_not_planned_from_the_first_record_on(world: World) -> None:
    name_file(world)
    told = world.here("validate", "--against-history")
    assert "tidemark rename pipeline demo orders --why TEXT" in told.stdout
    assert "tidemark rename pipeline demo NEW --why TEXT" in told.stderr
    for words in (("plan", "orders", "--dry-run"), ("plan", "orders"), ("run", "orders")):
        refused = world.here(*words)
        assert (refused.exit_code, "tidemark rename pipeline demo orders --why TEXT" in refused.stderr) == (1, True), (
            refused
        )
    assert planned(world) == ["demo"]
    world.ok(*RENAME)
    goes_on(world)


def test_a_topic_that_is_recreated_after_the_renaming_is_noticed(world: World) -> None:
    name_file(world)
    world.ok(*RENAME)
    world.broker.delete_topic(world.topic)
    world.create_topic()
    world.produce(80)
    refused = world.here("plan", "orders")
    assert (refused.exit_code, "was recreated" in refused.stderr) == (1, True), refused.stderr
    assert "tidemark accept topic orders" in refused.stderr


@pytest.mark.parametrize("point", FAILPOINTS_OF_RENAMES)
def test_killed_anywhere_it_is_repeated_and_until_then_nothing_else_is_allowed(world: World, point: str) -> None:
    name_file(world)
    killed = world.tidemark(*RENAME, failpoint=f"{point}:kill9")
    assert killed.returncode == -9, killed
    begun = point != "rename.before_commit"
    if begun:
        for verb, *words in REFUSED:
            refused = world.here(*verb.split(), "orders", *words)
            assert refused.exit_code == 2, (verb, refused.stderr)
            assert "end it: tidemark rename pipeline demo orders --why TEXT" in refused.stderr, (verb, refused.stderr)
    else:
        assert planned(world) == ["demo"]
    world.ok(*RENAME)
    assert "demo is orders already" in world.ok(*RENAME), "once more does no harm"
    goes_on(world)


def test_an_attempt_at_work_refuses_and_one_that_died_is_fenced_and_done_under_the_new_name(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.produce(30)
    world.ok("plan", "demo")
    attempt = world.start("retry", "demo", failpoint="publish.before_record:stop")
    wait_stopped(attempt)
    name_file(world)
    refused = world.here(*RENAME)
    assert (refused.exit_code, "at work" in refused.stderr) == (1, True), refused.stderr
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid, 30000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.objsubid = 1"
        )
    while "alive" in world.here(*RENAME, "--dry-run").stderr:
        time.sleep(0.1)
    assert "1 manifest not done: 1; then: tidemark retry orders" in world.ok(*RENAME)
    wake(attempt)
    world.ok("retry", "orders")
    world.ok(*RENAME)
    world.ok("repair", "orders", *WHY)
    world.assert_complete()


def test_a_table_goes_on_with_its_markers(make_table_world: Callable[..., TableWorld]) -> None:
    world = make_table_world(has_lake=True)
    world.produce(60, bad_every=10)
    world.ok("run", "demo")
    rows = world.rows()
    name_file(world)
    world.ok(*RENAME)
    assert world.rows() == rows
    assert {row["pipeline"] for row in world.query("SELECT pipeline FROM tidemark_target.marker")} == {"orders"}
    assert "unchanged" in world.here("replay", "orders", "--manifest", "1").stderr
    assert world.rows() == rows
    goes_on(world)


def test_a_sink_of_every_kind_goes_on(make_all_sinks_world: Callable[..., AllSinksWorld]) -> None:
    world = make_all_sinks_world()
    world.produce(40, bad_every=10)
    world.ok("run", "demo")
    replayed = world.here("replay", "demo", "--manifest", "1").stderr
    name_file(world)
    refused = world.here("plan", "orders")
    assert "tidemark rename pipeline demo orders --why TEXT" in refused.stderr
    world.ok(*RENAME)
    assert world.ok("audit", "orders", "--deep") == ""
    again = world.here("replay", "orders", "--manifest", "1").stderr
    assert again == replayed.replace("attempt 2", "attempt 3")
    world.change_code()
    world.write_pipeline()
    world.produce(20)
    world.ok("run", "orders")
    world.assert_complete()
    assert world.ok("audit", "orders", "--deep") == ""


def test_killed_again_and_again_a_sink_of_every_kind_has_the_new_name_in_the_end_and_can_be_adopted_by_it(
    make_all_sinks_world: Callable[..., AllSinksWorld],
) -> None:
    world = make_all_sinks_world()
    world.produce(60, bad_every=10)
    world.ok("run", "demo")
    name_file(world)
    for point in (*(f"rename.in_target:kill9@{number}" for number in (1, 3, 5, 6, 7)), "rename.mid:kill9@1"):
        for file in world.folder.glob("_failpoints/*"):
            file.unlink()
        killed = world.tidemark(*RENAME, failpoint=point)
        assert killed.returncode == (0 if point.startswith("rename.mid") else -9), killed
    world.ok("run", "orders")
    world.assert_complete()
    world.lose_manifest_database()
    world.ok("db", "adopt", "orders", *WHY)
    goes_on(world)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("sink_name", ["files", "copy"])
def test_a_file_that_was_renamed_by_hand_reads_nothing_a_second_time_into_its_folders(
    world: World, sink_name: str, *, lost: bool
) -> None:
    """Nor after the database was lost: what adopt brings back is enough to know it again."""
    if lost:
        world.lose_manifest_database()
        world.ok("db", "adopt", "demo", *WHY)
    world.settings["sinks"] = [{"files": {"root": "lake", **({"name": sink_name} if sink_name != "files" else {})}}]
    name_file(world)
    refused = world.here("run", "orders")
    assert refused.exit_code == 1, refused.stdout
    assert "demo" in refused.stderr
    assert world.listing() == world.everything(), "no row is in the folders twice"
