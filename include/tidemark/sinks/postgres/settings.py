"""``sinks: [{postgres: ..}]``."""

from collections.abc import Mapping

from pydantic import Field, field_validator

from tidemark.config.base import Name
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.sinks.aggregates.aggregate import NULLABLE
from tidemark.sinks.postgres.table_settings import LONGEST_COLUMN, TableSettings
from tidemark.suggestion import with_nearest

# Of a record in its source: never null, and unique together. A topic that is made again begins at offset 0 once more,
# with the next generation.
PLACE_COLUMNS = ("_topic", "_partition", "_offset", "_incarnation")
NUMBER = "_row"  # of a row among those of its record; a table has it in its key or not at all
SOURCE_TIMESTAMP = "_timestamp"


class Settings(TableSettings):
    """A PostgreSQL table with one row per key, its newest version. Rows of deleted keys stay, and are marked."""

    kind = "postgres"
    output_keys = frozenset({"key", "order_by"})
    name: Name = Field(default="postgres", description="Name of this sink, unique in the pipeline.")
    key: tuple[str, ...] = Field(
        description="Columns that name a row; none of them may be null.",
        examples=[["product_id", "location_id"]],
        json_schema_extra={"minItems": 1},
    )
    order_by: str | None = Field(
        default=None,
        description="The column with the version: the greatest value is the newest. Without it, the later offset is.",
    )

    @field_validator("key")
    @classmethod
    def _unique_key(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if not key:
            raise wrong("must have at least one entry")
        if len(set(key)) < len(key):
            raise wrong("must name each column once")
        if "_offset" in key and "_incarnation" not in key:
            raise wrong(
                "may not have _offset without _incarnation: offsets of a topic that is created again begin at 0, and "
                f"its rows would replace the older ones; write key: [{', '.join([*key, '_incarnation'])}]"
            )
        return key

    def problem_with(self, rows: RowSettings) -> str | None:
        types = rows.field_types()
        never_null = {*PLACE_COLUMNS, NUMBER, *rows.never_null()}
        if rows.fans_out() and NUMBER not in self.key:
            return (
                f"must have {NUMBER} in its key, since explode gives a record several rows, which would replace one "
                f"another; write key: [{', '.join([*self.key, NUMBER])}]"
            )
        if NUMBER in self.key and not rows.fans_out():
            return f"may not have {NUMBER} in its key: only explode gives a record several rows"
        return (
            _problem_with_names(types)
            or self._problem_with_key(types, never_null)
            or self._problem_with_order(rows, never_null)
        )

    def _problem_with_key(self, types: Mapping[str, str], never_null: set[str]) -> str | None:
        for column in self.key:
            if column not in {*types, *PLACE_COLUMNS, NUMBER}:
                return with_nearest(f"has no column {column} for its key", column, types, listed=True)
            if column not in never_null:
                return f"may not have {column} in its key: {NULLABLE}"
            if types.get(column, "").startswith(("list", "struct", "map", "double", "float")):
                return f"may not have {column} in its key: it is {types[column]}"
        return None

    def _problem_with_order(self, rows: RowSettings, never_null: set[str]) -> str | None:
        types = rows.field_types()
        if self.order_by in (None, SOURCE_TIMESTAMP):
            return None
        if self.order_by not in types:
            return f"has no column {self.order_by} to order by; allowed: {', '.join([SOURCE_TIMESTAMP, *types])}"
        if self.order_by not in never_null:
            return f"may not order by {self.order_by}: {NULLABLE}"
        if types[self.order_by].startswith(("list", "struct", "map")):
            return f"may not order by {self.order_by}: it is {types[self.order_by]}"
        if rows.tombstone_fields() and self.order_by not in rows.tombstone_fields():
            return (
                f"may not order by {self.order_by}: a tombstone has no such field; write order_by: {SOURCE_TIMESTAMP}, "
                "or leave it out"
            )
        return None


def _problem_with_names(types: Mapping[str, str]) -> str | None:
    for column in types:
        if "%" in column or len(column.encode()) > LONGEST_COLUMN:
            return f"may not have a column {column[:80]!r}: names of columns have at most 63 bytes, and no %"
    return None
