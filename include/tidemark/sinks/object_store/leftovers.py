"""Finds objects and records of dead attempts in a lake that are no longer needed."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.model.manifest import Manifest, ManifestState
from tidemark.paths import ObjectName, RecordName
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.object_store.audit import strays
from tidemark.sinks.object_store.published_files import opened
from tidemark.storage.base import ObjectStore


@dataclass(frozen=True)
class Leftover:
    """An object of a dead attempt that is no longer needed. ``manifest_id`` is None if the database does not know the
    manifest."""

    key: str
    manifest_id: int | None
    attempt: int


def leftovers(expected: Expected, ledger: Ledger, store: ObjectStore) -> list[Leftover]:
    """Return leftovers of attempts at done manifests, and leftovers of attempts that a restored database does not know.

    Objects of unfinished manifests are not included, because a retry may still need them.
    """
    own = expected.own()
    done: list[Leftover] = []
    unknown: dict[str, ObjectName] = {}
    for key, manifest_id in strays(expected, ledger.name, store, own):
        name = ObjectName.parse(key)
        if manifest_id is None and name is not None:
            unknown[key] = name
        elif manifest_id is not None and own[manifest_id].state is ManifestState.DONE:
            left_by = name or RecordName.parse(key)
            assert left_by is not None, "its name has the manifest id"
            done.append(Leftover(key, manifest_id, left_by.attempt))
    forgotten = _forgotten(ledger, store, own, unknown)
    return [*done, *(Leftover(key, None, unknown[key].attempt) for key in forgotten)]


def _forgotten(
    ledger: Ledger, store: ObjectStore, own: Mapping[int, Manifest], unknown: Mapping[str, ObjectName]
) -> list[str]:
    """Return those of the ``unknown`` objects that belong to manifests without a record, if all their rows are
    published by others.

    Such a manifest was never published: the database was restored from a copy without it, and plans the offsets again.
    """
    recorded = {name.manifest_id for name in ledger.records(own=False)} if unknown else set()
    spans: dict[tuple[str, int], list[range]] = {}
    for manifest in own.values():
        for covered in manifest.ranges if manifest.published(ledger.name) else ():
            spans.setdefault((covered.at.topic, covered.at.partition), []).append(range(covered.start, covered.end))
    return [key for key, name in unknown.items() if name.manifest_id not in recorded and _within(spans, store, key)]


def _within(spans: Mapping[tuple[str, int], list[range]], store: ObjectStore, key: str) -> bool:
    """Return whether the offsets of all rows of an object lie in the spans of their partition; false if it cannot be
    read."""
    try:
        with opened(store, key) as (written, content):
            table = written.places(content)
    except OSError:
        return False
    places = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return all(any(offset in span for span in spans.get((topic, partition), ())) for topic, partition, offset in places)
