"""RabbitMQ streams as the source of a Spark job: each task reads its range from the server, as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa

from tidemark.connections import from_environment
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.record_schema import INPUT
from tidemark.sources.rabbitmq.chunk import Chunk
from tidemark.sources.rabbitmq.connection import rabbit_connection
from tidemark.sources.rabbitmq.streams import Streams
from tidemark.sources.range_reader import RangeReader

BATCH_ROWS = 50_000
BATCH_BYTES = 16 * 1024 * 1024


class RabbitReader(RangeReader):
    """Connects in the task that reads; the connection is looked up there, so no secret travels with the job."""

    def __init__(self, order: Order) -> None:
        self._pipeline_name = order.pipeline_name
        self._conn_id = str(order.source.options["connection"])
        rabbit_connection(self._conn_id, self._pipeline_name)  # a wrong one is refused before Spark starts a task

    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        streams = Streams(rabbit_connection(self._conn_id, self._pipeline_name, from_environment))
        chunks: list[Chunk] = []
        size = 0
        for chunk in streams.read(covered):
            chunks.append(chunk)
            size += len(chunk.data)
            if size >= BATCH_BYTES or chunk.end - chunks[0].first >= BATCH_ROWS:
                yield _batch(covered, chunks)
                chunks, size = [], 0
        if chunks:
            yield _batch(covered, chunks)


def _batch(covered: Range, chunks: list[Chunk]) -> pa.RecordBatch:
    columns = [_columns(covered, chunk) for chunk in chunks]
    return pa.concat_batches(columns)


def _columns(covered: Range, chunk: Chunk) -> pa.RecordBatch:
    values, headers = chunk.columns()
    count = len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": values,
        "topic": pa.repeat(covered.at.topic, count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(chunk.first, chunk.end), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(chunk.timestamp_ms * 1000, INPUT.field("timestamp").type), count),
        "headers": headers,
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=INPUT)
    begin, end = max(covered.start, chunk.first) - chunk.first, min(covered.end, chunk.end) - chunk.first
    return batch.slice(begin, end - begin)


def open_reader(order: Order) -> RabbitReader:
    return RabbitReader(order)
