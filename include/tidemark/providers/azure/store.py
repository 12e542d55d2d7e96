"""A lake root in a container of Azure's Blob storage. Blobs are staged, and then the store copies them to their keys.

Azure's uncommitted blocks have no id of an upload and cannot be aborted, so no file is uploaded to its final key.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from io import BufferedReader
from typing import Any, BinaryIO, Final, cast
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, ContainerClient

from tidemark.connections.lookup import Lookup
from tidemark.errors import TidemarkError
from tidemark.paths import RECORDS
from tidemark.providers.azure.address import AzureAddress
from tidemark.providers.azure.client import access, code_of, container_client, is_gone, translated
from tidemark.storage.remote import (
    END_BYTES,
    READ_BYTES,
    Attributes,
    Pieces,
    RemoteStore,
    check_conditions,
    not_moved,
)

AT_ONCE: Final = 8  # requests of one process; its client keeps 10 connections
COPY_POLL_S: Final = 0.5  # between two questions about a copy that Azure has not finished at once
WRITER: Final = "tidemark_writer"  # metadata: which request created a blob
NO_ETAG: Final = '"0x0"'
# Azure answers 409 if a blob exists that must not, 412 if it has another ETag.
_CONDITION: Final = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}


class AzureStore(RemoteStore):
    """A store in a prefix of a container; ``settings`` may name a ``connection``."""

    at_once = AT_ONCE
    requests_at_once = AT_ONCE

    def __init__(self, root: str, settings: Mapping[str, Any], lookup: Lookup) -> None:
        self._address = AzureAddress.parse(root)
        super().__init__(root, self._address.prefix)
        self._settings = settings
        self._lookup = lookup

    @cached_property
    def _container(self) -> ContainerClient:
        return container_client(self._address, access(self._address, self._settings, self._lookup))

    def _blob(self, key: str) -> BlobClient:
        return self._container.get_blob_client(self._name(key))

    def _root_of(self, prefix: str) -> str:
        return self._address.root(prefix)

    def _connect(self) -> None:
        self._container  # noqa: B018 - a cached property

    def _translated(self, what: str, uri: str) -> AbstractContextManager[None]:
        return translated(what, uri)

    def check(self, *, replaces: bool = False) -> None:
        """Check conditional writes, and each other right that a lake needs, with a blob that is removed."""
        key = f"{RECORDS}/_probe-{uuid4().hex}"
        check_conditions(self, key, (lambda: not self._put_over(key, NO_ETAG, b"fourth")) if replaces else None)
        self.put(key, b"probe")
        self.move(key, f"{key}-copied", len(b"probe"))
        self.delete([name for name, _ in self._listed(self._name(key))])

    def _create(self, key: str, content: bytes, mark: str) -> bool:
        try:
            self._blob(key).upload_blob(content, overwrite=False, metadata={WRITER: mark})
        except HttpResponseError as refused:
            if code_of(refused) not in _CONDITION:
                raise
            return False
        return True

    def _write(self, key: str, content: bytes) -> None:
        self._blob(key).upload_blob(content, overwrite=True)

    def _write_file(self, key: str, file: BinaryIO, size: int) -> None:
        self._blob(key).upload_blob(file, length=size, overwrite=True)

    def _put_over(self, key: str, etag: str, content: bytes) -> bool:
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

    def _attributes(self, key: str) -> Attributes | None:
        with translated("look at", self._uri(key)):
            try:
                properties = self._blob(key).get_blob_properties()
            except HttpResponseError as refused:
                if is_gone(refused):
                    return None
                raise
        return Attributes(int(properties.size), str(properties.etag), (properties.metadata or {}).get(WRITER))

    def _content_and_etag(self, key: str) -> tuple[bytes | None, str]:
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
        attributes = self._attributes(key)
        if attributes is None:
            raise FileNotFoundError(self._uri(key))
        size, etag = attributes.size, attributes.etag
        first = max(0, size - END_BYTES)
        end = self._piece(key, etag, first, size) if size else b""
        pieces = Pieces(size, end, lambda start, stop: self._piece(key, etag, start, stop))
        return cast("BinaryIO", BufferedReader(pieces, READ_BYTES))

    def _piece(self, key: str, etag: str, start: int, end: int) -> bytes:
        """Return some bytes of the blob; raises an error if it was replaced since it was opened."""
        with translated("read", self._uri(key)):
            condition = MatchConditions.IfNotModified
            return self._blob(key).download_blob(start, end - start, etag=etag, match_condition=condition).readall()

    def _put_at(self, staged: str, key: str, size: int) -> TidemarkError | None:
        """Copy a staged blob, and wait for the end of the copy."""
        del size
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
