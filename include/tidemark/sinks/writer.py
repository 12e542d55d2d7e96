"""The interface of a sink inside a Spark task: it takes rows, stages them for one attempt, and reports what it staged.

Publishing happens later, outside Spark. This code runs on executors: it imports the standard library and pyarrow only.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind


@dataclass(frozen=True)
class StagedPart:
    """Rows of one topic that one task staged, measured from the written data.

    For a file, ``staged`` is relative to the attempt's staging folder; ``folder``, its final place, is relative to the
    root; ``format`` is the suffix of its name. For rows of a table, ``staged`` is the task, ``folder`` the table, and
    ``format`` is None. ``spans`` has (partition, lowest offset, highest offset) of each partition, ascending. ``path``
    is the final key of a file if the task has chosen it; None if the receipt does.
    """

    sink: str
    kind: ObjectKind
    staged: str
    folder: str
    format: str | None
    topic: str
    spans: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int
    digest: str
    path: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the part as values for JSON."""
        return asdict(self)


class RowTaker(ABC):
    """A receiver of the rows of one task. The caller ends with ``close`` if all went well, else with ``abort``."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        """Take rows of any topics and partitions; ``event_time`` is a ``timestamp[us, UTC]`` of each row, no nulls."""

    @abstractmethod
    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        """Take records that could not be decoded or placed, each with its reason."""

    @abstractmethod
    def close(self) -> list[StagedPart]:
        """Stage the remaining rows, and return all parts that this task has staged. No other method may follow."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what this task staged, if possible; never raises. No receipt names the files that remain."""


class SinkWriter(RowTaker):
    """One sink in one task."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        """Create the writer; ``task`` also contains the number of the try of the Spark task."""
        self._name, self._task, self._options = sink.name, task, sink.options
        self._context = {"pipeline": order.pipeline_name, "manifest": order.manifest_id, "sink": sink.name}

    @classmethod
    @abstractmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        """Return whether a task of the attempt has completed a staged part; called outside of tasks."""

    @classmethod
    def try_connection(cls, conn_id: str) -> None:
        """Connect to a target as a task does, and disconnect; raises if this machine cannot. Most kinds only stage
        files, and need no connection for their folder."""
        del conn_id
