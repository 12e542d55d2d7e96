"""The staging of a sink whose target is not a folder: it has its own root in a folder that many sinks share.

The root is named after pipeline and sink. Like a lake it belongs to one manifest database, because ids of manifests and
numbers of attempts are unique only in one database.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidemark.connections.lookup import Lookup
from tidemark.errors import ForeignLake
from tidemark.paths import STAGING, sink_folder
from tidemark.sinks.base import Owner
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.owner_file import claim_in, hand_over_in, owner_in
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store


class OwnStaging(FolderStaging):
    """The root of one sink of one pipeline in the folder ``shared``, as a store.

    Only the database in its owner file lists or removes anything in it; without that file nobody does. Each call reads
    the file, because another database may have adopted the target. If it adopts between this check and the removal,
    files of its attempt with the same number may be removed. Nothing wrong is published then: staged files are compared
    with the receipt, so that attempt fails.
    """

    def __init__(
        self, shared: str, pipeline_name: str, sink_name: str, settings: Mapping[str, Any], lookup: Lookup
    ) -> None:
        self._pipeline_name = pipeline_name
        self._sink_name = sink_name
        self._folder = sink_folder(pipeline_name, sink_name)
        self._shared = open_store(shared, settings, lookup)
        self._open: Callable[[str], ObjectStore] = lambda folder: open_store(f"{shared}/{folder}", settings, lookup)
        super().__init__(self._open(self._folder))
        self._database_id: str | None = None  # that works with it, once it has said so

    def claim(self, database_id: str) -> None:
        self._database_id = database_id
        owner = owner_in(self.store)
        if owner is None:
            claim_in(self.store, database_id)
            owner = owner_in(self.store)
        if owner is None or owner.database != database_id:
            raise self._foreign(owner, database_id)

    def refuse_foreign(self, database_id: str) -> None:
        self._database_id = database_id
        owner = owner_in(self.store)
        if owner is not None and owner.database != database_id:
            raise self._foreign(owner, database_id)

    def hand_over(self, owner: Owner) -> None:
        self._database_id = owner.database
        before = owner_in(self.store)
        if before is not None and before.database not in (owner.database, *owner.before):
            raise self._foreign(before, owner.database)
        hand_over_in(self.store, owner)

    def _foreign(self, owner: Owner | None, database_id: str) -> ForeignLake:
        return ForeignLake(
            f"the staging folder {self.store.root} belongs to another manifest database ({owner and owner.database}), "
            f"this one is {database_id}",
            next_step="nothing was changed; check TIDEMARK_DB; then give the sink another folder (staging), in a "
            "renaming another name; or remove that folder when its database is gone for good",
            pipeline=self._pipeline_name,
            sink=self._sink_name,
        )

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        return {"staging": super().order(manifest_id, attempt)["root"]}

    def manifests(self) -> list[int]:
        return super().manifests() if self._is_own() else []

    def attempts(self, manifest_id: int) -> list[int]:
        return super().attempts(manifest_id) if self._is_own() else []

    def clear(self, manifest_id: int, attempt: int) -> None:
        if self._is_own():
            super().clear(manifest_id, attempt)

    def _is_own(self) -> bool:
        owner = owner_in(self.store)
        return owner is not None and owner.database == self._database_id

    def rename(self, pipeline_name: str, sink_name: str, owner: Owner) -> None:
        """Claim this root, and remove that of an old name, with what dead attempts have staged there.

        ``owner`` is the owner of the target; a root of another database is not touched. The owner file of the old root
        is removed last, so this may be repeated after a crash at any point.
        """
        before = sink_folder(pipeline_name, sink_name)
        if before == self._folder:
            return
        self.claim(owner.database)
        old = owner_in(self._open(before))
        if old is not None and old.database == owner.database:
            self._shared.delete_folder(f"{before}/{STAGING}")
            self._shared.delete_folder(before)
