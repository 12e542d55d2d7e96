"""A pipeline that writes totals into DynamoDB, with or without a lake, and what its readers must see."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow.parquet as pq

from sandbox.services.dynamodb import DynamoDB
from tests.worlds.totals_world import AGGREGATE, COLUMNS, TotalsWorld
from tests.worlds.world import Place, World

Items = list[dict[str, Any]]


@dataclass
class DynamoWorld(TotalsWorld):
    """A world with totals by ``k`` and hour in DynamoDB; ``endpoint_url`` may be a proxy in front of the emulator."""

    sink: ClassVar[str] = "dynamodb"
    server: DynamoDB = field(kw_only=True)
    endpoint_url: str = ""
    items_table: str = ""

    def entry(self, **options: Any) -> dict[str, Any]:
        self.items_table = self.items_table or f"totals{uuid4().hex[:12]}"
        self.targets = {**self.targets, "dynamodb": self.server.connection(self.endpoint_url)}
        self.client = self.server.client()
        settings = {"connection": "dynamodb", "table": self.items_table, "auto_create": True, "aggregate": AGGREGATE}
        return {"dynamodb": {**settings, **options}}

    def items(self, suffix: str = "") -> Items:
        """Every item of a table; none while there is no table."""
        return items_of(self.client, self.items_table + suffix)

    def contributions(self) -> Items:
        return [item for item in self.items("_contributions") if "_attempt" in item]

    def markers(self) -> Items:
        return [item for item in self.items("_contributions") if item["_key"] == "marker"]

    def change(self, suffix: str, item: dict[str, Any], column: str, value: str) -> None:
        """Give a number of an item another value, by hand."""
        keys = {"_key": {"S": item["_key"]}}
        if suffix:
            keys["_manifest_id"] = {"N": str(item["_manifest_id"])}
        self.client.update_item(
            TableName=self.items_table + suffix, Key=keys, UpdateExpression="SET #column = :value",
            ExpressionAttributeNames={"#column": column}, ExpressionAttributeValues={":value": {"N": value}},
        )  # fmt: skip

    def take_away(self, suffix: str, item: dict[str, Any]) -> None:
        """Delete an item, by hand."""
        keys = {"_key": {"S": item["_key"]}}
        if suffix:
            keys["_manifest_id"] = {"N": str(item["_manifest_id"])}
        self.client.delete_item(TableName=self.items_table + suffix, Key=keys)

    def damage(self, manifest: dict[str, Any]) -> None:
        """Change a total of a manifest, and delete an object of the lake if there is one."""
        keys = {item["_key"] for item in self.contributions() if item["_manifest_id"] == manifest["id"]}
        self.change("", next(item for item in self.items() if item["_key"] in keys), "n_sum", "-1")
        if self.has_lake:
            World.damage(self, manifest)

    def rows(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees, by key and window; in the middle of a manifest only a part of it."""
        return {_key(item): tuple(item.get(name) for name in _COLUMNS) for item in self.items()}

    def merged_spans(self) -> Counter[Place]:
        """Every offset of the manifests whose marker says that they are whole."""
        return self.spans({item["_manifest_id"] for item in self.markers() if is_whole(item)})

    def assert_nothing_is_seen(self) -> None:
        assert (self.exact(), self.listing(), self.merged_spans()) == ({}, {}, {})

    def assert_whole(self) -> None:
        """At any moment: contributions of whole manifests come to their totals, and only those are published."""
        if self.has_lake:
            World.assert_whole(self)
        whole = {item["_manifest_id"] for item in self.markers() if is_whole(item)}
        counts: dict[Any, int] = defaultdict(int)
        for item in self.contributions():
            if item["_manifest_id"] in whole:
                counts[_key(item)] += item["_rows"]
        merged = self.spans(whole)
        assert counts == {key: values[0] for key, values in self.latest(merged).items()}
        half = self.spans({item["_manifest_id"] for item in self.markers()} - whole)
        assert self.published_spans(self.sink) <= merged + half

    def assert_readers_complete(self) -> None:
        if self.has_lake:
            World.assert_readers_complete(self)
        assert self.rows() == self.latest(self.everything())
        assert self.dead_letters() == len(self.bad)

    def assert_complete(self) -> None:
        World.assert_complete(self)

    def dead_letters(self) -> int:
        kept = (self.folder / "staging" / f"{self.name}.dynamodb" / "_dead_letters").rglob("*.parquet")
        return sum(pq.read_metadata(path).num_rows for path in kept)

    def staging(self) -> list[str]:
        staged = (self.folder / "staging" / f"{self.name}.dynamodb" / "_staging").rglob("*.parquet")
        return [*World.staging(self), *map(str, staged)]


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


def is_whole(marker: dict[str, Any]) -> bool:
    """Whether the contributions of the marker's manifest are all there; no attempt is in the middle of them."""
    return bool(marker["putting"] == marker.get("attempt"))
