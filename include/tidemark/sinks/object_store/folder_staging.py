"""Stages in a store, in folders named ``_staging/MANIFEST/ATTEMPT``."""

from typing import Any

from tidemark.paths import STAGING, manifest_staging, staging_folder
from tidemark.sinks.base import Staging
from tidemark.storage.base import ObjectStore


class FolderStaging(Staging):
    """The folder ``_staging`` of a lake. All its sinks share it, because ids of manifests are unique in a database."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def places(self) -> list[ObjectStore]:
        return [self.store]

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        del manifest_id, attempt  # they are in the order, and every sink's staging folder is named after them
        return {"root": self.store.root}

    def manifests(self) -> list[int]:
        """Return the manifests with a staging folder, even an empty one, ascending."""
        return self._numbers(STAGING)

    def attempts(self, manifest_id: int) -> list[int]:
        return self._numbers(manifest_staging(manifest_id))

    def clear(self, manifest_id: int, attempt: int) -> None:
        self.store.delete_folder(staging_folder(manifest_id, attempt))

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self.store.folders(folder) if name.isdecimal())
