"""A pipeline with its lake in a store. Its readers use a client of their own."""

import json
import subprocess
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Protocol

import psycopg
import pyarrow.parquet as pq

from tests.worlds.world import Place, World
from tidemark.database.client import ManifestDatabase


class Objects(Protocol):
    """The objects of a lake; keys are relative to its root. The ETag is another one for other bytes."""

    def etags(self, below: str = "") -> Mapping[str, str]: ...
    def content(self, key: str) -> bytes: ...
    def remove(self, key: str) -> None: ...


@dataclass
class StoreWorld(World):
    """A world with a lake in a store; ``below`` is a reader's own way to its objects."""

    _read: dict[str, list[Place]] = field(default_factory=dict, init=False)  # by ETag

    @property
    @abstractmethod
    def below(self) -> Objects: ...

    def object_keys(self) -> list[str]:
        """Every key of the lake, relative to its root, sorted."""
        return sorted(self.below.etags())

    def keys_of_receipt(self, attempt: int) -> list[str]:
        """The keys of the objects of an attempt of manifest 1."""
        with ManifestDatabase(self.dsn, "reader") as database:
            receipt = database.attempts.receipt(1, attempt)
        assert receipt is not None
        return [staged.path for staged in receipt.objects]

    def rows_as_text(self) -> list[str]:
        """Every row of the manifest database."""
        with psycopg.connect(self.dsn) as connection:
            tables = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'tidemark'::regnamespace "
                                        "AND relkind = 'r'").fetchall()  # fmt: skip
            rows = [connection.execute(f"SELECT t::text FROM tidemark.{name} t").fetchall() for (name,) in tables]
        return [text for of_table in rows for (text,) in of_table]

    def texts(self, *done: "subprocess.CompletedProcess[str]") -> list[str]:
        """All that was said and written: by these commands, in the lake, in files of this machine, in the database."""
        texts = [text for command in done for text in (command.stdout, command.stderr)]
        texts += [self.content(key).decode(errors="replace") for key in self.object_keys()]
        texts += [path.read_text(errors="replace") for path in self.folder.rglob("*") if path.is_file()]
        texts += self.rows_as_text()
        assert len(texts) > 20
        return texts

    def content(self, key: str) -> bytes:
        return self.below.content(key)

    def remove(self, key: str) -> None:
        self.below.remove(key)

    def lies_in_files(self) -> bool:
        return True

    def staging(self) -> list[str]:
        return [key for key in self.object_keys() if key.startswith("_staging/")]

    def damage(self, manifest: dict[str, Any]) -> None:
        self.remove(manifest["objects"][0]["path"].removeprefix(f"{self.root}/"))

    def exact(self) -> Counter[Place]:
        with ManifestDatabase(self.dsn, "reader") as database:
            return self.places([published.path for _, _, published in database.publications.objects(self.name)])

    def listing(self) -> Counter[Place]:
        return self.places([key for key in self.object_keys() if key.startswith(("raw/", "_dead_letters/"))])

    def recorded(self) -> Counter[Place]:
        names = [key for key in self.object_keys() if key.startswith(f"_manifests/{self.name}/")]
        newest = {key.rpartition("/")[2].split(".")[0]: key for key in names}
        records = [json.loads(self.content(key)) for key in newest.values()]
        return self.places([entry["path"] for record in records for entry in record["objects"]])

    def places(self, keys: list[str]) -> Counter[Place]:
        etags, seen = self.below.etags(), Counter[Place]()
        for key in keys:
            if key not in etags:
                raise FileNotFoundError(key)
            if etags[key] not in self._read:
                table = pq.read_table(BytesIO(self.content(key)), columns=["_topic", "_partition", "_offset"])
                self._read[etags[key]] = [*zip(*(table[name].to_pylist() for name in table.column_names), strict=True)]
            seen.update(self._read[etags[key]])
        return seen
