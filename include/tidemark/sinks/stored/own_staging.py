"""Where a sink stages whose target is no folder: a root of its own in a folder that many sinks share.

The root is named after pipeline and sink, and belongs to one manifest database as a lake does: ids of manifests and
numbers of attempts are unique in one database only.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tidemark.connections import Lookup
from tidemark.errors import ForeignLake
from tidemark.failpoints import failpoint
from tidemark.paths import DEAD_LETTERS, OWNER, sink_folder
from tidemark.sinks.base import Owner
from tidemark.sinks.stored.owner_file import claim_in, hand_over_in, owner_in
from tidemark.sinks.stored.renamed_folder import rename_folder
from tidemark.storage.base import Move
from tidemark.storage.open import open_store


class OwnStaging:
    """The root of one sink of one pipeline in the folder ``shared``, as a store."""

    def __init__(
        self, shared: str, pipeline_name: str, sink_name: str, settings: Mapping[str, Any], lookup: Lookup
    ) -> None:
        self._pipeline_name = pipeline_name
        self._sink_name = sink_name
        self._folder = sink_folder(pipeline_name, sink_name)
        self._shared = open_store(shared, settings, lookup)
        self.store = open_store(f"{shared}/{self._folder}", settings, lookup)

    def claim(self, database_id: str) -> None:
        """Make a database the owner of the root, or raise ``ForeignLake``; may be repeated."""
        owner = owner_in(self.store)
        if owner is None:
            claim_in(self.store, database_id)
            owner = owner_in(self.store)
        if owner is None or owner.database != database_id:
            raise self._foreign(owner, database_id)

    def hand_over(self, owner: Owner) -> None:
        """Make another database the owner; raises ``ForeignLake`` when the root belongs to a third one."""
        before = owner_in(self.store)
        if before is not None and before.database not in (owner.database, *owner.before):
            raise self._foreign(before, owner.database)
        hand_over_in(self.store, owner)

    def _foreign(self, owner: Owner | None, database_id: str) -> ForeignLake:
        return ForeignLake(
            f"the staging folder {self.store.root} belongs to another manifest database ({owner and owner.database}), "
            f"this one is {database_id}",
            next_step="nothing was staged; check TIDEMARK_DB; then give the sink another folder (staging), or remove "
            "that one when its database is gone for good",
            pipeline=self._pipeline_name,
            sink=self._sink_name,
        )

    def rename(self, pipeline_name: str, sink_name: str) -> None:
        """Take over the root of an old name: its owner and what it keeps; what dead attempts have staged is removed."""
        before = sink_folder(pipeline_name, sink_name)

        def renamed(key: str) -> str | None:
            name = key.removeprefix(f"{before}/")
            return f"{self._folder}/{name}" if name == OWNER or name.startswith(f"{DEAD_LETTERS}/") else None

        if before != self._folder:
            rename_folder(self._shared, before, renamed)

    def take_dead_letters(self, folder: str, is_own: Callable[[str], bool]) -> None:
        """Move dead letters of this sink here from a folder that several sinks may have used; may be repeated.

        ``is_own`` is asked with each key, which is the same here as there.
        """
        listed = [(key, size) for key, size in self._shared.list(f"{folder}/{DEAD_LETTERS}")]
        names = {key: key.removeprefix(f"{folder}/") for key, _ in listed}
        moves = [Move(key, f"{self._folder}/{names[key]}", size) for key, size in listed if is_own(names[key])]
        self._shared.move_each(moves, lambda: None, lambda: failpoint("rename.mid"))
        self._shared.sync(move.key for move in moves)
        self._shared.delete(move.staged for move in moves)
