"""One source of every kind, and the hands of its producers and administrators: what the behaviour suite over sources
needs of each."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from sandbox.services.rabbitmq import USER, RabbitMQ
from tests.faults.model_broker import Fate, Log, ModelBroker, Transaction
from tests.toys.toy_source.log import ABORTED, COMMITTED, OPEN, PartitionLog, create_topic
from tests.toys.toy_source.settings import Settings as ToySettings
from tests.worlds.used_topics import delete_later
from tidemark.errors import Unavailable
from tidemark.providers.rabbitmq.settings import Settings as RabbitSettings
from tidemark.sources.base import Source
from tidemark.sources.kafka.settings import Settings as KafkaSettings
from tidemark.sources.registry import open_source

SECRET = "hidden-4711"


@dataclass
class Example(ABC):
    """Topics of one test. Records are told apart by their timestamps.

    ``noun`` is what a topic is called, ``key`` the key that names them. A topic has at most so many ``partitions``.
    """

    noun: ClassVar[str] = "topic"
    key: ClassVar[str] = "topics"
    partitions: ClassVar[int] = 2

    broker: Broker
    folder: Path
    rabbits: Callable[[int], RabbitMQ]
    prefix: str = field(default_factory=lambda: f"t{uuid4().hex[:12]}")
    made: set[str] = field(default_factory=set)

    @abstractmethod
    def source(self, *topics: str) -> Source:
        """The source of pipeline demo, as a process would open it now."""

    @abstractmethod
    def unreachable(self) -> Source:
        """One that nobody can reach."""

    @abstractmethod
    def create(self, topic: str, partitions: int) -> None:
        """A new topic; one of that name is removed first."""

    @abstractmethod
    def send(self, topic: str, *stamps: datetime, partition: int = 0) -> None:
        """A record for each timestamp."""

    def with_secret(self) -> Source:
        """One whose connection holds ``SECRET``, where the kind has connections. It need not be there."""
        return self.source()

    @abstractmethod
    def remove(self) -> None:
        """The topics that are left, after the test."""


class WithTransactions(Example):
    """Of a source with transactions, whose producers choose timestamps, and whose retention takes single records."""

    def matching(self, pattern: str, *topics: str) -> Source:
        """The source of a pipeline with a pattern of topics, and with these topics too."""
        source = self.source()
        named = {"topics": topics, "topics_regex": pattern}
        source.settings = source.settings.model_copy(update=named)
        return source

    @abstractmethod
    def transaction(self, topic: str, *stamps: datetime, commit: bool, partition: int = 0) -> Any:
        """A context manager: the records of a transaction, which is open inside and ends with it."""

    @abstractmethod
    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        """What retention does."""


class KafkaExample(WithTransactions):
    def source(self, *topics: str) -> Source:
        settings = {"bootstrap_servers": self.broker.bootstrap_servers, "topics": topics or ("none",)}
        return open_source("demo", KafkaSettings.model_validate(settings))

    def unreachable(self) -> Source:
        settings = {"bootstrap_servers": "127.0.0.1:1", "topics": ("none",)}
        return open_source("demo", KafkaSettings.model_validate(settings))

    def create(self, topic: str, partitions: int) -> None:
        if topic in self.made:
            self.broker.delete_topic(topic)
        self.broker.create_topic(topic, partitions, {"retention.ms": "-1"})
        self.made.add(topic)

    def send(self, topic: str, *stamps: datetime, partition: int = 0) -> None:
        _produce(self.broker.producer(), topic, stamps, partition)

    @contextmanager
    def transaction(self, topic: str, *stamps: datetime, commit: bool, partition: int = 0) -> Iterator[None]:
        producer = self.broker.producer(transactional_id=uuid4().hex)
        producer.init_transactions(30)
        producer.begin_transaction()
        _produce(producer, topic, stamps, partition)
        yield
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        wait_until(lambda: self._settled(topic), "the end mark of the transaction", timeout=30)

    def _settled(self, topic: str) -> bool:
        """Kafka answers that a transaction has ended before the partitions have its end mark."""
        source = self.source(topic)
        places, _ = source.partitions([topic])
        return all(held.last_stable == held.log_end for held in source.bounds(places).values())

    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        admin = self.broker.admin()  # kept, since without it nobody waits for the answer
        [answer] = admin.delete_records([KafkaPartition(topic, partition, offset)]).values()
        answer.result(timeout=30)

    def with_secret(self) -> Source:
        connection = {
            "conn_type": "kafka",
            "extra": {
                "bootstrap.servers": "127.0.0.1:1",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "tidemark",
                "sasl.password": SECRET,
            },
        }
        settings = KafkaSettings.model_validate({"connection": "kafka_secured", "topics": ("none",)})
        return open_source("demo", settings, {"kafka_secured": connection}.get)

    def remove(self) -> None:
        delete_later(self.broker, *self.made)


class ModelExample(WithTransactions):
    """The broker that the drawn schedules of faults use."""

    @cached_property
    def model(self) -> ModelBroker:
        return self._opened()

    @staticmethod
    def _opened() -> ModelBroker:
        settings = {"bootstrap_servers": "model:9092", "topics": ("none",)}
        return ModelBroker("demo", KafkaSettings.model_validate(settings))

    def source(self, *topics: str) -> Source:
        del topics  # it answers for those that it is asked about
        return self.model

    def unreachable(self) -> Source:
        source = self._opened()

        def notice(question: str) -> None:
            raise Unavailable(question)

        source.notice = notice
        return source

    def create(self, topic: str, partitions: int) -> None:
        self.model.create(topic, partitions)

    def send(self, topic: str, *stamps: datetime, partition: int = 0) -> None:
        for stamp in stamps:
            self.model.produce(self._log(topic, partition), stamp)

    @contextmanager
    def transaction(self, topic: str, *stamps: datetime, commit: bool, partition: int = 0) -> Iterator[None]:
        log, transaction = self._log(topic, partition), Transaction()
        for stamp in stamps:
            self.model.produce(log, stamp, transaction=transaction)
        yield
        self.model.finish(log, stamps[-1], transaction, Fate.COMMITTED if commit else Fate.ABORTED)

    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        self._log(topic, partition).start = offset

    def remove(self) -> None:
        self.model.by_name.clear()

    def _log(self, topic: str, partition: int) -> Log:
        return self.model.by_name[topic].logs[partition]


class ToyExample(WithTransactions):
    @property
    def topics(self) -> Path:
        return self.folder / "topics"

    def source(self, *topics: str) -> Source:
        settings = {"folder": str(self.topics), "topics": topics or ("none",)}
        return open_source("demo", ToySettings.model_validate(settings))

    def unreachable(self) -> Source:
        settings = {"folder": str(self.folder / "nowhere"), "topics": ("none",)}
        return open_source("demo", ToySettings.model_validate(settings))

    def create(self, topic: str, partitions: int) -> None:
        create_topic(self.topics, topic, partitions)

    def send(self, topic: str, *stamps: datetime, partition: int = 0) -> None:
        self._append(topic, partition, stamps, COMMITTED)

    @contextmanager
    def transaction(self, topic: str, *stamps: datetime, commit: bool, partition: int = 0) -> Iterator[None]:
        self._append(topic, partition, stamps, OPEN)
        yield
        self._log(topic, partition).end_transaction(COMMITTED if commit else ABORTED)

    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        self._log(topic, partition).delete_before(offset)

    def remove(self) -> None:
        rmtree(self.topics, ignore_errors=True)

    def _append(self, topic: str, partition: int, stamps: tuple[datetime, ...], fate: str) -> None:
        for stamp in stamps:
            self._log(topic, partition).append(stamp.isoformat(), stamp, fate=fate)

    def _log(self, topic: str, partition: int) -> PartitionLog:
        return PartitionLog(self.topics / topic, partition)


class RabbitExample(Example):
    """Streams: the server stamps a record, and each ``send`` of one record makes a chunk of its own."""

    noun = "stream"
    key = "streams"
    partitions = 1
    version: ClassVar[int] = 3

    def source(self, *topics: str) -> Source:
        server = self.rabbit
        source = self._opened(server.port, server.password, *topics)
        if topics:
            source.name_topics(set())
        return source

    @property
    def rabbit(self) -> RabbitMQ:
        return self.rabbits(self.version)

    def unreachable(self) -> Source:
        return self._opened(1, "none")

    def with_secret(self) -> Source:
        return self._opened(1, SECRET)

    @staticmethod
    def _opened(port: int, password: str, *topics: str) -> Source:
        connection = {"host": "127.0.0.1", "port": port, "login": USER, "password": password}
        settings = RabbitSettings.model_validate({"connection": "rabbit", "streams": topics or ("none",)})
        return open_source("demo", settings, {"rabbit": connection}.get)

    def create(self, topic: str, partitions: int) -> None:
        assert partitions == 1
        if topic in self.made:
            self.rabbit.streams().delete_stream(topic)
        self.rabbit.streams().create_stream(topic)
        self.made.add(topic)

    def send(self, topic: str, *stamps: datetime, partition: int = 0) -> None:
        assert partition == 0
        for stamp in stamps:
            self.rabbit.streams().publish(topic, [stamp.isoformat().encode()])
            time.sleep(0.002)  # so that no two have the same timestamp

    def remove(self) -> None:
        for topic in self.made:
            self.rabbit.streams().delete_stream(topic)


class Rabbit4Example(RabbitExample):
    version = 4


def _produce(producer: Producer, topic: str, stamps: tuple[datetime, ...], partition: int) -> None:
    for stamp in stamps:
        milliseconds = int(stamp.timestamp() * 1000)
        producer.produce(topic, stamp.isoformat(), partition=partition, timestamp=milliseconds)
    assert producer.flush(30) == 0
