"""A table of the source with random changes, and the values that each of its copies must have, in any target."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import psycopg
from deltalake import DeltaTable

from tests.worlds.iceberg_world import catalog_at
from tests.worlds.source_of_changes import SourceOfChanges
from tests.worlds.source_types import TYPES, SourceType, comparable, of_source, right_values, schema_of, units_of
from tests.worlds.table_world import TableWorld

KEY: Final = ("tenant", "code")
_KEYS: Final = 40
Row = dict[str, Any]


def decode_of(form: str, schema: str, key: list[str], units: dict[str, str]) -> dict[str, Any]:
    """``decode`` of a pipeline for records of a form."""
    if form == "avro":
        registry = {"registry": {"connection": "registry"}}
        return {"format": "avro", **registry, "tombstones": key, "key": {"format": "avro", **registry},
                "envelope": "debezium"}  # fmt: skip
    envelope = {"debezium": {"times": units, "decimals": "base64"}} if form == "json" else "debezium"
    return {"format": "json", "schema": schema, "tombstones": key, "envelope": envelope}


def registry_of(source: SourceOfChanges) -> dict[str, str]:
    """The connection to the registry, for the ``targets`` of a world."""
    return {"registry": json.dumps({"conn_type": "http", "extra": {"url": source.registry.url}})}


@dataclass
class CopiedTable:
    """The table ``copied``: a key of two columns, and a column of each type that every target can store exactly."""

    source: SourceOfChanges
    random: Random

    COLUMNS: ClassVar[tuple[SourceType, ...]] = tuple(type_ for type_ in TYPES if type_.sent)
    DEFINITION: ClassVar[str] = (
        f"CREATE TABLE copied (tenant int, code text, {', '.join(f'{each.name} {each.sql}' for each in COLUMNS)}, "
        "big text, PRIMARY KEY (tenant, code)); ALTER TABLE copied REPLICA IDENTITY FULL"
    )

    def decode(self, form: str) -> dict[str, Any]:
        schema = f"tenant INT NOT NULL, code STRING NOT NULL, {schema_of(self.COLUMNS)}, big STRING"
        return decode_of(form, schema, [*KEY], units_of(self.COLUMNS))

    # the source

    def change(self, count: int) -> None:
        """Change the table so often, in transactions of several changes; some of them are rolled back."""
        remaining = count
        with psycopg.connect(self.source.dsn) as connection:
            while remaining > 0:
                for _ in range(self.random.choice([1, 1, 2, 5, 20])):
                    self._change_once(connection)
                    remaining -= 1
                if self.random.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    def _change_once(self, connection: psycopg.Connection) -> None:
        match self.random.choices(["write", "update", "move", "delete"], [45, 30, 10, 15])[0]:
            case "write":
                values = {type_.name: self._value(type_) for type_ in self.COLUMNS} | {"big": self._big()}
                changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in values)
                statement = (
                    f"INSERT INTO copied (tenant, code, {', '.join(values)}) VALUES ({self._key()}, "
                    f"{', '.join(values.values())}) ON CONFLICT (tenant, code) DO UPDATE SET {changes}"
                )
            case "update":  # values that are stored apart are often not among these
                chosen = self.random.sample(self.COLUMNS, self.random.randint(1, 4))
                values = {type_.name: self._value(type_) for type_ in chosen}
                changes = ", ".join(f"{name} = {value}" for name, value in values.items())
                statement = f"UPDATE copied SET {changes} WHERE (tenant, code) = ({self._key()})"
            case "move":
                other = self._key()
                statement = (
                    f"UPDATE copied SET (tenant, code) = (SELECT {other}) WHERE (tenant, code) = ({self._key()}) "
                    f"AND NOT EXISTS (SELECT FROM copied WHERE (tenant, code) = ({other}))"
                )
            case _:
                statement = f"DELETE FROM copied WHERE (tenant, code) = ({self._key()})"
        connection.execute(statement)  # type: ignore[arg-type]

    def _key(self) -> str:
        return f"{self.random.randint(1, 3)}, 'k{self.random.randrange(_KEYS)}'"

    def _value(self, type_: SourceType) -> str:
        return "NULL" if self.random.random() < 0.15 else self.random.choice(SAFE[type_.name])

    def _big(self) -> str:
        """Text that PostgreSQL stores apart, since it cannot be compressed to less than 2,000 bytes; or a short one."""
        return f"'{self.random.randbytes(self.random.choice([3, 6_000])).hex()}'"

    def right(self) -> dict[tuple[Any, ...], Row]:
        """The rows of the source, by key."""
        query = f"SELECT tenant, code, big, ({right_values(self.COLUMNS)})::text FROM copied"
        return {
            (tenant, code): {**comparable(self.COLUMNS, of_source(row)), "big": big}
            for tenant, code, big, row in self.source.values(query)
        }

    # its copies

    def of_copy(self, rows: list[Row]) -> dict[tuple[Any, ...], Row]:
        """The rows of a copy, by key, which each may have one of."""
        made = {tuple(row[name] for name in KEY): {**comparable(self.COLUMNS, row), "big": row["big"]} for row in rows}
        assert len(made) == len(rows), "a key has several rows"
        return made


SAFE: Final = {
    type_.name: [value for value in type_.values if "0001-01-01" not in value and "1500-" not in value
                 and "92233720368547758.08" not in value]
    for type_ in CopiedTable.COLUMNS
}  # fmt: skip
"""Values that a snapshot reads as they are (docs/debezium-types.md)."""


def _postgres(world: TableWorld, folder: Path, name: str) -> list[Row]:
    del folder
    return world.query(f"SELECT * FROM copy.{name} WHERE NOT _is_deleted")


def _iceberg(world: TableWorld, folder: Path, name: str) -> list[Row]:
    del folder
    with catalog_at(world.targets["warehouse"]) as catalog:
        rows: list[Row] = (
            catalog.load_table(f"copy.{name}").scan(row_filter="_is_deleted = false").to_arrow().to_pylist()
        )
    return rows


def _delta(world: TableWorld, folder: Path, name: str) -> list[Row]:
    del world, name
    return [
        row for row in DeltaTable(str(folder / "delta")).to_pyarrow_table().to_pylist() if row["_is_deleted"] is False
    ]


READERS: Final[dict[str, Callable[[TableWorld, Path, str], list[Row]]]] = {
    "postgres": _postgres,
    "iceberg": _iceberg,
    "delta": _delta,
}


def sinks(folder: Path, name: str, *kinds: str) -> list[dict[str, Any]]:
    """Entries of tables with one row per key."""
    common = {"key": [*KEY], "auto_create": True}
    iceberg = {"connection": "warehouse", "table": f"copy.{name}", "warehouse": str(folder / "iceberg")}
    settings = {
        "postgres": {"connection": "warehouse", "table": f"copy.{name}", **common},
        "iceberg": {**iceberg, "partition_by": ["bucket(2, code)"], **common},
        "delta": {"location": str(folder / "delta"), **common},
    }
    return [{kind: settings[kind]} for kind in kinds]
