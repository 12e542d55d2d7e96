"""A lake root in a container of Azure's Blob storage. Blobs are staged, and then the store copies them to their keys.

Azure's uncommitted blocks have no id of an upload and cannot be aborted, so no file is uploaded to its final key. If
the answer to a request is lost, the outcome is looked up, as in ``storage/s3/store.py``.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from io import BufferedReader
from math import inf
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Final, cast
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobProperties, ContainerClient

from tidemark.connections.lookup import Lookup
from tidemark.errors import TidemarkError, Unavailable, WorkFailed
from tidemark.paths import RECORDS
from tidemark.providers.azure.address import AzureAddress
from tidemark.providers.azure.client import MIB, access, code_of, container_client, is_gone, translated
from tidemark.storage.answers import Pieces, check_conditions, move_at_once, not_moved, settled
from tidemark.storage.base import Move

AT_ONCE: Final = 8  # requests of one process; its client keeps 10 connections
IN_MEMORY: Final = MIB  # most bytes in memory of a file that is being written; a task may have many open
END_BYTES: Final = 64 * 1024  # the end of an object is requested first, because readers of Parquet begin there
READ_BYTES: Final = MIB  # requested at once when an object is read piece by piece
COPY_POLL_S: Final = 0.5  # between two questions about a copy that Azure has not finished at once
WRITER: Final = "tidemark_writer"  # metadata: which request created a blob
NO_ETAG: Final = '"0x0"'
# Azure answers 409 if a blob exists that must not, 412 if it has another ETag.
_CONDITION: Final = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}


class AzureStore:
    """A store in a prefix of a container; ``settings`` may name a ``connection``."""

    at_once = AT_ONCE
    uploads_from = inf

    def __init__(self, root: str, settings: Mapping[str, Any], lookup: Lookup) -> None:
        self.root = root
        self._address = AzureAddress.parse(root)
        self._prefix = self._address.prefix
        self._settings = settings
        self._lookup = lookup

    @cached_property
    def _container(self) -> ContainerClient:
        return container_client(self._address, access(self._address, self._settings, self._lookup))

    def _name(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise WorkFailed(f"the key {key} leaves the lake root {self.root}", next_step="this is a defect; report it")
        return f"{self._prefix}{key}"

    def _blob(self, key: str) -> BlobClient:
        return self._container.get_blob_client(self._name(key))

    def _uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def check(self, *, replaces: bool = False) -> None:
        """Check conditional writes, and each other right that a lake needs, with a blob that is removed."""
        key = f"{RECORDS}/_probe-{uuid4().hex}"
        check_conditions(self, key, (lambda: not self._put_where(key, b"fourth", NO_ETAG)) if replaces else None)
        self.put(key, b"probe")
        self.move(key, f"{key}-copied", len(b"probe"))
        self.delete([name for name, _ in self._listed(self._name(key))])

    def around(self) -> Iterator["AzureStore"]:
        """Yield the stores of the shorter prefixes, with the same client; the last is that of the whole container."""
        parts = self._prefix.rstrip("/").split("/")
        for count in range(len(parts) - 1 if self._prefix else -1, -1, -1):
            outer = copy(self)
            outer._prefix = "".join(f"{part}/" for part in parts[:count])
            outer.root = self._address.root(outer._prefix)
            yield outer

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create the blob, or return False if the key exists; after a lost answer a mark shows the outcome."""
        mark = uuid4().hex
        with self._settling("create", key, lambda: self._writer(key) == mark):
            try:
                self._blob(key).upload_blob(content, overwrite=False, metadata={WRITER: mark})
            except HttpResponseError as refused:
                if code_of(refused) not in _CONDITION:
                    raise
                return self._writer(key) == mark  # true if the client sent the request again after a lost answer
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write the blob; an existing one is replaced."""
        with self._settling("write", key, lambda: self.get(key) == content):
            self._blob(key).upload_blob(content, overwrite=True)

    def replace(self, key: str, before: bytes | None, content: bytes) -> bool:
        """Put the blob, or return False if its content is not ``before``; after a lost answer, look it up."""
        current, etag = self._content_and_etag(key)
        if current != before:
            return False
        with self._settling("write", key, lambda: self.get(key) == content):
            # the client may have sent the request again after a lost answer
            if not self._put_where(key, content, etag) and self.get(key) != content:
                return False
        return True

    def _put_where(self, key: str, content: bytes, etag: str) -> bool:
        """Put the blob only if the present one has this ETag (empty: if there is none); return whether it was put."""
        condition: dict[str, Any] = {"overwrite": False}
        if etag:
            condition = {"overwrite": True, "etag": etag, "match_condition": MatchConditions.IfNotModified}
        with translated("write", self._uri(key)):
            try:
                self._blob(key).upload_blob(content, **condition)
            except HttpResponseError as refused:
                if code_of(refused) not in _CONDITION and not is_gone(refused):
                    raise
                return False
        return True

    @contextmanager
    def _settling(self, what: str, key: str, is_done: Callable[[], bool]) -> Iterator[None]:
        with settled(is_done), translated(what, self._uri(key)):
            yield

    def _writer(self, key: str) -> str | None:
        properties = self._properties(key)
        return None if properties is None else (properties.metadata or {}).get(WRITER)

    def _properties(self, key: str) -> BlobProperties | None:
        with translated("look at", self._uri(key)):
            try:
                return self._blob(key).get_blob_properties()
            except HttpResponseError as refused:
                if is_gone(refused):
                    return None
                raise

    @contextmanager
    def create(self, key: str, final: str | None = None) -> Iterator[BinaryIO]:
        """Yield a file to write and read back, in memory or, if it is large, in a temporary folder of this machine.

        The blob is created at the end of the block, which may be in another thread; not after an error.
        """
        del final
        blob = self._blob(key)  # its client is created by the thread that begins
        with SpooledTemporaryFile(IN_MEMORY) as spooled:
            file = cast("BinaryIO", spooled)
            yield file
            size = file.seek(0, 2)
            file.seek(0)
            with self._settling("stage", key, lambda: self.size(key) == size):
                blob.upload_blob(file, length=size, overwrite=True)

    def get(self, key: str) -> bytes | None:
        content, _ = self._content_and_etag(key)
        return content

    def _content_and_etag(self, key: str) -> tuple[bytes | None, str]:
        """Return (content, ETag); (None, "") if the blob does not exist."""
        with translated("read", self._uri(key)):
            try:
                download = self._blob(key).download_blob()
                return download.readall(), str(download.properties.etag)
            except HttpResponseError as refused:
                if is_gone(refused):
                    return None, ""
                raise

    def open(self, key: str) -> BinaryIO:
        """Open the blob for reading; raises ``FileNotFoundError`` if it does not exist. Requests its end at once, and
        the rest piece by piece when it is read."""
        properties = self._properties(key)
        if properties is None:
            raise FileNotFoundError(self._uri(key))
        size, etag = int(properties.size), str(properties.etag)
        first = max(0, size - END_BYTES)
        end = self._piece(key, etag, first, size) if size else b""
        pieces = Pieces(size, end, lambda start, stop: self._piece(key, etag, start, stop))
        return cast("BinaryIO", BufferedReader(pieces, READ_BYTES))

    def _piece(self, key: str, etag: str, start: int, end: int) -> bytes:
        """Return some bytes of the blob; raises an error if it was replaced since it was opened."""
        with translated("read", self._uri(key)):
            condition = MatchConditions.IfNotModified
            return self._blob(key).download_blob(start, end - start, etag=etag, match_condition=condition).readall()

    def size(self, key: str) -> int | None:
        properties = self._properties(key)
        return None if properties is None else int(properties.size)

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether each key has a blob of the given size in bytes."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self.size, sizes)) == list(sizes.values())

    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None:
        """Move up to 8 blobs at once. If a move or ``before`` raises, running moves end and no other starts."""
        move_at_once(AT_ONCE, self.move, moves, before, after)

    def move(self, staged: str, key: str, size: int) -> None:
        """Copy a staged blob to its key, and check the size there. The staged blob is removed later, with its folder.

        May be repeated: it is done if nothing is staged and the key has ``size`` bytes.
        """
        failed: TidemarkError | None = None
        try:
            failed = self._copy(staged, key)
        except Unavailable as unknown:
            failed = unknown
        actual = self.size(key)
        if actual != size:
            what = f"{self._uri(key)} has {actual or 0:,} bytes instead of {size:,} after it was put there"
            raise failed or not_moved(what)

    def _copy(self, staged: str, key: str) -> TidemarkError | None:
        """Copy a staged blob, and wait for the end of the copy. Return an error if nothing is staged: it may have been
        copied before. Else None."""
        target = self._blob(key)
        with translated("copy", self._uri(key)):
            try:
                status = str(target.start_copy_from_url(self._blob(staged).url)["copy_status"])
            except HttpResponseError as refused:
                if is_gone(refused) or (code_of(refused) == "CannotVerifyCopySource" and refused.status_code == 404):
                    return not_moved(f"{self._uri(staged)} no longer exists, and was not copied")
                if code_of(refused) != "PendingCopyOperation":  # the client sent the request again
                    raise
                status = "pending"
            while status == "pending":  # within an account a copy is mostly done when Azure answers
                time.sleep(COPY_POLL_S)
                status = str(target.get_blob_properties().copy.status)
        return None if status == "success" else not_moved(f"Azure ended the copy to {self._uri(key)}: {status}")

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: a blob that Azure has confirmed is durable."""

    def stop_uploads(self, folder: str) -> None:
        """Do nothing: no file is uploaded to its final key."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove blobs; a missing blob is not an error."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._delete, keys))

    def _delete(self, key: str) -> None:
        with translated("remove", self._uri(key)):
            try:
                self._blob(key).delete_blob(delete_snapshots="include")
            except HttpResponseError as refused:
                if not is_gone(refused):
                    raise

    def delete_folder(self, key: str) -> None:
        self.delete(name for name, _ in self.list(key))

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly in a folder, sorted."""
        folder = f"{self._name(prefix)}/"
        with translated("list", self._uri(prefix)):
            names = [entry.name for entry in self._container.walk_blobs(name_starts_with=folder)]
        return sorted(name.removeprefix(folder).rstrip("/") for name in names if name.endswith("/"))

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, bytes) of every blob below a folder, in the order of keys; none if there is no such folder."""
        return self._listed(f"{self._name(prefix)}/" if prefix else self._prefix)

    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """Yield the keys below a folder, in their order. The store cannot begin a list in the middle."""
        names = (key for key, _ in self._listed(f"{self._name(folder)}/{beginning}"))
        return (key for key in names if key > f"{folder}/{after}")

    def _listed(self, beginning: str) -> Iterator[tuple[str, int]]:
        with translated("list", f"{self._address.root('')}/{beginning}"):
            for blob in self._container.list_blobs(name_starts_with=beginning):
                yield blob.name.removeprefix(self._prefix), int(blob.size)


def open_store(root: str, settings: Mapping[str, Any], lookup: Lookup) -> AzureStore:
    return AzureStore(root, settings, lookup)
