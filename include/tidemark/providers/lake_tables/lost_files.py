"""Finds data files that a table names and that are missing or have another size."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tidemark.providers.lake_tables.evidence import TableEvidence
from tidemark.storage.base import ObjectStore

F = TypeVar("F")  # the class of files in the library of the format
NO_MANIFEST: Final = (0, 0)  # the ids of manifests begin with 1
ANY_MANIFEST: Final = (1, 2**63)


@dataclass(frozen=True)
class LostFile(Generic[F]):
    """A data file that cannot be read, because it, or a delete file of its rows, is missing or has another size.

    ``manifests`` are the lowest and the highest manifest that may have rows in it.
    """

    file: F
    what: str
    manifests: tuple[int, int] = ANY_MANIFEST

    def may_have_rows_of(self, manifest_id: int) -> bool:
        return self.manifests[0] <= manifest_id <= self.manifests[1]


def wrong_files(store: ObjectStore, sizes: Mapping[str, int], *, listed: bool) -> dict[str, str]:
    """Return what is wrong with the files that do not have these sizes in the store, by key.

    With ``listed`` the store lists all its files; without it, it is asked for each file.
    """
    if not listed and store.has(sizes):
        return {}
    actual = dict(store.list()) if listed else {key: store.size(key) for key in sizes}
    return {
        key: wrong_file(f"{store.root}/{key}", size, actual.get(key))
        for key, size in sizes.items()
        if actual.get(key) != size
    }


def wrong_file(path: str, size: int, actual: int | None) -> str:
    if actual is None:
        return f"a file of the table is gone: {path}"
    return f"a file of the table has {actual:,} bytes instead of {size:,}: {path}"


def evidence_without(evidence: TableEvidence, lost: Iterable[LostFile[F]]) -> TableEvidence:
    """Return the evidence without the manifests that may have had rows in these lost files.

    So an audit reports these manifests until they are replayed.
    """
    lost = list(lost)
    kept = {
        manifest_id: attempt
        for manifest_id, attempt in evidence.attempts.items()
        if not any(file.may_have_rows_of(manifest_id) for file in lost)
    }
    return TableEvidence(evidence.number, kept, {id_: evidence.merges[id_] for id_ in kept if id_ in evidence.merges})
