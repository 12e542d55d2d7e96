"""A pipeline that writes a PostgreSQL table, alone or beside a lake; and what its readers must see.

The table has one row per ``k``: the one with the greatest ``n``, as the pipeline says ``order_by: n``.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.worlds.world import KEYS, Place, World

TABLE_SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT NOT NULL"
ROWS = "SELECT k, n, _topic, _partition, _offset FROM public.latest WHERE NOT _deleted"


def table_sink(**options: Any) -> dict[str, Any]:
    """The entry of ``sinks`` for the table of these tests."""
    settings = {"connection": "warehouse", "table": "latest", "key": ["k"], "order_by": "n", "auto_create": True}
    return {"postgres": {**settings, **options}}


@dataclass
class TableWorld(World):
    """A world whose sinks may be a table; ``lake`` and ``table`` say which there are."""

    has_lake: bool = False

    def __post_init__(self) -> None:
        sinks: list[dict[str, Any]] = [table_sink()]
        if self.has_lake:
            sinks.insert(0, {"files": {"root": str(self.lake), "layout": "raw/{stream}/%Y/%m/%d/%H"}})
        self.settings = {"decode": {"format": "json", "schema": TABLE_SCHEMA}, "sinks": sinks, **self.settings}
        super().__post_init__()

    def query(self, statement: str, *values: object) -> list[dict[str, Any]]:
        with psycopg.connect(self.targets["warehouse"], row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]

    def execute(self, statement: str, dsn: str = "") -> None:
        """One statement in the warehouse, by its owner."""
        with psycopg.connect(dsn or self.targets["warehouse"], autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def table_is_readable(self) -> bool:
        [there] = self.query("SELECT to_regclass('public.latest') IS NOT NULL AS there")
        [columns] = self.query("SELECT count(*) AS count FROM information_schema.columns WHERE table_name = 'latest'")
        return bool(there["there"]) and columns["count"] > 10

    def damage(self, manifest: dict[str, Any]) -> None:
        """Lose rows of a manifest by hand, in the table and in the lake if there is one."""
        if self.has_lake:
            super().damage(manifest)
        with psycopg.connect(self.targets["warehouse"]) as connection:
            connection.execute("DELETE FROM public.latest WHERE _manifest_id = %s", [manifest["id"]])

    def rows(self) -> dict[int, tuple[int, Place]]:
        """What a reader in SQL sees: n and place by k; nothing before there is a table."""
        [there] = self.query("SELECT to_regclass('public.latest') IS NOT NULL AS there")
        found = self.query(ROWS) if there["there"] else []
        return {row["k"]: (row["n"], (row["_topic"], row["_partition"], row["_offset"])) for row in found}

    def assert_nothing_is_seen(self) -> None:
        """Neither in the lake nor in the table."""
        assert (self.exact(), self.listing(), self.rows()) == ({}, {}, {})

    def latest(self, covered: Counter[Place]) -> dict[int, tuple[int, Place]]:
        """What the table must hold when just these offsets were merged."""
        newest: dict[int, tuple[int, Place]] = {}
        for number in range(self.produced):
            place = (self.topic, number % self.partitions, number // self.partitions)
            if number not in self.bad and place in covered:
                newest[number % KEYS] = (number, place)
        return newest

    def merged_spans(self) -> Counter[Place]:
        """Every offset of the manifests that have a marker beside the table."""
        [there] = self.query("SELECT to_regclass('tidemark_target.marker') IS NOT NULL AS there")
        found = self.query("SELECT record FROM tidemark_target.marker") if there["there"] else []
        return Counter(
            (one["at"]["topic"], one["at"]["partition"], offset)
            for row in found
            for one in row["record"]["ranges"]
            for offset in range(one["start"], one["end"])
        )

    def assert_whole(self) -> None:
        """At any moment: the table is what the merged manifests make of it, whole, and no publication is ahead."""
        if self.has_lake:
            super().assert_whole()
        merged = self.merged_spans()
        assert self.rows() == self.latest(merged)
        assert self.published_spans("postgres") <= merged
        if self.targets["warehouse"] == self.dsn:
            assert self.published_spans("postgres") == merged, "one transaction for rows and publication"

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            super().assert_readers_complete()
        assert self.rows() == self.latest(self.everything())
        [dead] = self.query("SELECT count(*) AS count FROM tidemark_target.dead_letter")
        assert dead["count"] == len(self.bad)

    def assert_complete(self) -> None:
        super().assert_complete()
        staged = self.query("SELECT relname FROM pg_class WHERE starts_with(relname, 'staging') AND relkind = 'r'")
        assert staged == []
