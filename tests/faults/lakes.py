"""The lake of a schedule as a reader sees it. It reads files by itself, without Tidemark's storage."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.worlds.s3_world import CONNECTION, Prefix


class Lake(Protocol):
    def sink(self) -> dict[str, str]:
        """The keys of the pipeline file that name the place."""
        ...

    def files(self, below: str = "") -> list[str]:
        """Every file whose key starts with ``below``, sorted."""
        ...

    def content(self, key: str) -> bytes: ...

    def states(self, keys: Collection[str]) -> dict[str, object]:
        """A value for each of these files that changes with it; a file that is missing has none."""
        ...

    def staged(self) -> list[str]:
        """The rest of attempts in staging, also empty folders."""
        ...


class FolderLake:
    def __init__(self, root: Path) -> None:
        self.root = root

    def sink(self) -> dict[str, str]:
        return {"root": str(self.root)}

    def files(self, below: str = "") -> list[str]:
        keys = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        return sorted(key for key in keys if key.startswith(below))

    def content(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def states(self, keys: Collection[str]) -> dict[str, object]:
        states: dict[str, object] = {}
        for key in keys:
            with suppress(FileNotFoundError):
                status = (self.root / key).stat()
                states[key] = status.st_ino, status.st_size, status.st_mtime_ns
        return states

    def staged(self) -> list[str]:
        return [str(path.relative_to(self.root)) for path in self.root.glob("_staging/*/*")]


class BucketLake(Prefix):
    """A prefix of a bucket; the caller sets ``AIRFLOW_CONN_LAKE_KEYS``."""

    def sink(self) -> dict[str, str]:
        return {"root": self._bucket.root, "connection": CONNECTION}

    def files(self, below: str = "") -> list[str]:
        return self.keys(below)

    def states(self, keys: Collection[str]) -> dict[str, object]:
        """By one request: an object that was replaced has another ETag, or another time."""
        entries = self.listed() if keys else {}
        return {key: (entries[key]["ETag"], entries[key]["LastModified"]) for key in keys if key in entries}

    def staged(self) -> list[str]:
        return self.keys("_staging/")
