"""Calls of DynamoDB: boto3 retries when it is busy, and errors are translated.

Every write has a condition, so that repeating it does no harm. A call whose answer is lost is simply made again.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from tidemark.errors import THEN_RETRY, AccessDenied, SinkRefused, TidemarkError, Unavailable, WorkFailed
from tidemark.storage.s3.client import NO_KEYS, NO_KEYS_FOUND, NO_RIGHT, Access, client_of, code_of, status_of

AT_ONCE: Final = 16  # calls at the same time; each waits about 5 ms for DynamoDB
TRIES: Final = 8  # tries of one call, by boto3, with pauses that grow to 20 s
# Every right that ``DynamoCopy`` uses; docs/configuration.md and a test list the same.
RIGHTS: Final = ("DescribeTable", "GetItem", "BatchGetItem", "PutItem", "Scan")
RIGHT_TO_CREATE: Final = "CreateTable"
_BUSY = {
    "InternalServerError", "LimitExceededException", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
    "ResourceInUseException", "ServiceUnavailable", "ThrottlingException",
}  # fmt: skip


class Missing(SinkRefused):
    """The table does not exist."""


class ConditionFailed(Exception):
    """The condition of a write does not hold."""


class Dynamo:
    """The service, with the access of one copy, and the context of its errors."""

    def __init__(self, access: Access, context: Mapping[str, Any]) -> None:
        self._access = access
        self._context = context

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one call. Raises ``ConditionFailed``, ``Missing``, or another error of Tidemark."""
        try:
            answer: dict[str, Any] = getattr(_client(self._access, os.getpid()), operation)(**arguments)
            return answer
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and code_of(error) == "ConditionalCheckFailedException":
                raise ConditionFailed from error
            raise self._translated(error, operation) from error

    def _translated(self, error: ClientError | BotoCoreError, operation: str) -> TidemarkError:
        message = str(error)[:300]
        if isinstance(error, NO_KEYS_FOUND):
            return AccessDenied(
                f"no keys were found for DynamoDB: {message}",
                next_step="name a connection of type aws in served_in.dynamodb, or set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or a profile" + THEN_RETRY,
                **self._context,
            )
        if isinstance(error, NoConnection | HTTPClientError):
            return Unavailable(
                f"DynamoDB did not answer {operation}: {message}",
                next_step="check the network, and region and endpoint_url of served_in.dynamodb" + THEN_RETRY,
                **self._context,
            )
        if not isinstance(error, ClientError):
            return WorkFailed(
                f"the client of DynamoDB failed: {message}", next_step=THEN_RETRY.removeprefix("; "), **self._context
            )
        kind, step = _cause(code_of(error), status_of(error))
        return kind(f"DynamoDB refused {operation}: {message}", next_step=step + THEN_RETRY, **self._context)


def _cause(code: str, status: int) -> tuple[type[TidemarkError], str]:
    if code == "ResourceNotFoundException":
        return Missing, "create the table, or set auto_create of served_in.dynamodb"
    if code in NO_KEYS:
        return AccessDenied, "check the keys of the connection, environment or profile: are they whole and not expired?"
    if code in NO_RIGHT:
        rights = ", ".join(RIGHTS)
        return AccessDenied, f"give these keys dynamodb:{rights} on the table, and {RIGHT_TO_CREATE} for auto_create"
    if code in _BUSY or status >= 500:
        return Unavailable, "DynamoDB is busy: wait, raise the capacity of the table, or make it on-demand"
    return SinkRefused, "what was put stays, and is not put twice: correct the table or the rows"


@lru_cache(maxsize=8)
def _client(access: Access, pid: int) -> Any:
    del pid  # a fork must not use the sockets of its parent
    retries: Any = {"mode": "standard", "total_max_attempts": TRIES}
    settings = Config(connect_timeout=5, read_timeout=20, retries=retries, max_pool_connections=AT_ONCE)
    return client_of("dynamodb", access, settings)
