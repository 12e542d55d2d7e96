"""A pipeline over streams of a real RabbitMQ, with every command; the rows Q1 to Q7 of the fault matrix."""

import json
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
import yaml
from rstream import AMQPMessage, Properties, RawMessage

from sandbox.services.rabbitmq import RabbitMQ
from tests.worlds.secret_search import Canaries
from tests.worlds.stream_world import CONN_ID, StreamWorld, address, value_of
from tests.worlds.world import World
from tidemark.connections.lookup import Lookup
from tidemark.errors import AccessDenied, ConfigurationError, DataLost, Unavailable
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds
from tidemark.providers.rabbitmq.settings import Settings
from tidemark.providers.rabbitmq.streams import Streams
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source

MakeWorld = Callable[..., World]


@pytest.fixture
def pipeline(rabbit: RabbitMQ, make_world: MakeWorld) -> Iterator[StreamWorld]:
    """A pipeline that reads one stream and writes a lake."""
    made = StreamWorld(rabbit, make_world)
    yield made
    made.streams.delete_stream(made.name)


def opened(pipeline: StreamWorld, **settings: Any) -> Source:
    """The source of the pipeline, in this process."""
    return source_of(pipeline.server, {"connection": CONN_ID, "streams": [pipeline.name], **settings})


def source_of(server: RabbitMQ, settings: dict[str, Any], **connection: Any) -> Source:
    stored = {"host": "127.0.0.1", "port": server.port, "login": server.user, "password": server.password}
    lookup: Lookup = {CONN_ID: {**stored, **connection}}.get
    return open_source("demo", Settings.model_validate(settings), lookup)


def place(pipeline: StreamWorld) -> TopicPartition:
    [at], _ = opened(pipeline).partitions([pipeline.name])
    return at


def test_from_plan_to_close_every_record_is_there_once(pipeline: StreamWorld) -> None:
    pipeline.write(slice={"max_records": 40})
    pipeline.produce(60, bad_every=9)
    world = pipeline.world
    run = world.json("plan", "demo", "--run-key", "one")
    assert (len(run["manifests"]), run["reached"]) == (2, True)
    world.ok("run", "demo", "--run-key", "one")
    assert sum(manifest["counts"]["dead_lettered"] for manifest in world.json("manifests", "demo")) == 7
    pipeline.read_once(60)
    pipeline.streams.store_offset(pipeline.name, "a reader", 3)  # takes an offset
    pipeline.produce(30)
    world.ok("run", "demo")
    pipeline.read_once(90)
    assert [manifest["counts"]["invisible"] for manifest in world.manifests()] == [0, 0, 2], "its own number took one"
    [lag] = world.json("lag", "demo")
    assert (lag["topic"], lag["partition"], lag["lag"]) == (pipeline.name, 0, 0)
    world.ok("replay", "demo", "--manifest", "3")
    pipeline.read_once(90)
    assert "manifest 1" in world.ok("where", pipeline.name, "0", "9")
    assert sum(group["count"] for group in world.json("dead-letters", "demo")["groups"]) == 7
    assert f'topic="{pipeline.name}"' in world.ok("monitor", "metrics", "demo")


def test_a_cut_ends_where_a_chunk_is_stamped_then_or_later(pipeline: StreamWorld) -> None:
    pipeline.produce(20)
    time.sleep(0.05)
    until = datetime.now(UTC)
    time.sleep(0.05)
    pipeline.produce(10)
    pipeline.world.ok("run", "demo", "--until", until.isoformat())
    pipeline.read_once(20)
    pipeline.world.ok("run", "demo")
    pipeline.read_once(30)
    at = place(pipeline)
    before, cut = until - timedelta(hours=1), opened(pipeline).offsets_at([at], until)[at]
    assert cut is not None
    assert cut[0] == 20
    assert until <= cut[1] < until + timedelta(seconds=60)
    first = opened(pipeline).offsets_at([at], before)[at]
    assert first is not None
    assert first[0] == 0
    assert opened(pipeline).offsets_at([at], datetime.now(UTC) + timedelta(hours=1)) == {at: None}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "snappy-block", "lz4", "zstd"])
def test_what_producers_have_packed_is_read_record_by_record(pipeline: StreamWorld, codec: str) -> None:
    pipeline.produce(10)
    pipeline.produce(500, codec=codec)
    pipeline.produce(10)
    pipeline.world.ok("run", "demo")
    pipeline.read_once(520)
    values = [record.value for record in opened(pipeline).records(Range(place(pipeline), 0, 520))]
    assert values == [value_of(number) for number in range(520)]


def test_what_a_named_publisher_sends_again_is_read_once(pipeline: StreamWorld) -> None:
    for count in (5, 8):
        with pipeline.streams.publisher(pipeline.name, name="twice", first_id=1) as publisher:
            publisher.send([value_of(number) for number in range(count)])
    pipeline.world.ok("run", "demo")
    pipeline.read_once(8)


def test_properties_are_headers_and_what_is_no_data_is_kept_whole(pipeline: StreamWorld) -> None:
    told = datetime(2024, 3, 1, 5, tzinfo=UTC)
    properties = Properties(message_id="m-1", creation_time=int(told.timestamp()), content_type="application/json")
    messages = [
        AMQPMessage(
            body=b"{}", properties=properties, application_properties={"tenant": "a", "n": 7, "ok": True},
            message_annotations={"x-shard": 3},
        ),
        AMQPMessage(value={"a": 1}),
        AMQPMessage(sequence=[[1, 2]]),
        RawMessage(b"no AMQP at all"),
    ]  # fmt: skip
    pipeline.streams.publish(pipeline.name, messages)
    at = place(pipeline)
    first, value, sequence, raw = opened(pipeline).records(Range(at, 0, 4))
    headers = dict(first.headers or ())
    assert first.value == b"{}"
    assert {key: headers[key] for key in ("tenant", "n", "ok")} == {"tenant": b"a", "n": b"7", "ok": b"true"}
    assert headers["properties.message-id"] == b"m-1"
    assert headers["properties.content-type"] == b"application/json"
    assert headers["annotations.x-shard"] == b"3"
    assert dict(value.headers or ())["tidemark.body"] == b"the body is an AMQP value, not data"
    assert value.value is not None
    assert value.value.startswith(b"\0Sw")
    assert dict(sequence.headers or ())["tidemark.body"] == b"the body is a sequence, not data"
    assert (raw.value, dict(raw.headers or ())) == (
        b"no AMQP at all",
        {"tidemark.body": b"the message is not encoded as AMQP 1.0"},
    )


def test_the_event_time_may_be_a_property_of_the_producer(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    pipeline.world.settings |= {"event_time": {"header": "told"}}
    pipeline.world.write_pipeline()
    told = AMQPMessage(body=value_of(1), application_properties={"told": "2024-03-01T05:00:00Z"})
    pipeline.streams.publish(pipeline.name, [told])
    pipeline.world.ok("run", "demo")
    [hour] = pipeline.world.json("hours", "demo")
    assert hour["start"].startswith("2024-03-01T05")


def test_headers_become_columns_when_the_file_asks(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    text = (Path(__file__).parents[4] / "docs/providers/rabbitmq.md").read_text()
    [shown] = re.findall(r"```yaml\n(decode:\n.*?)```", text, re.DOTALL)
    pipeline.world.settings |= yaml.safe_load(shown)
    pipeline.world.write_pipeline()
    message = AMQPMessage(
        body=value_of(1), properties=Properties(message_id="m-1"), application_properties={"tenant": "a"}
    )
    pipeline.streams.publish(pipeline.name, [message, value_of(2)])
    pipeline.world.ok("run", "demo")
    rows = [json.loads(line)["data"] for line in pipeline.world.ok("peek", "demo", "-n", "2", "--json").splitlines()]
    assert [(row["n"], row["tenant"], row["message_id"]) for row in rows] == [(1, "a", "m-1"), (2, None, None)]
    pipeline.read_once(2)


def test_a_plan_that_only_shows_stores_nothing_and_a_plan_gives_the_stream_its_number(pipeline: StreamWorld) -> None:
    pipeline.produce(5)
    pipeline.world.ok("plan", "demo", "--dry-run")
    pipeline.world.ok("doctor", "demo")
    pipeline.world.ok("peek", "demo", "-n", "2")
    assert not pipeline.stores_id()
    pipeline.world.ok("plan", "demo")
    assert pipeline.stores_id()


def test_a_stream_without_a_record_begins_with_its_first_one(pipeline: StreamWorld) -> None:
    pipeline.world.ok("run", "demo")
    assert not pipeline.stores_id()
    pipeline.produce(5)
    pipeline.world.ok("run", "demo")
    pipeline.read_once(5)
    [manifest] = pipeline.world.manifests()
    assert manifest["counts"]["invisible"] == 0


def test_Q1_what_retention_took_is_refused_and_given_up(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    pipeline.streams.delete_stream(pipeline.name)
    pipeline.streams.create_stream(pipeline.name, max_bytes=1_000_000, segment_bytes=300_000)
    pipeline.produce(50)
    pipeline.world.ok("plan", "demo")
    at = place(pipeline)
    reading = opened(pipeline).records(Range(at, 0, 50))
    next(reading)
    pipeline.streams.publish_until_dropped(pipeline.name, value_of(1).ljust(1000))
    start = opened(pipeline).bounds([at])[at].log_start
    assert start > 50
    refused = pipeline.world.here("retry", "demo")
    assert refused.exit_code == 1
    assert f"retention took offsets [0, 50) of {pipeline.name}-0 before they were read" in refused.stderr
    with pytest.raises(DataLost, match=rf"retention took offsets \[0, 50\) of {pipeline.name}-0"):
        list(opened(pipeline).records(Range(at, 0, 50)))
    with pytest.raises(DataLost, match=rf"retention took offsets \[10, {start}\)"):
        list(opened(pipeline).records(Range(at, 10, start + 1)))
    refused = pipeline.world.here("plan", "demo")
    assert "before they were read" in refused.stderr
    pipeline.world.ok("accept", "loss", "demo", "--why", "a test")
    pipeline.world.ok("retry", "demo")
    pipeline.world.ok("run", "demo")
    assert pipeline.world.ok("audit", "demo", "--deep") == ""
    assert min(offset for _, _, offset in pipeline.world.exact()) == start


def test_Q1_what_retention_takes_while_it_is_read_is_no_gap(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    pipeline.streams.delete_stream(pipeline.name)
    pipeline.streams.create_stream(pipeline.name, max_bytes=1_000_000, segment_bytes=300_000)
    for _ in range(8):
        pipeline.streams.publish(pipeline.name, [bytes(1000)] * 100)
    at = place(pipeline)
    end = opened(pipeline).bounds([at])[at].log_end
    reading = opened(pipeline).records(Range(at, 0, end))
    seen = [next(reading).offset]
    pipeline.streams.publish_until_dropped(pipeline.name)
    try:
        seen += [record.offset for record in reading]
    except DataLost:
        return
    assert len(seen) == 800, "the server had it open, and gave all"


def test_Q2_beyond_the_end_nothing_lower_is_taken_for_it(pipeline: StreamWorld) -> None:
    pipeline.produce(20)
    at = place(pipeline)
    with pytest.raises(Unavailable, match="ends at offset 20, but the range ends at 25"):
        list(opened(pipeline).records(Range(at, 10, 25)))
    reading = opened(pipeline).records(Range(at, 500, 510))
    pipeline.produce(30)
    with pytest.raises(Unavailable, match="but the range ends at 510"):
        list(reading)
    assert opened(pipeline).records_from([(at, 500), (at, 49)]).keys() == {(at, 49)}


def test_from_a_gap_on_the_next_record_is_the_first(pipeline: StreamWorld) -> None:
    pipeline.produce(3)
    pipeline.streams.store_offset(pipeline.name, "a reader", 1)
    pipeline.produce(3)
    at = place(pipeline)
    answers = opened(pipeline).records_from([(at, 2), (at, 3), (at, 6), (at, 7)])
    assert {offset: record and record.offset for (_, offset), record in answers.items()} == {2: 2, 3: 4, 6: 6}


def test_what_retention_takes_between_two_questions_is_not_said_to_be_gone(pipeline: StreamWorld) -> None:
    pipeline.produce(5)
    at, source = place(pipeline), opened(pipeline)
    bounds = [{at: Bounds(0, 5, 5)}, {at: Bounds(3, 5, 5)}]
    with mock.patch.object(source, "bounds", side_effect=bounds):
        assert source.records_from([(at, 1), (at, 4)]).keys() == {(at, 4)}


def test_two_planners_at_once_give_a_stream_the_same_number(pipeline: StreamWorld) -> None:
    pipeline.produce(3)
    one_planner, another = opened(pipeline), opened(pipeline)
    with mock.patch.object(Streams, "stored_offset", return_value=None):  # neither sees that of the other
        one_planner.name_topics(set())
        pipeline.produce(3)
    first = place(pipeline).topic_id
    with mock.patch.object(Streams, "stored_offset", return_value=None):
        another.name_topics(set())
    assert place(pipeline).topic_id == first != "unnamed"


def test_Q3_a_stream_that_was_made_again_needs_a_person(pipeline: StreamWorld) -> None:
    pipeline.produce(20)
    pipeline.world.ok("run", "demo")
    pipeline.streams.delete_stream(pipeline.name)
    gone = pipeline.world.here("run", "demo")
    assert gone.exit_code == 1
    assert "no longer exists" in gone.stderr
    pipeline.streams.create_stream(pipeline.name)
    pipeline.produce(30)
    refused = pipeline.world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"tidemark accept topic demo --topic {pipeline.name} --why TEXT" in refused.stderr
    pipeline.world.ok("accept", "topic", "demo", "--topic", pipeline.name, "--why", "a test")
    pipeline.world.ok("run", "demo")
    assert sum(pipeline.world.exact().values()) == 50
    assert pipeline.world.ok("audit", "demo", "--deep") == ""


def test_Q3_without_the_right_to_write_the_last_record_tells_it(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    rabbit.create_user("readonly", "secret", configure="", write="")
    pipeline.world.targets[CONN_ID] = address(rabbit, "readonly", "secret")
    pipeline.produce(20)
    if rabbit.version == 3:  # 4.0 lets a reader store an offset
        refused = pipeline.world.here("plan", "demo")
        assert refused.exit_code == 1
        assert "identity: last_record under source.rabbitmq" in refused.stderr
    pipeline.write(identity="last_record")
    pipeline.world.ok("run", "demo")
    opened(pipeline).name_topics(set())  # another pipeline may store a number: this one never looks at it
    assert pipeline.stores_id()
    pipeline.produce(5)
    pipeline.world.ok("run", "demo")
    assert sum(pipeline.world.exact().values()) == 25
    pipeline.streams.delete_stream(pipeline.name)
    pipeline.streams.create_stream(pipeline.name)
    pipeline.produce(30)
    refused = pipeline.world.here("run", "demo")
    assert refused.exit_code == 1
    assert "holds other records than those that are published" in refused.stderr


def test_Q4_a_member_that_is_deleted_needs_a_person_and_a_new_one_is_read(
    rabbit: RabbitMQ, make_world: MakeWorld
) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    first, second = rabbit.create_super_stream(f"{pipeline.name}-all", 2)
    pipeline.write(super_stream=f"{pipeline.name}-all")
    pipeline.produce(10, to=first)
    pipeline.world.ok("run", "demo")
    pipeline.produce(5, to=second)
    pipeline.world.ok("run", "demo")
    assert sum(pipeline.world.exact().values()) == 15
    pipeline.streams.delete_stream(first)
    refused = pipeline.world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"topic {first} no longer exists" in refused.stderr
    pipeline.world.ok("accept", "topic", "demo", "--topic", first, "--why", "a test")
    pipeline.produce(5, to=second)
    pipeline.world.ok("run", "demo")
    assert sum(pipeline.world.exact().values()) == 20
    pipeline.write(super_stream="nowhere")
    assert "super stream nowhere does not exist" in pipeline.world.here("plan", "demo").stderr


def test_Q5_a_server_that_dies_while_it_is_read_costs_an_attempt(
    mortal_rabbit: RabbitMQ, make_world: MakeWorld
) -> None:
    pipeline = StreamWorld(mortal_rabbit, make_world)
    pipeline.produce(20)
    pipeline.world.ok("plan", "demo")
    for _ in range(20):
        pipeline.streams.publish(pipeline.name, [bytes(10_000)] * 100)
    source, at = opened(pipeline), place(pipeline)
    reading = source.records(Range(at, 0, source.bounds([at])[at].log_end))
    next(reading)
    mortal_rabbit.kill()
    with pytest.raises(Unavailable):
        list(reading)
    silent = pipeline.world.here("retry", "demo")
    assert silent.exit_code == 1
    assert "RabbitMQ does not answer" in silent.stderr
    mortal_rabbit.restart()
    pipeline.world.ok("retry", "demo")
    pipeline.read_once(20)
    assert source.bounds([at])[at].log_start == 0, "a source goes on after its server came back"


def test_Q6_rights_that_are_lost_are_named(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    rabbit.create_user("lost", "secret")
    pipeline.world.targets[CONN_ID] = address(rabbit, "lost", "secret")
    pipeline.produce(5)
    pipeline.world.ok("plan", "demo")
    rabbit.set_rights("lost", read="", write="", configure="")
    refused = pipeline.world.here("retry", "demo")
    assert refused.exit_code == 1
    assert "RabbitMQ refuses this client" in refused.stderr
    assert "read" in refused.stderr
    rabbit.create_user("lost", "secret")
    pipeline.world.ok("retry", "demo")
    pipeline.read_once(5)


def test_Q7_a_sub_batch_that_cannot_be_read_is_dead_letters_and_the_rest_is_published(pipeline: StreamWorld) -> None:
    """Else one producer stops the stream for all of its readers: the server does not look into sub-batches."""
    pipeline.produce(5)
    pipeline.produce(5, codec="unknown")
    pipeline.produce(5)
    assert "written 10, dead-lettered 5" in pipeline.world.here("run", "demo").stderr
    letters = pipeline.world.json("dead-letters", "demo", "--show")["records"]
    assert [letter["offset"] for letter in letters] == [5, 6, 7, 8, 9]
    assert {letter["reason"] for letter in letters} == {
        "its sub-batch cannot be read: its messages are packed by the unknown codec 5"
    }
    assert [letter["value_bytes"] is None for letter in letters] == [False, True, True, True, True]
    pipeline.read_once(15)


def test_a_message_of_arrays_that_multiply_costs_no_time(pipeline: StreamWorld) -> None:
    """Arrays of arrays of nulls, which have no bytes: each may tell of as many as the message has bytes."""
    pipeline.produce(5)
    inner = struct.pack(">II", 5, 100_000) + b"\x40"
    body = struct.pack(">I", 11_000) + b"\xf0" + inner * 11_000
    pipeline.streams.publish(pipeline.name, [RawMessage(b"\0Sw\xf0" + struct.pack(">I", len(body)) + body)])
    begin = time.monotonic()
    assert "written 5, dead-lettered 1" in pipeline.world.here("run", "demo").stderr
    assert time.monotonic() - begin < 30


def test_the_first_plan_starts_where_the_file_says(pipeline: StreamWorld) -> None:
    pipeline.produce(10)
    time.sleep(0.05)
    since = datetime.now(UTC)
    time.sleep(0.05)
    pipeline.produce(10)
    pipeline.streams.store_offset(pipeline.name, "archive", 6)
    at = place(pipeline)

    def start(**settings: Any) -> int:
        source = opened(pipeline, **settings)
        return source.starting_offsets(source.bounds([at]))[at]

    assert start() == 0
    assert start(starting_offsets="latest") == 20
    assert start(starting_offsets=since.isoformat()) == 10
    assert start(starting_offsets={"consumer": "archive"}) == 7
    assert start(starting_offsets={"offsets": {pipeline.name: 12}}) == 12
    pipeline.write(starting_offsets={"consumer": "nobody"})
    refused = pipeline.world.here("plan", "demo")
    assert refused.exit_code == 1
    assert f"consumer nobody has stored no offset in {pipeline.name}" in refused.stderr
    pipeline.write(starting_offsets={"consumer": "archive"})
    pipeline.world.ok("run", "demo")
    pipeline.read_once(13)


def test_tools_that_watch_consumers_see_how_far_it_is(pipeline: StreamWorld) -> None:
    pipeline.write(progress_consumer="tidemark-demo")
    pipeline.produce(10)
    pipeline.world.ok("run", "demo")
    assert pipeline.streams.query_offset(pipeline.name, "tidemark-demo") == 9
    pipeline.world.ok("run", "demo")
    pipeline.produce(5)
    pipeline.world.ok("run", "demo")
    assert pipeline.streams.query_offset(pipeline.name, "tidemark-demo") == 16
    pipeline.read_once(15)


def test_progress_that_is_not_stored_is_said(pipeline: StreamWorld) -> None:
    pipeline.server.create_user("watched", "secret", configure="", write="")
    pipeline.world.targets[CONN_ID] = address(pipeline.server, "watched", "secret")
    pipeline.write(identity="last_record", progress_consumer="tidemark-demo")
    pipeline.produce(5)
    done = pipeline.world.here("run", "demo")
    assert done.exit_code == 0
    stored = pipeline.streams.query_offset(pipeline.name, "tidemark-demo")
    said_so = "does not let this user store the offset of consumer tidemark-demo" in done.stderr
    assert (stored, said_so) == ((None, True) if pipeline.server.version == 3 else (4, False))


def test_doctor_and_peek_know_it(pipeline: StreamWorld) -> None:
    pipeline.produce(20)
    findings = [finding for finding in pipeline.world.json("doctor", "demo") if finding["check"] == "demo: rabbitmq"]
    assert [(finding["severity"], finding["message"]) for finding in findings] == [
        ("ok", f"127.0.0.1:{pipeline.server.port} answers"),
        ("ok", "1 topic, 1 partition, 20 offsets to read"),
        ("ok", f"records can be read ({pipeline.name})"),
    ]
    rows = [json.loads(line) for line in pipeline.world.ok("peek", "demo", "-n", "5", "--json").splitlines()]
    assert [row["data"]["n"] for row in rows] == [15, 16, 17, 18, 19]


def test_a_stream_that_does_not_exist_is_named_with_the_key_to_correct(pipeline: StreamWorld) -> None:
    pipeline.write(streams=[f"{pipeline.name}x"])
    refused = pipeline.world.here("plan", "demo")
    assert refused.exit_code == 2
    assert f"stream {pipeline.name}x does not exist" in refused.stderr
    assert "source.rabbitmq.streams" in refused.stderr
    assert "has no offsets" in refused.stderr


def test_a_stream_whose_records_are_all_gone_waits_for_the_next_one(rabbit: RabbitMQ, make_world: MakeWorld) -> None:
    pipeline = StreamWorld(rabbit, make_world)
    pipeline.streams.delete_stream(pipeline.name)
    pipeline.streams.create_stream(pipeline.name, max_bytes=20_000, segment_bytes=5_000, max_age="1s")
    pipeline.produce(20)
    pipeline.world.ok("run", "demo")
    for number in range(3_000):  # a consumer that stores offsets often: they fill segments
        pipeline.streams.store_offset(pipeline.name, f"consumer-{number % 5}", number)
        if number % 50 == 0 and pipeline.streams.first_offset(pipeline.name) is None:
            break
    else:
        pytest.fail("the stream has its records still")
    waits = pipeline.world.here("plan", "demo")
    assert waits.exit_code == 1
    assert f"stream {pipeline.name} holds no record now" in waits.stderr
    pipeline.produce(5)
    lost = pipeline.world.here("plan", "demo")
    assert "retention took offsets [20, " in lost.stderr, "whether a record was among them nobody can see"
    pipeline.world.ok("accept", "loss", "demo", "--why", "a test")
    pipeline.world.ok("run", "demo")
    assert sum(pipeline.world.exact().values()) == 25


def test_a_source_works_with_more_open_files_than_select_knows(pipeline: StreamWorld) -> None:
    pipeline.produce(3)
    with ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(Path("/dev/null").open())
        assert place(pipeline).topic == pipeline.name


@pytest.mark.parametrize(
    "stored",
    [{"port": "abc"}, {"port": 99_999}, {"port": -1}, {"host": "rabbit..x"}, {"host": "x y"}, {"host": "a" * 70}],
)
def test_an_address_that_is_none_is_refused(stored: dict[str, object], rabbits: Callable[[int], RabbitMQ]) -> None:
    with pytest.raises(ConfigurationError, match="host and port are no address"):
        source_of(rabbits(3), {"connection": CONN_ID, "streams": ["a"]}, **stored)


def test_a_wrong_login_is_said_so(pipeline: StreamWorld) -> None:
    settings = {"connection": CONN_ID, "streams": [pipeline.name]}
    with pytest.raises(AccessDenied, match="wrong user or password"):
        source_of(pipeline.server, settings, password="wrong").partitions([pipeline.name])
    with pytest.raises(AccessDenied, match="the virtual host does not exist"):
        source_of(pipeline.server, settings, schema="nowhere").partitions([pipeline.name])
    with pytest.raises(Unavailable, match="does not answer"):
        source_of(pipeline.server, settings, port=pipeline.server.amqp_port).partitions([pipeline.name])


def test_the_password_stands_in_no_file_table_or_output(pipeline: StreamWorld) -> None:
    secret = f"canary-{uuid4().hex}"
    canaries, world = Canaries({"password": secret}), pipeline.world
    pipeline.server.create_user("canary", secret)
    world.targets[CONN_ID] = address(pipeline.server, "canary", secret)
    pipeline.produce(10, bad_every=3)

    def look(*words: str) -> int:
        done = world.tidemark(*words)
        canaries.look(" ".join(words), done.stdout + done.stderr)
        return done.returncode

    for words in (("plan", "demo"), ("retry", "demo"), ("doctor", "demo"), ("peek", "demo"), ("status",)):
        assert look(*words) in (0, 1), words
    assert sum(world.exact().values()) == 10
    pipeline.server.create_user("canary", "another one")
    assert look("plan", "demo") == 1
    assert look("doctor", "demo") != 0
    assert canaries.look_at_files(world.folder)
    assert canaries.look_at_database(world.dsn)
    assert canaries.leaks == []


def test_tls_and_certificates_log_in(pipeline: StreamWorld, tmp_path: Path) -> None:
    server, settings = pipeline.server, {"connection": CONN_ID, "streams": [pipeline.name]}
    pipeline.produce(5)
    ca = str(server.authority.certificate_file)
    tls = {"port": server.tls_port, "extra": {"tls": True, "ca": ca}}
    [at], _ = source_of(server, settings, **tls).partitions([pipeline.name])
    assert len(list(source_of(server, settings, **tls).records(Range(at, 0, 5)))) == 5
    if "-4" not in server.state.parent.name:
        return  # 3.10 ends the connection of whoever logs in by certificate
    server.create_user("bob", "")
    own = server.authority.issue("bob", "bob")
    extra = {"mechanism": "EXTERNAL", "certificate": str(own.certificate_file), "key": Path(own.key_file).read_text()}
    external = {**tls, "login": "", "password": "", "extra": {**tls["extra"], **extra}}
    assert len(list(source_of(server, settings, **external).records(Range(at, 0, 5)))) == 5
    with pytest.raises(AccessDenied, match="no TLS connection to RabbitMQ"):
        source_of(server, settings, port=server.tls_port, extra={"tls": True}).partitions([pipeline.name])
    with pytest.raises(ConfigurationError, match=r"ca names .*nothing\.pem, which cannot be read"):
        source_of(server, settings, extra={"tls": "true", "ca": str(tmp_path / "nothing.pem")})
    with pytest.raises(ConfigurationError, match="its extra has the unknown keys verify"):
        source_of(server, settings, extra={"verify": False})
