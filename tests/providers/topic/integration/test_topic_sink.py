"""A topic as a sink, by the command line: what it appends, what it refuses, and what people ask of it."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from tests.worlds.secret_search import Canaries
from tests.worlds.secured_world import CONNECTION, USER, Secured
from tests.worlds.topic_world import TopicWorld, committed, delete_records, headers, place_of, topic_sink
from tests.worlds.world import World
from tidemark.providers.topic import sink

Make = Callable[..., TopicWorld]
WHY = ("--why", "the schedule says so")
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}


def test_messages_have_key_value_headers_and_order_and_dead_letters_their_own_topic(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    world.assert_complete()
    [first] = [message for message in world.sent() if headers(message)["tidemark.offset"] == b"1"][:1]
    assert first.topic() == world.out
    assert sorted(headers(first)) == ["tidemark.manifest", "tidemark.offset", "tidemark.partition", "tidemark.topic"]
    assert list(json.loads(first.value() or b"")) == ["n", "at", "name", "k"]
    dead = committed(world.broker.bootstrap_servers, f"{world.out}-dead-letters")
    assert len(dead) == len(world.bad)
    assert {message.value() for message in dead} == {b"{not json"}
    letters = world.json("dead-letters", "demo")
    assert letters["count"] == len(world.bad)


def test_where_history_and_audit_answer_for_a_topic(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(60, bad_every=9)
    world.ok("run", "demo")
    row = world.ok("where", world.topic, "1", "3")
    assert f"topic {world.out}" in row or f"{world.out}-" in row
    letter = world.ok("where", world.topic, "0", "0")
    assert f"{world.out}-dead-letters-0" in letter
    producer = world.broker.producer()
    producer.produce(world.out, b"by hand")
    assert producer.flush(30) == 0
    audit = world.here("audit", "demo", "--deep")
    assert audit.exit_code == 1
    assert f"{world.out} has 1 messages that are not Tidemark's" in audit.stdout
    assert world.ok("audit", "demo") == "", "it is seen only by whoever reads the topic"


def test_what_retention_took_is_not_missed_and_not_sent_again(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(60)
    world.ok("run", "demo")
    delete_records(world.broker.bootstrap_servers, world.out)
    assert world.ok("audit", "demo", "--deep") == ""
    [newest, *_] = world.json("manifests", "demo")
    world.ok("replay", "demo", "--manifest", str(newest["id"]))
    assert world.seen() == Counter()


def test_a_replay_with_equal_rows_sends_nothing_and_with_other_rows_is_refused_in_every_sink(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
    before = sorted(str(message.value()) for message in world.sent()), world.files(), world.json("show", "1")
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    refused = world.here("replay", "demo", "--manifest", "1")
    assert refused.exit_code == 1
    assert "what was appended there cannot be taken back" in refused.stderr
    assert sorted(str(message.value()) for message in world.sent()) == before[0]
    assert world.files() == before[1], "the lake was left alone too"
    assert world.json("show", "1")["published_attempt"] == before[2]["published_attempt"] == 1
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.json("status", "demo")


def test_what_a_person_has_appended_again_is_told_apart_by_its_attempt_and_no_difference_to_the_audit(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40, bad_every=9)
    world.ok("run", "demo")
    again = ("replay", "demo", "--manifest", "1", "--append-again", "--why", "readers want fewer columns")
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    refused = world.here("replay", "demo", "--manifest", "1")
    assert "tidemark replay demo --manifest 1 --append-again --why TEXT" in refused.stderr
    world.ok(*again)
    first, second = (
        [message for message in world.sent() if headers(message).get("tidemark.attempt", b"") == attempt]
        for attempt in (b"", str(world.json("show", "1")["published_attempt"]).encode())
    )
    assert Counter(map(place_of, first)) == Counter(map(place_of, second)) == world.everything()
    assert {tuple(json.loads(message.value() or b"")) for message in second if message.topic() == world.out} == {
        ("n", "at", "k")
    }
    assert world.ok("audit", "demo", "--deep") == "", "both are as a person has decided"
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"]) == ("append-again", "readers want fewer columns")
    assert "behind those of attempt 1, which stay there" in decision["lines"][0]
    world.ok(*again)
    assert len(world.sent()) == len(first) + len(second), "equal messages are not appended a third time"
    world.json("dead-letters", "demo")
    assert world.json("dead-letters", "demo")["count"] == len(world.bad)


def test_a_replay_that_appends_again_and_dies_before_its_mark_is_marked_and_not_appended_once_more(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    world.ok("run", "demo")
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    again = ("replay", "demo", "--manifest", "1", "--append-again", "--why", "fewer columns")
    world.tidemark(*again, failpoint="publish.before_mark:kill9")
    assert set(world.seen().values()) == {2}
    assert world.json("show", "1")["published_attempt"] == 1
    world.ok("retry", "demo")
    assert world.json("show", "1")["published_attempt"] == 2
    world.ok("replay", "demo", "--manifest", "1")
    assert set(world.seen().values()) == {2}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_sink_that_is_added_is_filled_and_one_that_is_renamed_goes_on(make_topic_world: Make) -> None:
    world = make_topic_world(has_lake=True)
    topic, lake = world.settings["sinks"]
    world.add_and_rename(topic, lake, to="stream")
    world.assert_complete()


def retired_and_added(world: TopicWorld) -> None:
    """The topic is that of another sink of the pipeline from here on, as ``retire-sink`` says that it may be."""
    topic, lake = world.settings["sinks"]
    world.settings["sinks"] = [lake]
    world.write_pipeline()
    retired = world.ok("retire", "sink", "demo", "topic", *WHY)
    assert f"topic {world.out} can be used again by a sink of another name" in retired
    world.settings["sinks"] = [{"topic": {**topic["topic"], "name": "stream"}}, lake]
    world.write_pipeline()


def test_the_topic_of_a_retired_sink_is_used_again_and_what_it_has_is_not_sent_a_second_time(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(has_lake=True)
    world.produce(60, bad_every=9)
    world.ok("run", "demo")
    retired_and_added(world)
    world.produce(20)
    world.ok("run", "demo")
    audited = world.here("audit", "demo")
    assert {line.partition("next: ")[2] for line in audited.stdout.splitlines()} == {
        "tidemark fill demo stream --why TEXT"
    }
    world.ok("fill", "demo", "stream", *WHY)
    assert world.seen() == world.everything()
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    assert world.seen() == world.everything()
    assert {sink["sink"] for sink in world.json("show", "1")["publications"]} == {"files", "stream"}


def test_other_messages_follow_those_of_a_retired_sink_when_a_person_says_so(make_topic_world: Make) -> None:
    world = make_topic_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    world.ok("run", "demo")
    world.settings["decode"] = FEWER_COLUMNS
    retired_and_added(world)
    refused = world.here("fill", "demo", "stream", *WHY)
    assert refused.exit_code == 1
    assert "holds other messages of this manifest, of attempt 1" in refused.stdout + refused.stderr
    assert "tidemark replay demo --manifest 1 --append-again --why TEXT" in refused.stdout + refused.stderr
    world.ok("replay", "demo", "--manifest", "1", "--append-again", *WHY)
    assert set(world.seen().values()) == {2}
    assert world.ok("audit", "demo", "--deep") == ""
    world.ok("replay", "demo", "--manifest", "1")
    assert set(world.seen().values()) == {2}, "and not a third time"


def test_messages_that_were_appended_again_are_told_apart_also_when_another_sink_takes_the_topic_over(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    world.ok("run", "demo")
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1", "--append-again", *WHY)
    retired_and_added(world)
    world.ok("fill", "demo", "stream", *WHY)
    assert set(world.seen().values()) == {2}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_database_that_was_lost_adopts_the_topic(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(60, bad_every=7)
    world.ok("run", "demo")
    world.lose_manifest_database()
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "belongs to another manifest database" in refused.stderr
    world.ok("db", "adopt", "demo", "--why", "the server burned")
    world.produce(40)
    world.ok("run", "demo")
    world.assert_complete()


def test_bad_targets_are_refused_by_name_and_nothing_is_half_done(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(20)

    def refusal(topic: str) -> str:
        world.settings["sinks"] = [topic_sink(world.broker.bootstrap_servers, topic)]
        world.write_pipeline()
        done = world.here("run", "demo")
        assert done.exit_code != 0
        assert world.seen() == Counter()
        return done.stderr

    assert "topic nowhere does not exist" in refusal("nowhere")
    markers = f"{world.out}-markers"
    world.broker.create_topic(markers, 3, {"retention.ms": "-1", "cleanup.policy": "delete"})
    refused = refusal(world.out)
    assert f"the topic of markers {markers} has 3 partitions, and markers need 8" in refused
    assert f"--alter --topic {markers} --partitions 8" in refused
    world.broker.add_partitions(markers, 8)
    assert f"{markers} has cleanup.policy=delete" in refusal(world.out)


def test_a_manifest_with_more_messages_than_a_transaction_takes_is_refused_and_sent_when_it_takes_them(
    make_topic_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.settings["sinks"][0]["topic"]["transaction_timeout"] = "10s"
    world.write_pipeline()
    world.produce(60, bad_every=9)
    monkeypatch.setattr(sink, "SLOWEST", 5)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "has 60 messages, and a transaction of 10 s takes at most 50 for certain" in refused.stderr
    assert "raise transaction_timeout of the sink" in refused.stderr
    world.assert_nothing_is_seen()
    world.settings["sinks"][0]["topic"]["transaction_timeout"] = "12s"
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_compacted_topic_takes_no_message_without_a_key(make_topic_world: Make) -> None:
    world = make_topic_world(settings={"on_error": "fail"})
    world.broker.configure_topic(world.out, "cleanup.policy", "compact")
    world.settings["sinks"][0]["topic"]["key"] = ["name"]
    world.write_pipeline()
    world.send(json.dumps({"n": 1, "at": "2024-03-01T00:00:00Z", "name": None, "k": 1}))
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "its message has no key, which topic" in refused.stderr
    assert f"topic={world.topic} partition=0 offset=0" in refused.stderr
    assert world.seen() == Counter()
    world.settings["sinks"][0]["topic"]["key"] = ["k"]
    world.write_pipeline()
    world.ok("retry", "demo")
    assert sum(world.seen().values()) == 1
    assert world.ok("audit", "demo", "--deep") == ""


LARGE = json.dumps({"n": 1, "at": "2024-03-01T00:00:00Z", "name": random.Random(1).randbytes(40_000).hex(), "k": 1})


def test_a_message_that_the_topic_does_not_take_is_a_dead_letter_in_all_sinks(make_topic_world: Make) -> None:
    world = make_topic_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.broker.configure_topic(world.out, "max.message.bytes", "4000")
    world.produce(200)
    world.send(LARGE, json.dumps({"n": 2, "at": "2024-03-01T00:00:00Z", "name": "x" * 40_000, "k": 1}))
    world.ok("run", "demo")
    for name in ("topic", "files"):
        [letter] = world.json("dead-letters", "demo", "--sink", name, "--show")["records"]
        assert letter["offset"] == 100
        assert letter["reason"] == f"its message has more bytes than the 4000 of topic {world.out}"
    assert sum(world.seen().values()) == sum(World.exact(world).values()) == 202
    assert len(committed(world.broker.bootstrap_servers, world.out)) == 201
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_message_that_is_too_large_is_named_and_the_manifest_is_sent_when_the_topic_takes_it(
    make_topic_world: Make,
) -> None:
    world = make_topic_world(settings={"on_error": "fail", "kafka": {"slice": {"max_records": 1000}}})
    world.broker.configure_topic(world.out, "max.message.bytes", "4000")
    world.produce(200)
    world.send(LARGE)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "its message has more bytes than the" in refused.stderr
    assert f"topic={world.topic} partition=0 offset=100" in refused.stderr, refused.stderr
    assert world.seen() == Counter()
    world.broker.configure_topic(world.out, "max.message.bytes", "200000")
    world.ok("retry", "demo")
    assert sum(world.seen().values()) == 201
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_topic_that_was_created_again_is_refused_until_a_person_accepts_it(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(40)
    world.ok("run", "demo")
    world.broker.delete_topic(world.out)
    world.broker.create_topic(world.out, 2, {"retention.ms": "-1"})
    world.produce(40)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "is another one than this database has published to" in refused.stderr
    assert "tidemark db adopt demo" in refused.stderr
    assert world.seen() == Counter()
    world.ok("db", "adopt", "demo", "--why", "it was created again")
    world.ok("run", "demo")
    assert world.seen() == Counter((world.topic, at, offset) for at in (0, 1) for offset in range(20, 40))


def test_a_pipeline_that_reads_its_own_output_by_another_address_is_not_planned(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(20)
    world.settings["sinks"] = [topic_sink(world.servers.replace("127.0.0.1", "localhost"), world.topic)]
    world.write_pipeline()
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"sink topic writes to topic {world.topic}, which this pipeline reads" in refused.stderr
    assert world.json("manifests", "demo") == []
    world.broker.delete_topic(f"{world.topic}-markers")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_two_pipelines_may_not_write_one_topic(make_topic_world: Make, host: str) -> None:
    world = make_topic_world()
    world.produce(20)
    world.ok("run", "demo")
    text = world.another("second")
    (world.pipelines / "second.yaml").write_text(text.replace("127.0.0.1", host))
    refused = world.here("run", "second")
    assert refused.exit_code == 1
    assert f"topic {world.out} already; two pipelines would mix" in refused.stderr
    world.assert_complete()


def test_a_topic_of_another_pipeline_is_refused_also_when_its_markers_are_gone(make_topic_world: Make) -> None:
    world = make_topic_world()
    world.produce(20)
    world.ok("run", "demo")
    text = world.another("second")
    (world.pipelines / "second.yaml").write_text(text)
    world.broker.delete_topic(f"{world.out}-markers")
    for words in (("run", "second"), ("plan", "second", "--dry-run")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert f"topic {world.out} already; two pipelines would mix" in refused.stderr
    assert world.seen() == world.everything()
    (world.pipelines / "second.yaml").unlink()


def test_raw_values_go_on_as_they_were_and_to_the_partition_of_the_source(make_topic_world: Make) -> None:
    world = make_topic_world(out_partitions=2)
    world.settings["sinks"] = [
        topic_sink(world.servers, world.out, format="raw", value="value", partitioner="source", compression="zstd")
    ]
    world.settings |= {"decode": {"format": "raw"}, "event_time": {}}
    world.write_pipeline()
    values = [b"\xff\x00", b"", None, b"{}"]
    world.send(*values, partition=1, key=b"\x00k")
    world.ok("run", "demo")
    messages = world.sent()
    assert [message.value() for message in messages] == values
    assert {(message.key(), message.partition()) for message in messages} == {(b"\x00k", 1)}
    assert world.ok("audit", "demo", "--deep") == ""


def test_the_doctor_begins_a_transaction_and_names_what_is_missing(make_topic_world: Make) -> None:
    world = make_topic_world()
    assert "its brokers begin transactions (tried)" in world.here("doctor", "demo").stdout
    world.broker.delete_topic(world.out)
    assert f"topic {world.out} does not exist" in world.here("doctor", "demo").stdout


@pytest.fixture
def secured_world(tmp_path: Path, database: str, secured: Secured, spark_jars: Path) -> Iterator[TopicWorld]:
    """The sink goes through a connection with a password and TLS; tests send and read through the open listener."""
    with TopicWorld(tmp_path / "secured", database, secured.broker, spark_jars) as world:
        world.targets[CONNECTION] = secured.variable("SCRAM-SHA-512")
        world.settings["sinks"] = [{"topic": {"connection": CONNECTION, "topic": world.out, "key": ["k"]}}]
        world.write_pipeline()
        yield world


def test_a_secured_cluster_takes_messages_and_no_secret_is_written_anywhere(
    secured_world: TopicWorld, secured: Secured
) -> None:
    world, canaries = secured_world, Canaries({"password": secured.password})
    world.produce(60, bad_every=9)
    done = world.tidemark("run", "demo")
    assert done.returncode == 0, done.stderr
    world.assert_complete()
    canaries.look("output", done.stdout + done.stderr)
    assert canaries.look_at_files(world.folder)
    assert "tidemark.attempt" in canaries.look_at_database(world.dsn)
    for message in (*world.sent(), *world.marker_messages()):
        canaries.look("a message", b"".join((message.key() or b"", message.value() or b"", *headers(message).values())))
    assert canaries.leaks == []


def test_a_user_without_the_right_to_write_is_told_so_and_nothing_is_seen(
    secured_world: TopicWorld, secured: Secured
) -> None:
    world = secured_world
    world.produce(20)
    world.ok("plan", "demo", "--run-key", "one")
    secured.broker.allow(world.out, USER, AclOperation.READ)
    secured.broker.allow(world.out, "somebody-else", AclOperation.WRITE)
    refused = world.here("run", "demo", "--run-key", "one")
    assert refused.exit_code == 1
    assert "DESCRIBE, READ and WRITE on the sink's topics" in refused.stderr
    assert secured.password not in refused.stderr
    world.assert_nothing_is_seen()
    secured.broker.allow(world.out, USER, AclOperation.WRITE)
    world.ok("retry", "demo")
    world.assert_complete()
