"""The settings of ``served_in: {dynamodb: ..}``: a DynamoDB table with a copy of a sink's totals."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool

from tidemark.config import values
from tidemark.providers.postgres.aggregates.value_columns import Function, ValueColumn
from tidemark.providers.postgres.totals.copies import CopySettings

LONGEST_KEY = 2_048  # bytes of a partition key


class Settings(CopySettings):
    """A table of DynamoDB with a copy of the totals, one item per key."""

    kind = "dynamodb"
    longest_key = LONGEST_KEY

    table: str = Field(
        pattern="^[a-zA-Z0-9_.-]{3,255}$",
        description="The table, with the partition key _key (S). It belongs to these totals alone.",
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

    @property
    def place(self) -> str:
        named = {"connection": self.connection, "region": self.region, "endpoint": self.endpoint_url}
        access = "".join(f"{name} {value}, " for name, value in named.items() if value)
        return f"{access}DynamoDB table {self.table}"

    def connections(self) -> set[str]:
        return {self.connection} if self.connection else set()

    def access(self) -> dict[str, Any]:
        """Return the access to DynamoDB, without secrets."""
        access = {"connection": self.connection, "region": self.region, "endpoint_url": self.endpoint_url}
        return {name: value for name, value in access.items() if value}

    def problem_with(self, columns: Sequence[ValueColumn], types: Mapping[str, str]) -> str | None:
        for column in columns:
            kind = types.get(column.source or "", "")
            if column.function in (Function.MIN, Function.MAX) and kind.startswith(("double", "float")):
                return (
                    f"may not have {column.function}({column.source}): it is {kind}, and DynamoDB keeps decimals; "
                    "declare it as DECIMAL(p, s), or cast it in transform"
                )
        return None
