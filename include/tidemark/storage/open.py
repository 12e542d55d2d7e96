"""The one door to where objects lie."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from tidemark.connections import Lookup, from_environment
from tidemark.storage.base import ObjectStore, is_s3
from tidemark.storage.local import LocalStore


def open_store(root: str, s3: Mapping[str, Any] | None = None, lookup: Lookup = from_environment) -> ObjectStore:
    """The store of a root as the pipeline file names it; ``s3`` are the settings of ``sinks.files.s3``, with the id of
    the connection. Nothing is asked yet."""
    if not is_s3(root):
        return LocalStore(root)
    # By name and late: an executor needs boto3 only to write to S3.
    return cast("ObjectStore", import_module("tidemark.storage.s3").S3Store(root, s3 or {}, lookup))
