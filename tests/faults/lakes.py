"""Where the lake of a schedule lies, as a reader sees it: the way to its files is the reader's own, not Tidemark's."""

from pathlib import Path
from typing import Protocol

from sandbox.services.s3 import S3
from tests.worlds.s3_world import BUCKET, CONNECTION, Prefix


class Lake(Protocol):
    def sink(self) -> dict[str, str]:
        """What the pipeline file says of the place."""
        ...

    def files(self, below: str = "") -> list[str]:
        """Every file whose key begins so, sorted."""
        ...

    def content(self, key: str) -> bytes: ...

    def state(self, key: str) -> object | None:
        """Another value when the file is another one; None when there is none."""
        ...

    def staged(self) -> list[str]:
        """What is left of attempts, empty folders too."""
        ...


class FolderLake:
    def __init__(self, root: Path) -> None:
        self.root = root

    def sink(self) -> dict[str, str]:
        return {"root": str(self.root)}

    def files(self, below: str = "") -> list[str]:
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        return sorted(key for key in found if key.startswith(below))

    def content(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def state(self, key: str) -> object | None:
        try:
            status = (self.root / key).stat()
        except FileNotFoundError:
            return None
        return key, status.st_ino, status.st_size, status.st_mtime_ns

    def staged(self) -> list[str]:
        return [str(one.relative_to(self.root)) for one in self.root.glob("_staging/*/*")]


class BucketLake(Prefix):
    """A prefix of the emulator's bucket; whoever uses it sets ``AIRFLOW_CONN_LAKE_KEYS``."""

    def __init__(self, s3: S3, prefix: str) -> None:
        super().__init__(s3.client(), prefix)
        self._root = f"s3://{BUCKET}/{prefix}"

    def sink(self) -> dict[str, str]:
        return {"root": self._root, "connection": CONNECTION}

    def files(self, below: str = "") -> list[str]:
        return self.keys(below)

    def staged(self) -> list[str]:
        return self.keys("_staging/")
