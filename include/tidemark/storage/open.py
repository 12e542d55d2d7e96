"""Opens the store of a root."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.storage.base import ObjectStore, is_s3
from tidemark.storage.local import LocalStore


def open_store(root: str, s3: Mapping[str, Any] | None = None, lookup: Lookup = from_environment) -> ObjectStore:
    """Open the store of a root, a folder or an ``s3://`` address, without a request yet. ``s3`` has the settings of the
    sink's store and the id of the connection."""
    if not is_s3(root):
        return LocalStore(root)
    # Imported late: an executor needs boto3 only to write to S3.
    return cast("ObjectStore", import_module("tidemark.storage.s3").S3Store(root, s3 or {}, lookup))
