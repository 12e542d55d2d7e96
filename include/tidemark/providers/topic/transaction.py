"""One transaction of a Kafka producer: readers of committed messages see all of its messages, or none."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidemark.errors import THEN_RETRY, AccessDenied, SinkRefused, TidemarkError, Unavailable, WorkFailed
from tidemark.kafka.refusals import AUTHORIZATION
from tidemark.providers.topic.cluster import TopicCluster

WAIT_S = 30.0  # for the coordinator to begin or end a transaction
AGAIN_S = 0.05  # before the same is asked again, when the answer came at once
ASK_S = 3.0  # of that in one call: between calls it is checked whether a broker has refused us
TRIES = 5  # of a transaction that is interrupted
BATCH_BYTES = 1_000_000  # of a request, as librdkafka's own default
WAITING_BYTES = 128 * 1024  # kB of messages in memory that the broker has not acknowledged
LARGEST = 1_000_000_000  # bytes of a message: the broker decides, it knows the limit of the topic
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_DENIED = (*AUTHORIZATION, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_GIVEN_UP = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_WITHOUT_TRANSACTIONS = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._UNSUPPORTED_FEATURE,
)

Headers = Sequence[tuple[str, bytes]]
T = TypeVar("T")


class Interrupted(Exception):
    """Another producer with the same transactional id has begun, or it is unknown how the transaction ended."""


def uninterrupted(work: Callable[[], T]) -> T:
    """Return the result of work in a transaction. Repeat the work after ``Interrupted``; raise that after ``TRIES``
    tries."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except Interrupted:
            continue
    return work()


@dataclass
class Delivered:
    """The messages of a transaction in one partition: their number, and their lowest and highest offset (inclusive)."""

    count: int
    first: int
    last: int


class Transaction:
    """A producer for one transaction, as a context manager: at its end, what was not committed is aborted.

    The broker aborts it after ``timeout_s``. Raises ``Interrupted`` if it must be started again with another producer.
    """

    def __init__(
        self, cluster: TopicCluster, transactional_id: str, timeout_s: float, options: Mapping[str, Any]
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._ends = 0.0
        self._open = False
        self._sent = 0
        self._rank = False, 0  # of the failure: whether it is a cause, and the bytes of the value
        self._failure: KafkaError | None = None
        self.refused: Message | None = None  # the message that Kafka has not stored; without headers
        self.delivered: dict[tuple[str, int], Delivered] = {}
        milliseconds = int(timeout_s * 1000)
        self._producer: Producer = cluster.producer(
            {
                "linger.ms": 20, "batch.size": BATCH_BYTES, "message.max.bytes": LARGEST,
                "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": WAITING_BYTES,
                **options, "transactional.id": transactional_id, "transaction.timeout.ms": milliseconds,
                "delivery.timeout.ms": milliseconds, "on_delivery": self._on_delivery,
            }
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._open = False
            try:
                self._producer.abort_transaction(ASK_S)
            except KafkaException:
                self._producer.purge()  # the next producer of this id, or the timeout, aborts it

    def fence(self) -> None:
        """End the open transactions of earlier producers with this id, and prevent their later commits."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._producer.init_transactions(ASK_S)
                return
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                self._producer.poll(0)
                self._cluster.raise_if_refused()
                if not error.retriable():
                    raise self._translated(error) from failed
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"Kafka did not begin a transaction within {WAIT_S:.0f} s ({error.str()})",
                        next_step="check that the brokers run, and that they can make their topic for transactions: "
                        "transaction.state.log.replication.factor and .min.isr may not be larger than the number of "
                        "brokers" + THEN_RETRY,
                        bootstrap_servers=self._cluster.bootstrap_servers,
                    ) from failed
                time.sleep(AGAIN_S)

    def begin(self) -> None:
        """Begin the transaction, and its time limit. The caller has called ``fence``."""
        try:
            self._producer.begin_transaction()
        except KafkaException as failed:
            raise self._translated(failed.args[0]) from failed
        self._ends = time.monotonic() + self._timeout_s
        self._open = True

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, partition: int | None = None
    ) -> None:
        """Queue a message; messages of one partition are stored in the order of the calls."""
        place = {} if partition is None else {"partition": partition}
        while True:
            try:
                self._producer.produce(topic, value, key, headers=headers, **place)  # type: ignore[arg-type]
                self._sent += 1
                return
            except BufferError:
                self._producer.poll(0.05)
                self.check()
            except KafkaException as failed:
                self._producer.flush(ASK_S)  # the transaction has failed: what is wrong with which message comes now
                self.check()
                raise self._translated(failed.args[0]) from failed

    def check(self) -> None:
        """Handle the answers so far; raise the error of a message, or if the time is over."""
        self._producer.poll(0)
        if self._failure is not None:
            raise self._translated(self._cause(self._failure))
        if time.monotonic() > self._ends:
            raise SinkRefused(
                f"the transaction did not end within its {self._timeout_s:,.0f} s",
                next_step="nothing of it is visible; make slices smaller, or raise transaction_timeout of the sink and "
                "transaction.max.timeout.ms of the brokers" + THEN_RETRY,
            )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the reason why messages were given up before they were sent.

        To learn it, begin the failed transaction again: the client then reports the reason, and does nothing.
        """
        if error.code() not in _GIVEN_UP:
            return error
        try:
            self._producer.begin_transaction()
        except KafkaException as failed:
            cause: KafkaError = failed.args[0]
            return cause
        return error

    def flush(self) -> None:
        """Wait until every message is stored; raise if one is not."""
        while self._waits():
            self.check()
        self.check()
        stored = sum(delivered.count for delivered in self.delivered.values())
        if stored != self._sent:
            raise WorkFailed(
                f"Kafka has stored {stored:,} of {self._sent:,} messages",
                next_step="nothing of it is visible; tidemark retry {pipeline}, and report it if it happens again",
            )

    def commit(self) -> None:
        """Make all messages visible; raises ``Interrupted`` if no answer says whether they are."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._producer.commit_transaction(ASK_S)
                self._open = False
                return
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                if error.retriable() and time.monotonic() < deadline:
                    time.sleep(AGAIN_S)
                    continue  # it is the same commit: its answer is still awaited
                if error.txn_requires_abort():
                    raise self._translated(error) from failed
                raise Interrupted(error.str()) from failed

    def _waits(self) -> bool:
        """Return whether some messages are still not stored after ``ASK_S``."""
        try:
            return bool(self._producer.flush(ASK_S))
        except SystemError:  # seen of confluent-kafka 2.16 while its brokers were cut off: it failed without an error
            time.sleep(AGAIN_S)
            return True

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            # Of a batch that is too large, name the message that makes it so; not those that were given up with it.
            rank = error.code() not in _GIVEN_UP, len(message.value() or b"")
            if self._failure is None or rank > self._rank:
                self._rank = rank
                self._failure, self.refused = error, message
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        delivered = self.delivered.get(place)
        if delivered is None:
            self.delivered[place] = Delivered(1, offset, offset)
        else:
            delivered.count += 1
            delivered.last = offset

    def _translated(self, error: KafkaError) -> Exception:
        code = error.code()
        context = {"target_topic": self.refused.topic() if self.refused else None}
        if error.fatal() or code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
            return Interrupted(error.str())
        if code in _TOO_LARGE:
            return SinkRefused(
                f"a message is larger than the topic takes: {error.str()}",
                next_step="nothing of the manifest is visible; raise max.message.bytes of the topic (and "
                "replica.fetch.max.bytes of the brokers), or leave columns out" + THEN_RETRY,
                **context,
            )
        if code in _DENIED:
            return AccessDenied(
                f"Kafka refuses this client: {error.str()}",
                next_step="grant the user of the Kafka connection DESCRIBE, READ and WRITE on the sink's topics, and "
                "DESCRIBE and WRITE on the transactional ids that begin with tidemark- (kafka-acls --add)" + THEN_RETRY,
                **context,
            )
        if code in _WITHOUT_TRANSACTIONS:
            return SinkRefused(
                f"these brokers do not support transactions: {error.str()}",
                next_step="nothing was sent; use brokers of Kafka 2.8 or newer",
                bootstrap_servers=self._cluster.bootstrap_servers,
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return SinkRefused(
                f"the brokers do not allow a transaction of {self._timeout_s:,.0f} s: {error.str()}",
                next_step="set transaction_timeout of the sink to at most transaction.max.timeout.ms of the brokers",
                bootstrap_servers=self._cluster.bootstrap_servers,
            )
        if code in (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return SinkRefused(
                f"the topic does not take a message: {error.str()}",
                next_step="nothing of the manifest is visible; correct the topic" + THEN_RETRY,
                **context,
            )
        unavailable: TidemarkError = self._cluster.translated(error)
        return unavailable
