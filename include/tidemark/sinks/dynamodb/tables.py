"""The two tables of totals: that they exist, and have the keys that items here have."""

import time
from dataclasses import dataclass
from typing import Any

from tidemark.errors import SinkRefused, Unavailable
from tidemark.sinks.dynamodb.client import Changed, Dynamo, MissingTable
from tidemark.sinks.dynamodb.items import KEY, MANIFEST
from tidemark.sinks.dynamodb.settings import Settings

CREATED_S = 60.0  # until a table that is being created must be there


@dataclass(frozen=True)
class KeyedTable:
    """A table with its keys: name and type (S, N or B), the partition key first."""

    name: str
    keys: tuple[tuple[str, str], ...]

    def definition(self) -> dict[str, Any]:
        """What creates it, for the client."""
        return {
            "TableName": self.name,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in self.keys],
            "KeySchema": [
                {"AttributeName": name, "KeyType": role}
                for (name, _), role in zip(self.keys, ("HASH", "RANGE"), strict=False)
            ],
            "BillingMode": "PAY_PER_REQUEST",
        }

    def command(self) -> str:
        """What creates it, for a shell."""
        definitions = " ".join(f"AttributeName={name},AttributeType={kind}" for name, kind in self.keys)
        schema = " ".join(
            f"AttributeName={name},KeyType={role}"
            for (name, _), role in zip(self.keys, ("HASH", "RANGE"), strict=False)
        )
        return (
            f"aws dynamodb create-table --table-name {self.name} --billing-mode PAY_PER_REQUEST "
            f"--attribute-definitions {definitions} --key-schema {schema}"
        )


class Tables:
    """Both tables as they are in DynamoDB."""

    def __init__(self, settings: Settings, dynamo: Dynamo, context: dict[str, object]) -> None:
        self._settings = settings
        self._dynamo = dynamo
        self._context = context
        self._tables = (
            KeyedTable(settings.table, ((KEY, "S"),)),
            KeyedTable(settings.contributions, ((KEY, "S"), (MANIFEST, "N"))),
        )

    def exist(self) -> bool:
        return all(self._described(table) is not None for table in self._tables)

    def are_empty(self) -> bool:
        """Whether neither table has an item; one that does not exist has none."""
        return not any(self._has_items(table) for table in self._tables)

    def _has_items(self, table: KeyedTable) -> bool:
        try:
            return bool(self._dynamo.call("scan", TableName=table.name, ConsistentRead=True, Limit=1)["Items"])
        except MissingTable:
            return False

    def identity(self) -> str:
        """Which two tables these are: one that is restored from a copy, or created again, is another one."""
        described = [self._described(table) or {} for table in self._tables]
        return " ".join(str(table.get("TableId") or table.get("CreationDateTime")) for table in described)

    def ensure(self) -> None:
        """Create the tables that are missing, if the settings say so; raises ``SinkRefused`` for other keys."""
        missing = self.check()
        for table in missing:
            try:
                self._dynamo.call("create_table", **table.definition())
            except SinkRefused:
                if self._described(table) is None:
                    raise  # else another process was quicker
        for table in missing:
            self._await(table)
        if missing:
            self.check()

    def check(self) -> list[KeyedTable]:
        """The tables that are to be created; raises ``SinkRefused`` for those that nobody creates, and other keys."""
        missing = []
        for table in self._tables:
            described = self._described(table)
            if described is None:
                missing.append(table)
            elif (keys := _keys(described)) != table.keys:
                raise SinkRefused(
                    f"table {table.name} has the keys {_named(keys)}, and totals need {_named(table.keys)}",
                    next_step="nothing was written; give this sink another table, or delete that one if nobody needs "
                    f"it, and create it: {table.command()}",
                    **self._context,
                )
        if missing and not self._settings.auto_create:
            commands = "; ".join(table.command() for table in missing)
            raise SinkRefused(
                f"{' and '.join(f'table {table.name}' for table in missing)} do not exist"
                if len(missing) > 1
                else f"table {missing[0].name} does not exist",
                next_step=f"nothing was written; set auto_create: true, or run: {commands}",
                **self._context,
            )
        return missing

    def try_rights(self) -> None:
        """Ask for writes with a condition that never holds, so nothing is written; raises when they are not allowed."""
        never = {
            "ConditionExpression": "attribute_exists(#key) AND attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": KEY},
        }
        items = [{KEY: {"S": "doctor"}}, {KEY: {"S": "doctor"}, MANIFEST: {"N": "0"}}]
        for table, item in zip(self._tables, items, strict=True):
            list(self._dynamo.get_each({table.name: [item]}))
            for action in (
                {"Put": {"TableName": table.name, "Item": item, **never}},
                {"Delete": {"TableName": table.name, "Key": item, **never}},
            ):
                try:
                    self._dynamo.write([action])
                except Changed:
                    continue

    def _described(self, table: KeyedTable) -> dict[str, Any] | None:
        try:
            described: dict[str, Any] = self._dynamo.call("describe_table", TableName=table.name)["Table"]
        except MissingTable:
            return None
        return described

    def _await(self, table: KeyedTable) -> None:
        deadline = time.monotonic() + CREATED_S
        while (described := self._described(table)) is None or described["TableStatus"] != "ACTIVE":
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"table {table.name} was not created within {CREATED_S:.0f} s",
                    next_step="nothing was written; look at it in the console of AWS, then: tidemark retry {pipeline}",
                    **self._context,
                )
            time.sleep(0.2)


def _keys(table: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    kinds = {entry["AttributeName"]: entry["AttributeType"] for entry in table["AttributeDefinitions"]}
    schema = sorted(table["KeySchema"], key=lambda entry: entry["KeyType"])  # HASH, then RANGE
    return tuple((entry["AttributeName"], kinds[entry["AttributeName"]]) for entry in schema)


def _named(keys: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in keys)
