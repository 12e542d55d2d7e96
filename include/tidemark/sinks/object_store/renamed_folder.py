"""Renames a folder of a sink that has the pipeline's name in its path, when the pipeline is renamed."""

from collections.abc import Callable

from tidemark.failpoints import failpoint
from tidemark.storage.base import Move, ObjectStore


def rename_folder(store: ObjectStore, folder: str, new_key: Callable[[str], str | None]) -> None:
    """Move each object below a folder to its new key. Then remove the folder, with the objects that get no new key."""
    moves = [Move(key, to, size) for key, size in store.list(folder) if (to := new_key(key))]
    store.move_each(moves, lambda: None, lambda: failpoint("rename.mid"))
    store.sync(move.key for move in moves)
    store.delete_folder(folder)
