"""The interface of a store for objects: a folder of this machine, or a prefix of a bucket.

Keys are relative to the root, with forward slashes. ``open.py`` opens the store of a root.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Move:
    """The move of one staged object to a key; ``size`` is in bytes."""

    staged: str
    key: str
    size: int


class ObjectStore(Protocol):
    """The store of objects that the files sink needs.

    ``at_once`` says how many objects a task should create at the same time: several, if each waits for an answer.

    If a file is created with a ``final`` key and has ``uploads_from`` bytes or more, it is uploaded to that key. The
    key has no object until ``move`` completes the upload, and no byte is copied.

    ``move_each`` calls ``before``, which may raise, ahead of every object, and ``after`` when it is moved, both in the
    calling thread. When ``move_each`` raises, none of its moves is still running.
    """

    root: str
    at_once: int
    uploads_from: float

    def check(self, *, replaces: bool = False) -> None:
        """Raise ``SinkRefused`` if ``put_if_absent`` would replace an object in this store, or with ``replaces`` if the
        store does not support ``replace``."""
        ...

    def around(self) -> Iterator["ObjectStore"]:
        """Yield the stores of the folders in which this one lies, innermost first."""
        ...

    def put_if_absent(self, key: str, content: bytes) -> bool: ...
    def put(self, key: str, content: bytes) -> None: ...
    def replace(self, key: str, before: bytes | None, content: bytes) -> bool:
        """Put the object only if its content is still ``before`` (None: no object); return whether it was put.

        If several processes replace the same content, only one succeeds, even if others are paused in between.
        """
        ...

    def create(self, key: str, final: str | None = None) -> AbstractContextManager[BinaryIO]: ...
    def get(self, key: str) -> bytes | None: ...
    def open(self, key: str) -> BinaryIO: ...
    def size(self, key: str) -> int | None: ...
    def has(self, sizes: Mapping[str, int]) -> bool: ...
    def move(self, staged: str, key: str, size: int) -> None: ...
    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None: ...
    def sync(self, keys: Iterable[str]) -> None: ...
    def stop_uploads(self, folder: str) -> None:
        """Remove the uploads that were created in a folder and that will never be completed."""
        ...

    def delete(self, keys: Iterable[str]) -> None: ...
    def delete_folder(self, key: str) -> None: ...
    def folders(self, prefix: str) -> list[str]: ...
    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]: ...
    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """Yield the keys directly in a folder whose names start with ``beginning`` and sort after ``after``."""
        ...


def is_address(url: str) -> bool:
    """Return whether a URL is ``http://`` or ``https://`` with a host, and perhaps a port and path, but without user,
    password or query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not (set("@?#") & set(url))


def real_root(root: str) -> str:
    """Return the path of a folder with its links resolved; a bucket unchanged."""
    return str(Path(root).resolve()) if Path(root).is_absolute() else root
