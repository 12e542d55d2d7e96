"""The protocol of a source that Spark's tasks read by themselves: executors turn a range into Arrow batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from tidemark.errors import TidemarkError
from tidemark.model.offsets import Range


class RangeReader(ABC):
    """Reads ranges in the task that processes them, without a JVM in between. It is pickled, so it must hold no
    secret."""

    @abstractmethod
    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range in ascending order, with the columns of ``record_schema.INPUT``.

        A missing record must raise. Raises ``DataLost``, ``Unavailable``, ``AccessDenied``.
        """

    def masked(self, text: str) -> str:
        """Return the text unchanged, because Spark's messages contain no secret of this reader."""
        return text

    def instead(self, failed: Exception) -> None:
        """Return None: no other reader can replace this one."""
        del failed

    def error_of(self, failed: Exception) -> TidemarkError | None:
        """Return None: a task raises the true error itself."""
        del failed
        return None
