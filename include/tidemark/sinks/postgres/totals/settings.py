"""``sinks: [{totals: ..}]``."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool, field_validator

from tidemark.config import values
from tidemark.config.base import Name, Section
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.sinks.aggregates.aggregate import CONTRIBUTIONS, Aggregate
from tidemark.sinks.aggregates.value_columns import Function
from tidemark.sinks.postgres.table_settings import LONGEST_COLUMN, TableSettings


class ServedInDynamoDB(Section):
    """A table of DynamoDB with a copy of the totals, one item per key."""

    table: str = Field(
        pattern="^[a-zA-Z0-9_.-]{3,255}$",
        description="The table, with the partition key _key (S).",
        examples=["orders_per_product"],
    )
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None, description="Id of an Airflow connection of type aws; else boto3's own sources."
    )
    region: str | None = Field(default=None, description="Region of the table.", examples=["eu-central-1"])
    endpoint_url: Annotated[str, AfterValidator(values.endpoint)] | None = Field(
        default=None, description="Address of a service that is not AWS's.", examples=["http://dynamodb:8000"]
    )
    auto_create: StrictBool = Field(default=False, description="Whether to create the table.")

    def access(self) -> dict[str, Any]:
        """Access to DynamoDB, without secrets."""
        access = {"connection": self.connection, "region": self.region, "endpoint_url": self.endpoint_url}
        return {name: value for name, value in access.items() if value}


class Settings(TableSettings):
    """A PostgreSQL table of totals, one row per key, and beside it what each manifest has contributed to each key."""

    kind = "totals"
    output_keys = frozenset({"aggregate"})

    name: Name = Field(default="totals", description="Name of this sink, unique in the pipeline.")
    aggregate: Aggregate = Field(description="The key and what is added up for it.")
    max_keys: int = Field(
        default=10_000_000, ge=1, strict=True, description="Most keys that one manifest may contribute to."
    )
    dynamodb: ServedInDynamoDB | None = Field(default=None, description="Where readers find a copy of the totals.")

    @field_validator("table")
    @classmethod
    def _short_enough(cls, table: str) -> str:
        if len(table.rpartition(".")[2] + CONTRIBUTIONS) > LONGEST_COLUMN:
            raise wrong(f"must be short enough for a second table with the suffix {CONTRIBUTIONS}: 49 characters")
        return table

    @property
    def contributions(self) -> str:
        """The table that holds what each manifest has contributed."""
        return self.table + CONTRIBUTIONS

    def tables(self) -> set[str]:
        return {self.table, self.contributions}

    def order(self) -> dict[str, Any]:
        return {**super().order(), **self.aggregate.order()}

    def problem_with(self, rows: RowSettings) -> str | None:
        for column in self.aggregate.group_by:
            if "%" in column or len(column.encode()) > LONGEST_COLUMN:
                return f"may not have {column[:80]!r} in its group_by: names have at most 63 bytes, and no %"
        for value in self.aggregate.value_columns if self.dynamodb else ():
            kind = rows.field_types().get(value.source or "", "")
            if value.function in (Function.MIN, Function.MAX) and kind.startswith(("double", "float")):
                return (
                    f"may not have {value.function}({value.source}): it is {kind}, and DynamoDB keeps decimals; "
                    "declare it as DECIMAL(p, s), or cast it in transform"
                )
        return self.aggregate.problem_with(rows)
