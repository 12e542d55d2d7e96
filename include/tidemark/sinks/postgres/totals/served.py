"""The copy of totals in DynamoDB for readers: one item per key, put unless a newer one is there.

PostgreSQL adds up. Every change of a total gives it the next number of a sequence, its revision, in the transaction
that changes it. Whoever serves puts each total whose revision was not served yet; an older one never replaces a newer
one. So a copy may be put again, late, or by two processes at once. An item has the columns of the key, the values,
``_rows`` and ``_revision``; ``_key`` is the values of the key as a JSON array. A total without records keeps an item
with ``_rows`` 0, so that a late copy does not bring it back. The item ``owner`` names the table of totals.
"""

import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.connections.lookup import Lookup, reveal
from tidemark.errors import AccessDenied, SinkRefused, TidemarkError, Unavailable
from tidemark.sinks.aggregates.value_columns import ROWS
from tidemark.sinks.postgres.totals.settings import ServedInDynamoDB
from tidemark.storage.s3_client import NO_KEYS, NO_KEYS_FOUND, NO_RIGHT, Access, access

KEY, REVISION, OWNER = "_key", "_revision", "owner"
AT_ONCE: Final = 16  # items that are put side by side
_READ: Final = 100  # items of one call
_EXACT: Final = Context(prec=200)
_RETRY: Final = "then: tidemark retry {pipeline}"
_NEWER: Final = {
    "ConditionExpression": "attribute_not_exists(#revision) OR #revision < :revision",
    "ExpressionAttributeNames": {"#revision": REVISION},
}
Item = dict[str, dict[str, Any]]


class ServedTable:
    """One table of DynamoDB; ``context`` is that of every error."""

    def __init__(self, settings: ServedInDynamoDB, lookup: Lookup, context: Mapping[str, Any]) -> None:
        self.table = settings.table
        self._auto_create = settings.auto_create
        self._access = access(settings.access(), lookup)
        self._context = {**context, "served": settings.table}

    def ensure(self, owner: str) -> None:
        """Create the table if the settings say so, and claim it; raises ``SinkRefused`` for one of other totals."""
        keys = {"TableName": self.table, "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}]}
        described = self._described()
        if described is None and not self._auto_create:
            raise SinkRefused(
                f"table {self.table} does not exist in DynamoDB",
                next_step=f"set dynamodb.auto_create: true, or create it with the partition key {KEY} (S); {_RETRY}",
                **self._context,
            )
        if described is None:
            attributes = [{"AttributeName": KEY, "AttributeType": "S"}]
            try:
                self._call("create_table", **keys, AttributeDefinitions=attributes, BillingMode="PAY_PER_REQUEST")
            except SinkRefused:
                if self._described() is None:
                    raise  # else another slice was quicker
            _client(self._access, os.getpid()).get_waiter("table_exists").wait(TableName=self.table)
        elif described["KeySchema"] != keys["KeySchema"]:
            raise SinkRefused(
                f"table {self.table} has other keys than {KEY} (S)",
                next_step=f"give dynamodb.table another table; {_RETRY}",
                **self._context,
            )
        item = {KEY: {"S": OWNER}, OWNER: {"S": owner}}
        absent = {"ConditionExpression": "attribute_not_exists(#key)", "ExpressionAttributeNames": {"#key": KEY}}
        if not self._put(item, absent):
            found = self._call("get_item", TableName=self.table, Key={KEY: {"S": OWNER}}, ConsistentRead=True)["Item"]
            if found[OWNER]["S"] != owner:
                raise SinkRefused(
                    f"table {self.table} has the copy of other totals: the two would mix",
                    next_step=f"nothing was put there; give dynamodb.table another table; {_RETRY}",
                    **self._context,
                )

    def identity(self) -> str | None:
        """Which table it is: one that is restored from a copy, or created again, is another one."""
        described = self._described() or {}
        found = described.get("TableId") or described.get("CreationDateTime")
        return None if found is None else str(found)

    def put(self, items: Sequence[Item]) -> None:
        """Put each unless a newer one is there."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda item: self._put(item, _newer(item)), items))

    def items(self) -> Iterator[Item]:
        """All items of totals, also those without records."""
        start: dict[str, Any] = {}
        while True:
            answer = self._call("scan", TableName=self.table, ConsistentRead=True, **start)
            yield from (item for item in answer["Items"] if ROWS in item)
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def has_each(self, items: Iterable[Item]) -> bool:
        """Whether each is there, in whatever revision."""
        wanted = {item[KEY]["S"]: _content(item) for item in items}
        names = list(wanted)
        for first in range(0, len(names), _READ):
            keys = [{KEY: {"S": name}} for name in names[first : first + _READ]]
            while keys:
                request = {self.table: {"Keys": keys, "ConsistentRead": True}}
                answer = self._call("batch_get_item", RequestItems=request)
                for item in answer["Responses"][self.table]:
                    if wanted.pop(item[KEY]["S"], None) != _content(item):
                        return False
                keys = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", [])
        return not wanted

    def _put(self, item: Item, condition: Mapping[str, Any]) -> bool:
        """False when the condition does not hold."""
        try:
            self._call("put_item", TableName=self.table, Item=item, **condition)
        except ClientError:
            return False
        return True

    def _described(self) -> dict[str, Any] | None:
        try:
            described: dict[str, Any] = self._call("describe_table", TableName=self.table)["Table"]
        except _Missing:
            return None
        return described

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One call; boto3 tries again what is busy. A condition that does not hold stays an error of boto3."""
        try:
            answer: dict[str, Any] = getattr(_client(self._access, os.getpid()), operation)(**arguments)
            return answer
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            if code == "ConditionalCheckFailedException":
                raise
            kind, next_step = _cause(error, code)
            what = f"DynamoDB did not do {operation}: {code} {str(error)[:300]}"
            raise kind(what, next_step=f"{next_step}; {_RETRY}", **self._context) from error


class _Missing(SinkRefused):
    """The table does not exist."""


def _cause(error: Exception, code: str) -> tuple[type[TidemarkError], str]:
    if isinstance(error, NO_KEYS_FOUND) or code in NO_KEYS:
        return AccessDenied, "check the keys of dynamodb.connection, of the environment or of the profile"
    if code in NO_RIGHT:
        rights = "DescribeTable, GetItem, BatchGetItem, PutItem and Scan, and CreateTable for auto_create"
        return AccessDenied, f"give these keys the rights dynamodb:{rights}"
    if code == "ResourceNotFoundException":
        return _Missing, "create the table, or set dynamodb.auto_create: true"
    if isinstance(error, ClientError) and error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) < 500:
        return SinkRefused, "correct the table or the rows"
    return Unavailable, "check the network, and dynamodb.region and endpoint_url"


def item_of(row: Mapping[str, Any], key: Sequence[str], values: Sequence[str]) -> Item:
    """The item of a total as PostgreSQL has it, with its revision."""
    columns = {name: _attribute(row[name]) for name in key}
    told = {name: _attribute(row[name]) for name in values if row[name] is not None}
    text = json.dumps([_key_part(column) for column in columns.values()], ensure_ascii=False)
    return {
        KEY: {"S": text}, **columns, **told, ROWS: _attribute(row[ROWS]), REVISION: _attribute(row[REVISION])
    }  # fmt: skip


def _attribute(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": f"{_EXACT.normalize(Decimal(value)):f}"}
        case bytes():
            return {"B": value}
        case datetime():
            return {"S": value.isoformat(timespec="microseconds").replace("+00:00", "Z")}
        case date():
            return {"S": value.isoformat()}
        case _:
            return {"S": str(value)}


def _key_part(column: Mapping[str, Any]) -> Any:
    [(kind, value)] = column.items()
    return b64encode(value).decode() if kind == "B" else value


def _newer(item: Item) -> dict[str, Any]:
    return {**_NEWER, "ExpressionAttributeValues": {":revision": item[REVISION]}}


def same_content(one: Item, other: Item) -> bool:
    """Whether two items differ in their revision at most."""
    return _content(one) == _content(other)


def _content(item: Item) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != REVISION}


@lru_cache(maxsize=8)
def _client(keys: Access, pid: int) -> Any:
    del pid  # a fork must not use the sockets of its parent
    session: Any = boto3.Session(
        aws_access_key_id=reveal(keys.key_id),
        aws_secret_access_key=reveal(keys.secret),
        aws_session_token=reveal(keys.token),
        profile_name=keys.profile,
    )
    retries: Any = {"mode": "standard", "total_max_attempts": 8}
    settings = Config(connect_timeout=5, read_timeout=20, retries=retries, max_pool_connections=AT_ONCE)
    region = keys.region or session.region_name or "us-east-1"
    return session.client("dynamodb", region_name=region, endpoint_url=keys.endpoint_url, config=settings)
