"""Addresses of folders in S3 buckets: ``s3://bucket/prefix``."""

import re
from typing import Final

S3: Final = "s3://"
EXAMPLE: Final = "s3://bucket/prefix"
OTHER_SCHEMES: Final = ("s3a", "s3n")  # Hadoop's


def is_s3(root: str) -> bool:
    """Return whether a root is in an S3 bucket."""
    return root.startswith(S3)


def problem_with_address(address: str) -> str | None:
    """Return what is wrong with an address without a slash at its end; None if it is right."""
    bucket, *folders = address.removeprefix(S3).split("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        return f"must name a bucket: 3 to 63 lower-case letters, digits, dots and -, such as {EXAMPLE}"
    if any(not re.fullmatch(r"[A-Za-z0-9._=+!*'()-]+", folder) or folder.strip(".") == "" for folder in folders):
        return f"must be {EXAMPLE} with a prefix of letters, digits and ._=+!*'()-, no folder of it empty"
    return None
