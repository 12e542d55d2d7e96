"""Finds the rows on which logic fails: halves a batch that fails as a whole, until single rows fail."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, BadRecord, ErrorClass
from tidemark.errors import THEN_RETRY, WorkFailed
from tidemark.transforms.base import NO_ROWS, Transformed, others

BUDGET: Final = 1_000  # failed tries per batch: one bad row among 50,000 takes 17


class LogicFailed(Exception):
    """Logic fails on rows; ``reason`` names the place in the logic and repeats nothing of the data."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason[:REASON_LIMIT]


@dataclass
class Halving:
    """Runs ``work`` on rows, and on halves of them if it raises ``LogicFailed``.

    ``results`` has each result with the index of its first row, ascending; ``errors`` has the rows that fail alone.
    Raises ``WorkFailed`` if too many tries fail: then the logic is wrong, not the records.
    """

    work: Callable[[pa.RecordBatch], pa.RecordBatch]
    results: list[tuple[int, pa.RecordBatch]] = field(default_factory=list)
    errors: list[BadRecord] = field(default_factory=list)
    failures: int = 0

    @property
    def kept(self) -> pa.Array:
        """Return the indices of the rows that stay. The first column of each result has the indices in the rows it was
        made from.
        """
        return pa.concat_arrays([NO_ROWS, *(pc.add(made.column(0), start) for start, made in self.results)])

    def transformed(self, rows: pa.RecordBatch, made: pa.RecordBatch) -> Transformed:
        """Return the result for all ``rows``: ``made`` are those that stay, failed rows are errors, the others are
        filtered.
        """
        kept, bad = self.kept, pa.array([error.index for error in self.errors], pa.int64())
        filtered = others(rows.num_rows, pa.concat_arrays([kept, bad]))
        return Transformed(made, kept, filtered, NO_ROWS, tuple(self.errors))

    def run(self, rows: pa.RecordBatch, start: int = 0) -> None:
        try:
            self.results.append((start, self.work(rows)))
            return
        except LogicFailed as failure:
            self.failures += 1
            if rows.num_rows <= 1:
                self.errors.append(BadRecord(start, failure.reason, ErrorClass.TRANSFORM))
                return
            if self.failures > BUDGET:
                raise WorkFailed(
                    f"the logic fails on {len(self.errors):,} records of a batch, and on more that were not looked "
                    f"for: {failure.reason}",
                    next_step="correct it (TRY_CAST and TRY give null instead of an error), try it with: "
                    "tidemark peek {pipeline}" + THEN_RETRY,
                ) from None
        half = rows.num_rows // 2
        self.run(rows.slice(0, half), start)
        self.run(rows.slice(half), start + half)
