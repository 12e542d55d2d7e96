"""Numbers attempts, stores their receipts, and ends them."""

from collections.abc import Sequence
from dataclasses import asdict

from psycopg.types.json import Jsonb

from tidemark.database.manifests import no_such_manifest
from tidemark.database.statements import Part, Row
from tidemark.model.manifest import AttemptState
from tidemark.model.receipt import Receipt, StoredReceipt


class Attempts(Part):
    def start(self, manifest_id: int, fingerprint: str) -> int | None:
        """Start a new attempt and return its number, or None if the manifest is blocked. Holds the attempt's session
        lock from here on."""
        with self._sql.transaction():
            row = self._sql.row("start", manifest_id=manifest_id, fingerprint=fingerprint, actor=self._sql.actor)
            if row is None:
                return None
            attempt = int(row["attempt"])
            self._sql.rows("fence_lower_attempts", manifest_id=manifest_id, attempt=attempt)
            self._sql.rows("lock_attempt", manifest_id=manifest_id, attempt=attempt)
            return attempt

    def lease(self, manifest_id: int, attempt: int, seconds: float) -> bool:
        """Let an attempt live for so many seconds from now without its lock; False if it has ended, or if a newer one
        has taken over."""
        values = {"manifest_id": manifest_id, "attempt": attempt, "seconds": seconds}
        return self._sql.changed("lease_attempt", **values) is not None

    def take_up(self, manifest_id: int, attempt: int) -> bool:
        """Hold the session lock of a leased attempt, in place of its lease; False as for ``lease``."""
        self._sql.rows("lock_attempt", manifest_id=manifest_id, attempt=attempt)
        if self.lease(manifest_id, attempt, 0):
            return True
        self.release(manifest_id, attempt)
        return False

    def newest(self, manifest_id: int) -> int:
        row = self._sql.row("newest_attempt", manifest_id=manifest_id)
        if row is None:
            raise no_such_manifest(manifest_id)
        return int(row["attempt"])

    def of_manifest(self, manifest_id: int) -> list[Row]:
        return self._sql.rows("attempts", manifest_id=manifest_id)

    def by(self, pipeline_name: str, prefix: str) -> list[Row]:
        """Return manifest_id and actor of the attempts whose actor begins with ``prefix``, oldest first."""
        return self._sql.rows("attempts_by", pipeline_name=pipeline_name, prefix=prefix)

    def alive(self, manifests: Sequence[int], *, also_replays: bool) -> list[Row]:
        """Return manifest_id, attempt and actor of the live attempts at these manifests; without ``also_replays`` only
        at those that are not done."""
        return self._sql.rows("attempts_alive", manifests=list(manifests), also_replays=also_replays)

    def store_receipt(
        self, receipt: Receipt, raw: Row, sinks: Sequence[str], takes_back: Sequence[str], note: str | None = None
    ) -> bool:
        """Store the receipt of an attempt at writing to ``sinks``, with a note for the user.

        Declares the unpublished output of lower attempts in the sinks in ``takes_back`` taken back. Opens the hours of
        this attempt and of the published one again. Returns False if a newer attempt has taken over, or if the offsets
        hold other records now (``ranges.beyond_generation``).
        """
        values = {"manifest_id": receipt.manifest_id, "attempt": receipt.attempt, "receipt": Jsonb(raw)}
        names = {"sinks": list(sinks), "takes_back": list(takes_back), "note": note}
        with self._sql.transaction():
            if not self._sql.rows("store_receipt", **values, **names):
                return False
            self._sql.rows("lock_hours_of", manifest_id=receipt.manifest_id)
            self._sql.rows("reopen_hours", manifest_id=receipt.manifest_id, attempt=receipt.attempt)
            return True

    def store_epochs(self, receipt: Receipt) -> None:
        """Add the leader epochs to the stored receipt, unless a newer attempt has taken over."""
        values = {"partitions": Jsonb([asdict(count) for count in receipt.partitions])}
        self._sql.changed("store_epochs", manifest_id=receipt.manifest_id, attempt=receipt.attempt, **values)

    def receipts(self, manifest_id: int) -> list[StoredReceipt]:
        """Return the receipts of a manifest, newest first."""
        return [
            StoredReceipt(Receipt.from_raw(row["receipt"]), row["fingerprint"], frozenset(row["taken_back"]))
            for row in self._sql.rows("receipts", manifest_id=manifest_id)
        ]

    def receipt(self, manifest_id: int, attempt: int) -> Receipt | None:
        row = self._sql.row("receipt", manifest_id=manifest_id, attempt=attempt)
        return Receipt.from_raw(row["receipt"]) if row and row["receipt"] else None

    def take_back(self, manifest_id: int, attempt: int, sink: str) -> bool:
        """Declare that the output of an attempt in a sink may be removed; False if it is published."""
        return self._sql.changed("take_back", manifest_id=manifest_id, attempt=attempt, sink=sink) is not None

    def may_put(self, manifest_id: int, attempt: int, sink: str) -> bool:
        """Return whether the attempt is the newest, and its output in the sink was not taken back."""
        row = self._sql.row("may_put", manifest_id=manifest_id, attempt=attempt, sink=sink)
        return bool(row and row["allowed"])

    def finish(self, manifest_id: int, attempt: int, sinks: Sequence[str]) -> bool:
        """Set the manifest done; False if a sink lacks a publication, or if the attempt is no longer the newest."""
        return self._sql.changed("finish", manifest_id=manifest_id, attempt=attempt, sinks=list(sinks)) is not None

    def end(self, manifest_id: int, attempt: int, state: AttemptState, error: str | None = None) -> bool:
        values = {"manifest_id": manifest_id, "attempt": attempt, "state": state.value, "error": error}
        return self._sql.changed("end_attempt", **values) is not None

    def fail(self, manifest_id: int, attempt: int, reason: str, silent: str | None = None) -> bool:
        """Mark the manifest of a running attempt as failed. ``silent``: the address of the source if the attempt failed
        because the source did not answer.
        """
        values = {"attempt": attempt, "reason": reason, "silent": silent}
        return self._sql.changed("fail", manifest_id=manifest_id, **values) is not None

    def block(self, manifest_id: int, attempt: int, reason: str) -> bool:
        return self._sql.changed("block", manifest_id=manifest_id, attempt=attempt, reason=reason) is not None

    def release(self, manifest_id: int, attempt: int) -> None:
        """Release the attempt's session lock: from here on it is not alive."""
        self._sql.rows("unlock_attempt", manifest_id=manifest_id, attempt=attempt)

    def lock_number(self, manifest_id: int, attempt: int) -> int:
        """Return the number of the advisory lock that an attempt holds while its process lives."""
        return int(self._sql.rows("attempt_lock", manifest_id=manifest_id, attempt=attempt)[0]["number"])

    def manifests_with_open(self, pipeline_name: str) -> list[int]:
        """Return the manifests with an attempt that has not ended, whether its process is alive or not."""
        return self._sql.ids("with_open_attempts", pipeline_name=pipeline_name)

    def fence_open(self, manifests: Sequence[int], reason: str) -> None:
        """Fence every attempt at these manifests that has not ended; its process may be paused on another machine."""
        self._sql.rows("fence_open_attempts", manifests=list(manifests), actor=self._sql.actor, reason=reason)

    def is_of_retired_sink(self, manifest_id: int, attempt: int) -> bool:
        """Return whether an attempt wrote to a sink that was retired later."""
        return bool(self._sql.rows("is_of_retired_sink", manifest_id=manifest_id, attempt=attempt)[0]["retired"])

    def last_took(self, pipeline_name: str) -> float | None:
        """Return how many seconds the newest published attempt took, of the newest done manifest that has one; None if
        no done manifest has one."""
        row = self._sql.row("last_took", pipeline_name=pipeline_name)
        return None if row is None else float(row["seconds"])
