"""A lake root in a bucket. S3 has no rename, so objects are staged, and then the store copies them to their keys. Large
objects are uploaded to their keys instead, and the uploads are completed later (``uploads.py``).

If the answer to a request is lost, the outcome is looked up. Data is compared by size, a record by its bytes. For
``put_if_absent`` each request carries a unique mark, which shows whose request created the object.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from functools import cached_property
from io import BufferedReader, BytesIO
from itertools import islice
from os.path import commonpath
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast
from uuid import uuid4

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tidemark.connections.lookup import Lookup
from tidemark.errors import TidemarkError, Unavailable, WorkFailed
from tidemark.paths import RECORDS
from tidemark.storage.answers import Pieces, check_conditions, move_at_once, not_moved, settled
from tidemark.storage.base import Move
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

MIB = 1024 * 1024
MULTIPART_BYTES = 64 * MIB  # an object of this size or more is put and copied in parts
STAGED_AT_ONCE = 8  # objects by one task; there are as many tasks as cores
IN_MEMORY = MIB  # most bytes in memory of a file that is being written; a task may have many open
END_BYTES = 64 * 1024  # the end of an object is requested first, because readers of Parquet begin there
READ_BYTES = MIB  # requested at once when an object is read piece by piece
DELETED_AT_ONCE = 1000  # most keys that one request may name
WRITER = "tidemark-writer"


class S3Store:
    """A store in a prefix of a bucket; ``settings`` are the keys of a sink's ``s3``, and ``connection``.

    ``multipart_bytes`` is at least 5 MiB, the smallest part that S3 accepts.
    """

    at_once = STAGED_AT_ONCE
    uploads_from: float = UPLOADED_BYTES

    def __init__(
        self, root: str, settings: Mapping[str, Any], lookup: Lookup, *, multipart_bytes: int = MULTIPART_BYTES
    ) -> None:
        self.root = root
        self._bucket, _, prefix = root.removeprefix(S3).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
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

    def _at(self, key: str) -> dict[str, str]:
        if key.startswith("/") or ".." in key.split("/"):
            raise WorkFailed(f"the key {key} leaves the lake root {self.root}", next_step="this is a defect; report it")
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{key}"}

    def _uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    def check(self, *, replaces: bool = False) -> None:
        """Check conditional writes. Begin and abort an upload, because that needs a permission of its own."""
        key = f"{RECORDS}/_probe-{uuid4().hex}"
        self._abort(self._at(key)["Key"], self._begin(key))
        check_conditions(self, key, (lambda: self._spares(key)) if replaces else None)

    def _spares(self, key: str) -> bool:
        """Return whether the store keeps an object if the ETag of the request is another one, with and without
        quotes."""
        with translated("write", self._uri(key)):
            return not any(self._put_where(key, b"fourth", IfMatch=etag) for etag in ("0" * 32, f'"{"0" * 32}"'))

    def around(self) -> Iterator["S3Store"]:
        """Yield the stores of the shorter prefixes, with the same client; the last is that of the whole bucket."""
        parts = self._prefix.rstrip("/").split("/")
        for count in range(len(parts) - 1 if self._prefix else -1, -1, -1):
            outer = copy(self)
            outer._prefix = "".join(f"{part}/" for part in parts[:count])
            outer.root = f"{S3}{self._bucket}/{outer._prefix}".rstrip("/")
            yield outer

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create the object, or return False if the key exists; after a lost answer the mark shows the outcome."""
        mark = uuid4().hex
        with self._settling("create", key, lambda: self._writer(key) == mark):
            try:
                self._put(key, content, IfNoneMatch="*", Metadata={WRITER: mark})
            except ClientError as refused:
                if code_of(refused) not in ("PreconditionFailed", "412"):
                    raise
                return self._writer(key) == mark  # true if boto3 sent the request again after a lost answer
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write the object; an existing object is replaced."""
        with self._settling("write", key, lambda: self.get(key) == content):
            self._put(key, content)

    def replace(self, key: str, before: bytes | None, content: bytes) -> bool:
        """Put the object, or return False if its content is not ``before``; after a lost answer, look it up."""
        current, etag = self._content_and_etag(key)
        if current != before:
            return False
        with self._settling("write", key, lambda: self.get(key) == content):
            # boto3 may have sent the request again after a lost answer
            if not self._put_over(key, etag, content) and self.get(key) != content:
                return False
        return True

    def _put_over(self, key: str, etag: str, content: bytes) -> bool:
        """Put the object only if the present one has this ETag (empty: if there is none); return whether it was put."""
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
        head = self._head(key)
        return head is not None and str(head["ETag"]).strip('"') == etag

    def _put(self, key: str, content: bytes | BinaryIO, **more: Any) -> None:
        self._client.put_object(**self._at(key), Body=content, **self._encryption, **more)

    @contextmanager
    def _settling(self, what: str, key: str, is_done: Callable[[], bool]) -> Iterator[None]:
        """Translate errors like ``translated``. If a request gets no answer, ask ``is_done``; if it was done, there is
        no error."""
        with settled(is_done), translated(what, self._uri(key)):
            yield

    def _writer(self, key: str) -> str | None:
        head = self._head(key)
        return None if head is None else head["Metadata"].get(WRITER)

    def _head(self, key: str) -> Any:
        with translated("look at", self._uri(key)):
            try:
                return self._client.head_object(**self._at(key))
            except ClientError as refused:
                if is_gone(refused):
                    return None
                raise

    @contextmanager
    def create(self, key: str, final: str | None = None) -> Iterator[BinaryIO]:
        """Yield a file to write and read back, in memory or, if it is large, in a temporary folder of this machine.

        The object, or the upload, is created at the end of the block, which may be in another thread; not after an
        error.
        """
        client = self._client  # created by the thread that begins, so that threads that end do not each create one
        with SpooledTemporaryFile(IN_MEMORY) as spooled:
            file = cast("BinaryIO", spooled)
            yield file
            size = file.seek(0, 2)
            file.seek(0)
            if final is not None and size >= self.uploads_from:
                self._upload(key, final, file, size)
                return
            with self._settling("stage", key, lambda: self.size(key) == size):
                if size < self._transfer.multipart_threshold:
                    self._put(key, file)
                else:
                    at = self._at(key)
                    extra = self._encryption
                    client.upload_fileobj(file, *at.values(), ExtraArgs=extra, Config=self._transfer)

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
                self._abort(self._at(key)["Key"], begun)
            raise

    def _begin(self, key: str) -> str:
        with translated("begin an upload of", self._uri(key)):
            return str(self._client.create_multipart_upload(**self._at(key), **self._encryption)["UploadId"])

    def get(self, key: str) -> bytes | None:
        content, _ = self._content_and_etag(key)
        return content

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
            size, end = int(answer["ContentRange"].rpartition("/")[2]), answer["Body"].read()
        return cast("BinaryIO", BufferedReader(Pieces(size, end, lambda a, b: self._piece(key, a, b)), READ_BYTES))

    def _piece(self, key: str, start: int, end: int) -> bytes:
        with translated("read", self._uri(key)):
            answer = self._client.get_object(**self._at(key), Range=f"bytes={start}-{end - 1}")
            return cast("bytes", answer["Body"].read())

    def size(self, key: str) -> int | None:
        head = self._head(key)
        return None if head is None else int(head["ContentLength"])

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether each key has an object of the given size in bytes."""
        with ThreadPoolExecutor(COPIES) as pool:
            return list(pool.map(self.size, sizes)) == list(sizes.values())

    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None:
        """Move up to 16 objects at once. If a move or ``before`` raises, running moves end and no other starts."""
        move_at_once(COPIES, self.move, moves, before, after)

    def move(self, staged: str, key: str, size: int) -> None:
        """Copy a staged object to its key, or complete its upload, and check the size there. The staged object is
        removed later, with its folder.

        May be repeated: it is done if nothing is staged and the key has ``size`` bytes.
        """
        failed: TidemarkError | None = None
        try:
            failed = self._copy(staged, key, size)
            if failed and (note := Note.parse(self.get(note_of(staged)))):
                failed = self._complete(note, key)
        except Unavailable as unknown:
            failed = unknown
        actual = self.size(key)
        if actual != size:
            what = f"{self._uri(key)} has {actual or 0:,} bytes instead of {size:,} after it was put there"
            raise failed or not_moved(what)

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

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: an object that S3 has confirmed is durable."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and unfinished uploads to their keys; a missing object is not an error."""
        removed = list(keys)
        names = [self._at(key)["Key"] for key in removed]
        if names:
            own = set(names)
            self._abort_noted(removed)
            self._abort_uploads(commonpath(names), lambda name: name in own)
            self._delete(names)

    def delete_folder(self, key: str) -> None:
        folder = f"{self._at(key)['Key']}/"
        keys = [name for name, _ in self.list(key)]
        self._abort_noted(keys)
        self._abort_uploads(folder, lambda _: True)
        self._delete(self._at(name)["Key"] for name in keys)

    def stop_uploads(self, folder: str) -> None:
        """Abort the uploads that notes in a folder name, so that no process can complete them."""
        self._abort_noted(key for key, _ in self.list(folder))

    def _abort_noted(self, keys: Iterable[str]) -> None:
        """Abort the upload of each note among some keys; a missing upload is not an error."""

        def abort(key: str) -> None:
            note = Note.parse(self.get(key))
            if note is not None:
                name = self._at(note.key)["Key"]
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
        folder = f"{self._at(prefix)['Key']}/"
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
        return self._listed(prefix, Prefix=f"{self._at(prefix)['Key']}/" if prefix else self._prefix)

    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """Return the keys below a folder, in their order. The store filters, so that older keys are not listed."""
        below = f"{self._at(folder)['Key']}/"
        where = {"Prefix": f"{below}{beginning}", **({"StartAfter": f"{below}{after}"} if after else {})}
        return (key for key, _ in self._listed(folder, **where))

    def _listed(self, folder: str, **where: str) -> Iterator[tuple[str, int]]:
        with translated("list", self._uri(folder)):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **where):
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._prefix), int(entry["Size"])


def open_store(root: str, settings: Mapping[str, Any], lookup: Lookup) -> S3Store:
    return S3Store(root, settings, lookup)
