"""Finds the complete output of a dead attempt: it is in a sink, with its evidence, and only the publication is missing.

The evidence is what an attempt leaves in the target: the record in a lake, the marker row in a table.
"""

from collections.abc import Sequence

from tidemark.lifecycle.context import Context
from tidemark.manifest import Manifest
from tidemark.receipt import Receipt
from tidemark.sinks.base import Sink

Made = tuple[Receipt, str]  # a receipt, and the fingerprint of the code that wrote its output


def recoverable(context: Context, sink: Sink, receipts: Sequence[Made]) -> Receipt | None:
    """The newest receipt for a sink, if the same code as now wrote its output; else None.

    Older receipts do not count: the newest attempt may have begun to remove their output. Where output cannot be taken
    back, the receipt is that of the attempt whose evidence is there.
    """
    own = [(receipt, made_by) for receipt, made_by in receipts if sink.name in receipt.sinks]
    if not sink.way.takes_back and own:
        evidence = sink.recorded_attempt(own[0][0].manifest_id)
        own = [(receipt, made_by) for receipt, made_by in own if receipt.attempt == evidence]
    if not own:
        return None
    newest, made_by = own[0]
    return newest if made_by == context.pipeline.fingerprint() else None


def is_put(manifest: Manifest, sink: Sink, receipt: Receipt) -> bool:
    """Whether the whole output of an attempt is in a sink, with its evidence, and covers all the manifest's ranges."""
    recorded = receipt.attempt == sink.recorded_attempt(manifest.id)
    return recorded and sink.recorded_ranges(receipt) == manifest.ranges and sink.holds(receipt)


def lacks_only_publication(context: Context, manifest: Manifest) -> bool:
    """Whether the whole output of a dead attempt is in some sink, and only the publication is missing.

    Output that cannot be taken back counts, whichever code wrote it.
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
