"""Rows of the failure matrix that no other file tests. Each test begins with the name of its row.

P = plan, R = run, F = files, M = mark and recovery.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.worlds.world import World, wait_ended, wait_stopped, wake
from tidemark.lifecycle.publish import Ending

Make = Callable[..., World]
KEY = ("--run-key", "one")
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}


def killed(world: World, point: str, *words: str) -> None:
    done = world.tidemark(*(words or ("run", "demo", *KEY)), failpoint=f"{point}:kill9")
    assert done.returncode == -signal.SIGKILL, done.stderr


def only(world: World) -> dict[str, object]:
    [manifest] = world.json("manifests", "demo")
    return dict(manifest)


def other_rows(world: World) -> None:
    """From here on the pipeline makes other rows of the same records, so that a replay has to move its objects."""
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()


# plan


def test_P2_killed_after_the_plan_was_stored_the_same_key_has_the_same_ends(world: World) -> None:
    world.produce(60)
    killed(world, "plan.after_commit")
    chain = world.chain()
    assert [piece for piece in chain if piece[1] == "data"]
    world.produce(100)
    world.ok("plan", "demo", *KEY)
    assert world.chain() == chain
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_P11_a_cut_after_every_record_takes_them_all_and_stores_where_it_ended(make_world: Make) -> None:
    world = make_world(partitions=1)
    world.produce(5)
    cut = ("--until", (datetime.now(UTC) + timedelta(seconds=2)).isoformat())
    world.ok("run", "demo", *cut)
    world.produce(5)
    assert world.json("plan", "demo", *cut)["manifests"] == [only(world)["id"]], "what came later is of the next run"
    assert world.chain()[-1] == (0, "data", 0, 5)
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_P12_a_planner_in_another_time_zone_cuts_at_the_same_offset(make_world: Make, zone: str) -> None:
    world = make_world(partitions=1)
    skipped = datetime(2024, 3, 10, 2, 30, tzinfo=UTC)  # as a local time in New York there was none: clocks went on
    for hours in range(-6, 6):
        world.send(json.dumps({"n": hours, "at": NOON.isoformat()}), at=skipped + timedelta(hours=hours))
    planned = world.tidemark("plan", "demo", "--until", "2024-03-10T02:30", env={"TZ": zone})  # no zone: it is UTC
    assert planned.returncode == 0, planned.stderr
    assert world.chain()[-1] == (0, "data", 0, 6)
    [run] = {manifest["run_key"] for manifest in world.json("manifests", "demo")}
    assert run == skipped.isoformat()


def test_an_older_region_is_planned_and_read_while_live_runs_go_on(make_world: Make) -> None:
    world = make_world(settings={"kafka": {"starting_offsets": "latest"}})
    world.produce(200)
    world.ok("run", "demo")
    assert world.exact() == {}
    world.produce(40)
    at_once = [world.start("extend-back", "demo", "--why", "the whole history"), world.start("run", "demo")]
    ended = [wait_ended(process) for process in at_once]
    assert [process.returncode for process in ended] == [0, 0], ended
    older = [manifest for manifest in world.json("manifests", "demo") if manifest["run_key"].startswith("extend-back")]
    assert [manifest["state"] for manifest in older] == ["planned"] * 5
    world.produce(40)
    at_once = [world.start("retry", "demo"), world.start("run", "demo")]
    ended = [wait_ended(process) for process in at_once]  # either may find the other at work on what is new
    assert not any("Traceback" in process.stderr for process in ended), ended
    world.finish()


# run


SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)


@SIGNALS
@pytest.mark.parametrize("point", ["publish.receipt", "publish.mid", "publish.before_mark"])
def test_R4_asked_to_stop_in_the_middle_of_publishing(world: World, number: signal.Signals, point: str) -> None:
    interrupt(world, number, point)
    world.finish()


@SIGNALS
@pytest.mark.parametrize("point", ["publish.mid", "publish.before_mark"])
def test_R4_asked_to_stop_in_the_middle_of_a_merge(make_table_world: Make, number: signal.Signals, point: str) -> None:
    world = make_table_world()
    interrupt(world, number, point)
    world.finish()


def interrupt(world: World, number: signal.Signals, point: str) -> None:
    """A run that gets a signal while it hangs at a failpoint, and ends soon."""
    world.produce(60)
    process = world.start("run", "demo", *KEY, failpoint=f"{point}:hang:60")
    claimed = world.folder / "_failpoints" / f"{point}-hang-60"
    while not claimed.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(0.1)  # from the claim to the sleep
    os.killpg(process.pid, number)
    started = time.monotonic()
    process.communicate(timeout=30)
    assert time.monotonic() - started < 30
    assert process.returncode != 0


def test_R12_records_that_compaction_really_took_block_the_replay_and_stay_published(make_world: Make) -> None:
    eager = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    world = make_world(partitions=1, topic_config=eager, settings={"kafka": {"gaps": "compacted"}})
    record = json.dumps({"n": 1, "at": NOON.isoformat()})
    world.send(*[record] * 20, key=b"the same")
    world.ok("run", "demo", *KEY)
    manifest = world.context().database.manifests.find("demo")[0]
    before = world.exact()
    assert sum(before.values()) == 20
    deadline = time.monotonic() + 60
    while world.context().source.count_records(replace(manifest.ranges[0], start=19)):
        assert time.monotonic() < deadline, "Kafka does not compact"
        world.send(record, key=b"the same")  # the segment before is closed, so it can be compacted
        time.sleep(0.5)
    world.ok("plan", "demo", "--dry-run")  # the last published record is gone too, and that says nothing
    other_rows(world)
    refused = world.here("replay", "demo", *KEY)
    assert refused.exit_code == 1
    assert "records where 20 are published: compaction or retention took some" in refused.stderr
    assert world.exact() == world.listing() == world.recorded() == before
    assert only(world)["state"] == "done"
    accepted = ("replay", "demo", "--manifest", "1", "--accept-shrunken")
    assert "--accept-shrunken --why TEXT" in refused.stderr
    assert world.here(*accepted).exit_code == 2, "not without a reason"
    world.ok(*accepted, "--why", "the topic is compacted")
    assert sum(world.exact().values()) < 20
    assert world.ok("audit", "demo", "--deep") == ""
    assert [row["decision"] for row in world.json("history", "demo")] == ["accept-shrunken"]


@pytest.mark.parametrize(
    ("point", "published"), [("publish.before_record", 2), ("publish.before_mark", 1)], ids=["put", "recorded"]
)
def test_R18_code_changed_between_two_attempts_is_never_mixed(world: World, point: str, published: int) -> None:
    """What an attempt has recorded whole is published, whichever code made it; else all is made by the new code."""
    world.produce(30)
    killed(world, point)
    other_rows(world)
    world.ok("retry", "demo")
    manifest = only(world)
    assert (manifest["attempt"], manifest["published_attempt"]) == (2, published)
    world.assert_complete()
    world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert only(world)["published_attempt"] == (3 if published == 1 else 2), "equal rows move nothing"
    world.assert_complete()


# files


def test_F5_replays_of_one_manifest_at_once_leave_one_of_them_whole(world: World) -> None:
    world.produce(60)
    world.ok("run", "demo", *KEY)
    other_rows(world)
    replay = ("replay", "demo", *KEY, "--take-over")
    together = [world.start(*replay) for _ in range(4)]
    seen = 0
    while any(process.poll() is None for process in together):
        world.assert_whole()
        seen += 1
    ended = [process.communicate()[1] for process in together]
    assert seen > 1, "it looked while they worked, also on a busy machine"
    assert {process.returncode for process in together} <= {0, 1}, ended
    assert not any("Traceback" in output or "the lake failed" in output for output in ended), ended
    published = [manifest["published_attempt"] for manifest in world.manifests()]
    assert all(1 < attempt <= 5 for attempt in published), published
    world.finish()


@pytest.mark.parametrize("torn", ["no name", "half a record", "no byte of it", "no ranges", "other ranges"])
def test_F6_a_record_that_was_torn_is_not_believed_and_written_again(world: World, torn: str) -> None:
    world.produce(30)
    killed(world, "publish.before_mark")
    [record] = world.lake.glob("_manifests/demo/*.json")
    content = record.read_text()
    if torn == "no name":  # as one killed between write and rename leaves it
        record.rename(record.with_name(f".{record.name}.0123456789abcdef"))
    else:
        without = {"digest": json.loads(content)["digest"]}
        left = {
            "half a record": content[: len(content) // 2],
            "no byte of it": "",
            "no ranges": json.dumps(without),
            "other ranges": json.dumps({**without, "ranges": [{"start": 0}]}),
        }
        record.write_text(left[torn])
    assert world.exact() == {}
    world.ok("retry", "demo")
    assert only(world)["published_attempt"] == 2, "done again"
    world.assert_complete()
    assert world.recorded() == world.everything()


@pytest.mark.parametrize("point", ["stage.mid", "stage.done", "publish.receipt", "publish.mid", "publish.before_mark"])
def test_F9_clean_up_beside_an_attempt_that_is_slow_takes_nothing_of_it(world: World, point: str) -> None:
    world.produce(30)
    process = world.start("run", "demo", *KEY, failpoint=f"{point}:stop")
    wait_stopped(process)
    world.ok("retry", "demo")
    world.ok("repair", "demo", "--why", "somebody tidies up")
    ended = wake(process)
    assert ended.returncode == 0, ended.stderr
    assert only(world)["published_attempt"] == 1
    world.assert_complete()


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", ["stage.done", "publish.mid", "publish.before_record", "publish.before_mark"])
def test_F9_clean_up_beside_a_replay_that_is_slow_takes_nothing_of_it(world: World, point: str) -> None:
    world.produce(30)
    world.ok("run", "demo", *KEY)
    other_rows(world)
    process = world.start("replay", "demo", *KEY, failpoint=f"{point}:stop")
    wait_stopped(process)
    world.ok("retry", "demo")
    world.ok("repair", "demo", "--why", "somebody tidies up")
    assert world.exact() == world.everything()
    ended = wake(process)
    assert ended.returncode == 0, ended.stderr
    assert only(world)["published_attempt"] == 2
    world.assert_complete()


def test_F10_a_replay_that_makes_no_rows_at_all_leaves_none_of_the_old_ones(world: World) -> None:
    world.produce(60)
    world.ok("run", "demo", *KEY)
    assert list(world.lake.glob("raw/**/*.parquet"))
    world.settings["decode"] = {"format": "json", "schema": "n STRING NOT NULL, at TIMESTAMP NOT NULL"}
    world.settings["max_dead_letters"] = None
    world.write_pipeline()
    world.ok("replay", "demo", *KEY)
    assert not list(world.lake.glob("raw/**/*.parquet")), "every record is a dead letter now"
    assert all(
        manifest["counts"]["dead_lettered"] == manifest["counts"]["read"]
        for manifest in world.json("manifests", "demo")
    )
    world.assert_complete()


def test_F11_late_events_of_published_hours_join_them_and_each_replay_keeps_the_other(make_world: Make) -> None:
    world = make_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    world.ok("run", "demo")
    world.produce(60)  # the same hours
    world.ok("run", "demo")
    hours = Counter(path.parent for path in world.lake.glob("raw/**/*.parquet"))
    assert set(hours.values()) == {2}, "two manifests, and one task of each reads both partitions"
    other_rows(world)
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
        world.assert_complete()


# mark and recovery


def together(world: World, *words: str) -> list[subprocess.CompletedProcess[str]]:
    processes = [world.start(*words) for _ in range(4)]
    outputs = [process.communicate(timeout=120) for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *output)
        for process, output in zip(processes, outputs, strict=True)
    ]


@pytest.mark.parametrize("point", ["publish.before_mark", "publish.marked"])
def test_M2_several_who_recover_the_same_attempt_at_once_end_in_one_mark(world: World, point: str) -> None:
    world.produce(30)
    killed(world, point)
    for done in together(world, "retry", "demo"):
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
    world.assert_whole()
    world.finish()
    assert only(world)["published_attempt"] is not None


def test_M4_a_record_that_says_something_else_than_the_receipt_is_not_marked(world: World) -> None:
    world.produce(30)
    killed(world, "publish.before_mark")
    [record] = world.lake.glob("_manifests/demo/*.json")
    forged = {**json.loads(record.read_text()), "digest": "0" * 32}
    record.write_text(json.dumps(forged))
    world.ok("retry", "demo")
    assert only(world)["published_attempt"] == 2
    assert not record.exists()
    world.assert_complete()


def test_M1_an_attempt_that_was_overtaken_between_its_record_and_its_mark_marks_nothing(world: World) -> None:
    world.produce(30)
    process = world.start("run", "demo", *KEY, failpoint="publish.before_mark:stop")
    wait_stopped(process)
    other_rows(world)
    world.ok("replay", "demo", *KEY, "--take-over")
    published = only(world)["published_attempt"]
    assert Ending.SUPERSEDED.value in wake(process).stderr
    assert only(world)["published_attempt"] == published == 2
    world.assert_complete()
