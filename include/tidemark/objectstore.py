"""The one door to where objects lie: a folder of this machine, or a prefix of an S3 bucket.

Keys are relative to the root, with forward slashes. The stores are imported when the first root asks for them: an
executor needs boto3 only to write to S3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

from tidemark.named_connections import Lookup, from_environment

S3 = "s3://"


@dataclass(frozen=True)
class Move:
    """One staged object, the key it goes to, and its size in bytes."""

    staged: str
    key: str
    size: int


class ObjectStore(Protocol):
    """What a sink of files needs from a place to put them.

    ``move_each`` asks ``before`` ahead of every object and calls ``after`` behind it, both in the calling thread; when
    it raises, nothing of it is still under way.
    """

    root: str

    def check(self) -> None:
        """Raise when the place cannot keep what ``put_if_absent`` promises."""
        ...

    def put_if_absent(self, key: str, content: bytes) -> bool: ...
    def put(self, key: str, content: bytes) -> None: ...
    def create(self, key: str) -> AbstractContextManager[BinaryIO]: ...
    def get(self, key: str) -> bytes | None: ...
    def open(self, key: str) -> BinaryIO: ...
    def size(self, key: str) -> int | None: ...
    def has(self, sizes: Mapping[str, int]) -> bool: ...
    def move(self, staged: str, key: str, size: int) -> None: ...
    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None: ...
    def sync(self, keys: Iterable[str]) -> None: ...
    def delete(self, keys: Iterable[str]) -> None: ...
    def delete_folder(self, key: str) -> None: ...
    def folders(self, prefix: str) -> list[str]: ...
    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]: ...
    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """The keys directly in a folder whose names begin so and come ``after`` a name, without asking for sizes."""
        ...


def open_store(root: str, s3: Mapping[str, Any] | None = None, lookup: Lookup = from_environment) -> ObjectStore:
    """The store of a root as the pipeline file names it; ``s3`` are the settings of ``sinks.files.s3``, with the id of
    the connection. Nothing is asked yet."""
    if is_s3(root):
        return cast("ObjectStore", import_module("tidemark.s3").S3Store(root, s3 or {}, lookup))
    return cast("ObjectStore", import_module("tidemark.localstore").LocalStore(root))


def is_s3(root: str) -> bool:
    """Whether a root is a bucket, not a folder."""
    return root.startswith(S3)


def is_address(url: str) -> bool:
    """Whether it is ``http://`` or ``https://``, a host and perhaps a port and path; no user, password or query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not (set("@?#") & set(url))
