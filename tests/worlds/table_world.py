"""A pipeline that writes a PostgreSQL table, with or without a lake, and what its readers must see.

The table has one row per ``k``: the one with the greatest ``n``, because the pipeline has ``order_by: n``.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from psycopg.rows import dict_row

from tests.worlds.world import KEYS, Place, World

TABLE_SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT NOT NULL"
ROWS = "SELECT k, n, _topic, _partition, _offset FROM public.latest WHERE NOT _is_deleted"


def table_sink(**options: Any) -> dict[str, Any]:
    """The entry of ``sinks`` for the table of these tests."""
    settings = {"connection": "warehouse", "table": "latest", "key": ["k"], "order_by": "n", "auto_create": True}
    return {"postgres": {**settings, **options}}


def newest_of_each_key(world: World, covered: Counter[Place]) -> dict[Any, tuple[Any, ...]]:
    """By k: n and place of the record with the greatest n among those at these offsets."""
    newest: dict[int, tuple[int, Place]] = {}
    for number in range(world.produced):
        place = (world.topic, number % world.partitions, number // world.partitions)
        if number not in world.bad and place in covered:
            newest[number % KEYS] = (number, place)
    return newest


@dataclass
class TableWorld(World):
    """A world with a table as its sink; ``has_lake`` adds a lake."""

    has_lake: bool = False
    sink: ClassVar[str] = "postgres"
    written: ClassVar[str] = "public.latest"

    def entry(self) -> dict[str, Any]:
        return table_sink()

    def __post_init__(self) -> None:
        sinks: list[dict[str, Any]] = [self.entry()]
        if self.has_lake:
            sinks.insert(0, self.lake_entry())
        self.settings = {"decode": {"format": "json", "schema": TABLE_SCHEMA}, "sinks": sinks, **self.settings}
        super().__post_init__()

    def query(self, statement: str, *values: object) -> list[dict[str, Any]]:
        with psycopg.connect(self.targets["warehouse"], row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]

    def execute(self, statement: str, dsn: str = "") -> None:
        """Run a statement in the warehouse, as its owner."""
        with psycopg.connect(dsn or self.targets["warehouse"], autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def table_is_readable(self) -> bool:
        [there] = self.query("SELECT to_regclass('public.latest') IS NOT NULL AS there")
        [columns] = self.query("SELECT count(*) AS count FROM information_schema.columns WHERE table_name = 'latest'")
        return bool(there["there"]) and columns["count"] > 10

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete rows of a manifest, in the table and in the lake if there is one."""
        if self.has_lake:
            super().damage(manifest)
        with psycopg.connect(self.targets["warehouse"]) as connection:
            connection.execute("DELETE FROM public.latest WHERE _manifest_id = %s", [manifest["id"]])

    def rows(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees in the table, by k: n and place. Empty while there is no table."""
        [there] = self.query("SELECT to_regclass('public.latest') IS NOT NULL AS there")
        rows = self.query(ROWS) if there["there"] else []
        return {row["k"]: (row["n"], (row["_topic"], row["_partition"], row["_offset"])) for row in rows}

    def assert_nothing_is_seen(self) -> None:
        """Readers see nothing, in the lake and in the table."""
        assert (self.exact(), self.listing(), self.rows()) == ({}, {}, {})

    def latest(self, covered: Counter[Place]) -> dict[Any, tuple[Any, ...]]:
        """The content that the table must have when only these offsets were merged."""
        return newest_of_each_key(self, covered)

    def merged_spans(self) -> Counter[Place]:
        """Every offset of the manifests that have a marker beside the table."""
        [there] = self.query("SELECT to_regclass('tidemark_target.marker') IS NOT NULL AS there")
        query = "SELECT record FROM tidemark_target.marker WHERE target = %s"
        markers = self.query(query, self.written) if there["there"] else []
        return Counter(
            (part["at"]["topic"], part["at"]["partition"], offset)
            for marker in markers
            for part in marker["record"]["ranges"]
            for offset in range(part["start"], part["end"])
        )

    def assert_whole(self) -> None:
        """At any moment: the table has the rows of all merged manifests, and only merged manifests are published."""
        if self.has_lake:
            super().assert_whole()
        merged = self.merged_spans()
        assert self.rows() == self.latest(merged)
        assert self.published_spans(self.sink) <= merged
        if self.targets["warehouse"] == self.dsn:
            assert self.published_spans(self.sink) == merged, "I17 one transaction"

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            super().assert_readers_complete()
        assert self.rows() == self.latest(self.everything())
        query = "SELECT count(*) AS count FROM tidemark_target.dead_letter WHERE target = %s"
        [dead] = self.query(query, self.written)
        assert dead["count"] == len(self.bad)

    def staging(self) -> list[str]:
        tables = self.query("SELECT relname FROM pg_class WHERE starts_with(relname, 'staging') AND relkind = 'r'")
        return [*super().staging(), *(table["relname"] for table in tables)]
