"""Files that a test stages in a store, and moves as publishing does."""

import os

import pytest

from tidemark.errors import WorkFailed
from tidemark.storage.base import Move, ObjectStore


def stage(store: ObjectStore, key: str, content: bytes, *, final: bool = False) -> Move:
    """Stage a file in an attempt's folder; ``final``: the store may upload it to its key."""
    move = Move(f"_staging/1/0001/{key}", f"raw/{key}", len(content))
    with store.create(move.staged, move.key if final else None) as file:
        file.write(content)
    return move


def nothing() -> None:
    pass


def assert_moved_and_removed(
    store: ObjectStore, size: int, *, refused_with: str | None = None, final: bool = False
) -> None:
    """A file comes to its key, once however often it is moved, and goes; moved again then, it is missed."""
    content = os.urandom(size)
    move = stage(store, "a", content, final=final)
    store.move_each([move], nothing, nothing)
    store.move(move.staged, move.key, move.size)
    assert store.get("raw/a") == content
    with store.open("raw/a") as file:
        assert file.read() == content
    store.delete_folder("_staging")
    store.move(move.staged, move.key, move.size)  # done before
    assert [*store.list()] == [("raw/a", size)]
    assert (store.has({"raw/a": size}), store.has({"raw/a": size + 1}), store.has({"raw/b": 0})) == (True, False, False)
    store.delete(["raw/a", "raw/never"])
    assert store.get("raw/a") is None
    assert [*store.list()] == []
    with pytest.raises(WorkFailed, match=refused_with):
        store.move(move.staged, move.key, move.size)
