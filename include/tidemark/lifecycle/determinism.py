"""Checks that the same code made the same rows of the same records once more."""

from collections.abc import Sequence

from tidemark.model.receipt import Receipt, StoredReceipt


def note_of(receipt: Receipt, fingerprint: str, stored: Sequence[StoredReceipt]) -> str | None:
    """A sentence when an earlier attempt with this fingerprint read these records and made other rows; else None."""
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
    """Return the settings that tell one input from another: the records counted, their bytes, and the last one of each
    partition."""
    return [
        (
            count.topic, count.partition, count.read, count.bytes, count.first, count.last, count.last_timestamp_ms,
            count.last_digest,
        )
        for count in receipt.partitions
    ]  # fmt: skip
