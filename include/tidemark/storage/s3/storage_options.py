"""The options with which the client of deltalake accesses a bucket in the same way as Tidemark's own client."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import NoCredentialsError

from tidemark.connections.lookup import Lookup, Secret
from tidemark.storage.s3.client import access, region_of, session_of, translated


def storage_options(root: str, settings: Mapping[str, Any], lookup: Lookup) -> dict[str, str | Secret]:
    """Return the options of deltalake, with the keys that boto3 finds now. The keys may expire.

    Raises what ``access`` raises, and ``AccessDenied`` if boto3 finds no keys.
    """
    del root  # deltalake takes the bucket from the address
    given = access(settings, lookup)
    options: dict[str, str | Secret] = {
        "conditional_put": "etag",  # a commit fails if its version exists already
        "aws_s3_allow_unsafe_rename": "false",  # set here, because an environment variable could allow it
        "aws_virtual_hosted_style_request": str(not given.path_style).lower(),
    }
    with translated("open", str(given.endpoint_url or "S3")):
        session = session_of(given)
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        keys = credentials.get_frozen_credentials()
    options |= {"aws_access_key_id": Secret(keys.access_key), "aws_secret_access_key": Secret(keys.secret_key)}
    options["aws_region"] = region_of(given, session)
    if keys.token:
        options["aws_session_token"] = Secret(keys.token)
    if given.endpoint_url:
        options["aws_endpoint_url"] = given.endpoint_url
        options["aws_allow_http"] = str(given.endpoint_url.startswith("http://")).lower()
    if settings.get("server_side_encryption"):
        options["aws_server_side_encryption"] = str(settings["server_side_encryption"])
    if settings.get("kms_key_id"):
        options["aws_sse_kms_key_id"] = str(settings["kms_key_id"])
    if settings.get("checksums"):
        options["aws_checksum_algorithm"] = "SHA256"
    return options
