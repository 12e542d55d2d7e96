"""Uploads in parts that publishing completes: a large file is sent once, to its final key, and no byte of it is copied.

In the place of the staged object lies a note that names the key, and once all parts are there also the upload. It is
there before the upload is, so the staging folder of a dead attempt tells what to abort, in stores too that list uploads
by their whole key only.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

UPLOADED_BYTES = 16 * 1024 * 1024  # a smaller file takes fewer requests as an object that is copied
PART_BYTES = 16 * 1024 * 1024  # or more: all parts but the last have at least 5 MiB
MOST_PARTS = 10_000  # of one upload
PARTS_AT_ONCE = 4  # of one file, each in memory
_NOTE = ".upload"


@dataclass(frozen=True)
class Note:
    """An upload to ``key``, relative to the root; its id and its parts as S3 wants them, once all of them are there."""

    key: str
    upload_id: str = ""
    parts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, content: bytes | None) -> "Note | None":
        """None for what is no note."""
        try:
            raw = json.loads(content or b"")
            return cls(raw["key"], raw["upload_id"], tuple(raw["parts"]))
        except (ValueError, LookupError, TypeError):
            return None

    def content(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def note_of(staged: str) -> str:
    """The key of the note that lies in the place of a staged object."""
    return f"{staged}{_NOTE}"


def is_note(key: str) -> bool:
    return key.endswith(_NOTE)


def part_bytes(size: int) -> int:
    """The size of the parts of a file of so many bytes."""
    return max(PART_BYTES, -(-size // MOST_PARTS))


def send_parts(
    client: Any, at: Mapping[str, str], upload_id: str, file: BinaryIO, size: int
) -> tuple[Mapping[str, Any], ...]:
    """Send a file of so many bytes from its beginning, some parts at once; raises the errors of the client.

    A part whose answer is lost is sent again by the client, and takes the place of the first.
    """

    def send(number: int, content: bytes) -> Mapping[str, Any]:
        answer = client.upload_part(**at, UploadId=upload_id, PartNumber=number, Body=content)
        checksums = {name: answer[name] for name in answer if name.startswith("Checksum") and name != "ChecksumType"}
        return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    parts: list[Mapping[str, Any]] = []
    running: deque[Future[Mapping[str, Any]]] = deque()
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        for number, content in enumerate(_pieces(file, part_bytes(size)), start=1):
            if len(running) == PARTS_AT_ONCE:
                parts.append(running.popleft().result())
            running.append(pool.submit(send, number, content))
        parts += [part.result() for part in running]
    return tuple(parts)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while content := file.read(size):
        yield content
