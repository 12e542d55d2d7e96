"""What lies in a lake and is certain to be of no use: objects and records of dead attempts."""

from collections.abc import Mapping

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, ManifestState
from tidemark.paths import ObjectName
from tidemark.sinks.base import Sink
from tidemark.sinks.files.audit import strays
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.storage.base import ObjectStore


def leftovers(database: ManifestDatabase, sink: Sink, store: ObjectStore) -> list[tuple[str, int | None]]:
    """What attempts at done manifests left, and attempts that a restored database forgot (their manifest is None).

    What an unfinished manifest has, its retry may still need.
    """
    own = {one.id: one for one in database.manifests(sink.pipeline_name)}
    found = strays(database, sink, store, own)
    done = [(key, one) for key, one in found if one is not None and own[one].state is ManifestState.DONE]
    unknown = {key: name for key, one in found if one is None and (name := ObjectName.parse(key))}
    return [*done, *((key, None) for key in _forgotten(sink, store, own, unknown))]


def _forgotten(
    sink: Sink, store: ObjectStore, own: Mapping[int, Manifest], unknown: Mapping[str, ObjectName]
) -> list[str]:
    """Those of the objects whose manifest left no record, and whose every record is published by another one.

    Such a manifest was never published: the database was restored from a copy without it, and planned anew.
    """
    recorded = {name.manifest_id for name in sink.records(own=False)} if unknown else set()
    published = [one for one in own.values() if one.published(sink.name)]
    spans: dict[tuple[str, int], list[range]] = {}
    for covered in (each for one in published for each in one.ranges):
        spans.setdefault((covered.at.topic, covered.at.partition), []).append(range(covered.start, covered.end))
    return [
        key
        for key, name in unknown.items()
        if name.manifest_id not in recorded
        if all(any(offset in span for span in spans.get(place, ())) for place, offset in _places(store, key))
    ]


def _places(store: ObjectStore, key: str) -> list[tuple[tuple[str, int], int]]:
    """Topic, partition and offset of each row of an object; none is known when it cannot be read."""
    try:
        with store.open(key) as file:
            table = format_of(key).places(file)
    except (Unreadable, OSError):
        return [(("", -1), -1)]
    topics, partitions, offsets = (table[name].to_pylist() for name in table.column_names)
    return [((topic, partition), offset) for topic, partition, offset in zip(topics, partitions, offsets, strict=True)]
