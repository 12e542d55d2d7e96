"""The base of stores over a network, the check of their conditional writes, and objects that are read piece by piece.

If the answer to a request is lost, the outcome is looked up. Data is compared by size, a record by its bytes. For
``put_if_absent`` each request carries a unique mark, which shows whose request created the object.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from io import RawIOBase
from math import inf
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Final, Self, cast
from uuid import uuid4

from tidemark.errors import SinkRefused, TidemarkError, Unavailable, WorkFailed
from tidemark.storage.base import Move, ObjectStore

MIB: Final = 1024 * 1024
IN_MEMORY: Final = MIB  # most bytes in memory of a file that is being written; a task may have many open
END_BYTES: Final = 64 * 1024  # the end of an object is requested first, because readers of Parquet begin there
READ_BYTES: Final = MIB  # requested at once when an object is read piece by piece


@dataclass(frozen=True)
class Attributes:
    """Attributes of an object, without its content; ``writer`` marks the request that created it."""

    size: int
    etag: str
    writer: str | None


class RemoteStore(ABC):
    """An object store over a network, in a prefix that is empty or ends with a slash.

    The abstract methods send the requests of one kind. ``requests_at_once`` is how many a process sends side by side.
    """

    at_once: int
    requests_at_once: int
    uploads_from: float = inf

    def __init__(self, root: str, prefix: str) -> None:
        self.root = root
        self._prefix = prefix

    @abstractmethod
    def _root_of(self, prefix: str) -> str:
        """Return the root of the store in another prefix."""

    @abstractmethod
    def _connect(self) -> None:
        """Create the client, if there is none yet."""

    @abstractmethod
    def _translated(self, what: str, uri: str) -> AbstractContextManager[None]:
        """Turn errors of the client into ours; ``what`` is a verb for ``uri``, such as "read"."""

    @abstractmethod
    def _attributes(self, key: str) -> Attributes | None:
        """Return the attributes of an object; None if it does not exist."""

    @abstractmethod
    def _content_and_etag(self, key: str) -> tuple[bytes | None, str]:
        """Return (content, ETag); (None, "") if the object does not exist."""

    @abstractmethod
    def _create(self, key: str, content: bytes, mark: str) -> bool:
        """Create the object with a mark; return False if the store says that it exists."""

    @abstractmethod
    def _write(self, key: str, content: bytes) -> None:
        """Write the object; an existing one is replaced."""

    @abstractmethod
    def _put_over(self, key: str, etag: str, content: bytes) -> bool:
        """Put the object only if the present one has this ETag (empty: if there is none); return whether it was put."""

    @abstractmethod
    def _write_file(self, key: str, file: BinaryIO, size: int) -> None:
        """Write a file of this size, which is read from its begin; an existing object is replaced."""

    @abstractmethod
    def _put_at(self, staged: str, key: str, size: int) -> TidemarkError | None:
        """Put a staged object at its key. Return an error if nothing is staged: it may be there already. Else None."""

    def _name(self, key: str) -> str:
        """Return the name of an object in its bucket or container."""
        if key.startswith("/") or ".." in key.split("/"):
            raise WorkFailed(f"the key {key} leaves the lake root {self.root}", next_step="this is a defect; report it")
        return f"{self._prefix}{key}"

    def _uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def around(self) -> Iterator[Self]:
        """Yield the stores of the shorter prefixes, with the same client; the last is that of the whole bucket."""
        parts = self._prefix.rstrip("/").split("/")
        for count in range(len(parts) - 1 if self._prefix else -1, -1, -1):
            outer = copy(self)
            outer._prefix = "".join(f"{part}/" for part in parts[:count])
            outer.root = self._root_of(outer._prefix)
            yield outer

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create the object, or return False if the key exists; after a lost answer the mark shows the outcome."""
        mark = uuid4().hex
        with self._settling("create", key, lambda: self._writer(key) == mark):
            # the client may have sent the request again after a lost answer
            if not self._create(key, content, mark) and self._writer(key) != mark:
                return False
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write the object; an existing object is replaced."""
        with self._settling("write", key, lambda: self.get(key) == content):
            self._write(key, content)

    def replace(self, key: str, before: bytes | None, content: bytes) -> bool:
        """Put the object, or return False if its content is not ``before``; after a lost answer, look it up."""
        current, etag = self._content_and_etag(key)
        if current != before:
            return False
        with self._settling("write", key, lambda: self.get(key) == content):
            # the client may have sent the request again after a lost answer
            if not self._put_over(key, etag, content) and self.get(key) != content:
                return False
        return True

    @contextmanager
    def _settling(self, what: str, key: str, is_done: Callable[[], bool]) -> Iterator[None]:
        """Translate errors. If a request gets no answer, ask ``is_done``; if it was done, there is no error."""
        try:
            with self._translated(what, self._uri(key)):
                yield
        except Unavailable as unknown:
            try:
                if is_done():
                    return
            except Unavailable:
                raise unknown from None
            raise

    def _writer(self, key: str) -> str | None:
        attributes = self._attributes(key)
        return None if attributes is None else attributes.writer

    @contextmanager
    def create(self, key: str, final: str | None = None) -> Iterator[BinaryIO]:
        """Yield a file to write and read back, in memory or, if it is large, in a temporary folder of this machine.

        The object is created at the end of the block, which may be in another thread; not after an error.
        """
        self._connect()  # in the thread that begins, so that threads that end do not each create a client
        with SpooledTemporaryFile(IN_MEMORY) as spooled:
            file = cast("BinaryIO", spooled)
            yield file
            size = file.seek(0, 2)
            file.seek(0)
            self._stage(key, final, file, size)

    def _stage(self, key: str, final: str | None, file: BinaryIO, size: int) -> None:
        del final
        with self._settling("stage", key, lambda: self.size(key) == size):
            self._write_file(key, file, size)

    def get(self, key: str) -> bytes | None:
        content, _ = self._content_and_etag(key)
        return content

    def size(self, key: str) -> int | None:
        attributes = self._attributes(key)
        return None if attributes is None else attributes.size

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether each key has an object of the given size in bytes."""
        with ThreadPoolExecutor(self.requests_at_once) as pool:
            return list(pool.map(self.size, sizes)) == list(sizes.values())

    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None:
        """Move several objects at once. If a move or ``before`` raises, running moves end and no other starts."""
        with ThreadPoolExecutor(self.requests_at_once) as pool:
            running: set[Future[None]] = set()
            for planned in moves:
                if len(running) == self.requests_at_once:
                    running = _wait_for_one(running, after)
                before()
                running.add(pool.submit(self.move, planned.staged, planned.key, planned.size))
            while running:
                running = _wait_for_one(running, after)

    def move(self, staged: str, key: str, size: int) -> None:
        """Put a staged object at its key, and check the size there. The staged object is removed later, with its
        folder.

        May be repeated: it is done if nothing is staged and the key has ``size`` bytes.
        """
        failed: TidemarkError | None = None
        try:
            failed = self._put_at(staged, key, size)
        except Unavailable as unknown:
            failed = unknown
        actual = self.size(key)
        if actual != size:
            what = f"{self._uri(key)} has {actual or 0:,} bytes instead of {size:,} after it was put there"
            raise failed or not_moved(what)

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: an object that the store has confirmed is durable."""
        del keys

    def stop_uploads(self, folder: str) -> None:
        """Do nothing: no file is uploaded to its final key."""
        del folder


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
