"""The protocol of a source that Spark's tasks read by themselves: from a range to Arrow batches, in the executors."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from tidemark.errors import TidemarkError
from tidemark.model.offsets import Range


class RangeReader(ABC):
    """Reads ranges in the task that works on them, with no JVM between. It is pickled, so it holds no secret."""

    @abstractmethod
    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range, ascending, with the columns of ``record_schema.INPUT``; none that is missing goes
        unnoticed. Raises ``DataLost``, ``Unavailable``, ``AccessDenied``."""

    def masked(self, text: str) -> str:
        """Spark's messages hold no secret of this reader."""
        return text

    def instead(self, failed: Exception) -> None:
        """Nothing reads in the place of this reader."""
        del failed

    def error_of(self, failed: Exception) -> TidemarkError | None:
        """None: what tasks raise is the error itself."""
        del failed
        return None
