"""Opens the store of a root."""

from collections.abc import Mapping
from typing import Any, cast

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.kinds import STORES
from tidemark.paths import scheme_of
from tidemark.storage.base import ObjectStore
from tidemark.storage.local import LocalStore


def open_store(root: str, settings: Mapping[str, Any] | None = None, lookup: Lookup = from_environment) -> ObjectStore:
    """Open the store of a root, a folder or an address, without a request yet. ``settings`` has the settings of the
    sink's store and the id of the connection."""
    scheme = scheme_of(root)
    if not scheme:
        return LocalStore(root)
    # Imported late: an executor needs the library of a store only to write there.
    return cast("ObjectStore", STORES.module(scheme, "store").open_store(root, settings or {}, lookup))
