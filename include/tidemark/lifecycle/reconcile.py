"""Asks the database and a target about one manifest, and judges the answers with ``tidemark.model.verdict``."""

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
        """Return a command that can be copied; empty if there is nothing to do."""
        published = self.manifest.published(self.sink.name)
        if self.verdict is Verdict.EVIDENCE_MISSING and published and self.shown.evidence == published.attempt:
            # Its record is there and differs. A retry reads the record of a manifest only if it is named.
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
    """Judge a manifest in a sink. The caller has read the manifest before, and no attempt at it is alive.

    Without ``objects``, the objects of a published attempt with its record are not looked at; an audit lists them all
    itself. ``evidence`` is the highest attempt of each manifest in the sink, if the caller has listed them.
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
    """Yield the (manifest id, attempt) of ``evidence`` (attempts by manifest id) that this database does not know.

    The caller has listed the evidence before. Reads nothing from the target.
    """
    apart = database.publications.evidence_apart(sink.name, evidence)
    for manifest in database.manifests.find(ids=apart) if apart else ():
        known, _ = known_of(database, manifest, sink)
        attempt = evidence[manifest.id]
        verdict = judge(known, Shown(attempt), takes_back=isinstance(sink.output, TakesBack))
        if verdict is Verdict.UNKNOWN and not _is_of_retired_sink(database, manifest.id, attempt):
            yield manifest.id, attempt


def _is_of_retired_sink(database: ManifestDatabase, manifest_id: int, attempt: int | None) -> bool:
    """Return whether a retired sink of the same target wrote this evidence: then the database knows it, and it does not
    count for this sink."""
    return attempt is not None and database.attempts.is_of_retired_sink(manifest_id, attempt)


def step_without_evidence(database: ManifestDatabase, manifest_id: int, sink: Sink) -> str:
    """Return the command for a published manifest whose record is missing; its objects may be there."""
    manifest = database.manifests.get(manifest_id)
    known, _ = known_of(database, manifest, sink)
    verdict = judge(known, Shown(published_whole=True), takes_back=isinstance(sink.output, TakesBack))
    return next_step(manifest, next_step_of(verdict), sink.name)


def next_step(manifest: Manifest, step: NextStep, sink_name: str) -> str:
    """Return the command for a step."""
    if step in (NextStep.ATTEMPT, NextStep.RETRY):
        return manifest.retry
    return command(step, manifest.pipeline_name, manifest.id, sink_name)
