"""Finds columns whose times all lie in January 1970: numbers that were read in a smaller unit than their own.

Milliseconds of any year from 1970 to 2050, read as microseconds, lie in that month; so do seconds read as milliseconds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.registry import open_decoder
from tidemark.model.order import OnError
from tidemark.processing.drift import with_unknown_fields

_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = datetime(1970, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class EarlyMoments:
    """A column, or a path inside one, whose times all lie in January 1970; ``count`` is their number."""

    path: str
    count: int
    next_step: ClassVar[str] = (
        "give the column its real unit: milliseconds were read as microseconds, or seconds as milliseconds"
    )

    def __str__(self) -> str:
        moments = "the only moment lies" if self.count == 1 else f"all {self.count:,} moments lie"
        return f"column {self.path}: {moments} in January 1970"


def early_moments(decode: Mapping[str, Any], batch: pa.RecordBatch) -> list[EarlyMoments]:
    """Decode records, and return the columns with times that all lie in January 1970."""
    rows = open_decoder(with_unknown_fields(decode, OnError.DEAD_LETTER)).decode(batch).rows
    return [
        EarlyMoments(path, count)
        for name in rows.schema.names
        for path, moments in _moments(name, rows.column(name))
        if (count := len(moments)) and _are_early(moments)
    ]


def _moments(path: str, column: pa.Array) -> Iterator[tuple[str, Any]]:
    """Yield the times of a column and of its nested fields, by path, without nulls."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        yield path, column.drop_null()
    elif pa.types.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            yield from _moments(f"{path}.{field.name}", part)
    elif pa.types.is_list(kind):
        yield from _moments(f"{path}[]", column.flatten())
    elif pa.types.is_map(kind):
        yield from _moments(f"{path}[]", column.items)


def _are_early(moments: pa.Array) -> bool:
    first, last = (pa.scalar(moment, moments.type) for moment in (_BEGIN, _END))
    early: bool = pc.all(pc.and_(pc.greater_equal(moments, first), pc.less(moments, last))).as_py()
    return early
