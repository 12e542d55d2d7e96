"""A pipeline that writes an Iceberg table in a SQL or REST catalog, and what its readers must see.

A reader knows the catalog, and the records beside the table for dead letters.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.worlds.table_world import TABLE_SCHEMA, newest_of_each_key
from tests.worlds.world import Place, World
from tidemark.database.client import ManifestDatabase
from tidemark.model.receipt import ObjectKind
from tidemark.providers.iceberg.evidence import newest_key
from tidemark.providers.lake_tables.evidence import TableEvidence

TABLE = "sales.latest"


@contextmanager
def catalog_at(dsn: str) -> Iterator[Catalog]:
    """The catalog as any program opens it; ``dsn`` is the connection of the sink."""
    if dsn.startswith("http"):
        yield RestCatalog("tidemark", uri=dsn)
        return
    catalog = SqlCatalog("tidemark", uri=dsn.replace("postgresql://", "postgresql+psycopg://"))
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


@dataclass
class IcebergWorld(World):
    """A world with an Iceberg table as its sink; ``iceberg`` replaces keys of it. ``has_lake`` adds a lake."""

    iceberg: dict[str, Any] | None = None
    has_lake: bool = False
    sink: ClassVar[str] = "iceberg"
    written: ClassVar[str] = TABLE

    def __post_init__(self) -> None:
        self.settings = {"sinks": self.sinks(), **self.settings}
        super().__post_init__()

    def entry(self, **options: Any) -> dict[str, Any]:
        settings = {
            "name": self.sink, "connection": "warehouse", "table": self.written,
            "warehouse": str(self.folder / "warehouse"), "auto_create": True,
            "partition_by": ["hour(_event_time)"], **(self.iceberg or {}), **options,
        }  # fmt: skip
        return {"iceberg": settings}

    def sinks(self, **options: Any) -> list[dict[str, Any]]:
        return [*([self.lake_entry()] if self.has_lake else []), self.entry(**options)]

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with catalog_at(self.targets["warehouse"]) as opened:
            yield opened

    def table(self) -> Table | None:
        """The table; only its files may be read, since the catalog is closed."""
        with self.catalog() as catalog:
            return catalog.load_table(self.written) if catalog.table_exists(self.written) else None

    @property
    def location(self) -> Path:
        return self.folder / "warehouse" / Path(*self.written.split("."))

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete rows of a manifest, in the table and in the lake if there is one."""
        if self.has_lake:
            super().damage(manifest)
        with self.catalog() as catalog:
            catalog.load_table(self.written).delete(f"_manifest_id = {manifest['id']}")

    def evidence(self) -> TableEvidence:
        """What the file says that the newest publication on main names."""
        table = self.table()
        key = newest_key(table) if table else None
        if table is None or key is None:
            return TableEvidence()
        with table.io.new_input(f"{table.location()}/{key}").open() as file:
            evidence = TableEvidence.of_text(file.read())
        assert evidence is not None
        return evidence

    def shown(self) -> dict[int, int]:
        """The attempt of each manifest that the table shows."""
        return dict(self.evidence().attempts)

    def all_rows(self) -> list[dict[str, Any]]:
        """All rows of the table, also those that mark a key as deleted."""
        table = self.table()
        rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist() if table else []
        return rows

    def rows(self) -> Counter[Place]:
        """What a reader of the table sees."""
        table = self.table()
        if table is None:
            return Counter()
        rows = table.scan(selected_fields=("_topic", "_topic_partition", "_offset")).to_arrow()
        return Counter(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))

    def dead(self) -> Counter[Place]:
        """What a reader of records finds among the dead letters of the attempts that the table shows."""
        seen: Counter[Place] = Counter()
        with ManifestDatabase(self.dsn, "reader") as database:
            for manifest_id, attempt in self.shown().items():
                receipt = database.attempts.receipt(manifest_id, attempt)
                assert receipt is not None
                for part in receipt.objects_of(self.sink):
                    if part.kind is ObjectKind.DEAD_LETTER:
                        rows = pq.read_table(self.location / part.path, columns=["_topic", "_partition", "_offset"])
                        seen.update(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
        return seen

    def exact(self) -> Counter[Place]:
        return self.rows() + self.dead()

    def assert_nothing_is_seen(self) -> None:
        assert self.exact() == {}

    def assert_whole(self) -> None:
        """At any moment: the table has all rows of the manifests that it shows, and only those are published."""
        if self.has_lake:
            seen = super().exact()
            assert seen == self.published_spans()
        shown = self.spans(set(self.shown()))
        assert self.exact() == shown
        assert self.published_spans(self.sink) <= shown

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            assert super().exact() == self.listing() == self.recorded() == self.everything()
        assert self.exact() == self.everything()
        assert len(self.dead()) == len(self.bad)

    def staging(self) -> list[str]:
        """What is left of staging, and files of rows that no snapshot names."""
        table = self.table()
        assert table is not None
        named = {path.removeprefix("file://") for path in table.inspect.all_files()["file_path"].to_pylist()}
        left = [str(path) for path in self.location.glob("data/**/*.parquet") if str(path) not in named]
        return [*left, *(str(path) for path in self.location.glob("_staging/*")), *super().staging()]


@dataclass
class KeyedIcebergWorld(IcebergWorld):
    """A world with an Iceberg table of current rows: one row per ``k``, the one with the greatest ``n``."""

    sink: ClassVar[str] = "current"
    written: ClassVar[str] = "sales.current"

    def __post_init__(self) -> None:
        self.settings = {"decode": {"format": "json", "schema": TABLE_SCHEMA}, **self.settings}
        super().__post_init__()

    def entry(self, **options: Any) -> dict[str, Any]:
        return super().entry(**{"key": ["k"], "order_by": "n", "partition_by": ["bucket(4, k)"], **options})

    def commits(self) -> int:
        """Snapshots, of which none is expired."""
        table = self.table()
        return len(table.metadata.snapshots) if table else 0

    def files(self) -> list[str]:
        """Those that hold rows."""
        table = self.table()
        paths: list[str] = table.inspect.data_files()["file_path"].to_pylist() if table else []
        return sorted(paths)

    def left_by_the_last_commit(self) -> int:
        """The rows of earlier attempts at its manifest that stay in the table; table and snapshot say the same."""
        table = self.table()
        assert table is not None
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        merge = self.evidence().merges[int(str(snapshot.summary["tidemark.manifest"]))]
        assert snapshot.summary["tidemark.left"] == str(merge.left)
        return merge.left

    def delete_key(self, k: int) -> None:
        with self.catalog() as catalog:
            catalog.load_table(self.written).delete(f"k = {k}")

    def append_key_again(self, k: int) -> None:
        """As another program may: the row of a key stands twice."""
        with self.catalog() as catalog:
            table = catalog.load_table(self.written)
            table.append(table.scan(f"k = {k}").to_arrow())

    def current(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees in the table, by k: n and place."""
        rows = self.all_rows()
        assert len({row["k"] for row in rows}) == len(rows), "a key has one row"
        return {
            row["k"]: (row["n"], (row["_topic"], row["_topic_partition"], row["_offset"]))
            for row in rows if not row["_is_deleted"]
        }  # fmt: skip

    def latest(self, covered: Counter[Place]) -> dict[Any, tuple[Any, ...]]:
        return newest_of_each_key(self, covered)

    def assert_nothing_is_seen(self) -> None:
        assert (self.current(), self.dead()) == ({}, {})

    def assert_whole(self) -> None:
        shown = self.spans(set(self.shown()))
        assert self.current() == self.latest(shown)
        assert self.published_spans(self.sink) <= shown

    def assert_readers_complete(self) -> None:
        assert self.current() == self.latest(self.everything())
        assert len(self.dead()) == len(self.bad)
