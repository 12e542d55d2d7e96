"""The audit of totals in DynamoDB: markers agree with publications, and, ``deep``, items with markers and one another.

Pages of a scan are read at different moments. What seems wrong is therefore looked at again, key by key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, Publication
from tidemark.sinks.audit.left_in_staging import left_in_staging
from tidemark.sinks.audit.published_files import lost_dead_letters
from tidemark.sinks.audit.unknown_manifests import unknown_manifests
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference
from tidemark.sinks.dynamodb.items import KeyGroup, combined
from tidemark.sinks.dynamodb.markers import Marker, Markers
from tidemark.sinks.dynamodb.tables import Tables
from tidemark.sinks.dynamodb.totals import Totals
from tidemark.storage.base import ObjectStore

_BY_HAND = "no attempt of Tidemark has left them there: delete those items by hand"


@dataclass
class _Contributed:
    """The numbers of keys and rows that the items of a manifest have, and a checksum of them."""

    keys: int = 0
    rows: int = 0
    checksum: int = 0


def differences_of_dynamodb(
    database: ManifestDatabase,
    sink: Sink,
    tables: Tables,
    totals: Totals,
    markers: Markers,
    kept: ObjectStore,
    manifests: Sequence[Manifest],
    *,
    deep: bool,
) -> Iterator[Difference]:
    """What the tables hold and should not, or lack; ``deep`` combines all contributions again.

    ``kept`` has the files of dead letters.
    """
    yield from left_in_staging(database, sink, manifests)
    present = markers.all()
    yield from unknown_manifests(database, sink, {"a marker": present}, sink.evidence())
    published = [(manifest, row) for manifest in manifests if (row := manifest.published(sink.name))]
    exist = tables.exist()
    if published and not exist:
        yield Difference(None, f"{sink.target} does not exist, and has {len(published):,} manifests published",
                         f"restore it; or replay each manifest: tidemark manifests {sink.pipeline_name}")  # fmt: skip
        return
    shown = {manifest_id: marker.attempt for manifest_id, marker in present.items() if marker.attempt and marker.whole}
    yield from lost_dead_letters(database, sink, kept, published, shown, deep=deep)
    at_work = {manifest.id for manifest in manifests if manifest.alive}
    for manifest, _ in published:
        marker = present.get(manifest.id)
        if marker is not None and not marker.whole and manifest.id not in at_work:
            what = f"attempt {marker.putting} has replaced some of its contributions, and did not end"
            yield Difference(manifest.id, what, f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}")
    if deep and exist:
        whole = [
            (manifest, row)
            for manifest, row in published
            if not database.accepted_damage(manifest.id, sink.name, row.attempt)
        ]
        yield from _contents(sink, totals, markers, present, whole)


def _contents(
    sink: Sink,
    totals: Totals,
    markers: Markers,
    before: Mapping[int, Marker],
    published: Sequence[tuple[Manifest, Publication]],
) -> Iterator[Difference]:
    contributed: dict[int, _Contributed] = {}
    expected: dict[str, KeyGroup | None] = {}
    contributor: dict[str, int] = {}
    for manifest_id, group in totals.all_contributions():
        of_manifest = contributed.setdefault(manifest_id, _Contributed())
        of_manifest.keys += 1
        of_manifest.rows += group.rows
        of_manifest.checksum = (of_manifest.checksum + group.checksum()) % 2**64
        others = expected.get(group.key)
        expected[group.key] = combined([others, group] if others else [group], totals.value_columns)
        contributor[group.key] = max(manifest_id, contributor.get(group.key, 0))
    after = markers.all()
    still = {id_ for id_, marker in after.items() if before.get(id_) == marker and marker.whole}
    for manifest, publication in published:
        if manifest.id in still:
            yield from _manifest(
                sink,
                manifest.id,
                publication.counts.written,
                after[manifest.id],
                contributed.get(manifest.id, _Contributed()),
            )
    for stray in sorted(contributed.keys() - after.keys()):
        number = f"{contributed[stray].keys:,} contributions of manifest {stray}"
        yield Difference(None, f"{sink.target} has {number}, which has contributed nothing", _BY_HAND)
    yield from _totals(sink, totals, expected, contributor)


def _manifest(
    sink: Sink, manifest_id: int, written: int, marker: Marker, contributed: _Contributed
) -> Iterator[Difference]:
    replay = f"tidemark replay {sink.pipeline_name} --manifest {manifest_id}"
    if contributed.rows != written:
        what = f"the contributions of it count {contributed.rows:,} records where {written:,} were written"
        yield Difference(manifest_id, what, replay)
    elif str(contributed.checksum) != marker.checksum:
        yield Difference(manifest_id, "its contributions were changed by hand", replay)


def _totals(
    sink: Sink, totals: Totals, expected: dict[str, KeyGroup | None], contributor: Mapping[str, int]
) -> Iterator[Difference]:
    """Compares all totals with all contributions; a replay of any manifest of a total combines it again."""
    wrong: dict[int | None, list[str]] = {}
    for item, total in totals.all_totals():
        if expected.pop(total.key, None) != total and not totals.is_right(total.key, item):
            wrong.setdefault(contributor.get(total.key), []).append(total.key)
    for key in expected:  # without a total
        if not totals.is_right(key, None):
            wrong.setdefault(contributor[key], []).append(key)
    for manifest_id, keys in sorted(wrong.items(), key=lambda entry: entry[0] or 0):
        number = f"{len(keys):,} totals of {sink.target}"
        if manifest_id is None:
            yield Difference(None, f"{number} have no contributions, such as {min(keys)}", _BY_HAND)
        else:
            yield Difference(
                manifest_id,
                f"{number} are not the combination of their contributions, such as {min(keys)}",
                f"tidemark replay {sink.pipeline_name} --manifest {manifest_id}",
            )
