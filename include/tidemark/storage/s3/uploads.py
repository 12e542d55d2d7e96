"""Uploads in parts that publishing completes: a large file is sent once, to its final key, and no byte of it is copied.

Instead of the staged object, the staging folder has a note that names the key, and once all parts are sent also the
upload. The note is written before the upload begins. So the staging folder of a dead attempt shows what to abort, even
in stores that list uploads only by their whole key.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

UPLOADED_BYTES = 16 * 1024 * 1024  # a smaller file needs fewer requests if it is staged and copied
PART_BYTES = 16 * 1024 * 1024  # least size of a part; S3 needs 5 MiB, except for the last one
MOST_PARTS = 10_000  # S3's limit for one upload
PARTS_AT_ONCE = 4  # parts of one file that are sent at once, each in memory
_NOTE = ".upload"


@dataclass(frozen=True)
class Note:
    """A note about an upload to ``key``, relative to the root. Once all parts are sent, it has the upload's id and its
    parts, as S3 needs them."""

    key: str
    upload_id: str = ""
    parts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, content: bytes | None) -> "Note | None":
        """Return the note in a content; None if that is no note."""
        try:
            raw = json.loads(content or b"")
            return cls(raw["key"], raw["upload_id"], tuple(raw["parts"]))
        except (ValueError, LookupError, TypeError):
            return None

    def content(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def note_of(staged: str) -> str:
    """Return the key of the note that stands for a staged object."""
    return f"{staged}{_NOTE}"


def is_note(key: str) -> bool:
    return key.endswith(_NOTE)


def part_bytes(size: int) -> int:
    """Return the size of the parts of a file of so many bytes."""
    return max(PART_BYTES, -(-size // MOST_PARTS))


def send_parts(
    client: Any, at: Mapping[str, str], upload_id: str, file: BinaryIO, size: int
) -> tuple[Mapping[str, Any], ...]:
    """Send a file of so many bytes from its beginning, some parts at once; return the parts. Raises errors of boto3.

    If the answer for a part is lost, the client sends the part again, which replaces the first.
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
