"""I30: a place belongs to one sink of one pipeline of one database, by its name: nobody finds what another left."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.all_sinks_world import AllSinksWorld
from tests.worlds.iceberg_world import TABLE, IcebergWorld
from tests.worlds.secured_world import Secured
from tests.worlds.topic_world import TopicWorld, committed, topic_sink
from tests.worlds.used_topics import delete_later
from tests.worlds.world import World
from tidemark.database.migrate import migrate
from tidemark.providers.topic import sink as topic_module
from tidemark.providers.topic.staged import MESSAGES

pytestmark = pytest.mark.thorough

MakeTopic = Callable[..., TopicWorld]
WHY = ("--why", "the places have other names")
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}


def name_file(world: World, name: str) -> None:
    (world.pipelines / f"{world.name}.yaml").unlink()
    world.name = name
    world.write_pipeline()


def test_two_topics_of_one_name_on_two_clusters_get_each_its_own_columns(
    make_topic_world: MakeTopic, secured: Secured
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    other = secured.broker
    other.create_topic(world.out, 2, {"retention.ms": "-1"})
    public = topic_sink(other.bootstrap_servers, world.out, name="public", format="raw", value="name", key=["k"])
    world.settings["sinks"] = [world.settings["sinks"][0], public]
    world.write_pipeline()
    world.produce(40, bad_every=9)
    world.ok("run", "demo")
    world.assert_complete()
    names = {json.loads(message.value() or b"")["name"].encode() for message in world.sent()
             if message.topic() == world.out}  # fmt: skip
    sent = [message.value() for message in committed(other.bootstrap_servers, world.out)]
    assert set(sent) == names
    assert len(sent) == 40 - len(world.bad)
    assert world.ok("audit", "demo", "--deep") == ""
    delete_later(other, world.out, f"{world.out}-markers", f"{world.out}-dead-letters")


def by_other_names(world: AllSinksWorld, catalog: str) -> list[dict[str, Any]]:
    """The sinks of a world once more: each comes to the same place by another name."""
    world.lake.mkdir(parents=True)
    (world.folder / "link").symlink_to(world.lake)
    (world.folder / "delta").mkdir()
    (world.folder / "tables").symlink_to(world.folder / "delta")
    world.targets |= {"other": world.targets["warehouse"], "catalog": catalog}
    again = {
        "files": {"root": str(world.folder / "link")},
        "delta": {"location": str(world.folder / "tables")},
        "postgres": {"connection": "other"},
        "totals": {"connection": "other"},
        "topic": {"bootstrap_servers": world.broker.bootstrap_servers.replace("127.0.0.1", "localhost")},
    }
    entries: dict[str, Any] = {}
    for entry in world.settings["sinks"]:
        entries = {**entry, **entries}  # the first of each kind
    entries["totals"] = {key: value for key, value in entries["totals"].items() if key != "served_in"}
    twice = [{kind: {**entries[kind], **change, "name": f"{kind}2"}} for kind, change in again.items()]
    connections = {"other": "iceberg2", "catalog": "iceberg3"}
    return [
        *twice,
        *({"iceberg": {**entries["iceberg"], "connection": conn, "name": name}} for conn, name in connections.items()),
    ]


def test_a_sink_that_comes_to_the_place_of_another_by_another_name_is_refused_in_every_kind(
    make_all_sinks_world: Callable[..., AllSinksWorld], postgres: Postgres
) -> None:
    """A link to a lake, two connections to a table, two addresses of a topic, two catalogs of one location."""
    world = make_all_sinks_world(settings=ONE_MANIFEST)
    first = world.settings["sinks"]
    with postgres.temporary_database("catalog") as catalog:
        again = by_other_names(world, catalog)
        names = [settings["name"] for entry in again for settings in entry.values()]
        world.settings["sinks"] = [*first, *again]
        world.write_pipeline()
        world.produce(40, bad_every=9)
        refused = world.here("run", "demo")
        assert refused.exit_code == 1, refused.output
        assert "are one place, which sink files of pipeline demo writes already; two sinks would mix" in refused.stderr
        assert "tidemark retire sink demo files2 --why TEXT" in refused.stderr
        notes = world.here("plan", "demo").stderr
        for name in names:
            [note] = [line for line in notes.splitlines() if line.startswith(f"sink {name} could not be compared")]
            assert f"are one place, which sink {name.rstrip('23')} of pipeline demo writes" in note
        world.settings["sinks"] = first
        world.write_pipeline()
        for name in names:
            world.ok("retire", "sink", "demo", name, *WHY)
        world.ok("retry", "demo")
        world.assert_readers_complete()
        assert world.ok("audit", "demo", "--deep") == ""


def test_messages_that_somebody_put_in_the_place_of_the_staged_ones_are_not_committed(
    make_topic_world: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there were, of the same offsets."""
    world, honest = make_topic_world(settings=ONE_MANIFEST), topic_module.append

    def replaced(*words: Any, **names: Any) -> None:
        for file in (world.folder / "staging").rglob("*.arrow"):
            staged = pa.ipc.open_file(file.read_bytes()).read_all()
            values = pa.array([b"of another"] * staged.num_rows, pa.binary())
            with pa.ipc.new_file(file, MESSAGES) as written:
                written.write_table(staged.set_column(5, "value", values))
        honest(*words, **names)

    world.produce(40)
    with monkeypatch.context() as patched:
        patched.setattr(topic_module, "append", replaced)
        refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "are not those that the attempt has staged" in refused.stderr
    assert "manifest=1" in refused.stderr
    assert "sink=topic" in refused.stderr
    assert "tidemark retry demo" in refused.stderr
    world.assert_nothing_is_seen()
    world.ok("retry", "demo")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_staging_folder_of_another_database_is_refused_and_handed_over_with_its_target(
    make_topic_world: MakeTopic, postgres: Postgres
) -> None:
    """Both databases have a pipeline, a sink, a manifest and an attempt of these names."""
    world, other = (make_topic_world(settings=ONE_MANIFEST) for _ in range(2))
    staging = str(world.folder / "staging")
    other.settings["sinks"][0]["topic"]["staging"] = staging
    other.write_pipeline()
    for each in (world, other):
        each.produce(20, bad_every=5)
    with postgres.temporary_database("other") as dsn:
        migrate(dsn)
        other.dsn = dsn
        world.ok("run", "demo")
        refused = other.here("run", "demo")
        assert refused.exit_code == 1
        assert f"the staging folder {staging}/demo.topic belongs to another manifest database" in refused.stderr
        assert "give the sink another folder (staging)" in refused.stderr
        world.assert_complete()
        other.settings["sinks"][0]["topic"]["staging"] = str(other.folder / "staging")
        other.write_pipeline()
        other.ok("run", "demo")
        other.assert_complete()
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", *WHY)
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def owned_by_another(root: Path) -> None:
    (root / "_manifests").mkdir(parents=True, exist_ok=True)
    (root / "_manifests" / "_owner.json").write_text(json.dumps({"database": "the-other", "about": "a test"}))


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"of the other database")
    return file


def test_a_database_that_was_refused_lists_and_removes_nothing_of_the_staging_folder_of_another(
    make_topic_world: MakeTopic,
) -> None:
    """The other one has a manifest and an attempt of these numbers."""
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    root = world.folder / "staging" / "demo.topic"
    owned_by_another(root)
    theirs = [put(root / "_staging" / at / "x") for at in ("0000000001/0001", "0000000001/0002", "0000000077/0001")]
    for words in (("retry",), ("close",), ("audit",), ("repair", *WHY), ("doctor",), ("run", "--run-key", "two")):
        told = world.here(words[0], "demo", *words[1:])
        assert [file.read_bytes() for file in theirs] == [b"of the other database"] * len(theirs), words
        assert "staging was left by an attempt that died" not in told.stdout
        if words[0] in ("audit", "doctor", "run"):
            assert told.exit_code == 1
            assert "belongs to another manifest database (the-other)" in " ".join((told.stdout + told.stderr).split())


@pytest.mark.parametrize("verb", ["rename pipeline", "rename sink"])
def test_a_renaming_into_the_staging_folder_of_another_database_is_refused_before_the_first_step(
    make_topic_world: MakeTopic, verb: str
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    staging = world.folder / "staging"
    theirs = staging / ("orders.topic" if verb == "rename pipeline" else "demo.sent")
    owned_by_another(theirs)
    owner = (theirs / "_manifests" / "_owner.json").read_bytes()
    staged = put(theirs / "_staging" / "0000000001" / "0001" / "x")
    words = rename_in_file(world, verb)
    for _ in range(2):
        refused = world.here(*words, *WHY)
        assert refused.exit_code == 1
        assert f"the staging folder {theirs} belongs to another manifest database (the-other)" in refused.stderr
        assert "in a renaming another name" in refused.stderr
        assert (theirs / "_manifests" / "_owner.json").read_bytes() == owner
        assert staged.read_bytes() == b"of the other database"
    shutil.rmtree(theirs)
    if verb == "rename pipeline":
        assert world.tidemark(*words, *WHY, failpoint="rename.in_target:kill9").returncode == -9
    world.ok(*words, *WHY)
    assert [path.name for path in staging.iterdir()] == [theirs.name]
    assert world.ok("audit", world.name, "--deep") == ""


def test_a_renaming_leaves_the_staging_folder_of_its_old_name_to_the_database_that_owns_it(
    make_topic_world: MakeTopic,
) -> None:
    world = make_topic_world(settings=ONE_MANIFEST)
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    root = world.folder / "staging" / "demo.topic"
    owned_by_another(root)
    theirs = put(root / "_staging" / "0000000001" / "0001" / "x")
    world.here(*rename_in_file(world, "rename pipeline"), *WHY)
    assert theirs.read_bytes() == b"of the other database"
    assert "the-other" in (root / "_manifests" / "_owner.json").read_text()


def rename_in_file(world: TopicWorld, verb: str) -> tuple[str, ...]:
    if verb == "rename pipeline":
        name_file(world, "orders")
        return ("rename", "pipeline", "demo", "orders")
    world.settings["sinks"][0]["topic"]["name"] = "sent"
    world.write_pipeline()
    return ("rename", "sink", "demo", "topic", "sent")


def test_a_folder_in_the_folder_of_another_sink_is_refused(make_topic_world: MakeTopic) -> None:
    world = make_topic_world(has_lake=True)
    world.settings["sinks"][0]["topic"]["staging"] = f"{world.lake}/staging"
    world.write_pipeline()
    refused = world.here("validate")
    assert refused.exit_code == 2
    assert (
        f'writes to {world.lake}, and the sink "topic" to {world.lake}/staging/demo.topic'
        in refused.stdout + refused.stderr
    )
    assert "one lies in the other; give each a folder of its own" in refused.stdout + refused.stderr


MAKERS = {"files": "make_world", "iceberg": "make_iceberg_world", "delta": "make_delta_world"}


@pytest.fixture(params=[*MAKERS])
def with_dead_letters(request: pytest.FixtureRequest) -> World:
    """A sink of each kind that keeps dead letters in files, with two manifests published."""
    world: World = request.getfixturevalue(MAKERS[request.param])()
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    return world


@pytest.mark.parametrize("damage", ["removed", "cut", "another"])
def test_dead_letters_in_files_are_missed_by_the_audit_of_every_kind_that_has_them(
    with_dead_letters: World, damage: str
) -> None:
    world = with_dead_letters
    file = min(path for path in world.folder.rglob("*-a0001-*.parquet") if "_dead_letters" in path.parts)
    content = file.read_bytes()
    if damage == "removed":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:-1])
    else:
        half = len(content) // 2
        file.write_bytes(content[:4] + bytes(half - 4) + content[half:])
    audited = world.here("audit", "demo", "--deep")
    assert audited.exit_code == 1
    assert "next: tidemark replay demo --manifest 1" in audited.stdout
    if damage != "another":
        assert world.here("audit", "demo").exit_code == 1, "it costs no reading"
    world.ok("replay", "demo", "--manifest", "1")
    assert world.ok("audit", "demo", "--deep") == ""
    world.assert_complete()


def lose_markers(world: TopicWorld) -> dict[str, Any]:
    world.broker.delete_topic(f"{world.out}-markers")
    return {"topic": {**world.entry()["topic"], "name": "again"}}


def lose_namespace(world: IcebergWorld) -> dict[str, Any]:
    with world.catalog() as catalog:
        catalog.drop_table(TABLE)
        catalog.drop_namespace("sales")
    return world.entry(name="again", table="sales.again")


@pytest.mark.parametrize(
    ("make", "lose", "what"),
    [
        ("make_topic_world", lose_markers, "has lost what says which database owns it"),
        ("make_iceberg_world", lose_namespace, "is empty"),
    ],
    ids=["markers", "namespace"],
)
def test_a_place_that_is_lost_with_its_owner_is_given_up_as_adopt_says_and_not_adopted_in_a_circle(
    request: pytest.FixtureRequest, make: str, lose: Callable[[World], dict[str, Any]], what: str
) -> None:
    world: World = request.getfixturevalue(make)()
    world.produce(40)
    world.ok("run", "demo")
    again = lose(world)
    for words in (("db", "adopt", "demo", *WHY), ("run", "demo")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert f"{what}, and manifests are published there" in refused.stderr
        [sink] = (settings.get("name", kind) for entry in world.settings["sinks"] for kind, settings in entry.items())
        assert f"tidemark retire sink demo {sink} --why TEXT and tidemark fill demo NAME" in refused.stderr
    world.settings["sinks"] = [again]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", sink, *WHY)
    world.ok("fill", "demo", "again", *WHY)
    assert world.ok("audit", "demo", "--deep") == ""
    world.produce(10)
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
