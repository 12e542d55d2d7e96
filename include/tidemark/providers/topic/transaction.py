"""One transaction of a Kafka producer: readers of committed messages see all of its messages, or none."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

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
        self._options = {
            "linger.ms": 20, "batch.size": BATCH_BYTES, "message.max.bytes": LARGEST,
            "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": WAITING_BYTES,
            **options, "transactional.id": transactional_id, "transaction.timeout.ms": milliseconds,
            "delivery.timeout.ms": milliseconds, "on_delivery": self._on_delivery,
        }  # fmt: skip
        self._producer = cluster.producer(self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._open = False
            self._producer.purge()
            if not isinstance(error, Interrupted):
                self._abort()

    def _abort(self) -> None:
        """Abort with another producer of the id: it has a newer epoch, which every partition of the transaction gets
        with the abort. The producer's own abort leaves the epoch as it is, and a broker that does not verify
        transactions (KIP-890) would store a request of it that comes late: the next commit would make it visible."""
        with suppress(KafkaException):  # else the next attempt, or the timeout, aborts it; also with a newer epoch
            self._cluster.producer(self._options).init_transactions(ASK_S)

    def fence(self) -> None:
        """End the open transactions of earlier producers with this id, and prevent their later commits."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._producer.init_transactions(ASK_S)
                return
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                self._called(lambda: self._producer.poll(0))
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
                self._called(lambda: self._producer.poll(0.05))
                self.check()
            except KafkaException as failed:
                # The transaction has failed: which message is wrong, and why, comes now.
                self._called(lambda: self._producer.flush(ASK_S))
                self.check()
                raise self._translated(failed.args[0]) from failed

    def check(self) -> None:
        """Handle the answers that have come; raises what is wrong with a message, or when the time is over."""
        self._called(lambda: self._producer.poll(0))
        if self._failure is not None:
            raise self._translated(self._cause(self._failure))
        if time.monotonic() > self._ends:
            raise SinkRefused(
                f"the transaction did not end within its {self._timeout_s:,.0f} s",
                next_step="nothing of it is visible; make slices smaller, or raise transaction_timeout of the sink and "
                "transaction.max.timeout.ms of the brokers" + THEN_RETRY,
            )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the reason why messages were given up before they were sent."""
        return (self._failed_by() or error) if error.code() in _GIVEN_UP else error

    def _failed_by(self) -> KafkaError | None:
        """Return the reason why the transaction has failed. The client tells it when it should begin another one, which
        it does not."""
        try:
            self._producer.begin_transaction()
        except KafkaException as failed:
            cause: KafkaError = failed.args[0]
            return cause
        return None

    def _called(self, call: Callable[[], T]) -> T:
        """Call what runs the client's callbacks.

        confluent-kafka 2.16 may lose an exception that comes in a callback, and fail without it: either the producer
        was fenced, or a signal has come, such as Ctrl-C, for no callback of ours raises one.
        """
        try:
            return call()
        except KafkaException as failed:
            raise self._translated(failed.args[0]) from failed
        except SystemError as lost:
            error = self._failed_by()
            if error is not None and error.fatal():
                raise self._translated(error) from lost
            raise KeyboardInterrupt from lost

    def flush(self) -> None:
        """Wait until every message is stored; raises when one is not."""
        while self._called(lambda: self._producer.flush(ASK_S)):
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
