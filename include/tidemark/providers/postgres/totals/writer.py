"""Groups the rows of one Spark task by key, and copies the groups into the attempt's staging table."""

import pyarrow as pa

from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.providers.postgres.aggregates.groups import Groups
from tidemark.providers.postgres.aggregates.value_columns import value_columns_from
from tidemark.providers.postgres.measures import Measures
from tidemark.providers.postgres.writer import Copy, StagingTableWriter
from tidemark.providers.postgres.writer import Writer as RowsWriter
from tidemark.sinks.writer import StagedPart


class Writer(StagingTableWriter):
    """Stages groups of data rows. Dead letters are staged as for other PostgreSQL tables."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._groups = Groups(
            sink.options["group_by"], sink.options["window_s"], value_columns_from(sink.options["parts"])
        )
        self._measures = Measures()
        self._copy: Copy | None = None
        self._dead_letters = RowsWriter(order, sink, task)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        inputs = self._groups.inputs(rows, event_time)
        for topic, partition, piece in self._groups.measured(rows, inputs):
            self._measures.add(topic, partition, piece, piece.nbytes)
        self._stage(self._groups.take(inputs))

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._dead_letters.write_dead_letters(rows)

    def close(self) -> list[StagedPart]:
        self._stage(self._groups.rest())
        if self._copy is not None:
            self._copy.close()
        parts = self._measures.parts(self._name, ObjectKind.DATA, self._options["table"], self._task)
        return [*parts, *self._dead_letters.close()]

    def abort(self) -> None:
        if self._copy is not None:
            self._copy.abort()
        self._dead_letters.abort()

    def _stage(self, groups: pa.Table | None) -> None:
        """Stage groups; do nothing for None."""
        if groups is None:
            return
        if self._copy is None:
            connection, table = self._options["connection"], self._options["staging"]
            self._copy = Copy(connection, table, self._task, groups.schema.names, self._context)
        self._copy.write(groups)
