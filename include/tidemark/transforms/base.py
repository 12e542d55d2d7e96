"""The protocol of transforms; ``tests/behaviours/test_transforms.py`` holds each registered one to it."""

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

MADE: Final = "_made"  # the column with what an ``OnFrames`` made of a row: a struct, null where the row went


@dataclass(frozen=True)
class Transformed:
    """The result of a transform on a batch of rows, told by the transform itself; nobody derives one number from
    another.

    ``rows`` holds the data columns of the rows that stay; ``kept`` says which rows of the batch they come from.
    ``filtered`` and ``deduplicated`` are the rows that were taken away, ``errors`` those that the logic could not work
    on. All are indices in the batch (``int64``, ascending), and each row of the batch is in exactly one of the four: a
    row that is in none blocks the manifest. A transform that fans out has a row of the batch in ``kept`` several times.
    """

    rows: pa.RecordBatch
    kept: pa.Array
    filtered: pa.Array
    deduplicated: pa.Array
    errors: tuple[BadRecord, ...] = ()


class Transform(Protocol):
    """Changes or takes away decoded rows; opened once per Spark task from one entry of an order's ``transforms``."""

    def schema(self, given: pa.Schema) -> pa.Schema:
        """The data columns it makes of those given; ``ConfigurationError`` when it cannot work on them.

        Called once, before the first ``apply``. No name begins with ``_`` (those are the metadata columns).
        """
        ...

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        """Work through rows as a sink would get them now: metadata, ``_is_deleted`` where the decoder knows tombstones,
        data columns. The result must not depend on where one batch ends and the next begins.
        """
        ...


class Memory(Enum):
    """The rows that a transform must have seen before it is asked about the first."""

    OF_EARLIER = "those of the offsets before the range"
    OF_ALL = "all of the range"


@runtime_checkable
class Remembering(Transform, Protocol):
    """A transform that may have to see rows before it is asked about any; ``memory`` None: it need not."""

    @property
    def memory(self) -> Memory | None: ...

    def remember(self, rows: pa.RecordBatch) -> None:
        """See rows as ``apply`` would get them; they come in the order of their offsets."""
        ...


@runtime_checkable
class OnFrames(Transform, Protocol):
    """A transform of DataFrames, which Spark calls in the driver on all rows of a manifest, before the pass.

    ``apply`` gets its result in the column ``MADE`` beside each row, which is one row of one record. ``given`` and
    ``made`` are the data columns that its function gets and gives. ``wrong`` is the error for what it must not do.
    """

    function: str
    code: "Code"
    given: pa.Schema
    made: pa.Schema

    def wrong(self, what: str, **context: object) -> WorkFailed: ...


NO_ROWS = pa.nulls(0, pa.int64())  # pa.array imports pandas, which takes 0.2 s of a core


def data_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without metadata columns."""
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
    """The indices below ``count`` that are not among ``rows``, which has each index once."""
    if len(rows) == count:
        return NO_ROWS
    here = positions(count)
    return here.filter(pc.invert(pc.is_in(here, value_set=rows)))
