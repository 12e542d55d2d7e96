"""Access to an S3 store, for sinks that keep files there. Keys come from a connection, not from the pipeline file."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool, ValidationInfo, field_validator

from tidemark.config import values
from tidemark.config.base import Section, wrong_at
from tidemark.config.values import wrong
from tidemark.paths import is_remote
from tidemark.storage.s3.address import is_s3


class ServerSideEncryption(StrEnum):
    """The way in which the store encrypts objects. If it is not set, the default of the bucket applies."""

    AES256 = "AES256"
    KMS = "aws:kms"


class S3Settings(Section):
    """Access to the store of an ``s3://`` root. For a setting of None, the connection decides, or else boto3's own
    sources.
    """

    endpoint_url: Annotated[str, AfterValidator(values.endpoint)] | None = Field(
        default=None,
        description="A store that is not AWS, such as `https://minio:9000`.",
        examples=["https://minio:9000"],
    )
    region: str | None = Field(
        default=None,
        description="Its region, else that of the connection or profile, else `us-east-1`.",
        examples=["eu-central-1"],
    )
    path_style: StrictBool | None = Field(
        default=None,
        description="Whether the bucket is part of the path, not of the host's name: yes with an `endpoint_url`, else "
        "boto3 chooses.",
    )
    server_side_encryption: ServerSideEncryption | None = Field(
        default=None, description="How the store encrypts objects, else the bucket's default."
    )
    kms_key_id: str | None = Field(default=None, description="The key for `aws:kms`, else the account's default.")
    checksums: StrictBool = Field(
        default=False,
        description="Whether objects are sent with a checksum: buckets with Object Lock and a default retention need "
        "it; some stores refuse it.",
    )

    @field_validator("kms_key_id")
    @classmethod
    def _for_kms(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key is not None and info.data.get("server_side_encryption") is not ServerSideEncryption.KMS:
            raise wrong("needs server_side_encryption: aws:kms")
        return key

    def access(self, connection: str | None) -> dict[str, Any]:
        """Return the access to a store, without secrets: these settings, and the id of the connection."""
        settings = self.model_dump(mode="json", exclude_none=True)
        return {**settings, "connection": connection} if connection else settings


def refuse_keys_without_store(section: Section, place: str, noun: str) -> None:
    """Refuse ``connection`` for a place that is a folder, and ``s3`` for one that is not in S3. ``noun`` is the word
    for the place in messages, such as "root".
    """
    if "connection" in section.model_fields_set and not is_remote(place):
        raise wrong_at("connection", f"is for a {noun} such as s3://bucket/prefix; this one is a folder")
    if "s3" in section.model_fields_set and not is_s3(place):
        raise wrong_at("s3", f"is for a {noun} such as s3://bucket/prefix; this one is none")
