"""Dead letters: shown in groups, brought back when the schema is mended, and too many of them fail the manifest."""

import json
import signal
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from tests.worlds.table_world import TableWorld
from tests.worlds.world import EPOCH, World

MakeWorld = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]
STRICT = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, price BIGINT"
MENDED = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, price STRING"


def priced(number: int) -> str:
    """A record that only the mended schema can read."""
    return json.dumps({"n": number, "at": EPOCH.isoformat(), "price": "a lot"})


def mend(world: World) -> None:
    world.settings["decode"] = {"format": "json", "schema": MENDED}
    world.write_pipeline()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Manifests of 20 offsets: the first two have records without a price, text for a price, and no JSON."""
    settings = {
        "decode": {"format": "json", "schema": STRICT},
        "kafka": {"slice": {"max_records": 20}},
        "max_dead_letters": None,
    }
    world = make_world(partitions=1, settings=settings)
    world.produce(10, bad_every=5)
    world.send(*map(priced, range(8)), "{not", '{"n": 1} 2', at=EPOCH, key=b"k\xff/../\x00")
    world.produced += 10
    world.produce(6, bad_every=25)
    world.send(*map(priced, range(14)))
    world.produced += 14
    world.produce(20)
    world.ok("run", "demo")
    assert [manifest["counts"]["dead_lettered"] for manifest in world.manifests()] == [12, 15, 0]
    return world


PRICE = "field price: expected integer, found string"
NO_NAME = "not JSON: Expecting property name enclosed in double quotes"


def test_they_are_shown_in_groups_by_class_and_reason(world: World) -> None:
    view = world.json("dead-letters", "demo")
    assert (view["count"], view["manifests"], view["records"]) == (27, [1, 2], [])
    groups = [(group["count"], group["error_class"], group["reason"]) for group in view["groups"]]
    assert groups == [
        (22, "value", PRICE),
        (4, "value", NO_NAME),
        (1, "value", "not JSON: more content after the first value"),
    ]
    first, last = view["groups"][0]["first"], view["groups"][0]["last"]
    assert (first["manifest_id"], first["offset"], first["timestamp"]) == (1, 10, EPOCH.isoformat())
    assert (last["manifest_id"], last["offset"]) == (2, 39)
    assert world.json("dead-letters", "demo", "--manifest", "2")["count"] == 15
    assert world.json("dead-letters", "demo", "--manifest", "3")["count"] == 0
    assert world.json("dead-letters", "demo", "--reason", "price")["count"] == 22
    assert world.json("dead-letters", "demo", "--reason", NO_NAME)["count"] == 4
    assert world.json("dead-letters", "demo", "--reason", "at character 8")["count"] == 1
    assert world.json("dead-letters", "demo", "--class", "schema")["count"] == 0
    shown = world.here("dead-letters", "demo", "--reason", "price", "--show", "--limit", "3")
    assert "27 dead letters" not in shown.stderr
    assert "22 dead letters in 2 manifests" in shown.stderr
    assert "1 dead letter in 1 manifest\n" in world.here("dead-letters", "demo", "--reason", "at character 8").stderr
    assert "the first 3 are shown" in shown.stderr
    assert shown.stdout.count("a lot") == 3
    assert "b'k\\xff/../\\x00'" in shown.stdout, "bytes that are no text as Python writes them"
    for words in (("--replay",), ("--why", "x"), ("--dry-run",), ("--class", "nonsense")):
        assert world.here("dead-letters", "demo", *words).exit_code == 2
    assert "name one of: files" in world.here("dead-letters", "demo", "--sink", "table").stderr


def test_their_records_are_whole_in_json_and_cut_when_they_are_long(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"max_dead_letters": None})
    world.send(b"\xff\x00", None, b"[" + b"1" * 10_000, at=EPOCH, key=b"\x00", headers=[("h", b"\xfe"), ("h", None)])
    world.ok("run", "demo")
    first, second, long = world.json("dead-letters", "demo", "--show")["records"]
    assert (first["key"], first["value"], first["value_bytes"]) == ("AA==", b64encode(b"\xff\x00").decode(), 2)
    assert first["headers"] == [["h", "/g=="], ["h", None]]
    assert (first["reason"], first["attempt"], first["schemas"]) == ("not UTF-8 at byte 0", 1, None)
    assert (second["value"], second["value_bytes"]) == (None, None)
    assert (len(long["value"]), long["value_bytes"]) == (len(b64encode(b"1" * 4096)), 10_001)
    assert len(world.json("dead-letters", "demo", "--show", "--limit", "1")["records"]) == 1


def test_when_the_schema_is_mended_each_record_stands_where_it_belongs(world: World) -> None:
    replay = ("dead-letters", "demo", "--replay", "--why", "the schema was wrong")
    mend(world)
    dry = world.json(*replay, "--dry-run")
    assert [part["manifest_id"] for part in dry["returned"]] == [1, 2]
    assert {part["remain"] for part in dry["returned"]} == {None}
    assert world.json("dead-letters", "demo")["count"] == 27, "a dry run changes nothing"
    done = world.here(*replay, "--reason", "price")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "manifest 1: 8 brought back, 4 remain",
        "manifest 2: 14 brought back, 1 remain",
    ]
    world.assert_complete()
    assert world.json("dead-letters", "demo", "--reason", "price")["count"] == 0
    assert world.json("dead-letters", "demo")["count"] == 5
    assert [manifest["attempt"] for manifest in world.manifests()] == [2, 2, 1]
    assert "there are no such dead letters" in world.here(*replay, "--reason", "price").stderr
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"]) == ("replay-dead-letters", "the schema was wrong")
    assert decision["lines"] == ["replayed: 2 manifests with 27 dead letters"]


@pytest.mark.parametrize("failpoint", ["attempt.started", "stage.done", "publish.mid", "publish.before_mark@2"])
def test_killed_in_the_middle_and_repeated_it_ends_right(world: World, failpoint: str) -> None:
    mend(world)
    name, _, at_pass = failpoint.partition("@")
    words = ("dead-letters", "demo", "--replay", "--why", "mended", "--reason", "price")
    armed = f"{name}:kill9" + (f"@{at_pass}" if at_pass else "")
    assert world.tidemark(*words, failpoint=armed).returncode == -signal.SIGKILL
    world.assert_whole()
    world.ok(*words)
    world.ok("retry", "demo")
    world.assert_complete()
    assert [manifest["counts"]["dead_lettered"] for manifest in world.manifests()] == [4, 1, 0]


def test_one_manifest_that_cannot_be_read_any_more_does_not_stop_the_others(world: World) -> None:
    mend(world)
    world.administer("delete_records", [KafkaPartition(world.topic, 0, 20)])
    done = world.here("dead-letters", "demo", "--replay", "--why", "mended")
    assert done.exit_code == 1
    assert "manifest 1: not replayed: " in done.stdout
    assert "manifest 2: 14 brought back, 1 remain" in done.stdout
    world.assert_whole()


def test_in_a_table_they_are_shown_and_brought_back_too(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1)
    world.produce(30, bad_every=10)
    world.send("{", at=EPOCH, headers=[("h", b"\xfe"), ("n", None)], key=b"\xff")
    world.ok("run", "demo")
    view = world.json("dead-letters", "demo", "--show", "--limit", "100")
    assert view["count"] == len(view["records"]) == 4
    assert view["records"][-1]["headers"] == [["h", "/g=="], ["n", None]]
    assert view["records"][-1]["key"] == "/w=="
    assert [group["error_class"] for group in view["groups"]] == ["value"]


LIMITS: dict[str, tuple[int | str, int]] = {  # the limit, and how many of 40 records may be dead letters
    "a number": (3, 3), "none at all": (0, 0), "a share": ("10%", 4), "a small share": ("0.1%", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS)
def test_too_many_of_them_fail_the_manifest_before_anything_is_published(make_world: MakeWorld, case: str) -> None:
    limit, allowed = LIMITS[case]
    settings: dict[str, Any] = {"max_dead_letters": limit, "kafka": {"slice": {"max_records": 40}}}
    world = make_world(settings=settings)
    world.produce(40 - allowed)
    bad = [b"{" if number % 2 else b"\xff" for number in range(allowed)]
    world.send(*bad, partition=1)
    world.produced += allowed
    world.ok("run", "demo")
    assert world.manifests()[0]["counts"]["dead_lettered"] == allowed
    world.produce(39 - allowed)
    world.send(*bad, b"\xff", partition=1)
    first_bad = 40 - allowed
    done = world.here("run", "demo")
    assert done.exit_code == 1
    [_, manifest] = world.manifests()
    assert (manifest["state"], manifest["objects"], manifest["dead_letter_objects"]) == ("failed", [], [])
    for text in (f"max_dead_letters is {limit}: ", "value is not UTF-8 (first ", "pipeline=demo manifest=2 ",
                 f"topic={world.topic} partition=1 offset=", f"tidemark peek demo --topic {world.topic} --partition 1",
                 "tidemark retry demo"):  # fmt: skip
        assert text in " ".join(manifest["reason"].split()), (first_bad, manifest["reason"])
    world.settings["max_dead_letters"] = "100%"
    world.write_pipeline()
    world.ok("retry", "demo")
    assert world.manifests()[1]["counts"]["dead_lettered"] == allowed + 1
    world.assert_whole()
