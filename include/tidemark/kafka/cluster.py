"""All requests of a source to Kafka go through this module: topics, partitions, offsets, records at
``read_committed``."""

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakMethod, WeakValueDictionary

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, OffsetSpec, ResourceType

from tidemark.connections.lookup import Secret, masked, revealed
from tidemark.errors import ConfigurationError, TidemarkError, Unavailable
from tidemark.kafka.mechanisms import client_options, mechanism
from tidemark.kafka.options import AT_THE_END_MS
from tidemark.kafka.refusals import REFUSALS, denied
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction, Record, bounded_timestamp, moment_of

TIMEOUT_S = 10.0
ASKED_AGAIN_S = 5.0  # timeout of a new client that asks the bootstrap servers again, on a machine that may be busy
NONE = -1  # the broker's offset for "no such record"; librdkafka returns a lower one if the leader did not answer
NO_TOPIC_ID = "A" * 22  # 16 zero bytes, in the base64 of topic ids
REFUSED_S = 2.0  # so long another broker may still accept this client; librdkafka would retry forever
SINGLE_RECORDS_S = 5.0  # the longest that a plan waits for single records
NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
LEADER_HAS_CHANGED = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
T = TypeVar("T")
Ask = Callable[[AdminClient], Mapping[Any, Future[T]]]
SILENT = logging.getLogger("tidemark.kafka.client")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


@dataclass(frozen=True)
class ConsumerGroup:
    """The state of a consumer group. ``committed`` has only the partitions for which the group has committed an offset.

    ``unsettled`` are partitions with an open transaction that commits offsets. ``active`` is always false for consumers
    that assign partitions themselves, even while they run, because Kafka does not know them.
    """

    name: str
    exists: bool
    active: bool
    committed: Mapping[TopicPartition, int]
    unsettled: tuple[TopicPartition, ...]


# librdkafka: "kafka:9092/bootstrap: Connect to ipv4#10.0.0.7:9092 failed: Connection refused (after 0ms in state ..)"
_TROUBLE = re.compile(r"\S+: (?:Connect to \S+ failed: )?(?P<reason>.+?)(?: \(after .*)?$")
# librdkafka writes one of these if TLS, or the lack of it, may have ended the connection; in addresses it writes ssl://.
_ABOUT_TLS = re.compile(r"\bSSL\b|security\.protocol")
_SHARED: WeakValueDictionary[str, "KafkaCluster"] = WeakValueDictionary()
_SHARING = Lock()


def shared_cluster(bootstrap_servers: str, config: Mapping[str, str | Secret]) -> "KafkaCluster":
    """Return the cluster object that this process already has for this connection, or a new one.

    Callers share its client: to start and connect a client takes longer than most requests, and `status` asks for many
    pipelines.
    """
    key = json.dumps([bootstrap_servers, revealed(config)], sort_keys=True)
    with _SHARING:
        cluster = _SHARED.get(key)
        if cluster is None:
            cluster = _SHARED[key] = KafkaCluster(bootstrap_servers, config)
    return cluster


class KafkaCluster:
    """One Kafka cluster. Every call returns within 10 s or raises ``Unavailable``.

    Raises ``AccessDenied`` 2 s after a broker has refused this client, if no other broker has answered.
    """

    def __init__(self, bootstrap_servers: str, config: Mapping[str, str | Secret]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._secrets = config
        self._config = revealed(config)
        self._last_error = ""
        self._refusal: tuple[KafkaError, float] | None = None

    @property
    def _options(self) -> dict[str, Any]:
        """The options of every client: those of the connection, the brokers, and the callback for errors.

        A client must not keep this cluster alive. Otherwise both would outlive their command, and the next command in
        this process would ask brokers at addresses that they may have left.
        """
        remember = WeakMethod(self._remember)

        def tell(error: KafkaError) -> None:
            if (heard := remember()) is not None:
                heard(error)

        options = client_options(self._config, self.bootstrap_servers)
        return {**options, "bootstrap.servers": self.bootstrap_servers, "error_cb": tell}

    @cached_property
    def _admin(self) -> AdminClient:
        """The client, created at the first request: it starts threads and connects, and not every process sends
        requests."""
        try:
            return AdminClient(self._options, logger=SILENT)
        except KafkaException as failed:
            raise ConfigurationError(
                f"Kafka's client does not accept the connection's options: {self._text(failed.args[0])}",
                next_step="correct the Kafka connection (docs/configuration.md, Secured Kafka)",
                bootstrap_servers=self.bootstrap_servers,
            ) from None

    def _remember(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # this error follows another one, which has the reason
            self._last_error = self._text(error)
        if error.code() in REFUSALS and self._refusal is None:
            self._refusal = error, time.monotonic()

    @property
    def trouble(self) -> str:
        """Return the newest reason why a broker could not be reached, such as ``Connection refused``; empty after an
        answer."""
        words = _TROUBLE.match(self._last_error)
        what, *why = words["reason"].split(": ") if words else [""]
        return ": ".join([what, *why[-1:]])  # what is between them are the codes of OpenSSL

    def _text(self, error: KafkaError) -> str:
        return masked(error.str(), self._secrets)

    def _answered(self, ask: Ask[T]) -> Mapping[Any, Future[T]]:
        """Send a request, and wait until each future has an answer or an error. Raises if a broker has refused this
        client and no other accepts it.

        Threads share this cluster, and a thread that gets no answer drops the client. This method holds the client
        until the last answer, because a client that ends while its request times out may never report the timeout.
        """
        admin = self._admin
        futures = ask(admin)
        waiting = set(futures.values())
        while waiting := wait(waiting, timeout=0.05).not_done:
            admin.poll(0)
            self.raise_if_refused()
        return futures

    def _results(self, ask: Ask[T], *also: int) -> dict[Any, T | KafkaError]:
        """Return the result of every future, or its error if a topic is unknown or the code is in ``also``; raise other
        errors."""
        results: dict[Any, T | KafkaError] = {}
        for key, future in self._answered(ask).items():
            try:
                results[key] = future.result()
            except KafkaException as failed:
                error = failed.args[0]
                if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, *also):
                    results[key] = error
                else:
                    raise self.translated(error, str(key) if isinstance(key, str) else None) from failed
        self._refusal, self._last_error = None, ""
        return results

    def translated(self, error: KafkaError, topic: str | None = None) -> TidemarkError:
        self._admin.poll(0)
        refused = self._refusal[0] if self._refusal is not None and error.code() not in REFUSALS else error
        context = {"bootstrap_servers": self.bootstrap_servers, "topic": topic}
        if refused.code() in REFUSALS:
            brought = mechanism(self._config.get("sasl.mechanism"))
            advice = None if brought is None else brought.after_refusal(self.bootstrap_servers)
            return denied(refused.code(), self._text(refused), advice, **context)
        return self._unavailable(self._text(error), topic)

    def _unavailable(self, detail: str, topic: str | None, **context: object) -> Unavailable:
        """Return the error for a request without an answer, with what the brokers that still answer say about this
        topic.

        A first broker returns the addresses of all brokers. Behind a NAT or in a container, these may be reachable only
        for others. A new client asks it, because the old one knows the other brokers by now and may ask them instead.
        """
        context |= {"bootstrap_servers": self.bootstrap_servers, "topic": topic}
        self.__dict__.pop("_admin", None)  # the next request creates a client, which asks again where the brokers are
        metadata = ClusterMetadata()
        if f"{self.bootstrap_servers}/bootstrap" not in self._last_error:  # else the only bootstrap server is silent
            with suppress(KafkaException):
                metadata = AdminClient(self._options, logger=SILENT).list_topics(timeout=ASKED_AGAIN_S)
        for broker in metadata.brokers.values():
            address = f"{broker.host}:{broker.port}"
            if address in self._last_error and address not in self.bootstrap_servers.split(","):
                return Unavailable(
                    f"Kafka answers at {self.bootstrap_servers}, but advertises its broker {broker.id} at {address}, "
                    f"to which this machine cannot connect ({self._last_error})",
                    next_step="start that broker, or correct its advertised.listeners; each of the addresses must be "
                    "reachable from here and from Spark's executors; where brokers have a listener for each network, "
                    "bootstrap_servers must name the one for this network",
                    **context,
                )
        described = metadata.topics.get(topic or "")
        for number, partition in sorted(described.partitions.items()) if described else ():
            if partition.leader not in metadata.brokers:
                replicas = ", ".join(map(str, sorted(partition.replicas)))
                return Unavailable(
                    f"partition {topic}-{number} has no leader: none of the brokers that hold its replicas, by id "
                    f"{replicas}, is running and in sync",
                    next_step=f"start these brokers (kafka-topics.sh --describe --topic {topic} shows them), then try "
                    "again",
                    **{**context, "partition": number},
                )
        reasons = "; ".join(filter(None, [detail, self._last_error]))
        cause = f"{self.trouble}, so " if self.trouble else ""
        check = "check that the broker runs and that bootstrap_servers (or the Airflow connection) names it"
        if _ABOUT_TLS.search(reasons):
            check += ", and that security.protocol and the client's certificate are those that this port wants"
        return Unavailable(
            f"{cause}Kafka does not answer within {TIMEOUT_S:.0f} s at {self.bootstrap_servers} ({reasons})",
            next_step=check,
            **context,
        )

    def raise_if_refused(self) -> None:
        """Raise ``AccessDenied`` if a broker refused a client of this cluster more than 2 s ago."""
        if self._refusal is not None and time.monotonic() - self._refusal[1] > REFUSED_S:
            raise self.translated(self._refusal[0])

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if its brokers have none. librdkafka 2.16 aborts the process if it asks by
        ``describe_cluster`` and a broker lists no broker, as one does that the controller does not hear."""
        return cast("str | None", self._metadata().cluster_id)

    def topics(self) -> list[str]:
        return sorted(self._metadata().topics)

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=TIMEOUT_S)
        except KafkaException as failed:
            raise self.translated(failed.args[0]) from failed

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        """Return (every partition of the topics that exist, with the topic's id; the names of the topics that do not
        exist).

        Raises ``ConfigurationError`` for brokers that are too old to have topic ids.
        """
        if not topics:
            return [], []
        collection = TopicCollection(list(topics))
        described = self._results(lambda admin: admin.describe_topics(collection, request_timeout=TIMEOUT_S))
        partitions: list[TopicPartition] = []
        missing: list[str] = []
        for topic, description in described.items():
            if isinstance(description, KafkaError):
                missing.append(topic)
            else:
                topic_id = str(description.topic_id)
                if topic_id == NO_TOPIC_ID:
                    raise ConfigurationError(
                        f"the brokers give topic {topic} no id, so Tidemark could not tell it from a recreated topic",
                        next_step="nothing was read; use brokers of Kafka 2.8 or newer, with an "
                        "inter.broker.protocol.version of 2.8 or newer",
                        bootstrap_servers=self.bootstrap_servers,
                    )
                partitions += [TopicPartition(topic, topic_id, partition.id) for partition in description.partitions]
        return sorted(partitions), sorted(missing)

    def compacted(self, topics: Sequence[str]) -> list[str]:
        """Return the topics whose clean-up policy includes compaction.

        A topic whose configuration this user may not see (DESCRIBE_CONFIGS) is left out: its compaction then shows as
        gaps.
        """
        if not topics:
            return []
        configs = self._configs(ResourceType.TOPIC, topics, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return sorted(topic for topic, options in configs.items() if "compact" in options["cleanup.policy"])

    def _configs(self, kind: ResourceType, names: Sequence[str], without_right: int) -> dict[str, Mapping[str, str]]:
        """Return the configurations by name, without those that do not exist or that this user may not see."""
        resources = [ConfigResource(kind, name) for name in names]
        results = self._results(
            lambda admin: admin.describe_configs(resources, request_timeout=TIMEOUT_S), without_right
        )
        return {
            resource.name: {key: str(entry.value) for key, entry in options.items()}
            for resource, options in results.items()
            if not isinstance(options, KafkaError)
        }

    def _offsets(
        self, places: Iterable[TopicPartition], spec: Callable[[], OffsetSpec], isolation: IsolationLevel
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp in ms) of each partition; the offset -1 means none. If a leader has changed, ask
        again."""
        requested = {KafkaPartition(place.topic, place.partition): place for place in places}
        if not requested:
            return {}
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            results = self._results(
                lambda admin: admin.list_offsets(
                    {partition: spec() for partition in requested}, isolation_level=isolation, request_timeout=TIMEOUT_S
                ),
                *LEADER_HAS_CHANGED,
            )
            answers: dict[TopicPartition, tuple[int, int]] = {}
            unanswered: dict[TopicPartition, KafkaError] = {}
            for partition, answer in results.items():
                place = requested[partition]
                if isinstance(answer, KafkaError):
                    unanswered[place] = answer
                elif answer.offset < NONE:
                    unanswered[place] = KafkaError(KafkaError._TIMED_OUT, "the partition's leader has not answered")
                else:
                    answers[place] = (answer.offset, answer.timestamp)
            if not unanswered:
                return answers
            error = next(iter(unanswered.values()))
            if error.code() not in LEADER_HAS_CHANGED or time.monotonic() > deadline:
                raise self.translated(error, next(iter(unanswered)).topic)
            self.topics()  # the answer also tells the client the new leaders
            time.sleep(0.1)

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return start, last stable offset and end of each partition.

        The ends are asked for before the last stable offsets. So if the last stable offset is not below the end, all
        that the log held when it was asked for its end may be read. Records that arrived in between are no sign of an
        open transaction, and a transaction that ended in between holds nothing back.
        """
        start = self._offsets(places, OffsetSpec.earliest, IsolationLevel.READ_COMMITTED)
        end = self._offsets(places, OffsetSpec.latest, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(places, OffsetSpec.latest, IsolationLevel.READ_COMMITTED)
        return {
            place: Bounds(start[place][0], stable[place][0], max(end[place][0], stable[place][0])) for place in places
        }

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        """Return, by partition, the transaction that kept the last stable offset below the log end when the bounds were
        asked for.

        Partitions without one have no entry.
        """
        held = {place: bound for place, bound in bounds.items() if bound.last_stable < bound.log_end}
        first = self.records_from([(place, bound.last_stable) for place, bound in held.items()])
        return {
            place: OpenTransaction(
                place,
                bound.last_stable,
                bound.log_end - bound.last_stable,
                _moment(first.get((place, bound.last_stable)), bound.last_stable),
            )
            for place, bound in held.items()
        }

    def records_from(
        self, offsets: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], Record | None]:
        """Return the first record at or after each offset, committed or not; None if the log has none up to its end.

        One consumer reads all partitions, and of each partition the first requested offsets first. An offset outside
        the log, or one that is not read within 5 s, has no entry.
        """
        waiting: dict[tuple[str, int], list[tuple[TopicPartition, int]]] = {}
        for place, offset in reversed([*offsets]):  # below, pop() takes the last one of a list
            waiting.setdefault((place.topic, place.partition), []).append((place, offset))
        records: dict[tuple[TopicPartition, int], Record | None] = {}
        if not waiting:
            return records
        consumer = self._consumer("read_uncommitted")
        deadline = time.monotonic() + SINGLE_RECORDS_S
        try:
            consumer.assign([KafkaPartition(*at, requested[-1][1]) for at, requested in waiting.items()])
            while waiting and (remaining := deadline - time.monotonic()) > 0:
                message = consumer.poll(remaining)
                if message is None:
                    break
                at = (message.topic() or "", message.partition() or 0)
                if at not in waiting:
                    continue
                pair, error, offset = waiting[at].pop(), message.error(), message.offset() or 0
                if error is None:
                    records[pair] = _record(message, offset)
                elif error.code() == KafkaError._PARTITION_EOF and pair[1] < offset:
                    records[pair] = None
                consumer.incremental_unassign([KafkaPartition(*at)])
                if waiting[at]:
                    consumer.incremental_assign([KafkaPartition(*at, waiting[at][-1][1])])
                else:
                    del waiting[at]
        finally:
            consumer.close()
        return records

    def group(self, name: str, places: Sequence[TopicPartition]) -> ConsumerGroup:
        """Return the state of a consumer group. It is asked for before the offsets, so a group that stops in between is
        active."""
        requested = {(place.topic, place.partition): place for place in places}
        request = ConsumerGroupTopicPartitions(name, [KafkaPartition(*pair) for pair in requested])
        described = self._coordinated(lambda admin: admin.describe_consumer_groups([name], request_timeout=TIMEOUT_S))
        answer = self._coordinated(
            # Without require_stable Kafka returns the old offset while a transaction is about to replace it.
            lambda admin: admin.list_consumer_group_offsets([request], require_stable=True, request_timeout=TIMEOUT_S)
        )
        committed: dict[TopicPartition, int] = {}
        unsettled: list[TopicPartition] = []
        for partition in answer.topic_partitions if answer else []:
            place, error = requested[partition.topic, partition.partition], partition.error
            if error is not None and error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                unsettled.append(place)
            elif error is not None:
                raise self.translated(error)
            elif partition.offset >= 0:
                committed[place] = partition.offset
        exists = described is not None and described.state is not ConsumerGroupState.DEAD
        active = exists and (described.state is not ConsumerGroupState.EMPTY or bool(described.members))
        return ConsumerGroup(name, exists, active, committed, tuple(sorted(unsettled)))

    def metadata_of(self, group: str, places: Iterable[TopicPartition]) -> set[str]:
        """Return the metadata that a consumer group stored with its committed offsets for these partitions."""
        request = [ConsumerGroupTopicPartitions(group, [KafkaPartition(at.topic, at.partition) for at in places])]
        answer = self._coordinated(lambda admin: admin.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S))
        partitions = answer.topic_partitions if answer else []
        return {partition.metadata for partition in partitions if partition.error is None and partition.metadata}

    def commit(self, group: str, ends: Mapping[TopicPartition, int], metadata: str) -> None:
        """Commit offsets for a consumer group without members. Partitions that no longer exist are left out.

        Raises ``ConfigurationError`` if the group has members.
        """
        if not ends:
            return
        offsets = [KafkaPartition(place.topic, place.partition, offset, metadata) for place, offset in ends.items()]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        answer = self._coordinated(lambda admin: admin.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S))
        for partition in answer.topic_partitions if answer else []:
            error = partition.error
            if error is not None and error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise ConfigurationError(
                    f"consumer group {group} has members, which commit for themselves",
                    next_step="name a group that nobody else uses in source.kafka.progress_group",
                    bootstrap_servers=self.bootstrap_servers,
                )
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self.translated(error)

    def _coordinated(self, ask: Ask[Any]) -> Any:
        """Return the answer of a group's coordinator, None for an unknown group. Asks again until the coordinator is
        ready."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            [future] = self._answered(ask).values()
            try:
                return future.result()
            except KafkaException as failed:
                error = failed.args[0]
                if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                if error.code() not in NO_COORDINATOR_YET or time.monotonic() > deadline:
                    raise self.translated(error) from failed
                time.sleep(0.1)

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        """Return the first offset with a timestamp at or after ``when``, and that timestamp; None if there is no such
        record.

        Producers may set timestamps in any order: use the offset as a place to cut; it says nothing about other
        records. A timestamp beyond the calendar, such as that of a producer that counts in microseconds, becomes the
        calendar's last moment.
        """
        milliseconds = max(0, int(when.timestamp() * 1000))  # the protocol uses negative numbers as special values
        answers = self._offsets(places, lambda: OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_UNCOMMITTED)
        return {
            place: None if offset < 0 else (offset, moment_of(timestamp) or LAST_MOMENT)
            for place, (offset, timestamp) in answers.items()
        }

    def records(self, covered: Range) -> Iterator[Record]:
        """Yield the committed records of a range in ascending order. Uses no consumer group and commits no offset.

        If the reader reports an end below the range's end, this method asks for the bounds. A new leader that does not
        know yet how far its followers are reports an end too early (KIP-207). Then it waits for the records after that
        end.
        """
        place = covered.at
        consumer = self._consumer("read_committed")
        try:
            consumer.assign([KafkaPartition(place.topic, place.partition, covered.start)])
            while True:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    offsets = f"[{covered.start},{covered.end})"
                    raise self._unavailable(
                        "no record has arrived", place.topic, partition=place.partition, offsets=offsets
                    )
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self.translated(error)
                if error is not None and offset is not None and offset < covered.end and self._is_early(place, offset):
                    continue
                if error is not None or offset is None or offset >= covered.end:
                    return
                yield _record(message, offset)
                if offset == covered.end - 1:
                    return
        finally:
            consumer.close()

    def _is_early(self, place: TopicPartition, end: int) -> bool:
        """Return whether there are stable offsets after this one, so that the reported end is too early."""
        return self.bounds([place])[place].last_stable > end

    def _consumer(self, isolation: str) -> Consumer:
        options: dict[str, Any] = {
            **self._options,
            "group.id": "tidemark-never-commits",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": AT_THE_END_MS,
        }
        return Consumer(options, logger=SILENT)


def _record(message: Message, offset: int) -> Record:
    headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=offset,
        timestamp_ms=bounded_timestamp(message.timestamp()[1]),
        key=message.key(),
        value=message.value(),
        headers=None if headers is None else tuple(headers),
        leader_epoch=message.leader_epoch(),
    )


def _moment(record: Record | None, offset: int) -> datetime | None:
    """Return the timestamp of the record at an offset; None if that record was not read or has no timestamp."""
    return None if record is None or record.offset != offset else record.stamped_at
