"""The tables of current rows that one pipeline writes, one for each kind of sink, as their readers see them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from deltalake import DeltaTable

from tests.worlds.changed_table import DECODE, ChangedTable
from tests.worlds.iceberg_world import catalog_at
from tests.worlds.table_world import TableWorld
from tidemark.providers.lake_tables.output import LakeTableOutput

Row = dict[str, Any]


def _postgres(world: TableWorld) -> list[Row]:
    return world.query("SELECT * FROM copied.orders WHERE NOT _is_deleted")


def _postgres_entry(world_folder: Path) -> dict[str, Any]:
    del world_folder
    return {"postgres": {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}}


def _iceberg_entry(folder: Path) -> dict[str, Any]:
    settings = {
        "connection": "warehouse",
        "table": "copied.orders",
        "warehouse": str(folder / "iceberg"),
        "key": ["id"],
    }
    return {"iceberg": {**settings, "partition_by": ["bucket(2, id)"], "auto_create": True}}


def _iceberg(world: TableWorld) -> list[Row]:
    with catalog_at(world.targets["warehouse"]) as catalog:
        rows: list[Row] = (
            catalog.load_table("copied.orders").scan(row_filter="_is_deleted = false").to_arrow().to_pylist()
        )
    return rows


def _delta_entry(folder: Path) -> dict[str, Any]:
    return {"delta": {"location": str(folder / "delta"), "key": ["id"], "auto_create": True}}


def _delta(world: TableWorld) -> list[Row]:
    [location] = [entry["delta"]["location"] for entry in world.settings["sinks"] if "delta" in entry]
    rows = DeltaTable(location).to_pyarrow_table().to_pylist()
    return [row for row in rows if row["_offset"] is not None and not row["_is_deleted"]]


def _optimize_delta(world: TableWorld, random: Random) -> None:
    [location] = [entry["delta"]["location"] for entry in world.settings["sinks"] if "delta" in entry]
    if not DeltaTable.is_deltatable(location):
        return
    table = DeltaTable(location)
    match random.randrange(4):
        case 0:
            table.optimize.compact()
        case 1:
            table.create_checkpoint()
        case 2:
            table.cleanup_metadata()
        case 3:
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _rewrite_iceberg(world: TableWorld, random: Random) -> None:
    """Spark's ``rewrite_data_files`` in short: all rows into new files; or old snapshots go."""
    with catalog_at(world.targets["warehouse"]) as catalog:
        if not catalog.table_exists("copied.orders"):
            return
        table = catalog.load_table("copied.orders")
        if random.random() < 0.5:
            table.overwrite(table.scan().to_arrow())
        else:
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


KINDS: Final[dict[str, tuple[Callable[[Path], dict[str, Any]], Callable[[TableWorld], list[Row]]]]] = {
    "postgres": (_postgres_entry, _postgres),
    "iceberg": (_iceberg_entry, _iceberg),
    "delta": (_delta_entry, _delta),
}
"""Of each kind its entry in the pipeline file, and the rows that a reader sees."""


@dataclass
class CurrentRows:
    """A pipeline with one table of each kind. All tables have the same ``order_by``."""

    world: TableWorld

    @classmethod
    def entries(cls, folder: Path, **options: Any) -> list[dict[str, Any]]:
        entries = []
        for entry, _ in KINDS.values():
            [(kind, settings)] = entry(folder).items()
            entries.append({kind: {**settings, **options}})
        return entries

    def seen(self, *columns: str) -> dict[int, tuple[Any, ...]]:
        """The rows by ``id``, which must be the same in all tables, once each."""
        by_kind = {}
        for kind, (_, read) in KINDS.items():
            rows = read(self.world)
            by_id = {row["id"]: tuple(row[name] for name in columns) for row in rows}
            assert len(by_id) == len(rows), f"{kind} has a key twice"
            by_kind[kind] = by_id
        first, *others = by_kind.values()
        assert all(other == first for other in others), by_kind
        return first

    def publish(self, manifest: str) -> None:
        """Process a manifest, again when it is done."""
        self.world.ok(*self.step(manifest))

    def step(self, manifest: str) -> tuple[str, ...]:
        """The command that processes a manifest, again when it is done."""
        done = {str(each["id"]): each["state"] == "done" for each in self.world.manifests()}
        return ("replay" if done[manifest] else "retry", "demo", "--manifest", manifest)

    def left(self) -> dict[str, tuple[set[int], int | None]]:
        """Of each kind the keys whose row an earlier attempt has made than the published one, and how many such rows
        the merges of the table have counted; None where none are counted."""
        left = {}
        context = self.world.context()
        for sink in context.sinks:
            _, read = KINDS[sink.name]
            manifests = {manifest.id: manifest for manifest in context.database.manifests.find("demo")}
            attempts = {id_: shown.attempt for id_, each in manifests.items() if (shown := each.published(sink.name))}
            keys = {row["id"] for row in read(self.world) if row["_attempt"] < attempts[row["_manifest_id"]]}
            counted = None
            if isinstance(sink.output, LakeTableOutput):
                receipts = [context.database.attempts.receipt(*published) for published in attempts.items()]
                merges = [sink.output.merge_of(receipt) for receipt in receipts if receipt is not None]
                counted = sum(merge.left for merge in merges if merge is not None)
            left[sink.name] = keys, counted
        return left

    def purge_deletions(self) -> None:
        """Somebody removes the rows that mark their key as deleted."""
        self.world.execute("DELETE FROM copied.orders WHERE _is_deleted")
        with catalog_at(self.world.targets["warehouse"]) as catalog:
            catalog.load_table("copied.orders").delete("_is_deleted = true")
        [location] = [entry["delta"]["location"] for entry in self.world.settings["sinks"] if "delta" in entry]
        DeltaTable(location).delete("_is_deleted = true")

    def maintain(self, random: Random) -> None:
        """What other programs do to the tables; it changes no row."""
        _rewrite_iceberg(self.world, random)
        _optimize_delta(self.world, random)

    def finish(self) -> None:
        """Publish all that is planned, and audit it deeply."""
        if any(manifest["state"] != "done" for manifest in self.world.manifests()):
            self.world.ok("retry", "demo")
        assert self.world.ok("audit", "demo", "--deep") == ""


def rows_of_a_changed_table(
    make_table_world: Callable[..., TableWorld], folder: Path, random: Random, *, keys: int = 12
) -> tuple[CurrentRows, ChangedTable]:
    """A pipeline with one table of each kind in three partitions, and the table whose changes it reads."""
    settings = {"decode": DECODE, "sinks": CurrentRows.entries(folder), "event_time": {}}
    world = make_table_world(partitions=3, settings=settings)
    dsn = world.targets["warehouse"]
    return CurrentRows(world), ChangedTable(dsn, world.broker, world.topic, world.partitions, random, keys=keys)
