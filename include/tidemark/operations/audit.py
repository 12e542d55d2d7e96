"""Compares what the database says with what the sinks hold; every difference is one line with its manifest."""

from collections.abc import Iterator

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import OF_ONE_SINK
from tidemark.manifest import Manifest, ManifestState
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference


def audit(context: Context, *, deep: bool = False) -> Iterator[Difference]:
    """Every difference between chain, manifests, publications and output; ``deep`` reads all rows back.

    Of a manifest that a replay has published since it was looked up, nothing is said: it is another one now.
    """
    manifests = context.database.manifests(context.pipeline_name)
    published = {one.id: one.publications for one in manifests}
    for one in _differences(context, manifests, deep=deep):
        now = context.database.manifests(ids=[one.manifest]) if one.manifest in published else []
        if all(each.publications == published[each.id] for each in now):
            yield one


def _differences(context: Context, manifests: list[Manifest], *, deep: bool) -> Iterator[Difference]:
    name = context.pipeline_name
    for row in context.database.broken_chains(name):
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
            yield Difference(None, f"sink {sink.name} cannot be compared: {error.what}", error.next_step)


def _equations(manifest: Manifest) -> Iterator[Difference]:
    if manifest.state is ManifestState.DONE and not manifest.publications:
        yield Difference(
            manifest.id,
            "is done without a publication",
            f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
        )
    span = sum(one.span for one in manifest.ranges)
    for one in manifest.publications:
        counts = one.counts
        went = counts.written + counts.dead_lettered + counts.filtered + counts.deduplicated
        if counts.read + counts.invisible != span or counts.read != went:
            yield Difference(
                manifest.id,
                f"counts of sink {one.sink} do not add up to its {span:,} offsets: {counts}",
                f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
            )


def _record(context: Context, sink: Sink, manifest: Manifest) -> Iterator[Difference]:
    publication = manifest.published(sink.name)
    if publication is None:
        return
    receipt = context.database.receipt(manifest.id, publication.attempt)
    mend = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}"
    if receipt is None or receipt.digest(sink.name) != publication.digest:
        yield Difference(manifest.id, f"the receipt of attempt {publication.attempt} is not what was published", mend)
    elif not sink.has_record(receipt):
        yield from _other_record(sink, manifest.id, publication.attempt)


def _other_record(sink: Sink, manifest_id: int, attempt: int) -> Iterator[Difference]:
    """The published attempt's record is not there, or one of a higher attempt took its place."""
    if not sink.is_displaced(manifest_id, attempt):
        name = RecordName(sink.pipeline_name, manifest_id, attempt)
        what = f"the record {name} is missing or says something else"
        yield Difference(manifest_id, what, f"tidemark repair {sink.pipeline_name} --why TEXT")
    elif sink.way.takes_back:  # of a table the audit says so where it looks at all markers
        what = f"{sink.target} has the record of a higher attempt in place of the published {attempt}"
        yield Difference(manifest_id, what, f"tidemark adopt {sink.pipeline_name} --why TEXT")
