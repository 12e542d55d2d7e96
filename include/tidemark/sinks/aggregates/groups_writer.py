"""Takes the rows of one Spark task, and stages them grouped by key; where they are staged is of a kind."""

from abc import abstractmethod

import pyarrow as pa

from tidemark.model.order import Order, SinkOrder
from tidemark.sinks.aggregates.groups import Groups
from tidemark.sinks.aggregates.value_columns import value_columns_from
from tidemark.sinks.staging.measures import Measures
from tidemark.sinks.writer import SinkWriter


class GroupsWriter(SinkWriter):
    """What writers of totals have in common; dead letters go where the kind has them."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._groups = Groups(
            sink.options["group_by"], sink.options["window_s"], value_columns_from(sink.options["parts"])
        )
        self._measures = Measures()

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        inputs = self._groups.inputs(rows, event_time)
        for topic, partition, piece in self._groups.measured(rows, inputs):
            self._measures.add(topic, partition, piece, piece.nbytes)
        self._stage(self._groups.take(inputs))

    @abstractmethod
    def _stage(self, groups: pa.Table | None) -> None:
        """Stage groups; None when there are none yet."""
