"""What a sink does inside a Spark task: take rows, stage them where only this attempt writes, say what it made.

Publishing is another step, outside Spark. Code here runs on executors: the standard library and pyarrow, nothing else.
"""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from tidemark.receipt import ObjectKind


@dataclass(frozen=True)
class StagedPart:
    """Rows of one partition that one task staged, as measured from what was written.

    A file: ``staged`` is relative to the attempt's staging folder and ``folder``, where it belongs, to the root;
    ``format`` is the suffix of its name. Rows of a table: ``staged`` is the task, ``folder`` the table, ``format``
    None. Offsets are the lowest and the highest, both inclusive.
    """

    sink: str
    kind: ObjectKind
    staged: str
    folder: str
    format: str | None
    topic: str
    partition: int
    rows: int
    bytes: int
    digest: str
    first_offset: int
    last_offset: int

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


class SinkWriter(Protocol):
    """One sink in one task. The caller ends with ``close`` when all went well, else with ``abort``."""

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        """Take rows of any topics and partitions; ``event_time`` has one ``timestamp[us, UTC]`` per row, no nulls."""
        ...

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        """Take records that could not be decoded or placed, each with its reason."""
        ...

    def close(self) -> list[StagedPart]:
        """Stage what is still held and tell of everything staged by this task; calls after it are mistakes."""
        ...

    def abort(self) -> None:
        """Remove what this task staged as far as that is possible; never raises. What stays, no receipt names."""
        ...
