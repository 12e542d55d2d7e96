"""Lets PyIceberg read and write the files of a table in a store with Tidemark's own client.

PyIceberg's own client of S3 has other settings: it sends checksums that some stores other than AWS refuse (Ceph: HTTP
411), knows no profiles, and its errors do not contain the answer of S3. A catalog imports this class by its name, and
passes it the properties of the catalog and of the table.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from errno import ENOENT
from functools import cache
from types import TracebackType
from typing import Any, BinaryIO, Self
from uuid import uuid4

from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROFILE_NAME,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SERVER_SIDE_ENCRYPTION,
    S3_SESSION_TOKEN,
    S3_SSE_KMS_KEY_ID,
    FileIO,
    InputFile,
    InputStream,
    OutputFile,
)
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tidemark.errors import TidemarkError
from tidemark.kinds import STORES
from tidemark.paths import scheme_of
from tidemark.providers.iceberg.staged import root_of
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.storage.s3.address import is_s3

STORE = "tidemark.store"  # JSON: the settings of the store, and the entry of its connection
# A REST catalog may send these for a table; they replace ours.
_SETTINGS = {
    "endpoint_url": S3_ENDPOINT, "region": S3_REGION, "server_side_encryption": S3_SERVER_SIDE_ENCRYPTION,
    "kms_key_id": S3_SSE_KMS_KEY_ID,
}  # fmt: skip
_EXTRA = {"aws_session_token": S3_SESSION_TOKEN, "profile_name": S3_PROFILE_NAME}


class StoreFileIO(PyArrowFileIO):
    """Accesses stores with our own clients, and other places as PyIceberg does."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._store = cache(self._opened)

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        if is_ours(location):
            return self._object(location)
        scheme, host, path = self.parse_location(location, self.properties)
        return _LocalFile(location, path, self.fs_by_scheme(scheme, host))

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        return self._object(location) if is_ours(location) else super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; raises ``OSError``. If PyIceberg cannot remove old metadata after a commit, it goes on after
        this error."""
        place = location if isinstance(location, str) else location.location
        if not is_ours(place):
            super().delete(place)
            return
        root, key = _root_and_key(place)
        try:
            self._store(root).delete([key])
        except TidemarkError as error:
            raise OSError(str(error)) from error

    def _object(self, location: str) -> "_Object":
        root, key = _root_and_key(location)
        return _Object(location, self._store(root), key)

    def _opened(self, root: str) -> ObjectStore:
        given = json.loads(self.properties.get(STORE, "{}"))
        settings, connection = given.get("settings") or {}, given.get("connection")
        if is_s3(root):
            settings, connection = _of_a_table_in_s3(self.properties, settings, connection)
        return open_store(root, settings, lambda _: connection)


def is_ours(location: str) -> bool:
    """Return whether a file lies in a store that Tidemark has a client for."""
    return scheme_of(root_of(location)) in STORES


def _root_and_key(location: str) -> tuple[str, str]:
    """Return the address of the bucket or container, and the key of a file in it."""
    scheme, _, place = root_of(location).partition("://")
    host, _, key = place.partition("/")
    return f"{scheme}://{host}", key


def _of_a_table_in_s3(
    properties: Mapping[str, str], settings: Mapping[str, Any], connection: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return settings and connection, with what the properties of a table say in their place."""
    settings = {**settings, **{name: properties[key] for name, key in _SETTINGS.items() if properties.get(key)}}
    if S3_FORCE_VIRTUAL_ADDRESSING in properties:
        settings["path_style"] = properties[S3_FORCE_VIRTUAL_ADDRESSING].lower() != "true"
    if properties.get(S3_ACCESS_KEY_ID) or properties.get(S3_PROFILE_NAME):
        login, password = properties.get(S3_ACCESS_KEY_ID), properties.get(S3_SECRET_ACCESS_KEY)
        extra = {name: properties[key] for name, key in _EXTRA.items() if properties.get(key)}
        settings.setdefault("connection", "of the catalog")
        kept = {"region_name", "endpoint_url"}
        given = ((connection or {}).get("extra") or {}).items()
        extra |= {name: value for name, value in given if name in kept}
        connection = {"login": login, "password": password, "extra": extra}
    return settings, connection


class _LocalFile(PyArrowFile):
    """A file of this machine. If the file is missing, the error names it."""

    def open(self, seekable: bool = True) -> InputStream:
        try:
            return super().open(seekable)
        except FileNotFoundError as error:
            raise FileNotFoundError(ENOENT, "no such file", self._path) from error


class _Object(InputFile, OutputFile):
    """One object, whether it exists or not."""

    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self._store = store
        self._key = key

    def __len__(self) -> int:
        size = self._store.size(self._key)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._store.size(self._key) is not None

    def open(self, seekable: bool = True) -> BinaryIO:
        del seekable
        return self._store.open(self._key)

    def create(self, overwrite: bool = False) -> "_Writing":
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _Writing(self._store.create(self._key))

    def to_input_file(self) -> "_Object":
        return self


class _Writing:
    """A file that becomes an object when it is closed, but not if its block ends with an error."""

    def __init__(self, creating: AbstractContextManager[BinaryIO]) -> None:
        self._creating = creating
        self._file = creating.__enter__()
        self.closed = False

    def write(self, content: bytes) -> int:
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: an object is put as a whole."""

    def close(self) -> None:
        self._end(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kind, error, trace)

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.closed:
            self.closed = True
            self._creating.__exit__(kind, error, trace)


def try_write(io: FileIO, location: str) -> None:
    """Create and remove a metadata file in the way a commit creates one."""
    place = f"{location.rstrip('/')}/metadata/.doctor-{uuid4().hex}"
    with io.new_output(place).create() as file:
        file.write(b"probe")
    io.delete(place)
