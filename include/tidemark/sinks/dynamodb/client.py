"""Calls of DynamoDB: what is busy is tried again, and errors become ours.

Every write is a ``TransactWriteItems`` with conditions that make a second try harmless. So a call without an answer is
simply made again.
"""

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from tidemark.connections import reveal
from tidemark.errors import AccessDenied, SinkRefused, TidemarkError, Unavailable, WorkFailed
from tidemark.sinks.dynamodb.items import Item
from tidemark.storage.s3_client import NO_KEYS, NO_KEYS_FOUND, NO_RIGHT, Access

PATIENCE_S = 30.0  # with calls that DynamoDB is too busy for
LONGEST_PAUSE_S = 2.0
RIGHTS = (
    "dynamodb:DescribeTable, GetItem, BatchGetItem, Query, Scan, PutItem, UpdateItem, DeleteItem and "
    "ConditionCheckItem on both tables, and CreateTable for auto_create"
)
_BUSY = {
    "InternalServerError", "LimitExceededException", "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ServiceUnavailable", "Throttling",
    "ThrottlingError", "ThrottlingException", "TransactionConflict", "TransactionConflictException",
    "TransactionInProgressException",
}  # fmt: skip
_NO_ANSWER = (NoConnection, HTTPClientError)

Action = dict[str, dict[str, Any]]


class Changed(Exception):
    """The condition of a write does not hold: somebody has changed the item; ``first``: that of the first action."""

    def __init__(self, *, first: bool) -> None:
        self.first = first
        super().__init__()


class MissingTable(SinkRefused):
    """A table does not exist."""


class Dynamo:
    """The service, with access and context of one sink. Reads see all that was written before them."""

    def __init__(self, access: Access, context: Mapping[str, object]) -> None:
        self._access = access
        self._context = context

    def get(self, table: str, key: Item) -> Item | None:
        item: Item | None = self.call("get_item", TableName=table, Key=key, ConsistentRead=True).get("Item")
        return item

    def get_each(self, keys: Mapping[str, Sequence[Item]]) -> Iterator[tuple[str, Item]]:
        """(table, item) of those that exist; at most 100 keys."""
        wanted: dict[str, Any] = {
            table: {"Keys": list(of_table), "ConsistentRead": True} for table, of_table in keys.items() if of_table
        }
        for number in range(1_000):
            if not wanted:
                return
            answer = self.call("batch_get_item", RequestItems=wanted)
            for table, items in answer["Responses"].items():
                yield from ((table, item) for item in items)
            wanted = answer.get("UnprocessedKeys") or {}
            if wanted:
                _pause(number)
        raise Unavailable("DynamoDB answers only parts of what is read", next_step=_RETRY, **self._context)

    def get_together(self, places: Sequence[tuple[str, Item]]) -> list[Item | None]:
        """The items at some (table, key) as they are between two transactions; at most 10, as an item has 400 KB."""
        wanted = [{"Get": {"TableName": table, "Key": key}} for table, key in places]
        return [answer.get("Item") for answer in self.call("transact_get_items", TransactItems=wanted)["Responses"]]

    def query(
        self, table: str, condition: str, values: Item, names: Mapping[str, str], wanted: str = ""
    ) -> Iterator[Item]:
        """The items of one partition key, in order of the sort key; all attributes, or the ``wanted`` ones."""
        projection = {"ProjectionExpression": wanted} if wanted else {}
        return self._pages(
            "query", TableName=table, ConsistentRead=True, KeyConditionExpression=condition,
            ExpressionAttributeValues=values, ExpressionAttributeNames=dict(names), **projection,
        )  # fmt: skip

    def scan(self, table: str) -> Iterator[Item]:
        return self._pages("scan", TableName=table, ConsistentRead=True)

    def _pages(self, operation: str, **arguments: Any) -> Iterator[Item]:
        start: dict[str, Any] = {}
        while True:
            answer = self.call(operation, **arguments, **start)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            following = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
            if following == start:
                raise Unavailable(
                    f"DynamoDB answers {operation} with the same page again", next_step=_RETRY, **self._context
                )
            start = following

    def write(self, actions: Sequence[Action]) -> None:
        """All or nothing; raises ``Changed`` when a condition does not hold."""
        self.call("transact_write_items", TransactItems=list(actions))

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One call, tried again while DynamoDB is busy or does not answer, at most for ``PATIENCE_S``."""
        deadline = time.monotonic() + PATIENCE_S
        number = 0
        while True:
            try:
                answer: dict[str, Any] = getattr(_client(self._access, os.getpid()), operation)(**arguments)
                return answer
            except (ClientError, BotoCoreError) as error:
                codes = _codes(error)
                if "ConditionalCheckFailed" in codes:
                    raise Changed(first=codes[0] == "ConditionalCheckFailed") from error
                busy = isinstance(error, _NO_ANSWER) or _is_busy(error, codes)
                if not busy or time.monotonic() > deadline:
                    kind, what, next_step = _cause(error, codes, operation)
                    raise kind(what, next_step=next_step, **self._context) from error
            _pause(number)
            number += 1


def _cause(
    error: ClientError | BotoCoreError, codes: Sequence[str], operation: str
) -> tuple[type[TidemarkError], str, str]:
    """What kind of error it is, what happened, and the next step."""
    answer = f"{', '.join(codes)} {str(error)[:300]}" if codes else str(error)[:300]
    what = f"DynamoDB refused {operation}: {answer}"
    if isinstance(error, NO_KEYS_FOUND):
        keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        step = f"name a connection of type aws in the sink, or set {keys}"
        return AccessDenied, f"no keys were found for DynamoDB: {error}", step
    if isinstance(error, _NO_ANSWER):
        what = f"DynamoDB did not answer {operation} for {PATIENCE_S:.0f} s: {str(error)[:200]}"
        return Unavailable, what, f"check the network, and region and endpoint_url of the sink; {_RETRY}"
    if not isinstance(error, ClientError):
        return WorkFailed, f"the client of DynamoDB failed: {answer}", _RETRY
    if "ResourceNotFoundException" in codes:
        return MissingTable, what, f"create the tables, or set auto_create; {_RETRY}"
    if NO_KEYS & set(codes):
        step = "check the keys of the connection, environment or profile: are they whole and not expired?"
        return AccessDenied, what, f"{step} {_RETRY}"
    if NO_RIGHT & set(codes):
        return AccessDenied, what, f"give these keys {RIGHTS}; {_RETRY}"
    if _is_busy(error, codes):
        what = f"DynamoDB was too busy for {operation} for {PATIENCE_S:.0f} s: {answer}"
        return Unavailable, what, f"raise the capacity of both tables, or make them on-demand; {_RETRY}"
    return SinkRefused, what, f"what was put stays, and is not put twice: correct the table or the rows; {_RETRY}"


_RETRY = "then: tidemark retry {pipeline}"


def _codes(error: ClientError | BotoCoreError) -> list[str]:
    """The code of an error; of a transaction that was cancelled, those of its actions."""
    if not isinstance(error, ClientError):
        return []
    reasons = [reason.get("Code", "None") for reason in error.response.get("CancellationReasons", ())]
    if any(code != "None" for code in reasons):
        return reasons
    return [str(error.response.get("Error", {}).get("Code", ""))]


def _is_busy(error: ClientError | BotoCoreError, codes: Sequence[str]) -> bool:
    answer = error.response.get("ResponseMetadata", {}) if isinstance(error, ClientError) else {}
    return bool(_BUSY & set(codes)) or int(answer.get("HTTPStatusCode", 0)) >= 500


def _pause(number: int) -> None:
    time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.05 * 2 ** min(number, 10))))  # noqa: S311 - no secret


@lru_cache(maxsize=8)
def _client(access: Access, pid: int) -> Any:
    del pid  # a fork must not use the sockets of its parent
    session: Any = boto3.Session(
        aws_access_key_id=reveal(access.key_id),
        aws_secret_access_key=reveal(access.secret),
        aws_session_token=reveal(access.token),
        profile_name=access.profile,
    )
    settings = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 2})
    region = access.region or session.region_name or "us-east-1"
    return session.client("dynamodb", region_name=region, endpoint_url=access.endpoint_url, config=settings)
