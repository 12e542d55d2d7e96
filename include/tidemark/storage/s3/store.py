"""A lake root in a bucket. S3 has no rename, so objects are staged, and then the store copies them to their keys. Large
objects are uploaded to their keys instead, and the uploads are completed later (``uploads.py``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from io import BufferedReader, BytesIO
from itertools import islice
from os.path import commonpath
from typing import Any, BinaryIO, cast
from uuid import uuid4

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tidemark.connections.lookup import Lookup
from tidemark.errors import TidemarkError, Unavailable
from tidemark.paths import RECORDS
from tidemark.storage.remote import (
    END_BYTES,
    MIB,
    READ_BYTES,
    Attributes,
    Pieces,
    RemoteStore,
    check_conditions,
    not_moved,
)
from tidemark.storage.s3.address import S3
from tidemark.storage.s3.client import (
    COPIES,
    NO_UPLOAD,
    UploadEnded,
    access,
    client,
    code_of,
    error_of_code,
    is_gone,
    translated,
)  # fmt: skip
from tidemark.storage.s3.uploads import PART_BYTES, UPLOADED_BYTES, Note, is_note, note_of, send_parts

MULTIPART_BYTES = 64 * MIB  # an object of this size or more is put and copied in parts
STAGED_AT_ONCE = 8  # objects by one task; there are as many tasks as cores
DELETED_AT_ONCE = 1000  # most keys that one request may name
WRITER = "tidemark-writer"


class S3Store(RemoteStore):
    """A store in a prefix of a bucket; ``settings`` are the keys of a sink's ``s3``, and ``connection``.

    ``multipart_bytes`` is at least 5 MiB, the smallest part that S3 accepts.
    """

    at_once = STAGED_AT_ONCE
    requests_at_once = COPIES
    uploads_from: float = UPLOADED_BYTES

    def __init__(
        self, root: str, settings: Mapping[str, Any], lookup: Lookup, *, multipart_bytes: int = MULTIPART_BYTES
    ) -> None:
        self._bucket, _, prefix = root.removeprefix(S3).partition("/")
        super().__init__(root, f"{prefix}/" if prefix else "")
        self._settings = settings
        self._lookup = lookup
        parts = min(PART_BYTES, multipart_bytes)
        self._transfer = TransferConfig(multipart_threshold=multipart_bytes, multipart_chunksize=parts)
        self._encryption = {
            key: value
            for key, name in (("ServerSideEncryption", "server_side_encryption"), ("SSEKMSKeyId", "kms_key_id"))
            if (value := settings.get(name))
        }

    @cached_property
    def _client(self) -> Any:
        with translated("reach", self.root):
            return client(access(self._settings, self._lookup))

    def _root_of(self, prefix: str) -> str:
        return f"{S3}{self._bucket}/{prefix}".rstrip("/")

    def _connect(self) -> None:
        self._client  # noqa: B018 - a cached property

    def _translated(self, what: str, uri: str) -> AbstractContextManager[None]:
        return translated(what, uri)

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._name(key)}

    def check(self, *, replaces: bool = False) -> None:
        """Check conditional writes. Begin and abort an upload, because that needs a permission of its own."""
        key = f"{RECORDS}/_probe-{uuid4().hex}"
        self._abort(self._name(key), self._begin(key))
        check_conditions(self, key, (lambda: self._spares(key)) if replaces else None)

    def _spares(self, key: str) -> bool:
        """Return whether the store keeps an object if the ETag of the request is another one, with and without
        quotes."""
        with translated("write", self._uri(key)):
            return not any(self._put_where(key, b"fourth", IfMatch=etag) for etag in ("0" * 32, f'"{"0" * 32}"'))

    def _create(self, key: str, content: bytes, mark: str) -> bool:
        try:
            self._put(key, content, IfNoneMatch="*", Metadata={WRITER: mark})
        except ClientError as refused:
            if code_of(refused) not in ("PreconditionFailed", "412"):
                raise
            return False
        return True

    def _write(self, key: str, content: bytes) -> None:
        self._put(key, content)

    def _put_over(self, key: str, etag: str, content: bytes) -> bool:
        if not etag:
            return self._put_where(key, content, IfNoneMatch="*")
        # Ceph 16 accepts only an ETag without quotes; the other stores that are tested accept both forms.
        return self._put_where(key, content, IfMatch=etag) or (
            self._is_still(key, etag) and self._put_where(key, content, IfMatch=f'"{etag}"')
        )

    def _put_where(self, key: str, content: bytes, **condition: str) -> bool:
        """Put the object, or return False if the store says that the condition does not hold."""
        try:
            self._put(key, content, **condition)
        except ClientError as refused:
            if code_of(refused) not in ("PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey"):
                raise
            return False
        return True

    def _is_still(self, key: str, etag: str) -> bool:
        """Return whether the object still has this ETag. If so, a store that refused the request needs the ETag in the
        other form, or supports none."""
        attributes = self._attributes(key)
        return attributes is not None and attributes.etag == etag

    def _put(self, key: str, content: bytes | BinaryIO, **more: Any) -> None:
        self._client.put_object(**self._at(key), Body=content, **self._encryption, **more)

    def _attributes(self, key: str) -> Attributes | None:
        """Return the attributes of an object, its ETag without quotes; None if it does not exist."""
        with translated("look at", self._uri(key)):
            try:
                head = self._client.head_object(**self._at(key))
            except ClientError as refused:
                if is_gone(refused):
                    return None
                raise
        return Attributes(
            int(head["ContentLength"]), str(head.get("ETag", "")).strip('"'), head["Metadata"].get(WRITER)
        )

    def _stage(self, key: str, final: str | None, file: BinaryIO, size: int) -> None:
        if final is not None and size >= self.uploads_from:
            self._upload(key, final, file, size)
        else:
            super()._stage(key, final, file, size)

    def _write_file(self, key: str, file: BinaryIO, size: int) -> None:
        if size < self._transfer.multipart_threshold:
            self._put(key, file)
        else:
            at, extra = self._at(key), self._encryption
            self._client.upload_fileobj(file, *at.values(), ExtraArgs=extra, Config=self._transfer)

    def _upload(self, staged: str, key: str, file: BinaryIO, size: int) -> None:
        """Write a note about an upload, begin it, and send its parts; after an error abort it, if possible."""
        first = Note(key).content()
        if not self.put_if_absent(note_of(staged), first):  # left by a task that a restored database does not know
            self._abort_noted([note_of(staged)])
            self.put(note_of(staged), first)
        begun = self._begin(key)
        try:
            with translated("upload", self._uri(key)):
                parts = send_parts(self._client, self._at(key), begun, file, size)
            self.put(note_of(staged), Note(key, begun, parts).content())
        except TidemarkError:
            with suppress(TidemarkError):
                self._abort(self._name(key), begun)
            raise

    def _begin(self, key: str) -> str:
        with translated("begin an upload of", self._uri(key)):
            return str(self._client.create_multipart_upload(**self._at(key), **self._encryption)["UploadId"])

    def _content_and_etag(self, key: str) -> tuple[bytes | None, str]:
        """Return (content, ETag without its quotes); (None, "") if the object does not exist."""
        with translated("read", self._uri(key)):
            try:
                answer = self._client.get_object(**self._at(key))
                return answer["Body"].read(), str(answer.get("ETag", "")).strip('"')
            except ClientError as refused:
                if is_gone(refused):
                    return None, ""
                raise

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading; raises ``FileNotFoundError`` if it does not exist. Requests its end at once, and
        the rest piece by piece when it is read."""
        with translated("read", self._uri(key)):
            try:
                answer = self._client.get_object(**self._at(key), Range=f"bytes=-{END_BYTES}")
            except ClientError as refused:
                if is_gone(refused):
                    raise FileNotFoundError(self._uri(key)) from None
                if code_of(refused) not in ("InvalidRange", "416"):
                    raise
                return BytesIO()  # the object is empty
            end, place = answer["Body"].read(), answer.get("ContentRange")
            size = int(place.rpartition("/")[2]) if place else len(end)  # without a place it is the whole object
        return cast("BinaryIO", BufferedReader(Pieces(size, end, lambda a, b: self._piece(key, a, b)), READ_BYTES))

    def _piece(self, key: str, start: int, end: int) -> bytes:
        with translated("read", self._uri(key)):
            answer = self._client.get_object(**self._at(key), Range=f"bytes={start}-{end - 1}")
            return cast("bytes", answer["Body"].read())

    def _put_at(self, staged: str, key: str, size: int) -> TidemarkError | None:
        """Copy a staged object to its key, or complete its upload."""
        failed = self._copy(staged, key, size)
        if failed and (note := Note.parse(self.get(note_of(staged)))):
            return self._complete(note, key)
        return failed

    def _copy(self, staged: str, key: str, size: int) -> TidemarkError | None:
        """Copy a staged object. Return an error if nothing is staged: it may have been copied before. Else None."""
        source, target = self._at(staged), self._at(key)
        with translated("copy", self._uri(key)):
            try:
                if size < self._transfer.multipart_threshold:
                    self._client.copy_object(CopySource=source, **target, **self._encryption)
                else:
                    self._client.copy(source, *target.values(), ExtraArgs=self._encryption, Config=self._transfer)
            except ClientError as refused:
                if not is_gone(refused):
                    raise
                return not_moved(f"{self._uri(staged)} no longer exists, and was not copied")
        return None

    def _complete(self, note: Note, key: str) -> TidemarkError | None:
        """Complete an upload. Return an error if it no longer exists: it may have been completed before. Else None.

        Some stores then answer with a server error (Ceph: 500), so the upload is looked up after any such answer.
        """
        if not note.parts:
            return not_moved(f"the upload of {self._uri(key)} does not have all its parts")
        try:
            with translated("complete the upload of", self._uri(key)):
                self._client.complete_multipart_upload(
                    **self._at(key), UploadId=note.upload_id, MultipartUpload={"Parts": list(note.parts)}
                )
        except UploadEnded as ended:
            return ended
        except Unavailable:
            with suppress(TidemarkError):
                if not self._is_open(note, key):
                    return UploadEnded(self._uri(key))
            raise
        return None

    def _is_open(self, note: Note, key: str) -> bool:
        """Return whether an upload can still be completed. If not, Ceph answers that there is no such key."""
        with translated("look at the upload of", self._uri(key)):
            try:
                self._client.list_parts(**self._at(key), UploadId=note.upload_id, MaxParts=1)
            except ClientError as refused:
                if code_of(refused) != NO_UPLOAD and not is_gone(refused):
                    raise
                return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and unfinished uploads to their keys; a missing object is not an error."""
        removed = list(keys)
        names = [self._name(key) for key in removed]
        if names:
            own = set(names)
            self._abort_noted(removed)
            self._abort_uploads(commonpath(names), lambda name: name in own)
            self._delete(names)

    def delete_folder(self, key: str) -> None:
        folder = f"{self._name(key)}/"
        keys = [name for name, _ in self.list(key)]
        self._abort_noted(keys)
        self._abort_uploads(folder, lambda _: True)
        self._delete(self._name(name) for name in keys)

    def stop_uploads(self, folder: str) -> None:
        """Abort the uploads that notes in a folder name, so that no process can complete them."""
        self._abort_noted(key for key, _ in self.list(folder))

    def _abort_noted(self, keys: Iterable[str]) -> None:
        """Abort the upload of each note among some keys; a missing upload is not an error."""

        def abort(key: str) -> None:
            note = Note.parse(self.get(key))
            if note is not None:
                name = self._name(note.key)
                for upload_id in [note.upload_id] if note.upload_id else self._begun(name):
                    self._abort(name, upload_id)

        notes = [key for key in keys if is_note(key)]
        with ThreadPoolExecutor(COPIES) as pool:
            list(pool.map(abort, notes))

    def _delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(islice(remaining, DELETED_AT_ONCE)):
            with translated("remove", f"{S3}{self._bucket}/{batch[0]}"):
                request = {"Objects": [{"Key": key} for key in batch], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=request)
            for refused in answer.get("Errors", ()):
                code = refused.get("Code", "")
                what = f"S3 refused to remove {S3}{self._bucket}/{refused.get('Key')}: {code}"
                raise error_of_code(code, 503 if code == "InternalError" else 403, what)

    def _uploads(self, prefix: str) -> Iterator[dict[str, str]]:
        with translated("list uploads below", f"{S3}{self._bucket}/{prefix}"):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                yield from page.get("Uploads", ())

    def _begun(self, name: str) -> list[str]:
        return [upload["UploadId"] for upload in self._uploads(name) if upload["Key"] == name]

    def _abort_uploads(self, prefix: str, is_meant: Callable[[str], bool]) -> None:
        """Abort unfinished multipart uploads: until then S3 keeps, and charges for, parts that no list shows."""
        for upload in [upload for upload in self._uploads(prefix) if is_meant(upload["Key"])]:
            self._abort(upload["Key"], upload["UploadId"])

    def _abort(self, name: str, upload_id: str) -> None:
        with translated("abort an upload of", f"{S3}{self._bucket}/{name}"):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload_id)
            except ClientError as refused:
                if code_of(refused) != NO_UPLOAD:
                    raise

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly in a folder, sorted, also of folders with only unfinished
        uploads."""
        folder = f"{self._name(prefix)}/"
        uploads = {upload["Key"].removeprefix(folder) for upload in self._uploads(folder)}
        names = {upload.partition("/")[0] for upload in uploads if "/" in upload}
        with translated("list", self._uri(prefix)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=folder, Delimiter="/"
            )
            for page in pages:
                names |= {entry["Prefix"].removeprefix(folder).rstrip("/") for entry in page.get("CommonPrefixes", ())}
        return sorted(names)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Return (key, bytes) of every object below a folder, in the order of keys; none if there is no such folder."""
        return self._listed(prefix, Prefix=f"{self._name(prefix)}/" if prefix else self._prefix)

    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """Return the keys below a folder, in their order. The store filters, so that older keys are not listed."""
        below = f"{self._name(folder)}/"
        where = {"Prefix": f"{below}{beginning}", **({"StartAfter": f"{below}{after}"} if after else {})}
        return (key for key, _ in self._listed(folder, **where))

    def _listed(self, folder: str, **where: str) -> Iterator[tuple[str, int]]:
        with translated("list", self._uri(folder)):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **where):
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._prefix), int(entry["Size"])


def open_store(root: str, settings: Mapping[str, Any], lookup: Lookup) -> S3Store:
    return S3Store(root, settings, lookup)
