"""Reads and writes the two files about a root. One names the manifest database that owns the root, because ids of
manifests are unique only within one database. The other has the name by which sinks write there."""

import json
from collections.abc import Iterable
from contextlib import suppress

from tidemark.errors import LakeConflict, TidemarkError
from tidemark.model.receipt import MALFORMED
from tidemark.paths import OWNER, TARGET
from tidemark.sinks.base import Owner
from tidemark.storage.base import ObjectStore


def owner_in(store: ObjectStore) -> Owner | None:
    content = store.get(OWNER)
    if content is None:
        return None
    try:
        owner = json.loads(content)
        return Owner(str(owner["database"]), tuple(owner.get("before", ())))
    except MALFORMED:
        raise LakeConflict(
            f"{store.root}/{OWNER}, which says who writes there, is damaged",
            next_step="nothing was written; restore it from a copy; or, where no other database writes, remove it, "
            "then: tidemark db adopt {pipeline} --why TEXT",
        ) from None


def claim_in(store: ObjectStore, database_id: str, *, replaces: bool = False) -> None:
    """Make a database the owner, unless there is one; ``replaces``: a check has shown that the store supports
    ``replace``."""
    store.put_if_absent(OWNER, _content_of(Owner(database_id), replaces=replaces))


def replaces_in(store: ObjectStore) -> bool | None:
    """Return whether the owner's file says that the store supports ``replace``; None without an owner."""
    content = None if owner_in(store) is None else store.get(OWNER)
    return None if content is None else bool(json.loads(content).get("replaces"))


def note_replaces_in(store: ObjectStore) -> None:
    """Note in the owner's file that the store supports ``replace``. If the owner changes at that moment, or later, the
    note is lost, and the store is checked again."""
    before = store.get(OWNER)
    if before is not None:
        store.replace(OWNER, before, json.dumps({**json.loads(before), "replaces": True}).encode())


def hand_over_in(store: ObjectStore, owner: Owner) -> None:
    store.put(OWNER, _content_of(owner))


def registered_targets_in(store: ObjectStore) -> set[str]:
    """Return the target name that was noted last; empty if there is no note, or it is damaged."""
    try:
        return {str(json.loads(store.get(TARGET) or b"")["target"])}
    except MALFORMED:
        return set()


def note_target_in(store: ObjectStore, target: str) -> None:
    content = {"target": target, "about": "the sinks that write here know this root by this name"}
    store.put(TARGET, json.dumps(content).encode())


def claimed_around(store: ObjectStore) -> str | None:
    """Return the nearest outer folder of a root in which another sink has noted that it writes; None without one."""
    for outer in store.around():
        with suppress(TidemarkError):  # a user who may not read there writes nothing there either
            if outer.get(OWNER) is not None or outer.get(TARGET) is not None:
                return outer.root
    return None


def claimed_inside(keys: Iterable[str]) -> set[str]:
    """Return the folders below a root in which other sinks have noted that they write. ``keys`` are all keys of the
    root."""
    ends = tuple(f"/{note}" for note in (OWNER, TARGET))
    return {key.removesuffix(end) for key in keys if key.endswith(ends) for end in ends if key.endswith(end)}


def _content_of(owner: Owner, *, replaces: bool = False) -> bytes:
    content = {"database": owner.database, "about": "this root is written by one Tidemark database"}
    before, seen = {"before": owner.before}, {"replaces": True}
    return json.dumps({**content, **(before if owner.before else {}), **(seen if replaces else {})}).encode()
