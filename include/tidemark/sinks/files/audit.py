"""The audit of a lake: every published object is there as recorded, and nothing else is."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, ManifestState
from tidemark.paths import OWNER, RECORDS, STAGING, SUFFIXES, ObjectName, RecordName
from tidemark.receipt import PublishedObject, Receipt
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.storage.base import ObjectStore

Place = tuple[str, int, int]  # topic, partition, offset

_SUFFIXES = tuple(f".{one}" for one in SUFFIXES)


def differences_of_files(
    database: ManifestDatabase, sink: Sink, store: ObjectStore, manifests: Sequence[Manifest], *, deep: bool
) -> Iterator[Difference]:
    """What lies in the lake and should not, and the other way round; ``deep`` compares rows and offsets too."""
    published = database.published_objects(sink.pipeline_name)
    found = dict(store.list())
    by_manifest: dict[int, list[PublishedObject]] = {}
    for manifest_id, _, one in published:
        if one.sink == sink.name and _still_published(database, manifest_id, one, found):
            by_manifest.setdefault(manifest_id, []).append(one)
            yield from _object(sink, store, manifest_id, one, found.get(one.path), deep=deep)
    for manifest in manifests if deep else ():
        if manifest.published(sink.name):
            yield from _offsets(database, sink, store, manifest, by_manifest.get(manifest.id, []))
    own = {manifest.id: manifest for manifest in database.manifests(sink.pipeline_name)}
    for key, made_for in strays(database, sink, store, own):
        yield _stray(sink, key, own[made_for] if made_for else None)


def _still_published(database: ManifestDatabase, manifest_id: int, one: PublishedObject, found: dict[str, int]) -> bool:
    """An object that is not there any more may have been replaced since publications were read."""
    if one.path in found:
        return True
    return any(now.path == one.path for _, _, now in database.published_objects(ids=[manifest_id]))


def strays(
    database: ManifestDatabase, sink: Sink, store: ObjectStore, own: Mapping[int, Manifest]
) -> list[tuple[str, int | None]]:
    """(key, the manifest of ``own`` it was made for, or None) of what is there and should not be.

    Files are listed after the manifests and before anything else is asked: what an attempt puts or publishes meanwhile
    is not taken for a stray.
    """
    keys = {key for key, _ in store.list()}
    published = database.published_objects(sink.pipeline_name)
    expected = {one.path for _, _, one in published if one.sink == sink.name}
    return _strays(database, sink, keys - expected, own)


def _strays(
    database: ManifestDatabase, sink: Sink, keys: set[str], own: Mapping[int, Manifest]
) -> list[tuple[str, int | None]]:
    names = {
        key: RecordName.parse(key) or ObjectName.parse(key) for key in sorted(keys) if _is_seen(key, sink.pipeline_name)
    }
    foreign = sorted({name.manifest_id for name in names.values() if name and name.manifest_id not in own})
    others = {one.id for one in database.manifests(ids=foreign)} if foreign else set()
    found: list[tuple[str, int | None]] = []
    for key, name in names.items():
        manifest = own.get(name.manifest_id) if name else None
        if name is None or manifest is None:
            found += [(key, None)] if name is None or name.manifest_id not in others else []
        elif manifest.attempt < name.attempt <= database.newest_attempt(manifest.id):
            pass  # it has begun since the manifests were read
        elif not _belongs(name, manifest, sink.name):
            found.append((key, manifest.id))
    return found


def _is_seen(key: str, pipeline_name: str) -> bool:
    """Whether some reader would look at it: records, files, and hidden files that are data, which DuckDB reads."""
    if key == OWNER or key.startswith(f"{STAGING}/"):
        return False
    path = PurePosixPath(key)
    if key.startswith(f"{RECORDS}/"):
        record = RecordName.parse(key)
        return record is not None and record.pipeline_name == pipeline_name
    return path.name.endswith(_SUFFIXES) or not path.name.startswith((".", "_"))


def _belongs(name: ObjectName | RecordName, manifest: Manifest, sink: str) -> bool:
    published = manifest.published(sink)
    if manifest.alive and manifest.attempt == name.attempt:
        return True  # an attempt at work is putting it there
    return isinstance(name, RecordName) and published is not None and published.attempt == name.attempt


def _object(
    sink: Sink, store: ObjectStore, manifest_id: int, one: PublishedObject, size: int | None, *, deep: bool
) -> Iterator[Difference]:
    mend = f"tidemark replay {sink.pipeline_name} --manifest {manifest_id}"
    if size is None:
        yield Difference(manifest_id, f"{one.path} is missing ({one.rows:,} rows)", mend)
        return
    if size != one.bytes:
        yield Difference(manifest_id, f"{one.path} has {size:,} bytes instead of {one.bytes:,}", mend)
        return
    try:
        written = format_of(one.path)
        with store.open(one.path) as file:
            rows = written.count(file)
        if deep:
            with store.open(one.path) as file:
                digest = str(written.digest(file))
        else:
            digest = one.digest
    except (Unreadable, OSError) as unreadable:
        yield Difference(manifest_id, f"{one.path} cannot be read: {str(unreadable)[:120]}", mend)
        return
    if rows != one.rows:
        yield Difference(manifest_id, f"{one.path} has {rows:,} rows instead of {one.rows:,}", mend)
    elif digest != one.digest:
        yield Difference(manifest_id, f"{one.path} holds other rows than were written (digest {digest})", mend)


def _offsets(
    database: ManifestDatabase,
    sink: Sink,
    store: ObjectStore,
    manifest: Manifest,
    objects: Sequence[PublishedObject],
) -> Iterator[Difference]:
    """The offsets in the files, as a set, against the manifest's ranges: nothing twice, nothing from outside, nothing
    in a gap, and as many as were published. So none is missing, unless there are more gaps than the receipt lists."""
    seen: Counter[Place] = Counter()
    for one in objects:
        try:
            with store.open(one.path) as file:
                table = format_of(one.path).places(file)
        except (Unreadable, OSError):
            continue  # said already
        seen.update(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    publication = manifest.published(sink.name)
    assert publication is not None
    receipt = database.receipt(manifest.id, publication.attempt)
    spans = {(one.at.topic, one.at.partition): range(one.start, one.end) for one in manifest.ranges}
    wrong = {
        "twice": [place for place, times in seen.items() if times > 1],
        "of other ranges": [place for place in seen if place[2] not in spans.get(place[:2], range(0))],
        "at offsets where none was read": [place for place in _in_gaps(receipt) if place in seen],
    }
    mend = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}"
    for how, places in wrong.items():
        if places:
            topic, partition, offset = places[0]
            what = f"{len(places):,} records {how}, first {topic}-{partition} offset {offset}"
            yield Difference(manifest.id, what, mend)
    kept = publication.counts.written + publication.counts.dead_lettered
    if len(seen) != kept:
        yield Difference(manifest.id, f"{len(seen):,} records where {kept:,} were published", mend)


def _in_gaps(receipt: Receipt | None) -> Iterator[Place]:
    """Every offset of the gaps that a receipt lists; never more than its ranges span."""
    for one in receipt.partitions if receipt else ():
        for start, end in one.gaps:
            yield from ((one.topic, one.partition, offset) for offset in range(start, end))


def _stray(sink: Sink, key: str, manifest: Manifest | None) -> Difference:
    if manifest is None:
        repair = f"tidemark repair {sink.pipeline_name} --why TEXT, if a restored database forgot it; else "
        ours = repair if ObjectName.parse(key) else ""
        return Difference(None, f"{key} belongs to no manifest", f"{ours}remove it, or move it out of the lake")
    if manifest.state is not ManifestState.DONE:
        return Difference(
            manifest.id, f"{key} was left by an attempt that is not published", f"tidemark retry {sink.pipeline_name}"
        )
    return Difference(
        manifest.id, f"{key} is not part of what was published", f"tidemark repair {sink.pipeline_name} --why TEXT"
    )
