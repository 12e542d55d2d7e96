"""Appends to a Kafka topic: one transaction per manifest contains its messages and its marker.

What was appended cannot be taken back. So the marker is read before anything is sent, and after every earlier
transaction of the manifest has ended. If it has the same digest, nothing is sent again.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark.connections.lookup import Lookup
from tidemark.errors import AccessDenied, Fenced, LakeConflict, SinkRefused, Unavailable
from tidemark.failpoints import failpoint
from tidemark.kafka.address import dataset_of_topic
from tidemark.kafka.connection import KafkaConnection, named_connection
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.model.storable import Storable
from tidemark.paths import RecordName, staging_folder
from tidemark.providers.topic.append import append
from tidemark.providers.topic.appended import sent_before, sent_now
from tidemark.providers.topic.audit import differences_of_topic
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.headers import dead_letter_of
from tidemark.providers.topic.markers import Marker, Markers, transactional_id
from tidemark.providers.topic.message_limit import MessageLimit
from tidemark.providers.topic.messages import SinkTopics, messages_of
from tidemark.providers.topic.own_staging import OwnStaging
from tidemark.providers.topic.settings import Partitioner, Settings
from tidemark.providers.topic.transaction import BATCH_BYTES, LARGEST, TRIES, Interrupted, Transaction, uninterrupted
from tidemark.sinks.base import Contents, Expected, Fence, Ledger, Mark, Owner, Position, Record, Sink, WriteMode
from tidemark.sinks.capabilities import WritesTopics
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.located import Located, RecordStatus
from tidemark.storage.base import ObjectStore

SLOWEST = 5_000  # messages a second: what would take longer than the transaction may is not begun
READABLE_S = 5.0
_PARTITIONERS = {Partitioner.MURMUR2: "murmur2_random", Partitioner.CRC32: "consistent_random"}
_DEAD_LETTER_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(LARGEST)}


class TopicLedger(Ledger):
    """The markers of a topic: messages in a compacted topic beside it, which also name its owner and pipeline."""

    def __init__(self, pipeline_name: str, settings: Settings, topics: SinkTopics) -> None:
        super().__init__(pipeline_name, settings.name, settings.target)
        self.topics = topics
        self.markers = topics.markers

    @property
    def context(self) -> dict[str, object]:
        return {"pipeline": self.pipeline_name, "sink": self.name, "target_topic": self.topics.data}

    def owner(self) -> Owner | None:
        owner = self.markers.owner()
        return None if owner is None else owner[0]

    def claim(self, database_id: str) -> None:
        """Claim the topic. Raises ``SinkRefused`` if it does not exist, or belongs to another pipeline of the
        database."""
        self.refuse_missing()
        self.markers.ensure()
        if self.markers.owner() is None:
            self.markers.take(Owner(database_id), self.pipeline_name, only_if_free=True)
        owner = self.markers.owner()
        if owner is not None and owner[0].database == database_id:
            self.refuse_other_pipeline(owner[1])

    def refuse_missing(self) -> None:
        if not self.topics.exist():
            raise SinkRefused(
                f"topic {self.topics.data} does not exist",
                next_step="nothing was sent; create it: kafka-topics.sh --bootstrap-server "
                f"{self.topics.cluster.bootstrap_servers} --create --topic {self.topics.data} --partitions N; "
                "then repeat the command",
                **self.context,
            )

    def refuse_other_pipeline(self, owner: str) -> None:
        if owner != self.pipeline_name:
            raise SinkRefused(
                f"pipeline {owner} writes to topic {self.topics.data} already; two pipelines would mix their "
                "messages there",
                next_step="nothing was sent; give this sink a topic of its own",
                **self.context,
            )

    def hand_over(self, owner: Owner) -> None:
        self.markers.take(owner, self.pipeline_name, only_if_free=False)

    def registered_targets(self) -> set[str]:
        registered = self.markers.registered_target()
        return set() if registered is None else {registered}

    def note_target(self) -> None:
        self.markers.note_target(self.target)

    def rename_pipeline(self, old: str) -> None:
        """Change the pipeline's name in the owner of the topic."""
        owner = self.markers.owner()
        if owner is not None and owner[1] == old:
            self.markers.take(owner[0], self.pipeline_name, only_if_free=False)

    def position(self) -> Position | None:
        """Return the position. Its identity has the ids of both topics, so a topic that was created again is another
        target."""
        identity = self.identity()
        return None if identity is None else Position(identity, self.markers.end())

    def identity(self) -> str | None:
        markers, places = self.markers.id(), self.topics.cluster.partitions([self.topics.data])[0]
        return None if markers is None or not places else f"{markers}/{places[0].topic_id}"

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        del own  # no other pipeline writes to this topic
        markers = self.markers.all().items()
        return [RecordName(self.pipeline_name, id_, marker["attempt"]) for id_, marker in markers if id_ > above]

    def recorded_attempt(self, manifest_id: int) -> int | None:
        marker = self.markers.of(manifest_id)
        return None if marker is None else int(marker["attempt"])

    def record(self, name: RecordName) -> dict[str, Any] | None:
        marker = self.markers.of(name.manifest_id)
        return marker if marker and marker["attempt"] == name.attempt else None


class TopicOutput(WritesTopics):
    """The messages of one topic."""

    write_mode = WriteMode.APPEND

    def __init__(self, pipeline_name: str, settings: Settings, ledger: TopicLedger, store: ObjectStore) -> None:
        super().__init__(pipeline_name, settings.name)
        self.settings = settings
        self.cluster = ledger.topics.cluster
        self.markers = ledger.markers
        self.context = ledger.context
        self._ledger = ledger
        self._topics = ledger.topics
        self._store = store  # of its staging

    def storable(self, declared: Storable) -> Storable:
        """Declare the limit of messages, which the topic sets. If Kafka does not answer, other sinks publish without
        this limit."""
        [check] = declared.checks
        limit = MessageLimit(**check.options)
        if self.settings.format.registered and limit.schema is None:
            return declared
        try:
            options = self._options()
        except (Unavailable, AccessDenied):
            options = {}
        if "max.message.bytes" not in options:
            return declared
        is_keyed = "compact" in options.get("cleanup.policy", "")
        limit = replace(limit, bytes=int(options["max.message.bytes"]), keyed=is_keyed)
        return replace(declared, checks=(limit.check(),))

    def dataset(self) -> Dataset:
        return dataset_of_topic(self.cluster.bootstrap_servers, self.settings.topic)

    def exists(self) -> bool:
        return self._topics.exist()

    def has(self, receipt: Receipt) -> bool:
        """Return whether the topic exists: its messages were committed together with the marker."""
        del receipt
        return self.exists()

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether the topic exists. Its marker shows the same messages; those that retention removed are not
        sent again."""
        del before, now
        return self.exists()

    def wait_for_lower(self, manifest_id: int) -> None:
        """End the transactions of lower attempts. Before Spark starts, this also shows if the brokers support
        transactions."""
        self._settled(manifest_id, lambda: self._wait(manifest_id))

    def _wait(self, manifest_id: int) -> None:
        with self._transaction(manifest_id) as transaction:
            transaction.fence()
            self.markers.await_all(manifest_id)

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Do the steps 2 to 4. A commit without an answer is started again: then the marker says if it had
        succeeded."""
        self._refuse_too_long(receipt)
        dead = self.parts(receipt, ObjectKind.DEAD_LETTER)
        if dead and not self.cluster.partitions([self.settings.dead_letter_topic])[0]:
            self.cluster.create_topic(self.settings.dead_letter_topic, 1, _DEAD_LETTER_CONFIG)
        identity = self._ledger.identity()
        self._settled(receipt.manifest_id, lambda: self._put(receipt, record, fence))
        self._refuse_created_again(identity, receipt.manifest_id)
        failpoint("publish.before_mark")
        mark()

    def _put(self, receipt: Receipt, record: Record, fence: Fence) -> None:
        """Do one transaction. If the topic has the same messages already, as of a retired sink, only this attempt's
        marker is sent."""
        manifest_id, settings = receipt.manifest_id, self.settings
        with self._transaction(manifest_id) as transaction:
            transaction.fence()
            fence()  # not before: an older attempt that wakes may have fenced a newer one's producer
            self.markers.await_all(manifest_id)
            marker = self.markers.of(manifest_id)
            if marker is not None and not self._may_follow(marker, receipt, record):
                if marker["attempt"] == receipt.attempt:
                    return
                transaction.begin()
                content = {**record, **sent_before(marker)}
            else:
                transaction.begin()
                append(
                    transaction, self._store, staging_folder(manifest_id, receipt.attempt),
                    receipt.objects_of(self.name),
                    {ObjectKind.DATA: settings.topic, ObjectKind.DEAD_LETTER: settings.dead_letter_topic}, manifest_id,
                    fence, again=None if marker is None else receipt.attempt,
                    keyed="compact" in self._options().get("cleanup.policy", ""),
                    same_partition=settings.partitioner is Partitioner.SOURCE,
                )  # fmt: skip
                content = {**record, **sent_now(transaction, marker)}
            failpoint("publish.mid")
            fence()
            key = self.markers.key(manifest_id)
            transaction.send(settings.markers_topic, key, json.dumps(content).encode(), [], self.markers.partition(key))
            transaction.flush()
            failpoint("publish.before_record")
            transaction.commit()
            self._await_readable(transaction)
            self.markers.await_all(manifest_id)

    def _await_readable(self, transaction: Transaction) -> None:
        """Wait until readers see the messages, because Kafka answers a commit earlier. Gives up after ``READABLE_S``.

        Transactions of others may hide the messages for longer.
        """
        places, _ = self.cluster.partitions(sorted({topic for topic, _ in transaction.delivered}))
        ends = {
            place: delivered.last
            for place in places
            if (delivered := transaction.delivered.get((place.topic, place.partition)))
        }
        deadline = time.monotonic() + READABLE_S
        while time.monotonic() < deadline:
            bounds = self.cluster.bounds(list(ends))
            if all(bound.last_stable > ends[place] for place, bound in bounds.items()):
                return
            time.sleep(0.02)

    def _refuse_created_again(self, identity: str | None, manifest_id: int) -> None:
        """Raise if a topic was created again meanwhile: Kafka accepts the commit, but the new topic is empty."""
        if self._ledger.identity() != identity:
            raise LakeConflict(
                f"topic {self.settings.topic}, or its topic of markers, was created again while the manifest was sent: "
                "the messages may be lost with the old one",
                next_step="the manifest is not marked as published; give the sink another topic and name, and fill it: "
                f"tidemark fill {self.pipeline_name} NAME --why TEXT; or accept the topic as it is, without these "
                f"messages: tidemark db adopt {self.pipeline_name} --why TEXT",
                manifest=manifest_id,
                **self.context,
            )

    def _may_follow(self, marker: Marker, receipt: Receipt, record: Record) -> bool:
        """Return whether you allowed the messages to follow those of the marker; false if they are equal, and so in the
        topic.

        Raises ``LakeConflict`` for other messages, and ``Fenced`` if the marker is of a higher attempt.
        """
        attempt = int(marker["attempt"])
        if attempt > receipt.attempt:
            context = {"pipeline": self.pipeline_name, "sink": self.name, "manifest": receipt.manifest_id}
            raise Fenced.by_a_higher(receipt.attempt, attempt, "messages in the topic", **context)
        if marker["digest"] == record["digest"]:
            return False
        if receipt.follows.get(self.name) == attempt:
            return True
        raise LakeConflict(
            f"topic {self.settings.topic} holds other messages of this manifest, of attempt {attempt}, and what was "
            "appended cannot be taken back",
            next_step="nothing was sent; append them behind the others: "
            f"tidemark replay {self.pipeline_name} --manifest {receipt.manifest_id} --append-again --why TEXT; or give "
            f"the sink another topic and name, and fill it: tidemark fill {self.pipeline_name} NAME --why TEXT",
            manifest=receipt.manifest_id,
            **self.context,
        )

    def _transaction(self, manifest_id: int) -> Transaction:
        options = {
            "compression.type": self.settings.compression.value,
            "partitioner": _PARTITIONERS.get(self.settings.partitioner, "murmur2_random"),
            # Kafka refuses a whole batch that is larger than the topic takes, also of small messages.
            "batch.size": min(BATCH_BYTES, int(self._options().get("max.message.bytes", BATCH_BYTES))),
        }
        return Transaction(self.cluster, transactional_id(self.settings.topic, manifest_id), self._timeout_s(), options)

    def _timeout_s(self) -> float:
        wanted, longest = self.settings.transaction_timeout.total_seconds(), self.cluster.longest_transaction_s()
        return wanted if longest is None else min(wanted, longest)

    def _options(self) -> Mapping[str, str]:
        return self.cluster.options_of(self.settings.topic)

    def _settled(self, manifest_id: int, work: Callable[[], None]) -> None:
        try:
            uninterrupted(work)
        except Interrupted:
            raise Unavailable(
                f"the transaction of the manifest was interrupted {TRIES} times",
                next_step="nothing is visible half; see whether another process works on it, then: "
                f"tidemark retry {self.pipeline_name}",
                manifest=manifest_id,
                **self.context,
            ) from None

    def _refuse_too_long(self, receipt: Receipt) -> None:
        rows = sum(part.rows for part in receipt.objects_of(self.name))
        timeout_s = self._timeout_s()
        limit = int(timeout_s * SLOWEST)
        if rows > limit:
            raise SinkRefused(
                f"the manifest has {rows:,} messages, and a transaction of {timeout_s:,.0f} s takes at most {limit:,} "
                "for certain",
                next_step="nothing was sent; raise transaction_timeout of the sink (and transaction.max.timeout.ms of "
                f"the brokers), then: tidemark retry {self.pipeline_name}; for later manifests make slices smaller",
                manifest=receipt.manifest_id,
                **self.context,
            )

    def topic_ids(self) -> set[str]:
        topics = [self.settings.topic, self.settings.dead_letter_topic, self.settings.markers_topic]
        return {place.topic_id for place in self.cluster.partitions(topics)[0]}

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        del contents  # messages of unknown manifests have a next step of their own
        if deep:
            yield from differences_of_topic(expected, self._ledger, self._topics)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        del receipt
        marker = self.markers.of(manifest.id) or {}
        topics = {self.settings.topic: ObjectKind.DATA, self.settings.dead_letter_topic: ObjectKind.DEAD_LETTER}
        for message, source in messages_of(self.cluster, marker, manifest.id, list(topics)):
            if (source.topic, source.partition, source.offset) == (at.topic, at.partition, offset):
                kind = topics[message.topic]
                what = "a message" if kind is ObjectKind.DATA else "a dead letter"
                place = f"{self.settings.cluster}, {message.topic}-{message.partition} offset {message.offset}"
                return Located(self.name, published.attempt, RecordStatus.HELD, what, kind, place)
        what = f"no message of it is in {self._ledger.target} any more: retention or compaction may have taken it"
        return Located(self.name, published.attempt, RecordStatus.MISSING, what)

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        marker = self.markers.of(receipt.manifest_id) or {}
        for message, source in messages_of(
            self.cluster, marker, receipt.manifest_id, [self.settings.dead_letter_topic]
        ):
            yield dead_letter_of(message, source, values=values)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Begin a transaction without sending anything."""
        del decode, transforms
        self._ledger.refuse_missing()
        if self.markers.id() is not None:
            self.markers.ensure()
            owner = self.markers.owner()
            if owner is not None:
                self._ledger.refuse_other_pipeline(owner[1])
        with Transaction(self.cluster, transactional_id(self.settings.topic, "doctor"), 10.0, {}) as transaction:
            transaction.fence()
        yield ok(self.name, f"topic {self.settings.topic} is there, and its brokers begin transactions (tried)")


def sink_connection(pipeline_name: str, settings: Settings, lookup: Lookup) -> KafkaConnection:
    """Return the connection of a sink; a ``ConfigurationError`` names keys but never their values."""
    if settings.bootstrap_servers is not None:
        return KafkaConnection(settings.bootstrap_servers, {})
    return named_connection(settings.connection or "", pipeline_name, lookup)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    connection = sink_connection(pipeline_name, settings, lookup)
    cluster = TopicCluster(connection.bootstrap_servers, connection.config)
    markers = Markers(cluster, settings.markers_topic, settings.topic)
    topics = SinkTopics(cluster, settings.topic, settings.dead_letter_topic, markers)
    ledger = TopicLedger(pipeline_name, settings, topics)
    staging = OwnStaging(settings.staging, pipeline_name, settings.name, settings.store_settings(), lookup)
    return Sink(ledger, staging, TopicOutput(pipeline_name, settings, ledger, staging.store))
