"""Holds rows of a Spark task in memory until there are enough of them for a group of a file, or too many in all."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

TASK_BYTES = 40 * 2**20  # most Arrow bytes in memory for one task, all targets together, and so of a group
GROUP_ROWS = 256 * 1024
_PIECE_OVERHEAD = 256  # bytes that each column of a piece needs besides its values (alignment, Python objects)

T = TypeVar("T", bound=Hashable)


@dataclass
class _Waiting:
    pieces: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class HeldRows(Generic[T]):
    """Pieces of rows that wait, by target; each target gets files of its own.

    ``add`` yields the rows of a target as soon as they reach the rows or bytes of one file. It also yields those of the
    largest targets if all together need too much memory.
    """

    def __init__(self, *, file_rows: int = GROUP_ROWS, file_bytes: int) -> None:
        self.group_rows = min(GROUP_ROWS, file_rows)
        self._group_bytes = file_bytes
        self._held: dict[T, _Waiting] = {}
        self._bytes = 0

    def add(self, target: T, piece: pa.Table) -> Iterator[tuple[T, pa.Table]]:
        """Keep a piece; yield the targets whose rows must go to their files now, with these rows, and forget them."""
        held = self._held.setdefault(target, _Waiting())
        size = piece.nbytes + piece.num_columns * _PIECE_OVERHEAD
        held.pieces.append(piece)
        held.rows += piece.num_rows
        held.bytes += size
        self._bytes += size
        if held.rows >= self.group_rows or held.bytes >= self._group_bytes:
            yield target, self._taken(target)
        while self._bytes > TASK_BYTES:
            largest = max(self._held, key=lambda target: self._held[target].bytes)
            yield largest, self._taken(largest)

    def rest(self) -> Iterator[tuple[T, pa.Table]]:
        """Yield all rows that still wait, by target."""
        for target in list(self._held):
            yield target, self._taken(target)

    def clear(self) -> None:
        self._held.clear()

    def _taken(self, target: T) -> pa.Table:
        held = self._held.pop(target)
        self._bytes -= held.bytes
        return pa.concat_tables(held.pieces)
