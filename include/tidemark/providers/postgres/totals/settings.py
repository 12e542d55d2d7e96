"""``sinks: [{totals: ..}]``."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import Field, field_validator

from tidemark.config.base import Name
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.providers.postgres.aggregates.aggregate import CONTRIBUTIONS, Aggregate
from tidemark.providers.postgres.table_settings import LONGEST_NAME, TableSettings
from tidemark.providers.postgres.totals.copies import CopyEntry
from tidemark.sinks.settings import SinkSettings
from tidemark.sinks.storable_names import StorableNames, problem_with_names


class Settings(TableSettings):
    """A PostgreSQL table of totals, one row per key, and beside it what each manifest contributed to each key."""

    kind = "totals"
    output_keys = frozenset({"aggregate"})

    name: Name = Field(default="totals", description="Its name in messages, unique in the pipeline.")
    aggregate: Aggregate = Field(description="The key and what is added up for it.")
    max_keys: int = Field(
        default=10_000_000,
        ge=1,
        strict=True,
        description="Keys that one manifest may contribute to, at most; with more nothing is applied.",
    )
    served_in: CopyEntry = Field(default=None, description="Another place where readers find a copy of the totals.")

    @field_validator("table")
    @classmethod
    def _short_enough(cls, table: str) -> str:
        if len(table.rpartition(".")[2] + CONTRIBUTIONS) > LONGEST_NAME:
            raise wrong(f"must be short enough for a second table with the suffix {CONTRIBUTIONS}: 49 characters")
        return table

    @property
    def contributions(self) -> str:
        """The table that holds what each manifest contributed."""
        return self.table + CONTRIBUTIONS

    def tables(self) -> set[str]:
        return {self.table, self.contributions}

    def meets(self, other: SinkSettings) -> bool:
        copies = (self.served_in, other.served_in) if isinstance(other, Settings) else (None, None)
        places = {copy.place for copy in copies if copy is not None}
        return super().meets(other) or (None not in copies and len(places) == 1)

    def connections(self) -> set[str]:
        return super().connections() | (self.served_in.connections() if self.served_in else set())

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.aggregate.key

    @property
    def longest_key(self) -> int:
        """Return the most bytes of a key: fewer than PostgreSQL allows if the copy allows only that."""
        of_copy = self.served_in.longest_key if self.served_in else None
        return super().longest_key if of_copy is None else min(super().longest_key, of_copy)

    def order(self) -> dict[str, Any]:
        return {**super().order(), **self.aggregate.order()}

    def storable_names(self) -> StorableNames:
        return replace(super().storable_names(), stored=self.aggregate.group_by)

    def problem_with(self, rows: RowSettings) -> str | None:
        values = pa.schema([(column.name, pa.int64()) for column in self.aggregate.value_columns])
        if problem := problem_with_names(super().storable_names(), values):
            return problem
        if self.served_in is not None:
            problem = self.served_in.problem_with(self.aggregate.value_columns, rows.field_types())
            if problem is not None:
                return problem
        return self.aggregate.problem_with(rows)
