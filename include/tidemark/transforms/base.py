"""The protocol of transforms; ``tests/behaviours/test_transforms.py`` checks that each registered one follows it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.model.positions import positions
from tidemark.text import with_nearest

if TYPE_CHECKING:
    from tidemark.transforms.code import Code

MADE: Final = "_made"  # the column with the row that an ``OnFrames`` made of each row: a struct, null if it made none


@dataclass(frozen=True)
class Transformed:
    """The result of a transform on a batch of rows. The transform reports all of it, and no number is derived from
    another.

    ``rows`` has the data columns of the rows that stay; ``kept`` says which rows of the batch they come from.
    ``filtered`` and ``deduplicated`` are the rows that were removed, ``errors`` those on which the logic failed. All
    are indices in the batch (``int64``, ascending). Each row of the batch is in exactly one of the four: a row in none
    of them blocks the manifest. A transform that fans out has a row of the batch in ``kept`` several times.
    """

    rows: pa.RecordBatch
    kept: pa.Array
    filtered: pa.Array
    deduplicated: pa.Array
    errors: tuple[BadRecord, ...] = ()


class Transform(Protocol):
    """Changes or removes decoded rows. It is opened once per Spark task, from one entry of an order's
    ``transforms``.
    """

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the data columns that it makes of those given. Raises ``ConfigurationError`` if it cannot work on
        them.

        Called once, before the first ``apply``. No name begins with ``_``, because those are the metadata columns.
        """
        ...

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        """Transform one batch. ``rows`` has the columns that a sink would get without this transform: metadata,
        ``_is_deleted`` if the decoder knows tombstones, data columns. The result must not depend on where a batch ends.
        """
        ...


class Memory(Enum):
    """The rows that a transform must have seen before the first call of ``apply``."""

    OF_EARLIER = "those of the offsets before the range"
    OF_ALL = "all of the range"


@runtime_checkable
class Remembering(Transform, Protocol):
    """A transform that may have to see rows before the first ``apply``; if ``memory`` is None, it need not."""

    @property
    def memory(self) -> Memory | None: ...

    def remember(self, rows: pa.RecordBatch) -> None:
        """Remember rows, in the form in which ``apply`` gets them. They come in the order of their offsets."""
        ...


@runtime_checkable
class OnFrames(Transform, Protocol):
    """A transform of DataFrames, which Spark calls in the driver on all rows of a manifest, before the pass.

    Its function makes at most one row of each record; ``apply`` gets that row beside the record, in the column
    ``MADE``. ``given`` and ``made`` are the data columns that the function gets and returns. ``wrong`` makes the error
    for a function that breaks a rule.
    """

    function: str
    code: "Code"
    given: pa.Schema
    made: pa.Schema

    def wrong(self, what: str, **context: object) -> WorkFailed: ...


NO_ROWS = pa.nulls(0, pa.int64())  # pa.array imports pandas, which takes 0.2 s of a core


def data_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without metadata columns."""
    return rows.select([name for name in rows.schema.names if not name.startswith("_")])


def refuse_unknown(columns: Iterable[str], given: pa.Schema) -> None:
    """Raise ``ConfigurationError`` for the first column that is not among those given."""
    for column in columns:
        if column not in given.names:
            raise ConfigurationError(
                with_nearest(f"there is no column {column}", column, given.names, listed=True),
                next_step="name one of these columns",
            )


def others(count: int, rows: pa.Array) -> pa.Array:
    """Return the indices below ``count`` that are not in ``rows``, which has each index once."""
    if len(rows) == count:
        return NO_ROWS
    here = positions(count)
    return here.filter(pc.invert(pc.is_in(here, value_set=rows)))
