"""A pipeline that writes totals with a copy in DynamoDB, with or without a lake, and what its readers must see."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from sandbox.services.dynamodb import DynamoDB
from tests.worlds.totals_world import COLUMNS, TotalsWorld, totals_sink

Items = list[dict[str, Any]]


@dataclass
class DynamoWorld(TotalsWorld):
    """A world with totals by ``k`` and hour in PostgreSQL, and a copy of them in DynamoDB, which its readers ask.

    ``endpoint_url`` may be a proxy in front of the emulator.
    """

    server: DynamoDB = field(kw_only=True)
    endpoint_url: str = ""
    items_table: str = ""

    def entry(self, **options: Any) -> dict[str, Any]:
        self.items_table = self.items_table or f"totals{uuid4().hex[:12]}"
        self.targets = {**self.targets, "dynamodb": self.server.connection(self.endpoint_url)}
        self.client = self.server.client()
        served = {"connection": "dynamodb", "table": self.items_table, "auto_create": True}
        return totals_sink(served_in={"dynamodb": served}, **options)

    def items(self) -> Items:
        """Every item with records; none while there is no table."""
        return [item for item in items_of(self.client, self.items_table) if item.get("_rows")]

    def change(self, item: dict[str, Any], column: str, value: str) -> None:
        """Give a number of an item another value, by hand."""
        self.client.update_item(
            TableName=self.items_table, Key={"_key": {"S": item["_key"]}}, UpdateExpression="SET #column = :value",
            ExpressionAttributeNames={"#column": column}, ExpressionAttributeValues={":value": {"N": value}},
        )  # fmt: skip

    def take_away(self, item: dict[str, Any]) -> None:
        """Delete an item, by hand."""
        self.client.delete_item(TableName=self.items_table, Key={"_key": {"S": item["_key"]}})

    def rows(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees, by key and window; in the middle of a manifest only a part of it."""
        return {_key(item): tuple(item.get(name) for name in _COLUMNS) for item in self.items()}

    def assert_whole(self) -> None:
        """With several slices at once, a process may die between the COMMIT of one and its puts: then PostgreSQL is
        whole, and items are behind it until the next attempt."""
        if not self.settings.get("spark", {}).get("parallel_slices"):
            super().assert_whole()
            return
        totals, merged = super().rows(), self.merged_spans()
        assert totals == self.latest(merged)
        assert self.published_spans(self.sink) <= merged
        assert all(row[0] <= totals[key][0] for key, row in self.rows().items())


_COLUMNS = ("_rows", *COLUMNS.split(", "))


def items_of(client: Any, table: str) -> Items:
    """Every item of a table; none while there is no table."""
    try:
        pages = list(client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True))
    except client.exceptions.ResourceNotFoundException:
        return []
    return [{name: _plain(stored) for name, stored in item.items()} for page in pages for item in page["Items"]]


def _plain(stored: dict[str, Any]) -> Any:
    [(kind, value)] = stored.items()
    if kind != "N":
        return value
    return int(value) if value.removeprefix("-").isdigit() else Decimal(value)


def _key(item: dict[str, Any]) -> tuple[int, datetime]:
    return item["k"], datetime.fromisoformat(item["window_start"])
