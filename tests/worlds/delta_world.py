"""A pipeline that writes a Delta table, what its readers must see, and what other programs do to the table.

A reader knows the table by its log, and the records beside it for dead letters.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from sandbox.services.azurite import Container
from sandbox.services.s3 import Bucket
from tests.worlds.azure_world import Blobs, azure_options
from tests.worlds.s3_world import Prefix, delta_options
from tests.worlds.table_world import TABLE_SCHEMA, newest_of_each_key
from tests.worlds.world import Place, World
from tidemark.database.client import ManifestDatabase
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.base import Ledger

CONNECTION = "tables"


@dataclass
class DeltaWorld(World):
    """A world with a Delta table as its sink, in a folder or in ``bucket``, which may be a container of Azure.

    ``endpoint_url`` may be a proxy in front of it. ``delta`` replaces keys of the sink. ``has_lake`` adds a
    lake.
    """

    delta: dict[str, Any] | None = None
    has_lake: bool = False
    bucket: Bucket | Container | None = None
    endpoint_url: str = ""

    def __post_init__(self) -> None:
        if self.bucket is not None:
            self.targets = {CONNECTION: self.bucket.connection(self.endpoint_url or self.bucket.endpoint_url)}
        self.settings = {"sinks": self.sinks(), **self.settings}
        super().__post_init__()

    @property
    def location(self) -> str:
        return str(self.folder / "delta") if self.bucket is None else self.bucket.root

    def entry(self, **options: Any) -> dict[str, Any]:
        connection = {} if self.bucket is None else {"connection": CONNECTION}
        settings = {"location": self.location, **connection, "auto_create": True, **(self.delta or {}), **options}
        return {"delta": settings}

    def sinks(self, **options: Any) -> list[dict[str, Any]]:
        return [*([self.lake_entry()] if self.has_lake else []), self.entry(**options)]

    @property
    def storage_options(self) -> dict[str, str]:
        if isinstance(self.bucket, Container):
            return azure_options()
        return {} if self.bucket is None else delta_options(self.bucket)

    @property
    def objects(self) -> Prefix | Blobs:
        """The objects of the bucket, read with another client."""
        assert self.bucket is not None
        return Blobs(self.bucket) if isinstance(self.bucket, Container) else Prefix(self.bucket)

    def table(self) -> DeltaTable | None:
        options = self.storage_options
        there = DeltaTable.is_deltatable(self.location, options)
        return DeltaTable(self.location, storage_options=options) if there else None

    def loaded(self) -> DeltaTable:
        table = self.table()
        assert table is not None
        return table

    def ledger(self) -> Ledger:
        [ledger] = [sink.ledger for sink in self.context().sinks if sink.name == "delta"]
        return ledger

    def shown(self) -> dict[int, int]:
        """The attempt of each manifest that the table shows."""
        return self.ledger().evidence()

    def all_rows(self) -> list[dict[str, Any]]:
        table = self.table()
        return table.to_pyarrow_table().to_pylist() if table else []

    def rows(self) -> Counter[Place]:
        """What a reader of the table sees."""
        return Counter((row["_topic"], row["_topic_partition"], row["_offset"]) for row in self.all_rows())

    def content(self, path: str) -> BytesIO:
        if self.bucket is None:
            return BytesIO((self.folder / "delta" / path).read_bytes())
        return BytesIO(self.objects.content(path))

    def keys(self, below: str) -> list[str]:
        if self.bucket is not None:
            return self.objects.keys(below)
        root = self.folder / "delta"
        return sorted(str(path.relative_to(root)) for path in root.glob(f"{below}*"))

    def dead(self) -> Counter[Place]:
        """What a reader of records finds among the dead letters of the attempts that the table shows."""
        seen: Counter[Place] = Counter()
        shown = self.shown()
        with ManifestDatabase(self.dsn, "reader") as database:
            for manifest_id, attempt in shown.items():
                receipt = database.attempts.receipt(manifest_id, attempt)
                assert receipt is not None
                for part in receipt.objects_of("delta"):
                    if part.kind is ObjectKind.DEAD_LETTER:
                        rows = pq.read_table(self.content(part.path), columns=["_topic", "_partition", "_offset"])
                        seen.update(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
        return seen

    def exact(self) -> Counter[Place]:
        return self.rows() + self.dead()

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete rows of a manifest, in the table and in the lake if there is one."""
        if self.has_lake:
            super().damage(manifest)
        self.loaded().delete(f"_manifest_id = {manifest['id']}")

    def assert_nothing_is_seen(self) -> None:
        assert self.exact() == {}

    def assert_whole(self) -> None:
        """At any moment: the table has all rows of the manifests that it shows, and only those are published."""
        if self.has_lake:
            assert super().exact() == self.published_spans()
        shown = self.spans(set(self.shown()))
        assert self.exact() == shown
        assert self.published_spans("delta") <= shown

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            assert super().exact() == self.listing() == self.recorded() == self.everything()
        assert self.exact() == self.everything()
        assert len(self.dead()) == len(self.bad)

    def staging(self) -> list[str]:
        return [*self.keys("_staging"), *super().staging()]


@dataclass
class KeyedDeltaWorld(DeltaWorld):
    """A world with a Delta table of current rows: one row per ``k``, the one with the greatest ``n``."""

    def __post_init__(self) -> None:
        self.settings = {"decode": {"format": "json", "schema": TABLE_SCHEMA}, **self.settings}
        super().__post_init__()

    def entry(self, **options: Any) -> dict[str, Any]:
        return super().entry(**{"key": ["k"], "order_by": "n", "buckets": 4, **options})

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete all rows of a manifest that are current."""
        self.loaded().delete(f"_manifest_id = {manifest['id']}")

    def commits(self) -> int:
        return self.loaded().version()

    def files(self) -> list[str]:
        """Those that hold rows."""
        return self.ok("objects", "demo").splitlines()

    def left_by_the_last_commit(self) -> int:
        """The rows of earlier attempts at its manifest that stay in the table."""
        return int(self.loaded().history(1)[0]["tidemark.left"])

    def delete_key(self, k: int) -> None:
        self.loaded().delete(f"k = {k}")

    def append_key_again(self, k: int) -> None:
        """As another program may: the row of a key stands twice."""
        rows = self.loaded().to_pyarrow_table()
        write_deltalake(self.loaded(), rows.filter(pc.equal(rows["k"], k)), mode="append")

    def current(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees in the table, by k: n and place."""
        rows = self.all_rows()
        assert len({row["k"] for row in rows}) == len(rows), "a key has one row"
        return {
            row["k"]: (row["n"], (row["_topic"], row["_topic_partition"], row["_offset"]))
            for row in rows if not row["_is_deleted"]
        }  # fmt: skip

    def assert_nothing_is_seen(self) -> None:
        assert (self.current(), self.dead()) == ({}, {})

    def assert_whole(self) -> None:
        shown = self.spans(set(self.shown()))
        assert self.current() == newest_of_each_key(self, shown)
        assert self.published_spans("delta") <= shown

    def assert_readers_complete(self) -> None:
        assert self.current() == newest_of_each_key(self, self.everything())
        assert len(self.dead()) == len(self.bad)


def optimize(world: DeltaWorld) -> None:
    world.loaded().optimize.compact()


def z_order(world: DeltaWorld) -> None:
    world.loaded().optimize.z_order(["n"])


def vacuum_at_once(world: DeltaWorld) -> None:
    """Without any retention time, and whatever no version names, as Spark does it."""
    world.loaded().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def remove_what_no_version_names(world: DeltaWorld) -> None:
    """As VACUUM without a retention time does, and without a commit of its own, as Spark's does by default."""
    named = {path.rpartition("/")[2] for path in world.loaded().file_uris()}
    for path in Path(world.location).glob("_*=*/*.parquet"):
        if path.name not in named:
            path.unlink()


def restore(world: DeltaWorld, version: int) -> None:
    world.loaded().restore(version)


def forget_the_log(world: DeltaWorld) -> None:
    """Only a checkpoint is left of what was."""
    table = world.loaded()
    table.create_checkpoint()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table = world.loaded()
    table.create_checkpoint()
    table.cleanup_metadata()


def append_strangers(world: DeltaWorld) -> None:
    """Rows of a manifest that is none, as another program may add them."""
    table = world.loaded()
    row = table.to_pyarrow_table().slice(0, 1)
    place = row.schema.get_field_index("_manifest_id")
    strange = row.set_column(place, row.schema.field(place), pa.array([999_999], pa.int64()))
    write_deltalake(table, strange, mode="append")


def set_property(world: DeltaWorld, name: str, value: str) -> None:
    world.loaded().alter.set_table_properties({name: value})


OTHERS = {
    "OPTIMIZE": optimize,
    "VACUUM": vacuum_at_once,
    "clean-up of the log": forget_the_log,
    "a constraint-free property": partial(set_property, name="delta.logRetentionDuration", value="interval 90 days"),
}
