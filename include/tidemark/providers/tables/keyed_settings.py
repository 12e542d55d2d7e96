"""``key`` and ``order_by`` in a pipeline file, for sinks whose table has one row per key, its newest version."""

from typing import ClassVar, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from tidemark.config.base import Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.record_key import RECORD_KEY, ColumnsOrRecordKey
from tidemark.decoders.settings import NULLABLE, RowSettings
from tidemark.providers.tables.column_names import LOG_GENERATION, NUMBER
from tidemark.providers.tables.columns import RECORD
from tidemark.text import with_nearest

SOURCE_TIMESTAMP = "_timestamp"
NOT_OF_TOMBSTONES = "decode.tombstones does not name it, so the row of a deleted key has no value for it"


class KeyedSettings(Section):
    """The settings of a table that may have one row per key. A kind whose tables always do declares ``key`` again,
    without a default.

    ``record_columns`` identify the record of a row in the table: never null, and unique together.
    """

    record_columns: ClassVar[tuple[str, ...]] = RECORD

    key: ColumnsOrRecordKey = Field(
        default=(),
        description="Columns that name a row; none of them may be null. With them the table has one row per key, its "
        "newest version; without them all rows. record_key: the columns that the schema of the record's key has when "
        "the sink is planned first.",
        examples=[["product_id", "location_id"]],
        json_schema_extra={"minItems": 1},
    )
    order_by: str | None = Field(
        default=None,
        description="The row with the greatest value is the newest, such as `updated_at`, or `_timestamp` for the "
        "source's. Without it the later offset of a partition; those of two partitions or topics have no "
        "order, so all rows of a key must come in one. When its numbers start again, new rows are stale, "
        "and `tidemark status` says so. Another order needs a sink of another name and table.",
    )

    _record_key: tuple[str, ...] = PrivateAttr(default=())

    @field_validator("key")
    @classmethod
    def _unique_key(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if not key:
            raise wrong("must have at least one entry")
        if len(set(key)) < len(key):
            raise wrong("must name each column once")
        if "_offset" in key and LOG_GENERATION not in key:
            known = [name for name in key if not name.startswith("_") or name in {*cls.record_columns, NUMBER}]
            raise wrong(
                f"may not have _offset without {LOG_GENERATION}: offsets of a topic that is created again begin "
                "at 0, and its rows would replace the older ones; write key: "
                f"[{', '.join([*known, LOG_GENERATION])}]"
            )
        return key

    @model_validator(mode="after")
    def _order_of_a_key(self) -> Self:
        if self.order_by is not None and not self.key:
            raise wrong_at("order_by", "needs key: the columns that name a row")
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns of ``key``; empty for a table of all rows."""
        return self._record_key or self.key

    @property
    def record_key(self) -> tuple[str, ...] | None:
        return self._record_key if self.key == RECORD_KEY else None

    def with_record_key(self, columns: tuple[str, ...]) -> Self:
        if self.key != RECORD_KEY:
            return self
        settings = self.model_copy()
        settings._record_key = columns
        return settings

    def row_order(self) -> str | None:
        return self.order_by

    def problem_with_keyed(self, rows: RowSettings) -> str | None:
        """Return why the key does not identify rows, or why their versions cannot be compared; None if all is well."""
        never_null = {*self.record_columns, NUMBER, *rows.never_null()}
        return (
            self._problem_with_number(rows)
            or self._problem_with_columns(rows, never_null)
            or self._problem_with_order(rows, never_null)
        )

    def _problem_with_number(self, rows: RowSettings) -> str | None:
        if rows.fans_out() and NUMBER not in self.key_columns:
            return (
                f"must have {NUMBER} in its key, since explode gives a record several rows, which would replace one "
                f"another; write key: [{', '.join([*self.key_columns, NUMBER])}]"
            )
        if NUMBER in self.key_columns and not rows.fans_out():
            return f"may not have {NUMBER} in its key: only explode gives a record several rows"
        return None

    def _problem_with_columns(self, rows: RowSettings, never_null: set[str]) -> str | None:
        types, of_tombstones = rows.field_types(), rows.tombstone_fields()
        for column in self.key_columns:
            if column not in {*types, *self.record_columns, NUMBER}:
                return with_nearest(f"has no column {column} for its key", column, types, listed=True)
            if column not in never_null and of_tombstones and column not in of_tombstones:
                return f"may not have {column} in its key: {NOT_OF_TOMBSTONES}"
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
        if rows.tombstone_fields() and self.order_by not in rows.tombstone_fields():
            return (
                f"may not order by {self.order_by}: a deletion has no such field; write order_by: {SOURCE_TIMESTAMP}, "
                "or leave it out"
            )
        if self.order_by not in never_null:
            return f"may not order by {self.order_by}: {NULLABLE}"
        if types[self.order_by].startswith(("list", "struct", "map")):
            return f"may not order by {self.order_by}: it is {types[self.order_by]}"
        return None
