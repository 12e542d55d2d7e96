"""RabbitMQ streams as the source of a Spark job: each task reads its range from the server, as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa

from tidemark.connections.lookup import from_environment
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.record_schema import READ, UNREADABLE
from tidemark.providers.rabbitmq.chunk import Chunk
from tidemark.providers.rabbitmq.connection import rabbit_connection
from tidemark.providers.rabbitmq.streams import Streams
from tidemark.sources.range_reader import RangeReader

BATCH_ROWS = 50_000
BATCH_BYTES = 16 * 1024 * 1024


class RabbitReader(RangeReader):
    """Connects in the task that reads. The task looks the connection up, so no secret travels with the job."""

    def __init__(self, order: Order) -> None:
        self._pipeline_name = order.pipeline_name
        self._conn_id = str(order.source.options["connection"])
        rabbit_connection(self._conn_id, self._pipeline_name)  # raises now, before Spark starts a task

    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        """Yield batches that join many chunks, because a chunk may have a single record."""
        streams = Streams(rabbit_connection(self._conn_id, self._pipeline_name, from_environment))
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in streams.read(covered, lambda chunk: _batch(covered, chunk)):
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield pa.concat_batches(waiting)


def _batch(covered: Range, chunk: Chunk) -> pa.RecordBatch:
    """Return the records of a chunk that lie in the range."""
    values, headers, unreadable = chunk.columns()
    count = len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": values,
        "topic": pa.repeat(covered.at.topic, count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(chunk.first, chunk.end), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(chunk.timestamp_ms * 1000, READ.field("timestamp").type), count),
        "headers": headers,
        UNREADABLE.name: unreadable,
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=READ)
    begin, end = max(covered.start, chunk.first) - chunk.first, min(covered.end, chunk.end) - chunk.first
    return batch.slice(begin, end - begin)


def open_reader(order: Order) -> RabbitReader:
    return RabbitReader(order)
