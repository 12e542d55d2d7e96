"""The protocol of a sink inside a Spark task: it takes rows, stages them for one attempt, and reports what it staged.

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

    A file: ``staged`` is relative to the attempt's staging folder, ``folder``, its final place, to the root;
    ``format`` is the suffix of its name. Rows of a table: ``staged`` is the task, ``folder`` the table, ``format``
    None. ``spans`` has (partition, lowest offset, highest offset) of each partition, ascending. ``path`` is the final
    key of a file that the task has given it; None where the receipt does.
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
        """As values for JSON."""
        return asdict(self)


class RowTaker(ABC):
    """Takes the rows of one task. The caller ends with ``close`` when all went well, else with ``abort``."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        """Take rows of any topics and partitions; ``event_time`` is a ``timestamp[us, UTC]`` of each row, no nulls."""

    @abstractmethod
    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        """Take records that could not be decoded or placed, each with its reason."""

    @abstractmethod
    def close(self) -> list[StagedPart]:
        """Stage the remaining rows; all parts that this task has staged. No other method may be called afterwards."""

    @abstractmethod
    def abort(self) -> None:
        """Remove what this task staged, if possible; never raises. No receipt names what is left."""


class SinkWriter(RowTaker):
    """One sink in one task."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        """``task`` names the try of the Spark task too."""
        self._name, self._task, self._options = sink.name, task, sink.options
        self._context = {"pipeline": order.pipeline_name, "manifest": order.manifest_id, "sink": sink.name}

    @classmethod
    @abstractmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        """Return whether a task of the attempt has completed a staged part; called outside of tasks."""

    @classmethod
    def try_connection(cls, conn_id: str) -> None:
        """Connect to a target as a task does, and disconnect; raises when this machine cannot. Most tasks stage files
        only, and no connection names their folder."""
        del conn_id
