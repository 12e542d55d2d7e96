"""The compacted topic of markers: for each manifest what was appended last, and who owns the sink's topic.

A marker is part of the transaction that appends its messages, so it exists exactly if they exist. The key of a message
is JSON: ``["owner", topic]`` or ``["marker", topic, manifest]``; the newest message of a key counts.
"""

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any

from tidemark.errors import THEN_RETRY, SinkRefused, Unavailable
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.receipt import MALFORMED
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.transaction import TRIES, Interrupted, Transaction, uninterrupted
from tidemark.sinks.base import Owner

# The markers of a manifest always lie in the same one of so many: a transaction that nobody ends yet hides one of them,
# and not the others.
PARTITIONS = 8
CONFIG = {"cleanup.policy": "compact", "max.message.bytes": "10485760"}  # a marker names all ranges and gaps
WAIT_S = 20.0  # for transactions of others that hide a partition
OWNER_TIMEOUT_S = 10.0

Marker = dict[str, Any]


def transactional_id(topic: str, of: int | str) -> str:
    """Return the id of the transactions of a manifest, or of another purpose, in a topic. It is unique for topic and
    purpose.

    It does not contain the name of a sink or pipeline. So it also fences a process that writes the manifest under an
    older name.
    """
    return f"tidemark-{topic}-{of}"


class Markers:
    """The markers of one topic as committed so far. Each question reads what was added since the last one.

    An answer is as new as the question, except that an open transaction hides what was committed after it began.
    ``await_all`` waits for its end.
    """

    def __init__(self, cluster: TopicCluster, name: str, topic: str) -> None:
        self.name = name
        self._cluster = cluster
        self._topic = topic
        self._id = ""
        self._next: dict[TopicPartition, int] = {}
        self._markers: dict[int, Marker] = {}
        self._owner: dict[str, Any] | None = None

    def ensure(self) -> None:
        """Create the topic if it does not exist; raise if it has too few partitions, or if Kafka would delete
        markers."""
        partitions = self._partitions()
        if not partitions:
            self._cluster.create_topic(self.name, PARTITIONS, CONFIG)
        elif len(partitions) < PARTITIONS:
            raise SinkRefused(
                f"the topic of markers {self.name} has {len(partitions)} partitions, and markers need {PARTITIONS}",
                next_step=f"nothing was sent; kafka-topics.sh --bootstrap-server {self._cluster.bootstrap_servers} "
                f"--alter --topic {self.name} --partitions {PARTITIONS}; then repeat the command",
            )
        policy = self._cluster.options_of(self.name).get("cleanup.policy", "")
        if "delete" in policy:
            raise SinkRefused(
                f"the topic of markers {self.name} has cleanup.policy={policy}: it would forget what was sent",
                next_step=f"nothing was sent; kafka-configs.sh --bootstrap-server {self._cluster.bootstrap_servers} "
                f"--alter --entity-type topics --entity-name {self.name} --add-config cleanup.policy=compact; "
                "then repeat the command",
            )

    def id(self) -> str | None:
        """Return the id of the topic; None if it does not exist."""
        return next((place.topic_id for place in self._partitions()), None)

    def end(self) -> int:
        """Return the sum of the ends of all partitions, which only grows."""
        return sum(bounds.log_end for bounds in self._cluster.bounds(self._partitions()).values())

    def all(self) -> dict[int, Marker]:
        """Return the markers by manifest."""
        self._read()
        return self._markers

    def of(self, manifest_id: int) -> Marker | None:
        return self.all().get(manifest_id)

    def owner(self) -> tuple[Owner, str] | None:
        """Return the owner of the topic, and the pipeline that writes to it."""
        self._read()
        if self._owner is None:
            return None
        return Owner(self._owner["database"], tuple(self._owner["before"])), self._owner["pipeline"]

    def key(self, manifest_id: int) -> bytes:
        return json.dumps(["marker", self._topic, manifest_id]).encode()

    def partition(self, key: bytes) -> int:
        """Return the partition of a key. It does not change if somebody adds partitions."""
        return zlib.crc32(key) % PARTITIONS

    def await_all(self, manifest_id: int) -> None:
        """Wait until no open transaction hides a marker of this manifest; ``Unavailable`` after ``WAIT_S``."""
        self._await(self.partition(self.key(manifest_id)))

    def take(self, owner: Owner, pipeline_name: str, *, only_if_free: bool) -> None:
        """Set the owner. If several processes claim a free topic at once, one of them succeeds."""
        content = {"database": owner.database, "before": owner.before, "pipeline": pipeline_name}
        self._change_owner(content, only_if_free=only_if_free)

    def registered_target(self) -> str | None:
        """Return the name under which a sink registered the topic."""
        self._read()
        return None if self._owner is None else self._owner.get("target")

    def note_target(self, target: str) -> None:
        self._change_owner({"target": target}, only_if_free=False)

    def _change_owner(self, content: Mapping[str, Any], *, only_if_free: bool) -> None:
        try:
            uninterrupted(lambda: self._take(content, only_if_free=only_if_free))
        except Interrupted:
            raise Unavailable(
                f"the owner of topic {self._topic} could not be stored in {TRIES} tries: another process registers it "
                "at the same time, or the broker did not confirm the transaction",
                next_step="look for another Tidemark process that claims this topic; then repeat the command or task",
            ) from None

    def _take(self, content: Mapping[str, Any], *, only_if_free: bool) -> None:
        key = json.dumps(["owner", self._topic]).encode()
        partition = self.partition(key)
        with Transaction(self._cluster, transactional_id(self._topic, "owner"), OWNER_TIMEOUT_S, {}) as transaction:
            transaction.fence()
            self._await(partition)
            self._read()
            if only_if_free and self._owner is not None:
                return
            before = self._owner or {"number": 0}
            content = {**before, **content, "number": before["number"] + 1}
            transaction.begin()
            transaction.send(self.name, key, json.dumps(content).encode(), [], partition)
            transaction.flush()
            transaction.commit()
            self._await(partition)

    def _partitions(self) -> list[TopicPartition]:
        partitions, _ = self._cluster.partitions([self.name])
        if self._id and not partitions:  # a broker that does not know it yet has answered; or somebody has deleted it
            raise Unavailable(
                f"the topic of markers {self.name} was there a moment ago, and is not in the newest answer of Kafka",
                next_step="nothing was sent; check the topic" + THEN_RETRY,
                topic=self.name,
            )
        if partitions and partitions[0].topic_id != self._id:  # the topic was created again
            self._id = partitions[0].topic_id
            self._next, self._markers, self._owner = {}, {}, None
        return partitions

    def _read(self) -> None:
        for place, bounds in self._cluster.bounds(self._partitions()).items():
            start = max(self._next.get(place, 0), bounds.log_start)
            if start < bounds.last_stable:
                for message in self._cluster.records(Range(place, start, bounds.last_stable)):
                    self._take_in(message.key, message.value)
                self._next[place] = bounds.last_stable

    def _take_in(self, key: bytes | None, value: bytes | None) -> None:
        """Store a message, if its number is the highest of its key."""
        try:
            kind, topic, *rest = json.loads(key or b"")
            content = json.loads(value or b"")
        except MALFORMED:
            return  # somebody else has sent it
        if topic != self._topic:
            return
        if kind == "owner" and (self._owner is None or self._owner["number"] < content["number"]):
            self._owner = content
        elif kind == "marker" and self._markers.get(rest[0], {"attempt": 0})["attempt"] < content["attempt"]:
            self._markers[rest[0]] = content

    def _await(self, partition: int) -> None:
        [place] = [place for place in self._partitions() if place.partition == partition]
        end = self._cluster.bounds([place])[place].log_end
        deadline = time.monotonic() + WAIT_S
        while self._cluster.bounds([place])[place].last_stable < end:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"an open transaction hides markers in {place.name}, and did not end within {WAIT_S:.0f} s",
                    next_step="nothing was sent; a process died or hangs: it ends after the sink's "
                    "transaction_timeout, or when its manifest is processed again: tidemark retry {pipeline}",
                    topic=self.name,
                    partition=partition,
                )
            time.sleep(0.05)
