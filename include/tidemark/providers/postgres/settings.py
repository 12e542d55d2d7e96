"""``sinks: [{postgres: ..}]``."""

from typing import ClassVar

from pydantic import Field

from tidemark.config.base import Name
from tidemark.decoders.record_key import ColumnsOrRecordKey
from tidemark.decoders.settings import RowSettings
from tidemark.providers.postgres.table_settings import TableSettings
from tidemark.providers.tables.column_names import LOG_GENERATION
from tidemark.providers.tables.keyed_settings import KeyedSettings


class Settings(KeyedSettings, TableSettings):
    """A PostgreSQL table with one row per key, its newest version. Rows of deleted keys stay, marked as deleted."""

    kind = "postgres"
    output_keys = frozenset({"key", "order_by"})
    record_columns: ClassVar[tuple[str, ...]] = (LOG_GENERATION, "_topic", "_partition", "_offset")

    name: Name = Field(default="postgres", description="Its name in messages, unique in the pipeline.")
    key: ColumnsOrRecordKey = Field(
        description="The columns that identify a row, none may be null; or `record_key`: [those of the record's "
        "key](#the-key-of-the-record). With `[_topic, _partition, _offset, _log_generation]` the table "
        "keeps every record; `_offset` alone is refused, since a topic that is made again begins at 0.",
        examples=[["product_id", "location_id"]],
        json_schema_extra={"minItems": 1},
    )

    def problem_with(self, rows: RowSettings) -> str | None:
        # Imported late: it needs pyarrow, which checking the other settings does without.
        from tidemark.providers.postgres.columns import problem_with_maps

        return self.problem_with_keyed(rows) or problem_with_maps(rows.arrow_schema())
