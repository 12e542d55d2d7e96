"""Kafka as the source of a Spark job: Spark's batch source reads exactly the offsets of an order.

Spark multiplies each timestamp by 1,000. It fails if the result exceeds 64 bits, for example after a producer that
counts in nanoseconds. Then the tasks read their ranges with librdkafka, at half the speed.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.connections.lookup import masked, revealed
from tidemark.errors import THEN_RETRY, AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.kafka.cluster import KafkaCluster
from tidemark.kafka.connection import java_options, named_connection
from tidemark.kafka.mechanisms import mechanism
from tidemark.kafka.options import AT_THE_END_MS
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.record_schema import INPUT, input_row
from tidemark.sources.range_reader import RangeReader
from tidemark.sources.spark import SparkReader

# Expressions as text, because a Spark Connect server accepts these too.
_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "key", "value",
    "coalesce(headers, cast(array() AS array<struct<key: string, value: binary>>)) AS headers",
)  # fmt: skip
# Java sends no error codes, so class names tell a refusal: a wrong password or certificate, or a missing right.
_REFUSALS = re.compile(r"org\.apache\.kafka\.common\.errors\.\w*(Authentication|Authorization)Exception")
# No broker answers Java's client, or Spark's reader timed out while it waited for a record.
_SILENCE = re.compile(r"org\.apache\.kafka\.common\.errors\.TimeoutException|TimeoutException: Cannot fetch record")
_NO_CLASS = re.compile(r"Class ([\w.$]+) could not be found")  # Java's client names the login that it lacks so
_OVERFLOW = "long overflow"  # the message of java.lang.Math.multiplyExact
_BATCH_ROWS = 50_000
_BATCH_BYTES = 16 * 1024 * 1024


class KafkaReader:
    """Holds the options of Java's client with their secrets, and passes them only to Spark's source."""

    def __init__(self, order: Order) -> None:
        self._order = order
        source = order.source.options
        self._options = java_options(source["connection"], source["options"], order.pipeline_name)

    def read(self, session: SparkSession) -> DataFrame:
        """Return the records of the order. A record without headers has an empty list, because a list vector of nulls
        makes Spark slow.

        After every row Spark asks for the size of its Arrow batch, and then goes over all nulls at the end of such a
        vector again: 40 us a row, and more in larger batches.

        After each answer of a broker Spark asks for the bounds of the partition, on the same connection on which the
        consumer has already requested more records. At the end of a log, the broker answers both requests only after it
        has waited for records. So ``AT_THE_END_MS`` makes that wait short.
        """
        tasks = self._order.tasks
        if all(len(ranges) == 1 for ranges in tasks):  # Spark by itself makes one task of each range
            return self._frame(session, self._order.read)
        # Without this, since Spark 4.1, a union of frames with one partition each has one partition: one task for all.
        session.conf.set("spark.sql.unionOutputPartitioning", "false")
        frames = [self._frame(session, ranges).coalesce(1) for ranges in tasks]
        return reduce(lambda some, more: some.union(more), frames)  # DataFrame.union is not that of a server's frames

    def _frame(self, session: SparkSession, ranges: tuple[Range, ...]) -> DataFrame:
        return (
            session.read.format("kafka")
            .option("kafka.fetch.max.wait.ms", AT_THE_END_MS)
            .options(**{f"kafka.{name}": value for name, value in revealed(self._options).items()})
            .option("kafka.bootstrap.servers", self._order.source.options["bootstrap_servers"])
            .option("kafka.isolation.level", "read_committed")
            .option("assign", _json_by_topic(ranges, lambda covered: covered.at.partition, list))
            .option("startingOffsets", _json_by_topic(ranges, lambda each: (str(each.at.partition), each.start), dict))
            .option("endingOffsets", _json_by_topic(ranges, lambda each: (str(each.at.partition), each.end), dict))
            .option("failOnDataLoss", "true")
            .option("includeHeaders", "true")
            .load()
            .selectExpr(*_COLUMNS)
        )

    def masked(self, text: str) -> str:
        return masked(text, self._options)

    def instead(self, failed: Exception) -> RangeReader | None:
        return RangesOfKafka(self._order) if _OVERFLOW in str(failed) else None

    def error_of(self, failed: Exception) -> TidemarkError | None:
        if _SILENCE.search(str(failed)):
            return Unavailable(
                "Kafka does not answer Spark",
                next_step="nothing is published; check that the broker runs and that bootstrap_servers (or the Airflow "
                "connection) names it for Spark's machines too" + THEN_RETRY,
                bootstrap_servers=self._order.source.options["bootstrap_servers"],
            )
        if lacks := _NO_CLASS.search(str(failed)):
            return ConfigurationError(
                f"Spark cannot log in to Kafka: its class path lacks {lacks[1]}",
                next_step="nothing is published; tidemark spark jars fetches it into TIDEMARK_SPARK_JARS" + THEN_RETRY,
            )
        if not _REFUSALS.search(str(failed)):
            return None
        brought = mechanism(revealed(self._options).get("sasl.mechanism"))
        rights = (
            "planning needs the right DESCRIBE on the topics, reading needs READ: kafka-acls --add --operation Read "
            "--topic .."
            if brought is None
            else f"on Spark's machines: {brought.after_refusal(self._order.source.options['bootstrap_servers'])}"
        )
        return AccessDenied(
            "Kafka does not let Spark read",
            next_step=f"nothing is published; {rights}; then: tidemark retry {self._order.pipeline_name}",
        )


class RangesOfKafka(RangeReader):
    """Reads ranges with librdkafka inside the task, which looks the connection up."""

    def __init__(self, order: Order) -> None:
        source = order.source.options
        self._pipeline_name = order.pipeline_name
        self._conn_id: str | None = source["connection"]
        self._address, self._tuning = source["bootstrap_servers"], source["options"]

    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        secured = {} if self._conn_id is None else named_connection(self._conn_id, self._pipeline_name).config
        waiting: list[dict[str, Any]] = []
        size = 0
        for record in KafkaCluster(self._address, {**secured, **self._tuning}).records(covered):
            waiting.append(input_row(record))
            size += len(record.key or b"") + len(record.value or b"")
            if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(waiting, schema=INPUT)
                waiting, size = [], 0
        if waiting:
            yield pa.RecordBatch.from_pylist(waiting, schema=INPUT)


def open_reader(order: Order) -> SparkReader:
    return KafkaReader(order)


def _json_by_topic(ranges: tuple[Range, ...], part: Callable[[Range], Any], container: Callable[[Any], Any]) -> str:
    topics = {covered.at.topic for covered in ranges}
    return json.dumps(
        {topic: container(part(covered) for covered in ranges if covered.at.topic == topic) for topic in topics}
    )
