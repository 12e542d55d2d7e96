"""Tells whether a manifest may have contributed to totals before."""

from tidemark.database.client import ManifestDatabase


def may_have_contributed(database: ManifestDatabase, manifest_id: int, attempt: int) -> bool:
    """Whether a lower attempt may have put something of a manifest into the totals.

    An attempt puts something only after its receipt was stored, and a lower one stores none when a higher one has
    started. A receipt of any sink counts: one that is retired now may have written the same table. That no
    contributions are found proves nothing: they may have been deleted, or restored from a copy that is older than the
    totals.
    """
    return any(stored.receipt.attempt < attempt for stored in database.attempts.receipts(manifest_id))
