"""Reads exactly the ranges of an order, decodes them, stages the output and returns the receipt.

One pass and no shuffle: Spark's Kafka batch source hands Arrow batches to ``batch.py``, which counts, decodes, places
and writes them below the attempt's own folder. Every task returns what it read and wrote, so numbers come from the
tasks that succeeded and from nobody else. Nothing here decides what readers see.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, coalesce

from tidemark import errors
from tidemark.batch import BatchProcessor
from tidemark.errors import AccessDenied, TidemarkError, WorkFailed
from tidemark.failpoints import failpoint, watching
from tidemark.model import Order, Receipt, receipt_of_tasks
from tidemark.named_connections import Secret, masked, revealed
from tidemark.offsets import Range
from tidemark.sinks.writers import has_staged
from tidemark.spark import executors
from tidemark.spark.session import keeping_interrupts

_HEADERS = "array<struct<key: string, value: binary>>"
# Names of classes, the nearest to a code that crosses from Java: the password, the certificate or an ACL says no.
_NOT_LET_IN = re.compile(r"org\.apache\.kafka\.common\.errors\.\w*(Authentication|Authorization)Exception")


def stage(session: SparkSession, order: Order) -> Receipt:
    """Do an order; raises ``UndecodableRecord`` when the pipeline says fail, ``WorkFailed`` when Spark does."""
    failpoint("read.before")
    options = _options(order)
    try:
        with (
            keeping_interrupts(),
            watching("stage.mid", lambda: _something_is_staged(order)),
            executors.expected(session),
        ):
            rows = task_reports(session, order, options).collect()
    except (PySparkException, Py4JError, ConnectionError) as failed:  # the last two: lost offsets, a JVM that died
        raise _failure(order, failed, options) from failed
    reports = [json.loads(row.receipt) for row in rows]
    for report in reports:
        if "failure" in report:
            raise failure_from(report["failure"])
    return receipt_of_tasks(order, reports)


def task_reports(session: SparkSession, order: Order, options: Mapping[str, str | Secret] | None = None) -> DataFrame:
    """The whole job as a frame: collecting it does the order, and gives what each task says of its part, as JSON.

    No shuffle, so no stage whose output could be lost and made again; ``options`` as in ``read``.
    """
    return read(session, order, options).mapInArrow(_task(order), "receipt string")


def read(session: SparkSession, order: Order, options: Mapping[str, str | Secret] | None = None) -> DataFrame:
    """The records of the order's ranges, committed ones only; an offset that is not there any more fails the job.

    Headers are never null but empty, where Kafka has none. Spark asks after every row how large its Arrow batch has
    grown, and a list vector answers by going over all nulls at its end again: 40 us a row, and more in larger batches.
    ``options`` are those of Java's client with their secrets (None: looked up); they go to Spark's source alone.
    """
    given = _options(order) if options is None else options
    plain = {f"kafka.{name}": value for name, value in revealed(given).items()}
    return (
        session.read.format("kafka")
        .options(**plain)
        .option("kafka.bootstrap.servers", order.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", _by_topic(order.ranges, lambda one: one.at.partition, list))
        .option("startingOffsets", _by_topic(order.ranges, lambda one: (str(one.at.partition), one.start), dict))
        .option("endingOffsets", _by_topic(order.ranges, lambda one: (str(one.at.partition), one.end), dict))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
        .withColumn("headers", coalesce("headers", array().cast(_HEADERS)))
    )


def _options(order: Order) -> Mapping[str, str | Secret]:
    from tidemark.connections import spark_options  # late: executors import this module too, and lack pydantic

    return spark_options(order)


def _by_topic(ranges: tuple[Range, ...], part: Callable[[Range], Any], container: Callable[[Any], Any]) -> str:
    topics = {one.at.topic for one in ranges}
    return json.dumps({topic: container(part(one) for one in ranges if one.at.topic == topic) for topic in topics})


def _task(order: Order) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    processor = BatchProcessor(order)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = f"{context.partitionId():05d}-{context.taskAttemptId()}" if context else "0"
        try:
            report = processor.process(task, map(_without_empty_headers, batches))
        except TidemarkError as error:
            report = {"failure": failure_of(error)}
        yield pa.RecordBatch.from_pydict({"receipt": [json.dumps(report)]})

    return run


def _without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """No headers are null again; see ``read``. Kafka does not tell an empty list of headers from none."""
    at = batch.schema.get_field_index("headers")
    headers = batch.column(at)
    empty = pc.equal(pc.list_value_length(headers), 0)
    kept = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=empty)
    return batch.set_column(at, batch.schema.field(at), kept)


def failure_of(error: TidemarkError) -> dict[str, Any]:
    """An error as JSON, to cross from an executor or a submitted job to whoever waits for it."""
    context = {name: str(value) for name, value in error.context.items()}
    return {"kind": type(error).__name__, "what": error.what, "next_step": error.next_step, "context": context}


def failure_from(raw: dict[str, Any]) -> TidemarkError:
    kind = getattr(errors, raw["kind"], WorkFailed)
    error: TidemarkError = kind(raw["what"], next_step=raw["next_step"], **raw["context"])
    return error


def _something_is_staged(order: Order) -> bool:
    return any(has_staged(order, sink) for sink in order.sinks)


def _failure(order: Order, failed: Exception, options: Mapping[str, str | Secret]) -> TidemarkError:
    where = {"pipeline": order.pipeline, "manifest": order.manifest_id, "attempt": order.attempt}
    reason = masked(reason_of(failed), options)
    if _NOT_LET_IN.search(str(failed)):
        return AccessDenied(
            f"Kafka does not let Spark read: {reason}",
            next_step="nothing is published; planning needs the right DESCRIBE on the topics, reading needs READ: "
            f"kafka-acls --add --operation Read --topic ..; then: tidemark retry {order.pipeline}",
            **where,
        )
    return WorkFailed(
        f"Spark failed: {reason}",
        next_step="nothing is published; Spark's log says more: the task's, or TIDEMARK_HOME/_logs/spark.log",
        **where,
    )


def reason_of(failed: Exception) -> str:
    """The line of Spark's message that says why, without the stack."""
    lines = [line.strip() for line in str(failed).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by:").strip() if causes else lines[0])[:500]
