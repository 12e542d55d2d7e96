"""Opens the store of a root."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.storage.base import ObjectStore, is_s3
from tidemark.storage.local import LocalStore


def open_store(root: str, s3: Mapping[str, Any] | None = None, lookup: Lookup = from_environment) -> ObjectStore:
    """The store of a folder or an address of a pipeline file; ``s3`` are the settings of the sink's store, with the
    id of the connection. No request is made yet."""
    if not is_s3(root):
        return LocalStore(root)
    # Imported late: an executor needs boto3 only to write to S3.
    return cast("ObjectStore", import_module("tidemark.storage.s3").S3Store(root, s3 or {}, lookup))
