"""Event hours through the command line: complete, open again, complete once more."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import TopicPartition

import tidemark
from tests.worlds.world import World
from tidemark.sinks.files.success import PAUSES_S
from tidemark.storage.local import LocalStore

MakeWorld = Callable[..., World]
DAY = datetime(2024, 3, 1, tzinfo=UTC)
LATENESS = timedelta(minutes=30)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One partition; an hour is complete half an hour after its end, and has a success file."""
    return make_world(
        partitions=1,
        settings={
            "event_time": {"field": "at", "allowed_lateness": "30m"},
            "kafka": {"slice": {"max_records": 10}},
            "sinks": [{"files": {"root": "lake", "success_files": True}}],
        },
    )


def at(hours: float) -> datetime:
    return DAY + timedelta(hours=hours)


def send(world: World, event: datetime, arrival: datetime, count: int = 1) -> None:
    """Records of an event time that reach Kafka at another time."""
    value = json.dumps({"n": 1, "at": event.isoformat(), "name": "x"})
    world.send(*[value] * count, at=arrival)


def run(world: World, until: datetime) -> None:
    world.ok("run", "demo", "--until", until.isoformat())


def state(world: World) -> dict[int, tuple[int, int, bool, int]]:
    """(rows, late, complete, revision) by hour of the day."""
    views = tidemark.hours("demo", dsn=world.dsn, pipelines=world.pipelines)
    return {
        (view.start - DAY) // timedelta(hours=1): (view.rows, view.late, view.complete, view.revision) for view in views
    }


def waiting(world: World) -> dict[str, str]:
    return {view["start"][11:13]: view["waits_for"] for view in world.json("hours", "demo", "--incomplete")}


def folder(world: World, hour: int, lake: str = "lake") -> Path:
    return Path(world.folder, lake, "raw", world.topic, f"2024/03/01/{hour:02d}")


def success(world: World, hour: int) -> dict[str, object] | None:
    path = folder(world, hour) / "_SUCCESS"
    return json.loads(path.read_text()) if path.exists() else None


def shown(world: World, hour: int, lake: str = "lake") -> tuple[int, int] | None:
    """The revision and the rows that the success file of an hour says, and that its files have as many."""
    path = folder(world, hour, lake) / "_SUCCESS"
    if not path.exists():
        return None
    says = json.loads(path.read_text())
    files = folder(world, hour, lake).glob("*.parquet")
    assert says["rows"] == sum(pq.read_metadata(file).num_rows for file in files)
    return says["revision"], says["rows"]


def add_sink(world: World) -> None:
    [lake] = world.settings["sinks"]
    world.settings["sinks"] = [lake, {"files": {"name": "added", "root": "added", "success_files": True}}]
    world.write_pipeline()


def marks(world: World, hour: int, lake: str = "lake") -> dict[str, int]:
    """The revision that each success file of an hour says, by the name of the file."""
    return {path.name: json.loads(path.read_text())["revision"] for path in folder(world, hour, lake).glob("_SUCCESS*")}


def write_again(world: World, **files: object) -> None:
    """A second pipeline that writes the topic into the same folders, and says so."""
    pipeline = yaml.safe_load(world.another("again"))
    pipeline["sinks"][0]["files"].update({"shared_with": ["demo"], "success_files": False}, **files)
    (world.pipelines / "again.yaml").write_text(yaml.safe_dump(pipeline))


def test_an_hour_is_complete_after_its_lateness_and_empty_hours_are_complete_too(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    send(world, at(2.5), at(2.5), 2)
    run(world, at(1.4))
    assert state(world) == {0: (3, 0, False, 0), 1: (0, 0, False, 0)}
    assert waiting(world) == {
        "00": "a run up to 2024-03-01T01:30Z or later", "01": "a run up to 2024-03-01T02:30Z or later",
    }  # fmt: skip
    assert success(world, 0) is None
    run(world, at(2.5))
    assert state(world) == {0: (3, 0, True, 1), 1: (0, 0, True, 1), 2: (0, 0, False, 0)}
    run(world, at(3.5))
    assert state(world)[2] == (2, 0, True, 1)
    assert [success(world, hour) is not None for hour in range(4)] == [True, True, True, False]
    assert success(world, 2) == {
        "pipeline": "demo", "hour": "2024-03-01T02:00:00Z", "revision": 1, "rows": 2, "late": 0,
        "without_rows": {"dead_lettered": 0, "filtered": 0, "deduplicated": 0, "lost": 0},
    }  # fmt: skip
    assert "2024-03-01 02" in world.ok("hours", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.ok("repair", "demo", "--why", "to see that success files stay") is not None
    assert success(world, 1) is not None


def test_hours_and_completeness_say_what_was_read_with_them_and_is_no_row(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    world.send(b"{", at=at(0.6))
    run(world, at(1.5))
    send(world, at(1.6), at(1.6))
    run(world, at(2.5))
    send(world, at(2.6), at(2.6), 3)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 7)])
    assert world.here("run", "demo", "--until", at(3.5).isoformat()).exit_code == 1
    world.ok("accept", "loss", "demo", "--why", "a test")
    run(world, at(3.5))
    run(world, at(4.5))

    views = tidemark.hours("demo", dsn=world.dsn, pipelines=world.pipelines)
    [first, second, third, fourth] = [view.without_rows for view in views][:4]
    assert (first.dead_lettered, first.lost) == (1, 0)
    assert second == first, "the first run read the begin of the second hour too"
    assert (third.dead_lettered, third.lost) == (0, 2)
    assert (fourth.dead_lettered, fourth.lost) == (0, 2), "so did the third run of the fourth"
    assert success(world, 2)["without_rows"] == vars(third)  # type: ignore[index]
    assert "2 lost offsets" in world.ok("hours", "demo")

    for words, status, text in (
        ((at(1.5),), 3, "not as rows: 1 dead letter"),
        ((at(2.5),), 0, ""),
        ((at(2.5), at(1)), 3, f"not as rows of what came since {at(1).isoformat()}: 1 dead letter"),
        ((at(3.5),), 3, "2 lost offsets"),
        ((at(4.5),), 0, ""),
        ((at(4.5), at(0)), 3, "1 dead letter, 2 lost offsets"),
        ((at(9),), 1, "no run has planned up to"),
    ):
        since = [part for time in words[1:] for part in ("--since", time.isoformat())]
        printed = world.here("complete", "demo", "--until", words[0].isoformat(), *since)
        assert (printed.exit_code, text in printed.stdout) == (status, True), printed.stdout
        assert ("not as rows" in printed.stdout) == (status == 3)


def test_what_is_damaged_is_not_complete_from_its_own_time_on_until_it_is_mended(world: World) -> None:
    send(world, at(0.5), at(0.5))
    run(world, at(1.5))
    send(world, at(1.6), at(1.6))
    run(world, at(2.5))

    def complete(until: datetime) -> tuple[int, str]:
        printed = world.here("complete", "demo", "--until", until.isoformat())
        return printed.exit_code, printed.stdout

    assert [complete(until)[0] for until in (at(1.5), at(2.5))] == [0, 0]
    file = max(world.data_paths(), key=lambda path: path.parent)
    file.unlink()
    assert world.here("audit", "demo").exit_code == 1
    status, told = complete(at(2.5))
    assert status == 4
    assert "but its output is damaged" in told
    assert re.search(rf"is missing: \S*{re.escape(file.name)}", told.replace("\n", ""))
    assert "next: tidemark" in told
    view = json.loads(world.here("complete", "demo", "--until", at(2.5).isoformat(), "--json").stdout)
    assert (view["published"], view["complete"], view["whole"], view["output"]) == (True, False, False, "damaged")
    assert [problem["manifest_id"] for problem in view["damage"]] == [2]
    assert [complete(until)[0] for until in (at(1.5), at(1.55), at(2))] == [0, 0, 4], "the row came at 1.6"
    world.ok("replay", "demo", "--manifest", "2")
    world.ok("audit", "demo")
    assert [complete(until)[0] for until in (at(1.5), at(2.5))] == [0, 0]


def test_what_a_run_that_ended_before_its_cut_has_read_is_counted_with_the_next_one(world: World) -> None:
    world.settings["kafka"] = {"slice": {"max_records": 10, "max_slices": 1}}
    world.write_pipeline()
    world.send(b"{", at=at(0.2))
    send(world, at(0.5), at(0.5), 14)
    run(world, at(1.5))
    run(world, at(2.5))
    printed = world.here("complete", "demo", "--until", at(2.5).isoformat())
    assert (printed.exit_code, "not as rows: 1 dead letter" in printed.stdout) == (3, True), printed.stdout
    [first, *_] = tidemark.hours("demo", dsn=world.dsn, pipelines=world.pipelines)
    assert first.without_rows.dead_lettered == 1


def test_late_rows_open_an_hour_again_and_its_next_revision_follows(world: World) -> None:
    send(world, at(0.5), at(0.9))
    run(world, at(2))
    assert state(world)[0] == (1, 0, True, 1)
    send(world, at(0.5), at(2.5), 2)  # two hours after their time
    world.ok("plan", "demo", "--until", at(4).isoformat())
    assert state(world)[0] == (1, 0, True, 1)
    world.ok("retry", "demo")
    assert state(world)[0] == (3, 2, False, 1), "the publication opens it"
    assert waiting(world)["00"] == "the end of a run: tidemark run demo"
    assert success(world, 0)["revision"] == 1  # type: ignore[index]
    run(world, at(4))
    assert state(world)[0] == (3, 2, True, 2)
    assert success(world, 0)["revision"] == 2  # type: ignore[index]
    run(world, at(5))
    assert state(world)[0] == (3, 2, True, 2), "nothing new, so no new revision"


def test_an_hour_waits_for_every_manifest_planned_up_to_its_run(world: World) -> None:
    send(world, at(0.5), at(0.5), 10)
    send(world, at(1.5), at(1.5), 10)
    world.ok("plan", "demo", "--until", at(3).isoformat())
    world.ok("replay", "demo", "--manifest", "2")
    assert waiting(world) == {"01": "manifest 1 to be published: tidemark retry demo"}
    run(world, at(3))
    assert state(world)[1] == (10, 0, True, 1)


def test_a_replay_opens_its_hours_and_rows_that_move_are_counted_where_they_are(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    send(world, at(1.5), at(1.5), 2)
    run(world, at(3))
    assert {hour: state(world)[hour] for hour in (0, 1)} == {0: (3, 0, True, 1), 1: (2, 0, True, 1)}
    world.settings["event_time"] = {"from": "source_timestamp", "min": at(1).isoformat(), "on_invalid": "dead_letter"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    assert {hour: state(world)[hour] for hour in (0, 1)} == {0: (0, 0, False, 1), 1: (2, 0, False, 1)}
    run(world, at(4))
    assert {hour: state(world)[hour] for hour in (0, 1)} == {0: (0, 0, True, 2), 1: (2, 0, True, 2)}


def test_a_time_of_1970_and_of_the_far_future_makes_an_hour_each_and_no_others(world: World) -> None:
    send(world, datetime(1970, 1, 1, tzinfo=UTC), at(0.5))
    send(world, datetime(2099, 1, 1, tzinfo=UTC), at(0.5))
    send(world, at(0.5), at(0.5))
    run(world, at(3))
    views = world.json("hours", "demo")
    assert [view["start"][:13] for view in views] == [
        "1970-01-01T00", "2024-03-01T00", "2024-03-01T01", "2024-03-01T02", "2099-01-01T00",
    ]  # fmt: skip
    assert [view["complete"] for view in views] == [True, True, True, False, False]


def test_a_sink_that_is_not_filled_shows_no_hour_that_it_lacks_rows_of(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    run(world, at(2.5))
    add_sink(world)
    send(world, at(2.6), at(2.6), 2)
    run(world, at(4))
    assert [marks(world, hour) for hour in range(3)] == [{"_SUCCESS": 1}] * 3
    assert [marks(world, hour, "added") for hour in range(3)] == [{}, {"_SUCCESS": 1}, {"_SUCCESS": 1}]
    world.ok("fill", "demo", "added", "--why", "it lacks an hour")
    assert marks(world, 0, "added") == {}, "the end of a run shows it"
    run(world, at(5))
    assert marks(world, 0, "added") == marks(world, 0)
    assert marks(world, 0)["_SUCCESS"] == state(world)[0][3]


def fill_with_fewer_rows(world: World) -> None:
    """The first sink has 7 rows of the first hour, one that is added has 3 of them."""
    send(world, at(0.5), at(0.5), 7)
    run(world, at(2.5))
    add_sink(world)
    world.settings["transform"] = [{"filter": "_offset >= 4"}]
    world.write_pipeline()
    world.ok("fill", "demo", "added", "--why", "with the rows that matter")
    run(world, at(3))


def test_each_sink_says_the_rows_that_it_has_when_another_is_filled_with_other_rows(world: World) -> None:
    fill_with_fewer_rows(world)
    assert [shown(world, 0, lake) for lake in ("lake", "added")] == [(2, 7), (2, 3)]
    assert state(world)[0] == (3, 0, True, 2), "the newest attempt is counted"
    filtered = [json.loads((folder(world, 0, lake) / "_SUCCESS").read_text())["without_rows"]["filtered"]
                for lake in ("lake", "added")]  # fmt: skip
    assert filtered == [0, 4]
    send(world, at(0.5), at(3.5), 5)
    run(world, at(5))
    assert [shown(world, 0, lake) for lake in ("lake", "added")] == [(3, 12), (3, 8)]
    world.ok("replay", "demo", "--manifest", "1")
    run(world, at(6))
    assert [shown(world, 0, lake) for lake in ("lake", "added")] == [(4, 8), (4, 8)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_sink_that_is_retired_counts_for_no_hour_any_more(world: World) -> None:
    fill_with_fewer_rows(world)
    lake, _ = world.settings["sinks"]
    world.settings["sinks"] = [lake]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "added", "--why", "nobody reads it")
    assert state(world)[0] == (7, 0, False, 2), "what the other sink shows is counted, and the hour is open again"
    run(world, at(5))
    assert (state(world)[0], shown(world, 0)) == ((7, 0, True, 3), (3, 7))
    assert world.json("hours", "demo")[0]["without_rows"]["filtered"] == 0

    add_sink(world)
    lake, added = world.settings["sinks"]
    added["files"] |= {"name": "third", "root": "third"}
    world.settings["sinks"] = [added]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "files", "--why", "nobody reads it either")
    run(world, at(6))
    assert state(world)[0] == (0, 0, True, 4), "it is in no sink"
    world.ok("fill", "demo", "third", "--why", "it begins anew")
    run(world, at(7))
    assert (state(world)[0], shown(world, 0, "third")) == ((3, 0, True, 5), (5, 3))


def test_each_sink_says_the_rows_of_an_hour_that_they_are_not_in_any_more_in_another_one(world: World) -> None:
    send(world, at(0.5), at(1.5), 7)
    run(world, at(3.5))
    add_sink(world)
    world.settings["event_time"] = {"allowed_lateness": "30m"}  # the time of Kafka
    world.write_pipeline()
    world.ok("fill", "demo", "added", "--why", "with the times of Kafka")
    run(world, at(5))
    assert [shown(world, hour, "lake") for hour in range(2)] == [(2, 7), (2, 0)]
    assert [shown(world, hour, "added") for hour in range(2)] == [(2, 0), (2, 7)]
    assert {hour: state(world)[hour][0] for hour in range(2)} == {0: 0, 1: 7}
    send(world, at(0.6), at(0.6), 2)
    run(world, at(6))
    assert [shown(world, hour, "lake") for hour in range(2)] == [(3, 9), (2, 0)]
    world.ok("replay", "demo", "--manifest", "1")
    run(world, at(7))
    assert [shown(world, hour, "lake") for hour in range(2)] == [(4, 2), (3, 7)]
    assert world.json("hours", "demo")[0]["manifests"] == [2]


def test_an_upgrade_opens_the_hours_that_a_sink_says_the_rows_of_another_one_of(world: World) -> None:
    send(world, at(0.5), at(1.5), 7)
    run(world, at(3.5))
    add_sink(world)
    world.settings["event_time"] = {"allowed_lateness": "30m"}
    world.write_pipeline()
    world.ok("fill", "demo", "added", "--why", "with the times of Kafka")
    run(world, at(5))
    path = folder(world, 0) / "_SUCCESS"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rows": 0}))  # as version 0.2.0 has put it
    upgrade = resources.files("tidemark.database").joinpath("migrations/0003.sql").read_text()
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("DELETE FROM manifest_hour WHERE rows = 0")
        connection.execute(upgrade[upgrade.index("INSERT INTO manifest_hour") :].encode())
    assert [state(world)[hour][2] for hour in range(3)] == [False, False, True]
    run(world, at(6))
    assert [shown(world, hour, "lake") for hour in range(3)] == [(3, 7), (3, 0), (1, 0)]


def test_a_sink_that_will_never_have_a_manifest_shows_no_hour_of_it(world: World) -> None:
    send(world, at(0.5), at(0.5), 7)
    run(world, at(2.5))
    add_sink(world)
    send(world, at(2.6), at(2.6), 2)
    run(world, at(4))
    assert [marks(world, hour, "added") for hour in (0, 2)] == [{}, {"_SUCCESS": 1}]
    world.administer("delete_records", [TopicPartition(world.topic, 0, 7)])
    world.ok("accept", "damage", "demo", "--manifest", "1", "--why", "the records are gone")
    run(world, at(5))
    assert [marks(world, hour, "added") for hour in (0, 2)] == [{}, {"_SUCCESS": 1}]
    assert [shown(world, hour) for hour in (0, 2)] == [(2, 7), (1, 2)]
    assert [view["given_up"] for view in world.json("hours", "demo")][:3] == [["added"], [], []]
    for until, status in ((at(2.5), 3), (at(4), 0)):
        printed = world.here("complete", "demo", "--until", until.isoformat())
        told = "damage accepted: added" in printed.stdout
        assert (printed.exit_code, told) == (status, status == 3), printed.stdout


def test_files_that_a_person_gives_up_take_the_hour_with_them_and_no_other_one(world: World) -> None:
    send(world, at(0.5), at(0.5), 5)
    send(world, at(1.5), at(1.5), 2)
    run(world, at(3.5))
    for path in folder(world, 0).glob("*.parquet"):
        path.unlink()
    world.administer("delete_records", [TopicPartition(world.topic, 0, 7)])
    world.ok("accept", "damage", "demo", "--manifest", "1", "--why", "gone for good")
    assert not state(world)[0][2], "an hour that lost rows is open until a run closes it"
    run(world, at(5))
    assert [shown(world, hour) for hour in range(3)] == [None, (2, 2), (1, 0)]
    assert [view["given_up"] for view in world.json("hours", "demo")][:3] == [["files"], ["files"], []]
    assert "accepted in" in " ".join(world.ok("hours", "demo").split())
    assert world.here("complete", "demo", "--until", at(3.5).isoformat()).exit_code == 3
    run(world, at(6))
    assert [shown(world, hour) for hour in range(3)] == [None, (2, 2), (1, 0)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_nobody_may_write_into_folders_with_success_files_of_another_pipeline(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    run(world, at(2))
    write_again(world)
    for words in (("plan", "again"), ("plan", "again", "--dry-run")):
        refused = world.here(*words)
        printed = " ".join(refused.stderr.split())
        assert refused.exit_code == 1
        assert "a file _SUCCESS of one pipeline would call hours complete that the other one has not read" in printed
        assert "leave success_files out of sink files of pipeline demo, and plan that one first" in printed
    assert world.json("manifests", "again") == []
    warned = " ".join(world.here("validate").stderr.split())
    assert warned.count("a file _SUCCESS of one pipeline would call hours complete") == 2, "said of both files"

    world.settings["sinks"] = [{"files": {"root": "lake"}}]
    world.write_pipeline()
    run(world, at(2.1))
    world.ok("run", "again", "--until", at(2).isoformat())
    world.settings["sinks"] = [{"files": {"root": "lake", "success_files": True}}]
    world.write_pipeline()
    refused = world.here("run", "demo", "--until", at(3).isoformat())
    assert refused.exit_code == 1
    assert "to let both write there, leave success_files out of the sink" in " ".join(refused.stderr.split())
    assert marks(world, 0) == {"_SUCCESS": 1}, "as the first run has put it"


def test_what_an_earlier_release_put_into_shared_folders_stays_and_an_owned_folder_gets_its_file(
    world: World,
) -> None:
    send(world, at(0.5), at(0.5), 3)
    run(world, at(2))
    (folder(world, 0) / "_SUCCESS").rename(folder(world, 0) / "_SUCCESS.demo")
    upgrade = resources.files("tidemark.database").joinpath("migrations/0005.sql").read_text()
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SET search_path = tidemark")
        connection.execute("ALTER TABLE success_file ADD COLUMN whose text")
        connection.execute("UPDATE success_file SET whose = 'demo'")
        connection.execute(
            upgrade[upgrade.index("DELETE FROM success_file") :].partition("ALTER TABLE stream")[0].encode()
        )
    run(world, at(2.1))
    assert marks(world, 0) == {"_SUCCESS.demo": 1, "_SUCCESS": 1}


def test_a_renamed_sink_keeps_its_files(world: World) -> None:
    send(world, at(0.5), at(0.5), 3)
    run(world, at(2))
    [lake] = world.settings["sinks"]
    world.settings["sinks"] = [{"files": {**lake["files"], "name": "lake"}}]
    world.write_pipeline()
    world.ok("rename", "sink", "demo", "files", "lake", "--why", "a better word")
    run(world, at(3))
    assert marks(world, 0) == {"_SUCCESS": 1}


def test_a_file_that_cannot_be_put_ends_the_run_with_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    send(world, at(0.5), at(0.5), 3)
    pauses: list[float] = []
    monkeypatch.setattr("tidemark.sinks.files.success.time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(LocalStore, "replace", lambda *_: False)
    done = world.here("run", "demo", "--until", at(2).isoformat())
    printed = " ".join(done.stderr.split())
    assert done.exit_code == 1
    assert "could not be put in 8 tries: the store refuses to replace it, as if it had changed" in printed
    assert "take success_files out of the sink; then: tidemark run demo" in printed
    assert pauses == list(PAUSES_S)
    monkeypatch.undo()
    run(world, at(2))
    assert marks(world, 0) == {"_SUCCESS": 1}


def test_a_file_that_others_replace_all_the_time_is_not_waited_for_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(world, at(0.5), at(0.5), 3)
    path = folder(world, 0) / "_SUCCESS"
    monkeypatch.setattr("tidemark.sinks.files.success.time", SimpleNamespace(sleep=lambda _: path.write_text("0")))

    def replaced(store: LocalStore, key: str, before: bytes | None, content: bytes) -> bool:
        del store, key, content
        path.write_bytes((before or b"") + b"0")
        return False

    monkeypatch.setattr(LocalStore, "replace", replaced)
    done = world.here("run", "demo", "--until", at(2).isoformat())
    assert done.exit_code == 1
    assert "could not be put in 8 tries: another process replaced it each time" in " ".join(done.stderr.split())


def test_without_records_or_pipeline_there_are_no_hours(world: World) -> None:
    done = world.here("hours", "demo")
    assert (done.exit_code, done.stderr) == (0, "there are no such hours\n")
    assert world.json("hours", "demo") == []
    assert world.here("hours", "dmo").exit_code == 2
