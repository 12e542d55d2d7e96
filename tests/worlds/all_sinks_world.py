"""One pipeline with a sink of each kind, and what the readers of each sink must see."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow.parquet as pq

from sandbox.services.dynamodb import DynamoDB
from tests.worlds.delta_world import DeltaWorld
from tests.worlds.iceberg_readers import read_by_duckdb
from tests.worlds.iceberg_world import IcebergWorld, KeyedIcebergWorld
from tests.worlds.table_world import TABLE_SCHEMA, TableWorld
from tests.worlds.topic_world import TopicWorld
from tests.worlds.totals_world import Key, TotalsWorld, key_of
from tests.worlds.world import Place, World

W = TypeVar("W", bound=World)
KINDS: tuple[type[World], ...] = (
    World, TableWorld, TopicWorld, IcebergWorld, KeyedIcebergWorld, DeltaWorld, TotalsWorld,
)  # fmt: skip
OF_VERSIONS = {"oldest": "min(version)", "newest": "max(version)"}


@dataclass
class AllSinksWorld(World):
    """A world with one sink of each of ``kinds``.

    ``version`` is that of the pipeline's code. Each row contains it, so other code makes other rows, and other totals.
    """

    version: int = 0
    kinds: tuple[type[World], ...] = KINDS
    server: DynamoDB | None = None  # of ``DynamoWorld``, which needs a connection of its own

    def __post_init__(self) -> None:
        sinks = [view.entry() for view in self.views()]
        for entry in sinks:
            for settings in entry.values():
                if "aggregate" in settings:
                    values = {**settings["aggregate"]["values"], **OF_VERSIONS}
                    settings["aggregate"] = {**settings["aggregate"], "values": values}
        self.settings = {"decode": {"format": "json", "schema": TABLE_SCHEMA}, "sinks": sinks, **self.settings}
        self.change_code()
        super().__post_init__()

    def change_code(self) -> None:
        """Have later attempts make other rows; call ``write_pipeline`` after it."""
        self.version += 1
        self.settings["transform"] = [{"select": ["*", f"{self.version}::BIGINT AS version"]}]

    def views(self) -> list[World]:
        return [self.seen_as(kind) for kind in self.kinds]

    def seen_as(self, kind: type[W]) -> W:
        """This world with the readers of one kind of sink: it shares all that this world knows."""
        view = object.__new__(kind)
        view.__dict__ = self.__dict__
        return view

    def remove_targets(self) -> None:
        for view in self.views():
            view.remove_targets()

    def assert_whole(self) -> None:
        for view in self.views():
            view.assert_whole()

    def assert_readers_complete(self) -> None:
        """Each sink has all records, and they show the same attempts: rows of the same code."""
        for view in self.views():
            view.assert_readers_complete()
        iceberg, table, totals = (self.seen_as(kind) for kind in (IcebergWorld, TableWorld, TotalsWorld))
        shown = iceberg.table()
        assert shown is not None
        assert Counter(read_by_duckdb(shown.metadata_location)) == iceberg.rows()
        versions = self.versions()
        rows = shown.scan(selected_fields=("_topic", "_topic_partition", "_offset", "version")).to_arrow().to_pylist()
        assert {(row["_topic"], row["_topic_partition"], row["_offset"]): row["version"] for row in rows} == versions
        rows = self.seen_as(DeltaWorld).all_rows()
        assert {(row["_topic"], row["_topic_partition"], row["_offset"]): row["version"] for row in rows} == versions
        rows = table.query("SELECT _topic, _partition, _offset, version FROM public.latest")
        assert {place_of(row): row["version"] for row in rows}.items() <= versions.items()
        current = self.seen_as(KeyedIcebergWorld).all_rows()
        of_current = {(row["_topic"], row["_topic_partition"], row["_offset"]): row["version"] for row in current}
        assert of_current.items() <= versions.items()
        rows = totals.query("SELECT k, window_start, oldest, newest FROM public.totals")
        assert {(row["k"], row["window_start"]): (row["oldest"], row["newest"]) for row in rows} == extremes(
            {self.number_at(place): version for place, version in versions.items()}
        )

    def number_at(self, place: Place) -> int:
        return place[2] * self.partitions + place[1]

    def versions(self) -> dict[Place, int]:
        """The version of the code that made each row of the lake."""
        columns = ["_topic", "_partition", "_offset", "version"]
        tables = [
            pq.read_table(path, columns=columns, partitioning=None) for path in self.data_paths("--sink", "files")
        ]
        return {place_of(row): row["version"] for table in tables for row in table.to_pylist()}

    def staging(self) -> list[str]:
        return sorted({left for view in self.views() for left in view.staging()})


def place_of(row: dict[str, Any]) -> Place:
    return row["_topic"], row["_partition"], row["_offset"]


def extremes(versions: dict[int, int]) -> dict[Key, tuple[int, int]]:
    """The oldest and the newest version of each total, by those of the records with these numbers."""
    members: dict[Key, list[int]] = defaultdict(list)
    for number, version in versions.items():
        members[key_of(number)].append(version)
    return {key: (min(each), max(each)) for key, each in members.items()}
