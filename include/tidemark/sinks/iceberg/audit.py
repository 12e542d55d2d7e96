"""The audit of an Iceberg table: every row is of a published manifest, and every published row is there."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, Publication
from tidemark.sinks.audit.left_in_staging import left_in_staging
from tidemark.sinks.audit.published_files import lost_dead_letters
from tidemark.sinks.audit.unknown_manifests import unknown_manifests
from tidemark.sinks.base import Sink
from tidemark.sinks.capabilities import MayBeRolledBack
from tidemark.sinks.difference import Difference
from tidemark.sinks.iceberg.columns import NUMBER, TOPIC_PARTITION
from tidemark.sinks.iceberg.files import manifests_in, rows_of_manifest
from tidemark.sinks.iceberg.table import IcebergTarget
from tidemark.storage.base import ObjectStore

PLACES = ("_topic", TOPIC_PARTITION, "_offset")


def differences_of_iceberg(
    database: ManifestDatabase,
    sink: MayBeRolledBack,
    target: IcebergTarget,
    store: ObjectStore | None,
    manifests: Sequence[Manifest],
    *,
    deep: bool,
) -> Iterator[Difference]:
    """What the table holds and should not, or lacks; ``deep`` reads every row, one manifest in memory at a time.

    ``store`` is the location of the table; None when there is no table.
    """
    own = {manifest.id: manifest for manifest in manifests}
    yield from left_in_staging(database, sink, manifests)
    published = [(manifest, row) for manifest in manifests if (row := manifest.published(sink.name))]
    table = target.load()
    if table is None or store is None:
        if published:
            what = f"{sink.target} does not exist, and has rows of {len(published):,} manifests published"
            restore = f"restore it; or replay each manifest: tidemark manifests {sink.pipeline_name}"
            yield Difference(None, what, restore)
        return
    shown = sink.evidence()
    present = set(shown)
    if deep:
        with target.reading() as reading:
            present |= manifests_in(reading)
            yield from _strays(sink, own, present - shown.keys())
            for manifest, publication in published:
                if database.accepted_damage(manifest.id, sink.name, publication.attempt):
                    continue
                numbered = [NUMBER] if publication.counts.exploded else []
                rows = rows_of_manifest(reading, manifest.id, [*PLACES, *numbered])
                yield from _rows(sink, manifest, publication, rows)
    yield from lost_dead_letters(database, sink, store, published, shown, deep=deep)
    unvouched = sink.unvouched(database)
    for manifest_id in unvouched:
        what = f"{sink.target} has rows of manifest {manifest_id}, which this database does not know: another program "
        adopt = f"tidemark db adopt {sink.pipeline_name} --why TEXT"
        yield Difference(None, f"{what}rolled it back", adopt)
    yield from unknown_manifests(database, sink, {"rows": present - unvouched.keys()}, shown)


def _strays(sink: Sink, own: Mapping[int, Manifest], stray: set[int]) -> Iterator[Difference]:
    for manifest_id in sorted(stray & own.keys()):
        yield Difference(
            manifest_id,
            f"{sink.target} has rows of it, and does not say so: they were put there by hand, or came back with a "
            "rollback",
            f"tidemark replay {sink.pipeline_name} --manifest {manifest_id}",
        )


def _rows(sink: Sink, manifest: Manifest, publication: Publication, rows: pa.Table) -> Iterator[Difference]:
    """Compares the offsets in the table with the manifest's ranges and with the number of published rows."""
    replay = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}"
    if rows.num_rows != publication.counts.written:
        what = f"the table has {rows.num_rows:,} rows of it where {publication.counts.written:,} were published"
        yield Difference(manifest.id, what, replay)
    places = rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")])
    twice = places.filter(pc.greater(places.column("count_all"), 1))
    if twice.num_rows:
        first = twice.slice(0, 1).to_pylist()[0]
        place = f"{first['_topic']}-{first[TOPIC_PARTITION]} offset {first['_offset']}"
        what = f"{twice.num_rows:,} rows twice, first {place}"
        yield Difference(manifest.id, what, replay)
    spans = {(covered.at.topic, covered.at.partition): covered for covered in manifest.ranges}
    for part in (
        rows.group_by(["_topic", TOPIC_PARTITION]).aggregate([("_offset", "min"), ("_offset", "max")]).to_pylist()
    ):
        covered = spans.get((part["_topic"], part[TOPIC_PARTITION]))
        if covered is None or part["_offset_min"] < covered.start or part["_offset_max"] >= covered.end:
            place = f"{part['_topic']}-{part[TOPIC_PARTITION]} offsets {part['_offset_min']} to {part['_offset_max']}"
            yield Difference(manifest.id, f"the table has rows of it from {place}, which it does not cover", replay)
