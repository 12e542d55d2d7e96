"""What a dead attempt left complete: its output and evidence are in a sink, and only the mark is missing."""

from collections.abc import Sequence

from tidemark.lifecycle.context import Context
from tidemark.manifest import Manifest
from tidemark.receipt import Receipt
from tidemark.sinks.base import Sink

Made = tuple[Receipt, str]  # a receipt, and the fingerprint of the code that made it


def recoverable(context: Context, sink: Sink, receipts: Sequence[Made]) -> Receipt | None:
    """The newest receipt of work for a sink, if the code is the same: its attempt may be removing what every lower
    one has put there. Where output cannot be taken back, it is the one whose output is there."""
    own = [(receipt, made_by) for receipt, made_by in receipts if sink.name in receipt.sinks]
    if not sink.way.takes_back and own:
        evidence = sink.recorded_attempt(own[0][0].manifest_id)
        own = [(receipt, made_by) for receipt, made_by in own if receipt.attempt == evidence]
    return next((receipt for receipt, made_by in own[:1] if made_by == context.pipeline.fingerprint()), None)


def is_put(manifest: Manifest, sink: Sink, receipt: Receipt) -> bool:
    """Whether the output of an attempt is in a sink, with its evidence, and is all of the manifest."""
    recorded = receipt.attempt == sink.recorded_attempt(manifest.id)
    return recorded and sink.recorded_ranges(receipt) == manifest.ranges and sink.holds(receipt)


def lacks_only_the_mark(context: Context, manifest: Manifest) -> bool:
    """Whether a dead attempt's output is in some sink, where only the mark is missing.

    Output that cannot be taken back counts whatever code has made it.
    """
    lower = context.database.receipts_below(manifest.id, manifest.attempt + 1)
    for sink in context.unpublished_sinks(manifest):
        if not any(sink.name in receipt.sinks for receipt, _ in lower):
            continue
        if not sink.way.takes_back:
            if sink.recorded_attempt(manifest.id) is not None:
                return True
        elif (newest := recoverable(context, sink, lower)) and is_put(manifest, sink, newest):
            return True
    return False
