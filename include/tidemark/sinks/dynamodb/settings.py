"""``sinks: [{dynamodb: ..}]``."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool, field_validator

from tidemark.config import values
from tidemark.config.base import Name
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.paths import DEAD_LETTERS
from tidemark.sinks.aggregates.aggregate import CONTRIBUTIONS, Aggregate
from tidemark.sinks.aggregates.value_columns import Function
from tidemark.sinks.object_store.staging_settings import StagingSettings

TABLE_PATTERN = "^[a-zA-Z0-9_.-]{3,241}$"  # DynamoDB has 255 characters, and the second table a suffix


class Settings(StagingSettings):
    """A DynamoDB table of totals, one item per key, and beside it what each manifest has contributed to each key."""

    kind = "dynamodb"
    output_keys = frozenset({"aggregate"})

    name: Name = Field(default="dynamodb", description="Name of this sink, unique in the pipeline.")
    table: str = Field(
        pattern=TABLE_PATTERN,
        description="The table of totals. Beside it is a second one, with the suffix _contributions.",
        examples=["orders_per_product"],
    )
    aggregate: Aggregate = Field(description="The key and what is added up for it.")
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="Id of an Airflow connection of type aws, for staging in s3:// too; else boto3's own sources.",
    )
    region: str | None = Field(default=None, description="Region of the tables.", examples=["eu-central-1"])
    endpoint_url: Annotated[str, AfterValidator(values.endpoint)] | None = Field(
        default=None, description="Address of a service that is not AWS's.", examples=["http://dynamodb:8000"]
    )
    auto_create: StrictBool = Field(default=False, description="Whether to create both tables.")
    max_keys: int = Field(
        default=1_000_000, ge=1, strict=True, description="Most keys that one manifest may contribute to."
    )

    @field_validator("table")
    @classmethod
    def _not_the_second(cls, table: str) -> str:
        if table.endswith(CONTRIBUTIONS):
            raise wrong(f"must not end with {CONTRIBUTIONS}: that is the suffix of the table beside the totals")
        return table

    @property
    def contributions(self) -> str:
        """The table that holds what each manifest has contributed, and the markers."""
        return self.table + CONTRIBUTIONS

    @property
    def target(self) -> str:
        named = {"connection": self.connection, "region": self.region, "endpoint": self.endpoint_url}
        access = "".join(f"{name} {value}, " for name, value in named.items() if value)
        return f"{access}DynamoDB table {self.table}"

    def former_folder(self, pipeline_name: str) -> str:
        """Where older versions left dead letters, below ``staging``: not of this sink alone."""
        return f"{pipeline_name}/{self.table}"

    def access(self) -> dict[str, Any]:
        """Access to DynamoDB, without secrets."""
        access = {"connection": self.connection, "region": self.region, "endpoint_url": self.endpoint_url}
        return {name: value for name, value in access.items() if value}

    def store_settings(self) -> dict[str, Any]:
        return {"connection": self.connection} if self.connection else {}

    def order(self) -> dict[str, Any]:
        return {"store": self.store_settings(), **self.aggregate.order()}

    def problem_with(self, rows: RowSettings) -> str | None:
        types = rows.field_types()
        for column in self.aggregate.value_columns:
            kind = types.get(column.source or "", "")
            if column.function in (Function.MIN, Function.MAX) and kind.startswith(("double", "float")):
                return (
                    f"may not have {column.function}({column.source}): it is {kind}, and DynamoDB keeps decimals; "
                    "declare it as DECIMAL(p, s), or cast it in transform"
                )
        return self.aggregate.problem_with(rows)

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        del topic
        return self.target if when is not None else f"{self.own_folder(pipeline_name)}/{DEAD_LETTERS}"
