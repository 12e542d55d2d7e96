"""Lists the staging folder of a sink, by the names of its folders."""

from tidemark.paths import STAGING, manifest_staging
from tidemark.storage.base import ObjectStore


def staged_manifests(store: ObjectStore) -> list[int]:
    """Ascending; also manifests with an empty folder."""
    return _numbers(store, STAGING)


def staged_attempts(store: ObjectStore, manifest_id: int) -> list[int]:
    return _numbers(store, manifest_staging(manifest_id))


def _numbers(store: ObjectStore, folder: str) -> list[int]:
    return sorted(int(name) for name in store.folders(folder) if name.isdecimal())
