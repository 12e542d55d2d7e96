"""The turns of manifests, for sinks that append: such a sink gets the records of a log in the order of their offsets.

So an attempt is refused while a manifest with earlier records is unfinished, and waits while an attempt at it is alive.
After a log was cut, unread offsets below the cut belong to an earlier log generation, and come earlier too.
"""

import time
from collections.abc import Callable, Sequence

from tidemark.errors import Unavailable, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Manifest
from tidemark.sinks.base import Sink, WriteMode

WAIT_S = 900.0  # for live attempts at earlier records
ASK_S = 0.5


def sort_by_turn(context: Context, own: Sequence[Manifest], taken: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests in the order in which the run works on them: its own, then those that it takes along. If a
    sink keeps the order of records (``in_order``), sort all of them by id."""
    manifests = [*own, *taken]
    return sorted(manifests, key=lambda manifest: manifest.id) if context.pipeline.in_order else manifests


def refuse_before_turn(context: Context, sink: Sink, manifest: Manifest) -> None:
    """Raise ``WorkFailed`` if a manifest with earlier records lacks its output and has no live attempt."""
    _refuse(sink, manifest, _earlier(context, sink, manifest))


def _refuse(sink: Sink, manifest: Manifest, manifests: Sequence[Manifest]) -> None:
    for earlier in manifests:
        if not earlier.alive:
            raise WorkFailed(
                f"manifest {earlier.id}, which is {earlier.state}, has earlier records of the same partitions, and "
                f"{sink.target} keeps their order",
                next_step="nothing was put there; finish it first: "
                + "; then: ".join(dict.fromkeys([earlier.retry, manifest.retry])),
                manifest=manifest.id,
                sink=sink.name,
            )


def wait_for_turn(context: Context, sink: Sink, manifest: Manifest, fence: Callable[[], None]) -> None:
    """Wait until every earlier record is published in the sink; raises as ``refuse_before_turn`` and as ``fence``."""
    deadline = time.monotonic() + WAIT_S
    while earlier := _earlier(context, sink, manifest):
        _refuse(sink, manifest, earlier)
        fence()
        if time.monotonic() > deadline:
            raise Unavailable(
                f"waited {WAIT_S:.0f} s for manifest {earlier[0].id}, which has earlier records and is still at work",
                next_step=f"wait for it; then: {manifest.retry}",
                manifest=manifest.id,
                sink=sink.name,
            )
        time.sleep(ASK_S)


def _earlier(context: Context, sink: Sink, manifest: Manifest) -> list[Manifest]:
    """Return the unfinished manifests that come before a manifest and lack output in a sink; none if the sink already
    has the output of the manifest itself."""
    if sink.write_mode is not WriteMode.APPEND or manifest.published(sink.name):
        return []
    starts = {part.at: part.start for part in manifest.ranges}
    return [
        other
        for other in context.database.manifests.undone(context.pipeline_name)
        if sink in context.sinks_to_finish(other) and any(part.start < starts.get(part.at, 0) for part in other.ranges)
    ]
