"""Lets PyIceberg read and write the files of a table in a bucket with Tidemark's own S3 client.

PyIceberg's own S3 client has other settings: it sends checksums that some stores other than AWS refuse (Ceph: HTTP
411), knows no profiles, and its errors do not contain the answer of S3. A catalog imports this class by its name, and
passes it the properties of the catalog and of the table.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from errno import ENOENT
from functools import cache
from types import TracebackType
from typing import BinaryIO, Self
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
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.storage.s3.address import S3, is_s3

CHECKSUMS = "tidemark.s3.checksums"  # PyIceberg has no such property
_SETTINGS = {
    "endpoint_url": S3_ENDPOINT, "region": S3_REGION, "server_side_encryption": S3_SERVER_SIDE_ENCRYPTION,
    "kms_key_id": S3_SSE_KMS_KEY_ID, "checksums": CHECKSUMS,
}  # fmt: skip
_EXTRA = {"aws_session_token": S3_SESSION_TOKEN, "profile_name": S3_PROFILE_NAME}
_CONNECTION = "of the catalog"


class StoreFileIO(PyArrowFileIO):
    """Accesses ``s3://`` with our own client, and other places as PyIceberg does."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._store = cache(self._opened)

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        if is_s3(location):
            return self._object(location)
        scheme, host, path = self.parse_location(location, self.properties)
        return _LocalFile(location, path, self.fs_by_scheme(scheme, host))

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        return self._object(location) if is_s3(location) else super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; raises ``OSError``. If PyIceberg cannot remove old metadata after a commit, it goes on after
        this error."""
        place = location if isinstance(location, str) else location.location
        if not is_s3(place):
            super().delete(place)
            return
        bucket, _, key = place.removeprefix(S3).partition("/")
        try:
            self._store(bucket).delete([key])
        except TidemarkError as error:
            raise OSError(str(error)) from error

    def _object(self, location: str) -> "_Object":
        bucket, _, key = location.removeprefix(S3).partition("/")
        return _Object(location, self._store(bucket), key)

    def _opened(self, bucket: str) -> ObjectStore:
        properties = self.properties
        extra = {name: properties[key] for name, key in _EXTRA.items() if properties.get(key)}
        connection = {
            "login": properties.get(S3_ACCESS_KEY_ID),
            "password": properties.get(S3_SECRET_ACCESS_KEY),
            "extra": extra,
        }
        settings: dict[str, object] = {name: properties[key] for name, key in _SETTINGS.items() if properties.get(key)}
        if S3_FORCE_VIRTUAL_ADDRESSING in properties:
            settings["path_style"] = properties[S3_FORCE_VIRTUAL_ADDRESSING].lower() != "true"
        return open_store(f"{S3}{bucket}", {**settings, "connection": _CONNECTION}, lambda _: connection)


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
