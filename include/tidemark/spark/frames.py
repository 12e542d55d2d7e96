"""``transform: [{spark: module:function}]``: a function of DataFrames between decoder and pass.

Spark reads the ranges twice: once for the function, with the columns of the decoder, and once for the pass, which
counts, decodes and writes as always. The pass gets each record together with the row that the function made of it: both
are distributed by partition and sorted by offset. So joins and shuffles of the function change neither files nor
digests, and its effect on each record is measured.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidemark.connections.lookup import connections_from
from tidemark.errors import TidemarkError
from tidemark.model.order import Order
from tidemark.model.reasons import without_values
from tidemark.model.record_schema import INPUT, PLACE, READ, UNREADABLE
from tidemark.processing.beside import IS_MADE
from tidemark.processing.processor import METADATA, BatchProcessor
from tidemark.spark.failures import carrying
from tidemark.transforms.base import MADE, OnFrames

Records = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
NO_HEADERS = "CAST(array() AS array<struct<key: string, value: binary>>)"  # with nulls Spark is slow
SPARK_CONNECT = "SPARK_CONNECT_MODE_ENABLED"  # if it is set, PySpark's functions make columns for a server
_calling = Lock()  # because modules, standard output and the environment belong to the whole process


def records_read(numbers: DataFrame, connections: str | None, ranges: Records) -> DataFrame:
    """Return the records of a source that tasks read by themselves, as a DataFrame; ``numbers`` are those of the
    tasks.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connections_from(connections):
            yield from map(_as_read, carrying(ranges(batches)))

    records = numbers.mapInArrow(read, _for_spark(READ))
    columns = [name for name in READ.names if name != "headers"]
    return records.selectExpr(*columns, f"coalesce(headers, {NO_HEADERS}) AS headers")


def beside_what_is_made(
    records: DataFrame, order: Order, transform: OnFrames, processor: BatchProcessor, prepared: Records
) -> DataFrame:
    """Return the records, each followed by the row that the function made of it, for ``records_with_made``.

    ``prepared`` turns what Spark gives to a task into the records of the pass. Raises ``WorkFailed`` if the function
    returns something wrong.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from carrying(processor.rows_for_frames(prepared(batches)))

    [none] = processor.rows_for_frames([pa.RecordBatch.from_pylist([], INPUT)])
    given = records.mapInArrow(rows, _for_spark(none.schema))
    made = _called(transform, given, order)
    place = [f"_{name} AS {name}" for name in PLACE]
    columns = ", ".join(_quoted(name) for name in transform.made.names)
    made = made.selectExpr(*place, f"{NO_HEADERS} AS headers", f"struct({columns}) AS {MADE}", f"true AS {IS_MADE}")
    both = records.selectExpr("*", f"false AS {IS_MADE}").unionByName(made, allowMissingColumns=True)
    return both.repartition(len(order.tasks), "topic", "partition").sortWithinPartitions(*PLACE, IS_MADE)


def _called(transform: OnFrames, given: DataFrame, order: Order) -> DataFrame:
    where = {"pipeline": order.pipeline_name, "manifest": order.manifest_id}
    with _calling, transform.code.importable(), _as_its_session(given), redirect_stdout(sys.stderr):
        try:
            with _function(transform) as function:
                made = function(given)
                schema = made.schema if isinstance(made, type(given)) else None
        except TidemarkError:
            raise
        except (Exception, SystemExit) as error:
            place = transform.code.line_of(error) or transform.function
            reason = f"{type(error).__name__}: {without_values(str(error).partition(chr(10))[0])}"
            raise transform.wrong(f"failed at {place}: {reason}", **where) from error
    if not isinstance(made, type(given)) or schema is None:
        raise transform.wrong(f"gave {type(made).__name__} back, and not a DataFrame", **where)
    _check_columns(transform, schema, where)
    return made


@contextmanager
def _function(transform: OnFrames) -> Iterator[Callable[[DataFrame], Any]]:
    """Yield the function, imported from its text. In the block, executors get its module together with a call of it."""
    module, _, name = transform.function.partition(":")
    __import__(module)
    roots = [sys.modules[root] for root in transform.code.roots if root in sys.modules]
    for root in roots:
        cloudpickle.register_pickle_by_value(root)  # type: ignore[no-untyped-call]
    try:
        yield getattr(sys.modules[module], name)
    finally:
        for root in roots:
            cloudpickle.unregister_pickle_by_value(root)  # type: ignore[no-untyped-call]


@contextmanager
def _as_its_session(frame: DataFrame) -> Iterator[None]:
    """Make PySpark's functions create columns of the frame's kind, for a server or for a JVM."""
    if SPARK_CONNECT in os.environ or not type(frame).__module__.startswith("pyspark.sql.connect"):
        yield
        return
    kind: Any = type(frame.sparkSession)
    active = kind._active_session  # that of this thread: UDFs ask it for Spark's settings
    before = getattr(active, "session", None)
    os.environ[SPARK_CONNECT], active.session = "1", frame.sparkSession
    try:
        yield
    finally:
        del os.environ[SPARK_CONNECT]
        active.session = before


def _check_columns(transform: OnFrames, schema: StructType, where: dict[str, object]) -> None:
    """Raise ``WorkFailed`` unless the function returned its place and its data columns, each once and with its type."""
    place = pa.schema([METADATA.field(f"_{name}") for name in PLACE])
    expected = {field.name: field.dataType.simpleString() for field in _for_spark(pa.schema([*place, *transform.made]))}
    given = {field.name: field.dataType.simpleString() for field in schema}
    lost = [name for name in place.names if name not in given]
    if lost:
        raise transform.wrong(f"gave rows back without {', '.join(lost)}, which say the record of a row", **where)
    names = [field.name for field in schema if not field.name.startswith("_") or field.name in expected]
    if sorted(names) != sorted(expected):
        raise transform.wrong(
            f"gave the columns {', '.join(names)} back, and not {', '.join(expected)}; write columns in the pipeline "
            "file when it changes them",
            **where,
        )
    for name, kind in expected.items():
        if given[name] != kind:
            raise transform.wrong(f"gave column {name} back as {given[name]}, and not as {kind}", **where)


def _for_spark(schema: pa.Schema) -> StructType:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return from_arrow_schema(nullable, prefer_timestamp_ntz=True)


def _as_read(batch: pa.RecordBatch) -> pa.RecordBatch:
    if UNREADABLE.name not in batch.schema.names:
        batch = batch.select(INPUT.names).append_column(UNREADABLE, pa.nulls(batch.num_rows, UNREADABLE.type))
    return batch.select(READ.names).cast(READ)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
