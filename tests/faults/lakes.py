"""The lake of a schedule as a reader sees it. It reads files by itself, without Tidemark's storage."""

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

    def state(self, key: str) -> object | None:
        """A value that changes with the file; None when there is no file."""
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

    def state(self, key: str) -> object | None:
        try:
            status = (self.root / key).stat()
        except FileNotFoundError:
            return None
        return key, status.st_ino, status.st_size, status.st_mtime_ns

    def staged(self) -> list[str]:
        return [str(path.relative_to(self.root)) for path in self.root.glob("_staging/*/*")]


class BucketLake(Prefix):
    """A prefix of a bucket; the caller sets ``AIRFLOW_CONN_LAKE_KEYS``."""

    def sink(self) -> dict[str, str]:
        return {"root": self._bucket.root, "connection": CONNECTION}

    def files(self, below: str = "") -> list[str]:
        return self.keys(below)

    def staged(self) -> list[str]:
        return self.keys("_staging/")
