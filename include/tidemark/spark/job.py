"""Reads exactly the ranges of an order, decodes them, stages the output and returns the receipt.

One pass and no shuffle: the source's Spark face hands Arrow batches to ``processing/processor.py``, which counts,
decodes, places and writes them below the attempt's own folder. Every task returns what it read and wrote, so all counts
come from tasks that succeeded. Nothing here decides what readers see.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from importlib.abc import MetaPathFinder
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.connections.lookup import connections_from
from tidemark.errors import TidemarkError, WorkFailed
from tidemark.failpoints import failpoint, watching
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.processing.beside import records_with_made
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.writers import writer_of
from tidemark.sources.range_reader import RangeReader
from tidemark.sources.spark import Reader, open_reader
from tidemark.spark import ended
from tidemark.spark.batches import arrow_batches
from tidemark.spark.failures import carried_by, cause_of, failure_from, failure_of
from tidemark.spark.jobs import expecting_executors, tag_of, tagged
from tidemark.spark.masters import is_local
from tidemark.spark.session import keeping_interrupts

JVM_ENDS_S = 5.0  # its sockets close a moment before the process ends


def stage(session: SparkSession, order: Order, log: Path | None = None) -> Receipt:
    """Do an order. Raises ``UndecodableRecord`` (with ``on_error: fail``), or ``WorkFailed`` if Spark fails.

    ``log`` is the file to which the JVM writes its messages; None: they go to this process's output.
    """
    reader = open_reader(order)
    for name, value in arrow_batches(order.record_bytes).items():
        session.conf.set(name, value)
    tag = tag_of(order.manifest_id, order.attempt)
    patience = nullcontext() if is_local(str(session.sparkContext.master)) else expecting_executors(session, tag)
    try:
        with keeping_interrupts(), tagged(session, tag), patience:
            return staged(session, order, reader)
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last two: lost offsets, a JVM that died
        where = ended.ABOVE if log is None else f"Spark says more: tail -n 50 {log}"
        raise failure(order, error, reader, where) from error


def staged(session: SparkSession, order: Order, reader: Reader, connections: str | None = None) -> Receipt:
    """Do an order in a session of any kind; the caller has set the limits of ``arrow_batches``. ``connections`` is a
    file with those that tasks need, beside their environment. Raises the errors of our tasks, and Spark's own.

    No receipt names what a failed job has staged.
    """
    failpoint("read.before")
    with watching("stage.mid", lambda: any(writer_of(sink.kind).has_staged(order, sink) for sink in order.sinks)):
        try:
            rows = task_reports(session, order, reader, connections).collect()
        except (PySparkException, Py4JError) as failed:
            carried, other = carried_by(failed), reader.instead(failed)
            if carried is not None:
                raise carried from failed
            if other is None:
                raise
            rows = task_reports(session, order, other, connections).collect()
    reports = [json.loads(row.receipt) for row in rows]
    for report in reports:
        if "failure" in report:
            raise failure_from(report["failure"])
    return receipt_of_tasks(order, reports)


def task_reports(session: SparkSession, order: Order, reader: Reader, connections: str | None = None) -> DataFrame:
    """Return the whole job as a DataFrame: its ``collect`` does the order and returns the report of each task as JSON.

    It has no shuffle after the pass, so Spark never repeats a finished stage because its output was lost.
    """
    given, records = _read(session, order, reader)
    processor = BatchProcessor(order)
    transform = processor.on_frames
    if transform is not None:
        from tidemark.spark import frames  # imported only for a function of DataFrames

        if isinstance(reader, RangeReader):
            given = frames.records_read(given, connections, records)
        given = frames.beside_what_is_made(given, order, transform, processor, _records)
        records = _with_made(processor)
    own_code = any("code" in each.options for each in order.transforms)
    return given.mapInArrow(_task(processor, connections, records, own_code=own_code), "receipt string")


Batches = Iterable[pa.RecordBatch]
Records = Callable[[Batches], Batches]  # turns what Spark gives to a task into records


def _read(session: SparkSession, order: Order, reader: Reader) -> tuple[DataFrame, Records]:
    if isinstance(reader, RangeReader):
        count = len(order.tasks)
        return session.range(0, count, 1, count), _ranges(order, reader)  # each task gets its own number
    return reader.read(session), _records


def _with_made(processor: BatchProcessor) -> Records:
    """Return a function that yields the records of a source, each with the row that the function of DataFrames made of
    it.
    """

    def together(batches: Batches) -> Batches:
        transform = processor.on_frames
        assert transform is not None
        return records_with_made(_records(batches), transform)

    return together


def _task(
    processor: BatchProcessor, connections: str | None, records: Records, *, own_code: bool
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the work of one task; ``own_code``: it calls functions of the user.

    Its name has the try of the Spark task, and a word of this driver: another driver with the same order, or one of an
    attempt with the same number, stages under other names.
    """
    driver = uuid4().hex[:8]

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        _use_jemalloc()
        if not own_code:
            _keep_pandas_out()
        context = TaskContext.get()
        task = f"{context.partitionId():05d}-{context.taskAttemptId()}-{driver}" if context else "0"
        try:
            with connections_from(connections):
                report = processor.process(task, records(batches))
        except TidemarkError as error:
            report = {"failure": failure_of(error)}
        yield pa.RecordBatch.from_pydict({"receipt": [json.dumps(report)]})

    return run


def _records(batches: Batches) -> Batches:
    """Return the records of a source that Spark reads."""
    return map(_without_empty_headers, batches)


def _ranges(order: Order, reader: RangeReader) -> Records:
    """Return a function that reads the ranges of a source in the task. Spark gives the task its number in
    ``order.tasks``.
    """

    def read(numbers: Batches) -> Batches:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for covered in order.tasks[number]:
                    yield from reader.batches(covered)

    return read


def _use_jemalloc() -> None:
    """Use jemalloc: Arrow's default, mimalloc, keeps up to 70 MiB that a task has freed, and is not faster."""
    if "jemalloc" in pa.supported_memory_backends() and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def _keep_pandas_out() -> None:
    """Let Arrow not import pandas with its first value, which takes half a second of a core in each worker.

    Arrow looks for it once. Afterwards it imports pandas only for a call that needs it.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas)
        pa.array([0])
        sys.meta_path.remove(_WithoutPandas)


class _WithoutPandas(MetaPathFinder):
    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a task does not use pandas", name=name)


def _without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn empty headers into null, as the processor expects; see ``SparkReader.read``."""
    at = batch.schema.get_field_index("headers")
    headers = batch.column(at)
    empty = pc.equal(pc.list_value_length(headers), 0)
    kept = pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=empty)
    return batch.set_column(at, batch.schema.field(at), kept)


def failure(order: Order, error: Exception, reader: Reader, more: str) -> TidemarkError:
    """Return the reason why Spark failed, for people; ``more`` says where Spark's own messages are."""
    where = {"pipeline": order.pipeline_name, "manifest": order.manifest_id, "attempt": order.attempt}
    retry = f"tidemark retry {order.pipeline_name}"
    status = _status_of_jvm(error)
    if status is not None:
        look = ended.advice(status) or more
        what = f"Spark failed: {ended.describe_end(status, 'its JVM')}"
        return WorkFailed(what, next_step=f"nothing is published; {look}; then: {retry}", **where)
    if ended.WORKER_DIED in str(error):
        what = "Spark failed: a Python worker was killed, often because the machine had no memory left"
        return WorkFailed(what, next_step=f"nothing is published; {ended.MEMORY}; then: {retry}", **where)
    reason = reader.masked(cause_of(error))
    of_source = reader.error_of(error)
    if of_source is not None:
        context = {**of_source.context, **where}
        return type(of_source)(f"{of_source.what}: {reason}", next_step=of_source.next_step, **context)
    return WorkFailed(
        f"Spark failed: {reason}",
        next_step=f"nothing is published; {more}; then: {retry}",
        **where,
    )


def jvm_of_session() -> subprocess.Popen[bytes] | None:
    """Return the JVM that this process has started for its session; None if ``spark-submit`` started it."""
    return getattr(SparkContext._gateway, "proc", None)


def _status_of_jvm(error: Exception) -> int | None:
    """Return the exit status of the JVM that this process started; None while it lives, or if ``spark-submit`` started
    it.
    """
    jvm = jvm_of_session()
    if jvm is None:
        return None
    try:
        return jvm.wait(JVM_ENDS_S if isinstance(error, Py4JNetworkError | ConnectionError) else 0)
    except subprocess.TimeoutExpired:
        return None
