"""Checks that the same code makes the same rows when it reads the same records again."""

from collections.abc import Sequence

from tidemark.model.receipt import Receipt, StoredReceipt


def note_of(receipt: Receipt, fingerprint: str, stored: Sequence[StoredReceipt]) -> str | None:
    """Return a sentence if an earlier attempt with this fingerprint made other rows of the same records; else None."""
    for earlier in stored:
        before = earlier.receipt
        if before.attempt >= receipt.attempt or earlier.fingerprint != fingerprint or _read(before) != _read(receipt):
            continue
        for sink in before.sinks:
            if sink in receipt.sinks and before.digest(sink) != receipt.digest(sink):
                return (
                    f"not deterministic: attempt {before.attempt} had the same code and the same records, and made "
                    f"other rows for sink {sink}"
                )
    return None


def _read(receipt: Receipt) -> list[tuple[object, ...]]:
    """Return what identifies the input of an attempt: for each partition the number of records, their bytes, and the
    last record."""
    return [
        (
            count.topic, count.partition, count.read, count.bytes, count.first, count.last, count.last_timestamp_ms,
            count.last_digest,
        )
        for count in receipt.partitions
    ]  # fmt: skip
