"""The copy of totals in a table of DynamoDB: an item is put unless one with the same or a higher revision exists.

The item ``owner`` names the totals to which the table belongs.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from tidemark.connections.lookup import Lookup
from tidemark.errors import THEN_RETRY, SinkRefused, Unavailable
from tidemark.providers.dynamodb.client import AT_ONCE, ConditionFailed, Dynamo, Missing
from tidemark.providers.dynamodb.items import (
    DIGITS,
    KEY,
    LONGEST_ITEM,
    OWNER,
    REVISION,
    Item,
    counted,
    digest_of,
    has_many_digits,
    item_of,
    key_text,
    revision_of,
    rows_of,
    size_of,
)
from tidemark.providers.dynamodb.settings import LONGEST_KEY, Settings
from tidemark.providers.postgres.aggregates.value_columns import ROWS
from tidemark.providers.postgres.totals.copies import Comparison, CopyOfTotals, Total
from tidemark.storage.s3.client import access

CREATED_S: Final = 60.0  # the longest wait for a table that is being created
PAGE: Final = 100  # most items in one BatchGetItem
_NEWER: Final = {
    "ConditionExpression": "attribute_not_exists(#revision) OR #revision < :revision",
    "ExpressionAttributeNames": {"#revision": REVISION},
}
_ABSENT: Final = {
    "ConditionExpression": "attribute_not_exists(#key)",
    "ExpressionAttributeNames": {"#key": KEY},
}
_NEVER: Final = {
    "ConditionExpression": "attribute_exists(#key) AND attribute_not_exists(#key)",
    "ExpressionAttributeNames": {"#key": KEY},
}


class DynamoCopy(CopyOfTotals):
    """A copy of totals in one table. ``context`` is added to every error."""

    longest_key = LONGEST_KEY
    longest_total = LONGEST_ITEM
    most_digits = DIGITS

    def __init__(self, settings: Settings, dynamo: Dynamo, context: Mapping[str, Any]) -> None:
        super().__init__(settings.place)
        self._table = settings.table
        self._auto_create = settings.auto_create
        self._dynamo = dynamo
        self._context = context

    # the owner

    def check(self) -> None:
        described = self._described()
        if described is None:
            self._refuse_missing()
            return
        if (keys := _keys(described)) != f"{KEY} (S)":
            raise SinkRefused(
                f"table {self._table} in DynamoDB has the keys {keys}, and a copy of totals needs {KEY} (S)",
                next_step="nothing was written; give served_in.dynamodb another table, or delete that one if nobody "
                f"needs it, and run: {self._command()}",
                **self._context,
            )
        if self._owner() is None:
            self._refuse_items()

    def _refuse_missing(self) -> None:
        if not self._auto_create:
            raise SinkRefused(
                f"table {self._table} does not exist in DynamoDB",
                next_step=f"nothing was written; set auto_create: true in served_in.dynamodb, or run: "
                f"{self._command()}" + THEN_RETRY,
                **self._context,
            )

    def _refuse_items(self) -> None:
        """Raise ``SinkRefused`` if a table without an owner has items.

        Their revisions could keep totals out, and readers would see items that Tidemark does not know.
        """
        items = self._dynamo.call("scan", TableName=self._table, ConsistentRead=True, Limit=1)["Items"]
        if not items:
            return
        what = "has items, and nothing says which totals they are a copy of"
        step = "delete them, or the table"
        if "S" in items[0].get(REVISION, {}):
            what = "has totals of release 0.3 or older, which added up in DynamoDB itself"
            step = f"delete it and {self._table}_contributions when nobody needs them any more"
        raise SinkRefused(
            f"table {self._table} in DynamoDB {what}",
            next_step=f"nothing was written; give served_in.dynamodb another table, or {step}" + THEN_RETRY,
            **self._context,
        )

    def claim(self, owner: str) -> None:
        if self._described() is None:
            self._refuse_missing()
            self._create()
        self._await()
        item = {KEY: {"S": OWNER}, OWNER: {"S": owner}}
        with suppress(ConditionFailed):  # the table has an owner already, perhaps this one
            self._dynamo.call("put_item", TableName=self._table, Item=item, **_ABSENT)
            return
        if self._owner() != owner:
            raise SinkRefused(
                f"table {self._table} in DynamoDB has the copy of other totals: the two would mix",
                next_step="nothing was put there; give served_in.dynamodb another table, or delete that one when its "
                "totals are gone" + THEN_RETRY,
                **self._context,
            )

    def _owner(self) -> str | None:
        key = {KEY: {"S": OWNER}}
        item = self._dynamo.call("get_item", TableName=self._table, Key=key, ConsistentRead=True).get("Item", {})
        owner = item.get(OWNER, {}).get("S")
        return None if owner is None else str(owner)

    def _create(self) -> None:
        try:
            self._dynamo.call(
                "create_table",
                TableName=self._table,
                AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
                KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except Unavailable:
            if self._described() is None:
                raise  # if the table exists now, another slice has created it

    def _command(self) -> str:
        """Return the shell command that creates the table."""
        return (
            f"aws dynamodb create-table --table-name {self._table} --billing-mode PAY_PER_REQUEST "
            f"--attribute-definitions AttributeName={KEY},AttributeType=S --key-schema AttributeName={KEY},KeyType=HASH"
        )

    def _await(self) -> None:
        deadline = time.monotonic() + CREATED_S
        while (described := self._described()) is None or described["TableStatus"] == "CREATING":
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"table {self._table} was not created in DynamoDB within {CREATED_S:.0f} s",
                    next_step="nothing was written; look at it in the console of AWS" + THEN_RETRY,
                    **self._context,
                )
            time.sleep(0.2)

    def identity(self) -> str | None:
        described = self._described()
        return None if described is None else str(described.get("TableId") or described["CreationDateTime"])

    def _described(self) -> dict[str, Any] | None:
        try:
            described: dict[str, Any] = self._dynamo.call("describe_table", TableName=self._table)["Table"]
        except Missing:
            return None
        return described

    def rehearse(self) -> str:
        """Test each right with a call that changes nothing."""
        self.check()
        if self._described() is None:
            return f"table {self._table} does not exist in DynamoDB: the first attempt creates it (not tried)"
        item = {KEY: {"S": "doctor"}}
        list(self._read([item]))
        self._dynamo.call("scan", TableName=self._table, ConsistentRead=True, Limit=1)
        with suppress(ConditionFailed):
            self._dynamo.call("put_item", TableName=self._table, Item=item, **_NEVER)
        return f"keys and rights of table {self._table} in DynamoDB are what an attempt needs (nothing was written)"

    # the items

    def problem_with(self, total: Total) -> str | None:
        if (length := len(key_text(total).encode())) > LONGEST_KEY:
            return f"the key of a total has {length:,} bytes, and DynamoDB takes {LONGEST_KEY:,}"
        for name, value in total.values.items():
            if has_many_digits(value):
                return f"{name} of a total has more than the {DIGITS} digits that DynamoDB keeps"
        if (size := size_of(item_of(total))) > LONGEST_ITEM:
            return f"a total has {size:,} bytes, and DynamoDB takes {LONGEST_ITEM:,}"
        return None

    def key_of(self, total: Total) -> str:
        return key_text(total)

    def put(self, totals: Sequence[Total]) -> None:
        self._put_newer(map(item_of, totals))

    def empty(self, keys: Iterable[str], revision: int) -> None:
        self._put_newer({KEY: {"S": key}, **counted(0, revision)} for key in keys)

    def _put_newer(self, items: Iterable[Item]) -> None:
        def put(item: Item) -> None:
            values = {"ExpressionAttributeValues": {":revision": item[REVISION]}}
            with suppress(ConditionFailed):  # the table has this revision or a newer one: put by another, or just now
                self._dynamo.call("put_item", TableName=self._table, Item=item, **_NEWER, **values)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(put, items))

    def differing(self, totals: Sequence[Total]) -> list[Total]:
        differing: list[Total] = []
        for first in range(0, len(totals), PAGE):
            by_key = {key_text(total): total for total in totals[first : first + PAGE]}
            items = {item[KEY]["S"]: item for item in self._read([{KEY: {"S": key}} for key in by_key])}
            differing += [total for key, total in by_key.items() if not _is_item_of(items.get(key), _expected(total))]
        return differing

    def _read(self, keys: Sequence[Item]) -> Iterator[Item]:
        """Yield the items that exist. DynamoDB may answer for only a part of the keys; then it is asked for the others
        again."""
        wanted = list(keys)
        while wanted:
            request = {self._table: {"Keys": wanted, "ConsistentRead": True}}
            answer = self._dynamo.call("batch_get_item", RequestItems=request)
            yield from answer["Responses"][self._table]
            wanted = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])

    def compare(self, totals: Iterable[Total]) -> Comparison:
        """Compare all items with the totals. Keeps about 200 bytes for each total in memory: its key and a digest."""
        expected = {key_text(total): _expected(total) for total in totals}
        highest = 0
        differing, strays = set(), set()
        for item in self._scan():
            key = item[KEY]["S"]
            highest = max(highest, revision_of(item))
            if key not in expected:
                strays |= {key} if rows_of(item) else set()
            elif not _is_item_of(item, expected.pop(key)):
                differing.add(key)
        missing = {key for key, digest in expected.items() if not _is_item_of(None, digest)}
        return Comparison(highest, frozenset(differing | missing), frozenset(strays))

    def _scan(self) -> Iterator[Item]:
        """Yield all items except the owner; none if the table does not exist."""
        start: dict[str, Any] = {}
        while True:
            try:
                answer = self._dynamo.call("scan", TableName=self._table, ConsistentRead=True, **start)
            except Missing:
                return
            yield from (item for item in answer["Items"] if item[KEY]["S"] != OWNER)
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def _expected(total: Total) -> bytes | None:
    """Return the digest of a total's item; None if the total has no records left."""
    return digest_of(item_of(total)) if total.rows else None


def _is_item_of(item: Item | None, expected: bytes | None) -> bool:
    """Return whether an item is as expected. If no total is expected, the item must be absent or have no records."""
    if expected is None or item is None:
        return expected is None and (item is None or (ROWS in item and not rows_of(item)))
    return digest_of(item) == expected


def _keys(table: Mapping[str, Any]) -> str:
    kinds = {entry["AttributeName"]: entry["AttributeType"] for entry in table["AttributeDefinitions"]}
    return ", ".join(f"{entry['AttributeName']} ({kinds[entry['AttributeName']]})" for entry in table["KeySchema"])


def open_copy(settings: Settings, lookup: Lookup, context: Mapping[str, Any]) -> DynamoCopy:
    return DynamoCopy(settings, Dynamo(access(settings.access(), lookup), context), context)
