"""The server of moto with an answer of S3 that it lacks: NoSuchUpload, for a missing upload that a client completes or
feeds.

moto itself fails with status 500, which a client takes for a broken store, so it tries again.
"""

from collections.abc import Iterator

from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import FakeKey, S3Backend
from moto.server import main

_complete = S3Backend.complete_multipart_upload
_upload_part = S3Backend.upload_part


def _refuse_gone(backend: S3Backend, bucket_name: str, multipart_id: str) -> None:
    if multipart_id not in backend.get_bucket(bucket_name).multiparts:
        raise NoSuchUpload(upload_id=multipart_id)


def complete(self: S3Backend, bucket_name: str, multipart_id: str, body: Iterator[tuple[int, str]]) -> FakeKey | None:
    _refuse_gone(self, bucket_name, multipart_id)
    return _complete(self, bucket_name, multipart_id, body)


def upload_part(self: S3Backend, bucket_name: str, multipart_id: str, part_id: int, value: bytes) -> FakeKey:
    _refuse_gone(self, bucket_name, multipart_id)
    return _upload_part(self, bucket_name, multipart_id, part_id, value)


if __name__ == "__main__":
    S3Backend.complete_multipart_upload = complete  # type: ignore[method-assign]
    S3Backend.upload_part = upload_part  # type: ignore[method-assign]
    main()
