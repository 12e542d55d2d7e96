"""A pipeline that writes a topic, with or without a lake, and what a reader of committed messages must see."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.worlds.new_topics import new_topic
from tests.worlds.used_topics import delete_later
from tests.worlds.world import Place, World

QUIET = {"log_level": 2}


def topic_sink(servers: str, topic: str, **options: Any) -> dict[str, Any]:
    """The entry of ``sinks`` for the topic of these tests."""
    return {"topic": {"bootstrap_servers": servers, "topic": topic, **options}}


@dataclass
class TopicWorld(World):
    """A world with a topic as its sink; ``has_lake`` adds a lake. ``servers`` may be a proxy in front of the broker."""

    has_lake: bool = False
    servers: str = ""
    out_partitions: int = 3

    def __post_init__(self) -> None:
        sinks: list[dict[str, Any]] = [self.entry()]
        if self.has_lake:
            sinks.append(self.lake_entry())
        decode = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT"}
        self.settings = {"decode": decode, "sinks": sinks, **self.settings}
        super().__post_init__()

    def entry(self) -> dict[str, Any]:
        """The entry of ``sinks`` for a new topic."""
        self.servers = self.servers or self.broker.bootstrap_servers
        self.out = new_topic(self.broker, self.out_partitions)
        return topic_sink(self.servers, self.out, key=["k"])

    def sent(self) -> list[Message]:
        """The messages that a reader of committed ones gets, dead letters too."""
        servers = self.broker.bootstrap_servers
        return [message for topic in (self.out, f"{self.out}-dead-letters") for message in committed(servers, topic)]

    def seen(self) -> Counter[Place]:
        """How often a reader gets each record of the source."""
        return Counter(place_of(message) for message in self.sent())

    def covered(self) -> Counter[Place]:
        """Every offset of the manifests that have a marker."""
        newest = {message.key(): json.loads(message.value() or b"{}") for message in self.marker_messages()}
        return Counter(
            (part["at"]["topic"], part["at"]["partition"], offset)
            for record in newest.values()
            for part in record["ranges"]
            for offset in range(part["start"], part["end"])
        )

    def marker_messages(self) -> list[Message]:
        markers = committed(self.broker.bootstrap_servers, f"{self.out}-markers")
        return [message for message in markers if b"marker" in (message.key() or b"")]

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete an object of the lake, if there is one; what is in a topic is not sent again."""
        if self.has_lake:
            super().damage(manifest)

    def assert_nothing_is_seen(self) -> None:
        assert self.seen() == Counter()

    def assert_whole(self) -> None:
        """At any moment: the topic has the messages of the manifests with markers, each once, and no others."""
        if self.has_lake:
            super().assert_whole()
        covered = self.covered()
        assert self.seen() == covered, "I20 one marker"
        assert max(covered.values(), default=1) == 1
        assert self.published_spans("topic") <= covered

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            super().assert_readers_complete()
        messages = self.sent()
        assert Counter(map(place_of, messages)) == self.everything()
        newest: dict[tuple[bytes | None, int], int] = {}
        for message in messages:
            if message.topic() == self.out:
                _, partition, offset = place_of(message)
                value = json.loads(message.value() or b"{}")
                assert message.key() == str(value["k"]).encode()
                assert value["n"] == offset * self.partitions + partition
                before = newest.get((message.key(), partition), -1)
                assert before < offset, "I16 order of a key"
                newest[message.key(), partition] = offset

    def staging(self) -> list[str]:
        return [*super().staging(), *(str(path) for path in (self.folder / "staging").rglob("*.arrow"))]

    def remove_targets(self) -> None:
        delete_later(self.broker, self.out, f"{self.out}-markers", f"{self.out}-dead-letters")


def place_of(message: Message) -> Place:
    """Topic, partition and offset in the source, by the headers."""
    names = headers(message)
    return names["tidemark.topic"].decode(), int(names["tidemark.partition"]), int(names["tidemark.offset"])


def committed(servers: str, topic: str) -> list[Message]:
    """Every message that a consumer with ``read_committed`` gets, up to the last stable offset."""
    consumer = Consumer(
        {**QUIET, "bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
         "fetch.wait.max.ms": 10}
    )  # fmt: skip
    try:
        described = consumer.list_topics(topic, timeout=10).topics[topic]
        if described.error is not None:
            return []
        waiting = set(described.partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in waiting])
        messages = []
        while waiting:
            message = consumer.poll(20)
            assert message is not None, f"no answer of {topic}"
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                waiting.discard(message.partition())
        return messages
    finally:
        consumer.close()


def headers(message: Message) -> dict[str, bytes]:
    return {name: value or b"" for name, value in message.headers() or ()}


def delete_records(servers: str, topic: str) -> None:
    """Delete all messages, as retention does."""
    admin = AdminClient({**QUIET, "bootstrap.servers": servers})
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    answers = admin.delete_records([TopicPartition(topic, partition, -1) for partition in partitions])
    for answer in answers.values():
        answer.result(30)
