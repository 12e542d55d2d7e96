"""The turns of manifests: a sink that appends gets the records of a log in the order of their offsets.

So an attempt is refused while a manifest with earlier records is unfinished, and waits while one is at work. Of a log
that was cut, what is still to be read below the cut is in an earlier log generation, and comes earlier too.
"""

import time
from collections.abc import Callable, Sequence

from tidemark.errors import Unavailable, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Manifest
from tidemark.sinks.base import Sink, WriteMode

WAIT_S = 900.0  # for attempts at earlier records that are at work
ASK_S = 0.5


def sort_by_turn(context: Context, own: Sequence[Manifest], taken: Sequence[Manifest]) -> list[Manifest]:
    """A run's own manifests and those that it takes along, as it works on them: its own first, if it may."""
    manifests = [*own, *taken]
    return sorted(manifests, key=lambda manifest: manifest.id) if context.pipeline.in_order else manifests


def refuse_before_turn(context: Context, sink: Sink, manifest: Manifest) -> None:
    """Raise ``WorkFailed`` when a manifest with earlier records lacks its output, and nobody is at work on it."""
    _refuse(context, sink, manifest, _earlier(context, sink, manifest))


def _refuse(context: Context, sink: Sink, manifest: Manifest, manifests: Sequence[Manifest]) -> None:
    for earlier in manifests:
        if not earlier.alive:
            raise WorkFailed(
                f"manifest {earlier.id}, which is {earlier.state}, has earlier records of the same partitions, and "
                f"{sink.target} keeps their order",
                next_step=f"nothing was put there; finish it first: tidemark retry {context.pipeline_name} --manifest "
                f"{earlier.id}; then: tidemark retry {context.pipeline_name} --manifest {manifest.id}",
                manifest=manifest.id,
                sink=sink.name,
            )


def wait_for_turn(context: Context, sink: Sink, manifest: Manifest, fence: Callable[[], None]) -> None:
    """Wait until every earlier record is published in the sink; raises as ``refuse_before_turn``, and ``fence``."""
    deadline = time.monotonic() + WAIT_S
    while earlier := _earlier(context, sink, manifest):
        _refuse(context, sink, manifest, earlier)
        fence()
        if time.monotonic() > deadline:
            raise Unavailable(
                f"manifest {earlier[0].id}, which has earlier records, is at work for more than {WAIT_S:.0f} s",
                next_step=f"wait for it; then: tidemark retry {context.pipeline_name} --manifest {manifest.id}",
                manifest=manifest.id,
                sink=sink.name,
            )
        time.sleep(ASK_S)


def _earlier(context: Context, sink: Sink, manifest: Manifest) -> list[Manifest]:
    """The unfinished manifests that lack output of a sink and come before a manifest; none if that has its own."""
    if sink.write_mode is not WriteMode.APPEND or manifest.published(sink.name):
        return []
    starts = {part.at: part.start for part in manifest.ranges}
    return [
        other
        for other in context.database.manifests.undone(context.pipeline_name)
        if sink in context.sinks_to_finish(other) and any(part.start < starts.get(part.at, 0) for part in other.ranges)
    ]
