"""The shared parts of stores over a network: lost answers, moves at the same time, objects read piece by piece, and the
check of conditional writes.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from io import RawIOBase
from typing import Any

from tidemark.errors import SinkRefused, TidemarkError, Unavailable, WorkFailed
from tidemark.storage.base import Move, ObjectStore


@contextmanager
def settled(is_done: Callable[[], bool]) -> Iterator[None]:
    """If a request in the block gets no answer, ask ``is_done``; if it was done, there is no error."""
    try:
        yield
    except Unavailable as unknown:
        try:
            if is_done():
                return
        except Unavailable:
            raise unknown from None
        raise


def move_at_once(
    count: int,
    move: Callable[[str, str, int], None],
    moves: Iterable[Move],
    before: Callable[[], None],
    after: Callable[[], None],
) -> None:
    """Move up to ``count`` objects at once. If a move or ``before`` raises, running moves end and no other starts."""
    with ThreadPoolExecutor(count) as pool:
        running: set[Future[None]] = set()
        for planned in moves:
            if len(running) == count:
                running = _wait_for_one(running, after)
            before()
            running.add(pool.submit(move, planned.staged, planned.key, planned.size))
        while running:
            running = _wait_for_one(running, after)


def _wait_for_one(running: set[Future[None]], after: Callable[[], None]) -> set[Future[None]]:
    """Wait until at least one move has ended; return those still running. Raises the error of a move that failed."""
    done, running = wait(running, return_when=FIRST_COMPLETED)
    for move in done:
        move.result()
        after()
    return running


def not_moved(what: str) -> WorkFailed:
    return WorkFailed(what, next_step="nothing is published half; tidemark retry {pipeline}")


def check_conditions(store: ObjectStore, key: str, spares: Callable[[], bool] | None) -> None:
    """Check that a store has conditional writes, with a probe key, which is removed.

    Create the key twice: raises ``SinkRefused`` if the second request replaces the object. With ``spares`` also check
    If-Match: the store must replace an object whose ETag matches, and ``spares`` must say that it keeps one whose ETag
    does not.
    """
    try:
        store.put_if_absent(key, b"first")
        twice = store.put_if_absent(key, b"second")
        replaced = spares is None or twice or store.replace(key, b"first", b"third")
        spared = spares is None or twice or spares()
    finally:
        with suppress(TidemarkError):
            store.delete([key])
    if twice:
        raise SinkRefused(
            f"the store of {store.root} overwrites objects that must be created only when absent (If-None-Match)",
            next_step="nothing was written: two databases could take this lake at once. Use a store, or a version "
            "of it, that has conditional writes",
        )
    if not (replaced and spared):
        what = "overwrites an object that has changed"
        if not replaced:
            what = "does not replace an object that has not changed"
        raise SinkRefused(
            f"the store of {store.root} {what} (If-Match), which success_files needs",
            next_step="use a store, or a version of it, that has conditional writes with If-Match, or take "
            "success_files out of the sink",
        )


class Pieces(RawIOBase):
    """An object as a file that requests only the bytes that are read; its ``end`` is already here."""

    def __init__(self, size: int, end: bytes, read: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._end = end
        self._read = read
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        begin = self._position - (self._size - len(self._end))  # the position within ``end``; negative before it
        piece = self._end[begin : begin + end - self._position] if begin >= 0 else self._read(self._position, end)
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
