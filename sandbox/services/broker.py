"""A real Kafka broker (KRaft, one node) from jars, on free ports of 127.0.0.1.

Transactions work, because internal topics need only one replica. Topics are not created automatically. The port stays
the same after `restart`, and for a later broker with the same state folder, so that clients find it again.
"""

import contextlib
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from sandbox.bootstrap.jars import java
from sandbox.errors import SandboxFailed
from sandbox.services.processes import Child, Service, kept_ports, port_answers, wait_until

# For a small broker on 2 cores, more GC threads and the second compiler cost more at the start than they gain.
JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dfile.encoding=UTF-8")

# Otherwise librdkafka writes a line to stderr for every failed connection, also after a test has killed the broker.
QUIET = {"log_level": 2}

LOG4J_TO_STDOUT = """
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
"""
LOG4J = f"""{LOG4J_TO_STDOUT}
# After a kill the broker warns twenty times a second that it cannot reach itself, until the controller admits it.
logger.network.name = org.apache.kafka.clients.NetworkClient
logger.network.level = ERROR
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
logger.config.name = org.apache.kafka.common.config
logger.config.level = ERROR
"""


def _stored(error: KafkaError | None, record: Message) -> None:
    if error:
        raise SandboxFailed(f"a record of {record.topic()}-{record.partition()} was not stored: {error}")


class Broker(Service):
    """One broker. A later broker with the same state folder has the same records.

    ``jars``: the folder with the jar set ``kafka``. A topic for records with old timestamps needs ``retention.ms=-1``.
    """

    def __init__(self, state: Path, jars: Path) -> None:
        self.state = state.resolve() / "broker"
        self.log = state.resolve() / "logs" / "broker.log"
        self.jars = jars.resolve()
        self.port, self._controller_port = kept_ports(self.state / "ports.json", 2)

    @property
    def bootstrap_servers(self) -> str:
        """Return ``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the storage if there is none, and return when the broker answers a client."""
        (self.state / "log4j2.properties").write_text(LOG4J)
        lines = [f"{name}={value}\n" for name, value in self._properties().items()]
        (self.state / "server.properties").write_text("".join(lines))
        self._format_storage()
        self._child = Child("Kafka", [*self._java(), "kafka.Kafka", "server.properties"], self.log, cwd=self.state)
        self._child.wait_ready(self._answers, timeout=180)

    def admin(self) -> AdminClient:
        """Return a client for topics and offsets. Keep a reference until its futures are done: they end with the
        client.
        """
        return AdminClient({**QUIET, "bootstrap.servers": self.bootstrap_servers})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until its partitions answer. Raises ``SandboxFailed`` if it exists."""
        self.create_topics([name], partitions, config)

    def create_topics(self, names: Sequence[str], partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create several topics with the same settings, and wait as ``create_topic`` does."""
        admin = self.admin()
        topics = [NewTopic(name, partitions, replication_factor=1, config=dict(config or {})) for name in names]
        for name, created in admin.create_topics(topics).items():
            try:
                created.result(timeout=120)
            except KafkaException as error:
                message = f"topic {name} was not created: {error}"
                raise SandboxFailed(message, next_step="choose another name") from error
        partitions_of = [TopicPartition(name, partition) for name in names for partition in range(partitions)]
        wait_until(
            lambda: _answer(admin, partitions_of), f"topics to answer: {', '.join(names)}", timeout=120, interval=0.01
        )

    def add_partitions(self, topic: str, to: int) -> None:
        """Increase a topic to ``to`` partitions, and wait as ``create_topic`` does: the broker learns of them a moment
        later.
        """
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, to)])[topic].result(timeout=120)
        partitions = [TopicPartition(topic, partition) for partition in range(to)]
        wait_until(lambda: _answer(admin, partitions), f"{topic} to have {to} partitions", timeout=120, interval=0.01)

    def configure_topic(self, topic: str, option: str, value: str) -> None:
        """Change an option of a topic and wait until the broker reports it: the controller answers before that."""
        admin = self.admin()
        entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([changed])[changed].result(timeout=120)
        asked = ConfigResource(ResourceType.TOPIC, topic)
        wait_until(
            lambda: admin.describe_configs([asked])[asked].result(timeout=120)[option].value == value,
            f"{topic} to have {option}={value}",
            timeout=120,
            interval=0.01,
        )

    def delete_topic(self, *names: str) -> None:
        """Delete topics and wait until the broker knows it; no error if a topic does not exist."""
        admin = self.admin()
        for deleted in admin.delete_topics(list(names)).values():
            try:
                deleted.result(timeout=120)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        # The controller decides, and the broker learns of it a moment later. Until then it would report a topic created
        # again under the name with the id of the old one.
        wait_until(
            lambda: not any(_is_reported(admin, name) for name in names),
            f"topics to be gone: {', '.join(names)}",
            timeout=120,
            interval=0.01,
        )

    def producer(self, **config: str | float | bool) -> Producer:
        """Return a producer for small numbers of records. They are stored in order, and once unless the broker dies
        meanwhile.

        For large numbers, and to store each record once in any case, use ``enable_idempotence=True``: its first batch
        waits for half a second. Write options with underscores: ``transactional_id="t"`` is ``transactional.id``.

        Outside a transaction, ``flush`` raises if a record was not stored. Otherwise a partition that the producer does
        not know yet would silently lose records.
        """
        defaults: dict[str, str | int | float | bool] = {"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5}
        if not {"enable_idempotence", "transactional_id"} & config.keys():
            defaults["max.in.flight.requests.per.connection"] = 1  # so a batch that is sent again overtakes no other
        options = {name.replace("_", "."): value for name, value in config.items()}
        told = {} if "transactional_id" in config else {"on_delivery": _stored}
        return Producer({**QUIET, **defaults, **options, **told})

    def log_end(self, topic: str, partition: int) -> int:
        """Return the offset after the last one of a partition, including markers of transactions."""
        consumer = Consumer({**QUIET, "bootstrap.servers": self.bootstrap_servers, "group.id": "unused"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1])
        finally:
            consumer.close()

    def _java(self) -> list[str]:
        if not any(self.jars.glob("kafka_*.jar")):
            raise SandboxFailed(f"the jars of Kafka are not in {self.jars}", next_step="make setup")
        log4j = f"-Dlog4j2.configurationFile={self.state / 'log4j2.properties'}"
        return [java(), *JVM, log4j, "-cp", f"{self.jars}/*"]

    def wake(self) -> None:
        """Continue after ``stop_signal``, and return when there is a controller again: it gave up the frozen broker."""
        self.cont_signal()
        wait_until(self._has_controller, timeout=60, what="a controller of Kafka")

    def _has_controller(self) -> bool:
        return self._metadata().controller_id >= 0

    def _answers(self) -> bool:
        return port_answers(self.port) and bool(self._metadata().brokers)

    def _metadata(self) -> ClusterMetadata:
        """Return what the broker tells of its cluster: no broker and no controller if it does not answer."""
        with contextlib.suppress(KafkaException):
            return self.admin().list_topics(timeout=5)
        return ClusterMetadata()

    def _properties(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.state / "data",
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After a kill the controller admits the broker again when the old session ends: 9 s by default.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            # For tests of hanging transactions: timeouts of seconds are allowed, and expired transactions end soon.
            "transaction.max.timeout.ms": 900000,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
            "log.retention.check.interval.ms": 5000,
            "log.cleaner.backoff.ms": 1000,
            "log.cleaner.dedupe.buffer.size": 16777216,
            # Otherwise the controller would write, and sync, an empty record twice a second.
            "metadata.max.idle.interval.ms": 0,
            "controller.quorum.append.linger.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }

    def _cluster_id(self) -> str:
        return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def _format_storage(self) -> None:
        if (self.state / "data" / "meta.properties").exists():
            return
        shutil.rmtree(self.state / "data", ignore_errors=True)
        # One word, because an id may begin with "-" and would look like an option.
        arguments = ["format", f"--cluster-id={self._cluster_id()}", "--config", "server.properties"]
        command = [*self._java(), "kafka.tools.StorageTool", *arguments]
        done = subprocess.run(command, cwd=self.state, text=True, capture_output=True)
        if done.returncode != 0:
            message = f"Kafka's storage was not formatted:\n{done.stdout}{done.stderr}"
            raise SandboxFailed(message, next_step="make clean")


def _answer(admin: AdminClient, partitions: Sequence[TopicPartition]) -> bool:
    """Return whether the partitions answer. The controller knows a new topic first, the broker a moment later; until
    then it says "not the leader".

    A client that gets that answer tries again for seconds, and may send records in another order.
    """
    try:
        admin.list_topics(timeout=5)  # otherwise this client does not know the leaders of new topics for over 10 s
        newest: Callable[[], OffsetSpec] = OffsetSpec.latest
        for answer in admin.list_offsets({partition: newest() for partition in partitions}, request_timeout=5).values():
            answer.result(timeout=120)
    except KafkaException:
        return False
    return True


def _is_reported(admin: AdminClient, topic: str) -> bool:
    """Return whether the broker still reports the topic."""
    try:
        admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=120)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return False
        raise
    return True
