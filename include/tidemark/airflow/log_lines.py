"""The texts of one manifest in Airflow: its label, and the first and the last lines of its log."""

from collections.abc import Sequence

from tidemark.airflow.run_notes import cut
from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.publish import Outcome
from tidemark.model.manifest import Manifest, count_of
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.receipt import ObjectKind
from tidemark.operations.lag import lag

LABEL = 200  # characters; Airflow stores 250
RANGES = 8  # of a manifest in its log; a topic may have a thousand partitions


def label(manifest_id: int, ranges: Sequence[Range]) -> str:
    """Return manifest, topics and ranges, cut to ``LABEL`` characters, for the square of a mapped task."""
    words, topic = [f"manifest {manifest_id}"], None
    for part in ranges:
        name = "" if part.at.topic == topic else f"{part.at.topic} "
        words.append(f"{name}{part.at.partition}:[{part.start}, {part.end})")
        topic = part.at.topic
    return cut(" ".join(words), LABEL)


def label_of(manifests: Sequence[Manifest]) -> str:
    """Return the label of a task. A bundle's label has its topics in place of ranges."""
    if len(manifests) == 1:
        return label(manifests[0].id, manifests[0].ranges)
    topics = dict.fromkeys(part.at.topic for manifest in manifests for part in manifest.ranges)
    return cut(f"manifests {', '.join(str(manifest.id) for manifest in manifests)}: {', '.join(topics)}", LABEL)


def begins(order: Order, targets: Sequence[str], page: str | None) -> list[str]:
    """Return the first lines of a log. ``targets`` are those of the order's sinks; ``page`` is the address of the
    manifest's page, if known.
    """
    offsets = sum(part.span for part in order.ranges)
    attempt = f"pipeline {order.pipeline_name} manifest {order.manifest_id} attempt {order.attempt}"
    lines = [f"{attempt} begins: {count_of(offsets, 'offset')} in {count_of(len(order.ranges), 'range')}", *_link(page)]
    lines += [f"range {part.at.name} [{part.start}, {part.end})" for part in order.ranges[:RANGES]]
    if len(order.ranges) > RANGES:
        lines.append(f"and {len(order.ranges) - RANGES} more ranges: tidemark show {order.manifest_id}")
    return lines + [f"output to {target}" for target in targets]


def ends(context: Context, outcome: Outcome, page: str | None) -> list[str]:
    counts, manifest_id = outcome.counts, outcome.manifest_id
    published = context.database.publications.objects(ids=[manifest_id])
    files = sum(each.kind is ObjectKind.DATA for _, _, each in published)
    records = f"read {counts.read:,}, written {counts.written:,}, dead-lettered {counts.dead_lettered:,}"
    return [
        f"pipeline {context.pipeline_name} manifest {manifest_id} attempt {outcome.attempt}: {outcome.ending}",
        f"{records}, {count_of(files, 'file')}; more: tidemark show {manifest_id}",
        *([outcome.note] if outcome.note else []),
        _lag(context),
        *_link(page),
    ]


def _link(page: str | None) -> list[str]:
    return [f"page: {page}"] if page else []


def _lag(context: Context) -> str:
    """Return how far the pipeline is behind. The work is done, so a source that does not answer is no error."""
    try:
        parts = lag(context)
    except TidemarkError as error:
        return f"lag not known: {error.what}"
    behind, unpublished = sum(part.lag for part in parts), sum(part.unpublished for part in parts)
    return f"lag of the pipeline: {behind:,} offsets not planned yet, {unpublished:,} planned and not published"
