"""Asks the database and a target about one manifest, and judges by ``tidemark.model.verdict``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.in_target import shown
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.model.receipt import StoredReceipt
from tidemark.model.verdict import Known, NextStep, Shown, Verdict, command, judge, next_step_of
from tidemark.sinks.base import Sink
from tidemark.sinks.capabilities import TakesBack


@dataclass(frozen=True)
class Judgement:
    """The verdict on one manifest in one sink, with what it was judged by."""

    manifest: Manifest
    sink: Sink
    receipts: tuple[StoredReceipt, ...]  # of this sink, newest first
    shown: Shown
    verdict: Verdict

    @property
    def next_step(self) -> str:
        """A command that can be copied; empty when there is nothing to do."""
        published = self.manifest.published(self.sink.name)
        if self.verdict is Verdict.EVIDENCE_MISSING and published and self.shown.evidence == published.attempt:
            # Its record is there and says something else: records are read only of a manifest that is named.
            return f"tidemark retry {self.manifest.pipeline_name} --manifest {self.manifest.id}"
        return next_step(self.manifest, next_step_of(self.verdict), self.sink.name)

    def stored(self, attempt: int | None) -> StoredReceipt | None:
        return next((stored for stored in self.receipts if stored.receipt.attempt == attempt), None)


def judgement(
    database: ManifestDatabase,
    manifest: Manifest,
    sink: Sink,
    *,
    objects: bool = True,
    evidence: Mapping[int, int] | None = None,
) -> Judgement:
    """Judge a manifest in a sink; the manifest must have been read before the call, and no attempt at it be alive.

    Without ``objects`` those of a published attempt that has its record are not looked at, as for an audit that lists
    them all. ``evidence`` is the highest attempt of each manifest in the sink, when the caller has listed them.
    """
    known, receipts = known_of(database, manifest, sink)
    published = known.published
    accepted = database.decisions.accepted_damage(manifest.id, sink.name, published) if published else frozenset()
    by_attempt = {stored.receipt.attempt: stored.receipt for stored in receipts}
    attempt = sink.ledger.recorded_attempt(manifest.id) if evidence is None else evidence.get(manifest.id)
    if attempt not in by_attempt and _is_of_retired_sink(database, manifest.id, attempt):
        attempt = None
    in_target = shown(sink, manifest, attempt, by_attempt, accepted, objects=objects)
    verdict = judge(known, in_target, takes_back=isinstance(sink.output, TakesBack))
    return Judgement(manifest, sink, receipts, in_target, verdict)


def known_of(database: ManifestDatabase, manifest: Manifest, sink: Sink) -> tuple[Known, tuple[StoredReceipt, ...]]:
    """Return what the database knows of a manifest in a sink, and the receipts of that sink, newest first."""
    published = manifest.published(sink.name)
    receipts = tuple(stored for stored in database.attempts.receipts(manifest.id) if sink.name in stored.receipt.sinks)
    known = Known(
        {stored.receipt.attempt: stored.receipt.digest(sink.name) for stored in receipts},
        frozenset(stored.receipt.attempt for stored in receipts if sink.name in stored.taken_back),
        published.attempt if published else None,
        behind=published.behind if published else bool(manifest.publications),
        done=manifest.state is ManifestState.DONE,
        given_up=sink.name in manifest.given_up,
    )
    return known, receipts


def unknown_evidence(database: ManifestDatabase, sink: Sink, evidence: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """(manifest id, attempt) of the ``evidence``, attempts by manifest id, that this database does not know.

    The evidence must have been listed before the call. Nothing is read from the target.
    """
    apart = database.publications.evidence_apart(sink.name, evidence)
    for manifest in database.manifests.find(ids=apart) if apart else ():
        known, _ = known_of(database, manifest, sink)
        attempt = evidence[manifest.id]
        verdict = judge(known, Shown(attempt), takes_back=isinstance(sink.output, TakesBack))
        if verdict is Verdict.UNKNOWN and not _is_of_retired_sink(database, manifest.id, attempt):
            yield manifest.id, attempt


def _is_of_retired_sink(database: ManifestDatabase, manifest_id: int, attempt: int | None) -> bool:
    """Return whether a retired sink of the same target left this evidence: then it is no news, and none of this
    sink."""
    return attempt is not None and database.attempts.is_of_retired_sink(manifest_id, attempt)


def step_without_evidence(database: ManifestDatabase, manifest_id: int, sink: Sink) -> str:
    """The command for a published manifest without its evidence; its objects may be there."""
    manifest = database.manifests.get(manifest_id)
    known, _ = known_of(database, manifest, sink)
    verdict = judge(known, Shown(published_whole=True), takes_back=isinstance(sink.output, TakesBack))
    return next_step(manifest, next_step_of(verdict), sink.name)


def next_step(manifest: Manifest, step: NextStep, sink_name: str) -> str:
    """The command for a step."""
    if step in (NextStep.ATTEMPT, NextStep.RETRY):
        return manifest.retry
    return command(step, manifest.pipeline_name, manifest.id, sink_name)
