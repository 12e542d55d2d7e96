"""Compares the database with what the sinks hold; every difference names its manifest and the next step."""

from collections.abc import Iterator

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import OF_ONE_SINK
from tidemark.manifest import Manifest, ManifestState
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference


def audit(context: Context, *, deep: bool = False) -> Iterator[Difference]:
    """Every difference between chains, manifests, publications and output; ``deep`` reads all rows.

    Differences of a manifest that a replay publishes during the audit are left out: its output has changed since.
    """
    manifests = context.database.manifests(context.pipeline_name)
    published = {manifest.id: manifest.publications for manifest in manifests}
    for difference in _differences(context, manifests, deep=deep):
        if difference.manifest in published:
            manifest = context.database.manifest(difference.manifest)
            if manifest.publications != published[manifest.id]:
                continue
        yield difference


def _differences(context: Context, manifests: list[Manifest], *, deep: bool) -> Iterator[Difference]:
    for row in context.database.broken_chains(context.pipeline_name):
        yield Difference(
            None,
            f"no range of {row['topic']}-{row['partition']} ends at {row['start_offset']}, where another starts",
            "the chain constraint was removed from the database; restore it",
        )
    for manifest in manifests:
        yield from _equations(manifest)
    for sink in context.sinks:
        try:
            for manifest in manifests:
                yield from _record(context, sink, manifest)
            yield from sink.audit(context.database, manifests, deep=deep)
        except OF_ONE_SINK as error:
            error.within(pipeline=context.pipeline_name)
            yield Difference(None, f"sink {sink.name} cannot be compared: {error.what}", error.next_step)


def _equations(manifest: Manifest) -> Iterator[Difference]:
    if manifest.state is ManifestState.DONE and not manifest.publications:
        yield Difference(
            manifest.id,
            "is done without a publication",
            f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
        )
    span = sum(range_.span for range_ in manifest.ranges)
    for publication in manifest.publications:
        counts = publication.counts
        total = counts.written + counts.dead_lettered + counts.filtered + counts.deduplicated
        if counts.read + counts.invisible != span or counts.read != total:
            yield Difference(
                manifest.id,
                f"counts of sink {publication.sink} do not add up to its {span:,} offsets: {counts}",
                f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
            )


def _record(context: Context, sink: Sink, manifest: Manifest) -> Iterator[Difference]:
    publication = manifest.published(sink.name)
    if publication is None:
        return
    receipt = context.database.receipt(manifest.id, publication.attempt)
    next_step = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}"
    if receipt is None or receipt.digest(sink.name) != publication.digest:
        yield Difference(
            manifest.id, f"the receipt of attempt {publication.attempt} is not what was published", next_step
        )
    elif not sink.has_record(receipt):
        yield from _other_record(sink, manifest.id, publication.attempt)


def _other_record(sink: Sink, manifest_id: int, attempt: int) -> Iterator[Difference]:
    """The record of the published attempt is missing, or that of a higher attempt is there instead."""
    if not sink.is_displaced(manifest_id, attempt):
        name = RecordName(sink.pipeline_name, manifest_id, attempt)
        what = f"the record {name} is missing or says something else"
        yield Difference(manifest_id, what, f"tidemark repair {sink.pipeline_name} --why TEXT")
    elif sink.way.takes_back:  # other sinks report it in their own audit, which looks at all markers
        what = f"{sink.target} has the record of a higher attempt in place of the published {attempt}"
        yield Difference(manifest_id, what, f"tidemark adopt {sink.pipeline_name} --why TEXT")
