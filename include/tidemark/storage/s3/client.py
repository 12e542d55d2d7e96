"""The client of S3: its keys and settings, and the translation of its errors.

Executors use it too, so it imports only the standard library and boto3.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.exceptions import ConnectionError as NoConnection

from tidemark.connections.lookup import Lookup, Secret, reveal, variable_of
from tidemark.errors import (
    THEN_RETRY,
    AccessDenied,
    ConfigurationError,
    SinkRefused,
    TidemarkError,
    Unavailable,
    WorkFailed,
)
from tidemark.storage.base import is_address

COPIES = 16  # requests of one publish at once; each waits about 50 ms for the store and needs no core
NO_UPLOAD = "NoSuchUpload"  # the upload was aborted or completed
_EXTRA = {"region_name", "endpoint_url", "aws_session_token", "profile_name"}
_KEYS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"}
# Codes of Glue, DynamoDB and other services with a JSON API.
NO_KEYS = {
    "ExpiredTokenException", "IncompleteSignatureException", "InvalidSignatureException",
    "MissingAuthenticationTokenException", "UnrecognizedClientException",
}  # fmt: skip
NO_RIGHT = {"AccessDenied", "AccessDeniedException"}
NO_KEYS_FOUND = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)
_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}
_WANTS_CHECKSUM = ("Content-MD5", "x-amz-checksum-", "x-amz-sdk-checksum")
_LATER = {"SlowDown", "Throttling", "ThrottlingException", "RequestTimeout", "RequestLimitExceeded", "OperationAborted",
          "ConditionalRequestConflict", "429"}  # fmt: skip


class UploadEnded(WorkFailed):
    """An upload no longer exists: it was completed, or aborted by a newer attempt or a rule of the bucket."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"the upload of {uri} no longer exists: another process has ended it",
            next_step="nothing is published half. A newer attempt at work goes on instead; when there is none: "
            "tidemark retry {pipeline}. If that happens again: does a rule of the bucket remove unfinished uploads "
            "sooner than an attempt ends?",
        )


@dataclass(frozen=True)
class Access:
    """The keys and address of a store; None leaves a value to boto3: environment, profile, the machine's role."""

    key_id: Secret | None = None
    secret: Secret | None = None
    token: Secret | None = None
    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    path_style: bool = False
    checksums: bool = False


def access(settings: Mapping[str, Any], lookup: Lookup) -> Access:
    """Combine the settings of a sink with the connection that they name; the sink's settings have priority.

    Raises ``ConfigurationError`` with names of keys, never values.
    """
    conn_id = settings.get("connection")
    connection = _connection(conn_id, lookup) if conn_id else {}
    extra: Mapping[str, Any] = connection.get("extra") or {}
    endpoint = settings.get("endpoint_url") or extra.get("endpoint_url") or None
    if endpoint and not is_address(str(endpoint)):
        raise ConfigurationError(
            f"the endpoint_url of connection {conn_id} is not the address of a store",
            next_step="write it as https://HOST:PORT; put keys into login and password",
            connection=conn_id,
        )
    path_style = settings.get("path_style")
    return Access(
        key_id=_secret(connection.get("login")),
        secret=_secret(connection.get("password")),
        token=_secret(extra.get("aws_session_token")),
        profile=extra.get("profile_name") or None,
        region=settings.get("region") or extra.get("region_name") or None,
        endpoint_url=endpoint,
        path_style=bool(endpoint) if path_style is None else path_style,
        checksums=bool(settings.get("checksums")),
    )


def _connection(conn_id: str, lookup: Lookup) -> Mapping[str, Any]:
    connection = lookup(conn_id)
    if connection is None:
        raise ConfigurationError(
            f"the S3 connection {conn_id} does not exist",
            next_step=f"""set {variable_of(conn_id)}='{{"conn_type": "aws", "login": KEY_ID, "password": SECRET}}', """
            "or add it in Airflow under Admin, Connections, or name no connection in the sink",
            connection=conn_id,
        )
    unknown = sorted((connection.get("extra") or {}).keys() - _EXTRA)
    if unknown or bool(connection.get("login")) != bool(connection.get("password")):
        what = f"has unknown keys in its extra: {', '.join(unknown)}" if unknown else "has only one half of a key"
        raise ConfigurationError(
            f"the S3 connection {conn_id} {what}",
            next_step="give login (the key id) and password (the secret key), or neither; "
            f"allowed in its extra: {', '.join(sorted(_EXTRA))}",
            connection=conn_id,
        )
    return connection


def _secret(value: object) -> Secret | None:
    return Secret(str(value)) if value not in (None, "") else None


def client(access: Access) -> Any:
    """Return a client for these keys. It is kept for the process, because creating one takes 0.3 s. Threads may share
    it, forks may not."""
    return _client(access, os.getpid())


@lru_cache(maxsize=8)
def _client(access: Access, pid: int) -> Any:
    del pid  # a fork must not use the sockets of its parent
    settings = Config(
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=2 * COPIES,
        retries={"mode": "standard", "total_max_attempts": 3},
        # Older stores do not support checksums in headers. TLS protects the bytes, and sizes are compared afterwards.
        request_checksum_calculation="when_supported" if access.checksums else "when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if access.path_style else "auto"},
    )
    return client_of("s3", access, settings)


def client_of(service: str, access: Access, settings: Config) -> Any:
    """Return a new client of a service of AWS, such as ``s3``; threads may share it, forks may not."""
    session = session_of(access)
    region = region_of(access, session)
    return session.client(service, region_name=region, endpoint_url=access.endpoint_url, config=settings)


def session_of(access: Access) -> Any:
    return boto3.Session(
        aws_access_key_id=reveal(access.key_id),
        aws_secret_access_key=reveal(access.secret),
        aws_session_token=reveal(access.token),
        profile_name=access.profile,
    )


def region_of(access: Access, session: Any) -> str:
    return str(access.region or session.region_name or "us-east-1")


@contextmanager
def translated(what: str, uri: str) -> Iterator[None]:
    """Turn errors of S3 and its client into ours, by code; ``what`` is a verb for ``uri``, such as "read"."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise _translate(error, what, uri) from error


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """Return the HTTP status of the answer; 0 if it is not known."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_gone(error: ClientError) -> bool:
    """Return whether the object does not exist; false if the bucket does not exist."""
    return code_of(error) in ("NoSuchKey", "404")


def are_keys_refused(error: Exception) -> bool:
    """Return whether an AWS service refuses the keys of its client, or the client has none."""
    if isinstance(error, ClientError):
        return code_of(error) in NO_KEYS | NO_RIGHT
    return isinstance(error, NO_KEYS_FOUND)


def _translate(error: ClientError | BotoCoreError, what: str, uri: str) -> TidemarkError:
    if isinstance(error, ClientError) and code_of(error) == NO_UPLOAD:
        return UploadEnded(uri)
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        status = status_of(error)
        refusal = f"S3 refused to {what} {uri}: {code_of(error)}, {str(details.get('Message', ''))[:400]}"
        return error_of_code(code_of(error), status, refusal)
    if isinstance(error, NO_KEYS_FOUND):
        return AccessDenied(
            f"no keys were found to {what} {uri}: {error}",
            next_step="name a connection of type aws in the sink, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile; executors need the same",
        )
    if isinstance(error, NoConnection | HTTPClientError):
        return Unavailable(
            f"S3 did not answer the request to {what} {uri}: {str(error)[:200]}",
            next_step="check the network, and endpoint_url of the sink" + THEN_RETRY,
        )
    return WorkFailed(f"S3's client cannot {what} {uri}: {str(error)[:200]}", next_step="tidemark retry {pipeline}")


def error_of_code(code: str, status: int, what: str) -> TidemarkError:
    """Return our error for an error code of S3, or for the HTTP status if the code is not known."""
    if code in _KEYS:
        return AccessDenied(what, next_step="check the keys of the connection, environment or profile: are they of "
                            "this store, whole and not expired? Then: tidemark retry {pipeline}")  # fmt: skip
    if code == "RequestTimeTooSkewed":
        return AccessDenied(what, next_step="the clock of this machine is off: set it (NTP)" + THEN_RETRY)  # fmt: skip
    if code == "NoSuchBucket":
        return SinkRefused(
            what,
            next_step="create the bucket, or correct the address that the sink writes to; Tidemark creates no buckets",
        )
    if code in _REGION or status == 301:
        return SinkRefused(what, next_step="the bucket is in another region: set region of the sink")
    if code.startswith("KMS") or (code in NO_RIGHT and "kms:" in what):
        return SinkRefused(what, next_step="check kms_key_id of the sink, or the bucket's own key, and the right to "
                           "use it: kms:GenerateDataKey to write and kms:Decrypt to read" + THEN_RETRY)  # fmt: skip
    if any(word in what for word in _WANTS_CHECKSUM):
        return SinkRefused(what, next_step="the bucket takes objects with a checksum only, as with Object Lock: set "
                           "checksums: true in s3 of the sink" + THEN_RETRY)  # fmt: skip
    if code in _LATER or (status >= 500 and code != "NotImplemented"):
        return Unavailable(what, next_step="the store is busy or out of order; tidemark retry {pipeline}")
    if status in (401, 403):
        return AccessDenied(what, next_step="give these keys s3:ListBucket and ListBucketMultipartUploads on the "
                            "bucket, and GetObject, PutObject, DeleteObject, AbortMultipartUpload below the prefix. "
                            "Where they have them, the bucket's policy may demand encryption: server_side_encryption "
                            "in s3 of the sink" + THEN_RETRY)  # fmt: skip
    return SinkRefused(what, next_step="the store does not do what a lake needs, or not as asked: check "
                       "s3 of the sink" + THEN_RETRY)  # fmt: skip
