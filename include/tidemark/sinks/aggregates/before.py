"""Whether a manifest may have contributed to totals before."""

from tidemark.database.client import ManifestDatabase


def may_have_contributed(database: ManifestDatabase, manifest_id: int, attempt: int, sink_name: str) -> bool:
    """Whether a lower attempt may have put something of a manifest into a sink.

    An attempt puts something only after its receipt was stored, and a lower one stores none when a higher one has
    started. That no contributions are found proves nothing: they may have been deleted, or restored from a copy that is
    older than the totals.
    """
    receipts = (stored.receipt for stored in database.receipts(manifest_id))
    return any(receipt.attempt < attempt and sink_name in receipt.sinks for receipt in receipts)
