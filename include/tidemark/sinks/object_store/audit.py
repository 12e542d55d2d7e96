"""Audits a lake: it must hold every published object as recorded, and nothing else."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tidemark.model.manifest import Manifest, ManifestState, Publication, count_of
from tidemark.model.problem import Problem
from tidemark.model.receipt import PublishedObject, Receipt
from tidemark.paths import OWNER, RECORDS, STAGING, SUFFIXES, ObjectName, RecordName
from tidemark.sinks.base import Expected, Output, mended_by_replay
from tidemark.sinks.object_store.owner_file import claimed_around, claimed_inside
from tidemark.sinks.object_store.published_files import file_difference, opened
from tidemark.storage.base import ObjectStore, real_root

Place = tuple[str, int, int]  # topic, partition, offset

_SUFFIXES = tuple(f".{suffix}" for suffix in SUFFIXES)


def differences_of_files(expected: Expected, output: Output, store: ObjectStore, *, deep: bool) -> Iterator[Problem]:
    """Yield what is in the lake and should not be, and what is missing; ``deep`` also compares rows and offsets."""
    published = expected.objects()
    sizes = dict(store.list())
    by_manifest: dict[int, list[PublishedObject]] = {}
    for manifest_id, object_ in published:
        if _still_published(expected, manifest_id, object_, sizes):
            by_manifest.setdefault(manifest_id, []).append(object_)
            difference = file_difference(output.pipeline_name, manifest_id, object_, sizes, store, deep=deep)
            if difference:
                yield difference
    for manifest, publication in expected.published() if deep else ():
        yield from _offsets(expected, output, store, manifest, publication, by_manifest.get(manifest.id, []))
    own = expected.own()
    for key, stray_of in strays(expected, output.name, store, own):
        yield _stray(output.pipeline_name, key, own[stray_of] if stray_of else None)


def _still_published(expected: Expected, manifest_id: int, object_: PublishedObject, sizes: Mapping[str, int]) -> bool:
    """Return false if the object is missing because it was replaced after the publications were read."""
    return object_.path in sizes or any(now.path == object_.path for _, now in expected.objects(manifest_id))


def strays(
    expected: Expected, sink_name: str, store: ObjectStore, own: Mapping[int, Manifest]
) -> list[tuple[str, int | None]]:
    """Return (key, id of its manifest in ``own`` or None) of every stray: what should not be in the lake.

    Files in the folder of another sink are no strays. The caller reads ``own`` first; then this lists the files, then
    asks the database. So the output of an attempt that puts or publishes meanwhile is not taken for a stray.
    """
    keys = {key for key, _ in store.list()}
    inner = tuple(f"{folder}/" for folder in claimed_inside(keys))
    paths = {object_.path for _, object_ in expected.objects()}
    own_keys = {key for key in keys - paths - _kept(expected, store) if not key.startswith(inner)}
    strays = _strays(expected, sink_name, own_keys, own)
    is_inside = any(manifest_id is None for _, manifest_id in strays) and claimed_around(store) is not None
    # If this root lies in the folder of another sink, a file of no manifest may belong to that sink.
    return [(key, manifest_id) for key, manifest_id in strays if manifest_id is not None or not is_inside]


def _kept(expected: Expected, store: ObjectStore) -> set[str]:
    """Return the keys below this root that retired sinks of the pipeline have published: these files stay."""
    below = f"{real_root(store.root)}/"
    places = {f"{real_root(root)}/{key}" for root, key in expected.published_by_retired()}
    return {place.removeprefix(below) for place in places if place.startswith(below)}


def _strays(
    expected: Expected, sink_name: str, keys: set[str], own: Mapping[int, Manifest]
) -> list[tuple[str, int | None]]:
    own_names = expected.pipeline_names()
    names = {key: RecordName.parse(key) or ObjectName.parse(key) for key in sorted(keys) if _is_seen(key, own_names)}
    unknown = expected.unknown({name.manifest_id for name in names.values() if name} - own.keys())
    strays: list[tuple[str, int | None]] = []
    for key, name in names.items():
        if name is None or name.manifest_id in unknown:
            strays.append((key, None))
        elif name.manifest_id in own and not _belongs(expected, name, own[name.manifest_id], sink_name):
            strays.append((key, name.manifest_id))
    return strays


def _is_seen(key: str, own_names: Collection[str]) -> bool:
    """Return whether a reader would see a file: records, files, and also hidden files with rows, which DuckDB reads.

    Only records of this pipeline count, also under a former name, because a paused attempt may have written them.
    """
    if key == OWNER or key.startswith(f"{STAGING}/"):
        return False
    path = PurePosixPath(key)
    if key.startswith(f"{RECORDS}/"):
        record = RecordName.parse(key)
        return record is not None and record.pipeline_name in own_names
    return path.name.endswith(_SUFFIXES) or not path.name.startswith((".", "_"))


def _belongs(expected: Expected, name: ObjectName | RecordName, manifest: Manifest, sink_name: str) -> bool:
    if isinstance(name, RecordName) and name.pipeline_name != manifest.pipeline_name:
        return False
    if manifest.attempt < name.attempt <= expected.newest_attempt(manifest.id):
        return True  # the attempt started after the manifests were read
    if manifest.alive and manifest.attempt == name.attempt:
        return True  # the attempt is running and has put the file
    published = manifest.published(sink_name)
    return isinstance(name, RecordName) and published is not None and published.attempt == name.attempt


def _offsets(
    expected: Expected,
    output: Output,
    store: ObjectStore,
    manifest: Manifest,
    publication: Publication,
    objects: Sequence[PublishedObject],
) -> Iterator[Problem]:
    """Compare the offsets in the files with the manifest's ranges.

    No offset may occur twice (except for records with several rows), lie outside of the ranges, or lie in a gap. There
    must be as many rows as were published. Then none is missing, unless there are more gaps than the receipt lists.
    """
    seen: Counter[Place] = Counter()
    for object_ in objects:
        try:
            with opened(store, object_.path) as (written, content):
                table = written.places(content)
        except OSError:
            continue  # ``file_difference`` has reported it
        seen.update(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    receipt = expected.receipt(manifest.id, publication.attempt)
    spans = {(covered.at.topic, covered.at.partition): range(covered.start, covered.end) for covered in manifest.ranges}
    exploded, repeated = publication.counts.exploded, sum(seen.values()) - len(seen)
    wrong = {
        "twice": [place for place, count in seen.items() if count > 1] if repeated > exploded else [],
        "of other ranges": [place for place in seen if place[2] not in spans.get(place[:2], range(0))],
        "at offsets where none was read": [place for place in _places_in_gaps(receipt) if place in seen],
    }
    for how, places in wrong.items():
        if places:
            topic, partition, offset = places[0]
            what = f"{count_of(len(places), 'record')} {how}, first {topic}-{partition} offset {offset}"
            yield mended_by_replay(manifest, what)
    given_up = expected.given_up(manifest.id, publication.attempt)
    gone = sum(part.rows for part in receipt.objects_of(output.name) if part.path in given_up) if receipt else 0
    kept = publication.counts.written + publication.counts.dead_lettered - gone
    present = len(seen) + min(repeated, exploded)
    if present != kept:
        yield mended_by_replay(manifest, f"{count_of(present, 'record')} where {kept:,} were published")


def _places_in_gaps(receipt: Receipt | None) -> Iterator[Place]:
    """Yield every offset in the gaps that a receipt lists; never more than its ranges span."""
    for partition in receipt.partitions if receipt else ():
        for start, end in partition.gaps:
            yield from ((partition.topic, partition.partition, offset) for offset in range(start, end))


def _stray(pipeline_name: str, key: str, manifest: Manifest | None) -> Problem:
    if manifest is None:
        next_step = "remove it, or move it out of the lake"
        if ObjectName.parse(key):
            repair = f"tidemark repair {pipeline_name} --why TEXT"
            next_step = (
                f"{repair}, which removes it when its records are published all the same, as after a restore of the "
                "database; else it may be their only copy: move it out of the lake"
            )
        elif RecordName.parse(key):
            adopt = f"tidemark db adopt {pipeline_name} --why TEXT"
            next_step = (
                f"{adopt}, which reads it back, as after a restore of the database; what it does not read back is a "
                "copy that somebody made: move it out of the lake"
            )
        return Problem(None, f"{key} belongs to no manifest", next_step)
    if manifest.state is not ManifestState.DONE:
        return Problem(manifest.id, f"{key} was left by an attempt that is not published", manifest.retry)
    return Problem(
        manifest.id, f"{key} is not part of what was published", f"tidemark repair {pipeline_name} --why TEXT"
    )
