"""Makes one attempt visible (the numbers are those of docs/guarantees.md):

1. ``publish.receipt``        one transaction stores the receipt, if this attempt is the newest, declares the
                              unpublished output of lower attempts taken back, and opens the event hours of the rows
                              again; then the last record read is compared with the topic again (divergence.py); then
                              the output that was taken back is removed
2. ``publish.mid``            files: each object moves to its key, which belongs to this attempt alone;
                              tables: the attempt takes the marker row; from then on no lower attempt can take it
3. ``publish.before_record``  files: all objects are made durable, the fence is asked once more, and the record of this
                              attempt is written into the lake;
                              tables: the rows are merged, and the target's transaction commits
4. ``publish.before_mark``    one transaction: the publication names this attempt, the manifest is done when every
                              sink has a publication; a table in the manifest database is merged in this transaction
5. ``publish.marked`` (once for each sink), ``publish.cleaned``   leftovers of lower attempts and the staging of this
                              one are removed

With several sinks, steps 2 to 4 are done for each sink on its own: when one fails, the others stay published.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from tidemark.errors import AccessDenied, Blocked, Fenced, TidemarkError, Unavailable, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.determinism import note_of
from tidemark.lifecycle.in_target import record_of
from tidemark.lifecycle.logs.divergence import confirmed
from tidemark.lifecycle.ownership import belongs_to, refuse_foreign
from tidemark.lifecycle.preflight import (
    OF_ONE_SINK,
    columns_of_rows,
    keep_missing_evidence,
    missing_evidence,
    refuse_beyond_generation,
    refuse_went_back,
    went_back,
)
from tidemark.lifecycle.reconcile import Judgement, judgement
from tidemark.lifecycle.turns import wait_for_turn
from tidemark.model.manifest import AttemptState, Counts, Manifest, ManifestState
from tidemark.model.receipt import Receipt
from tidemark.model.verdict import Verdict
from tidemark.paths import RecordName
from tidemark.sinks.base import Position, Sink, WriteMode
from tidemark.sinks.capabilities import ServesCopy, TakesBack

MENDED_AGAIN = 20  # times that a target may need the same repair again, because others change it too


class Ending(StrEnum):
    """The ways in which processing a manifest ends well."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"  # the new attempt's rows equal the published ones; nothing moved
    RECOVERED = "recovered"  # an earlier attempt had put all its output and died before the publication
    ALREADY_DONE = "already done"
    SUPERSEDED = "superseded"  # a newer attempt has published; nothing is left to do


@dataclass(frozen=True)
class Outcome:
    manifest_id: int
    attempt: int
    ending: Ending
    counts: Counts
    note: str | None = None  # a problem that you should know of although the attempt ended well

    def noting(self, more: str | None) -> "Outcome":
        return self if more is None else replace(self, note="; ".join(note for note in (self.note, more) if note))


class Publisher:
    """The publisher of one pipeline: only this class adds or removes what readers see."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.pipeline_name = context.pipeline_name
        self.database = context.database
        self._database_id = context.database.id()

    def publish(
        self,
        manifest: Manifest,
        receipt: Receipt,
        sinks: Sequence[Sink],
        failed: Mapping[str, TidemarkError],
        *,
        may_shrink: bool,
    ) -> Outcome:
        """Make one attempt's output visible in the five steps above, so that the manifest is done; may be repeated.

        ``failed`` has the errors of sinks that this attempt could not write to; the first error is raised at the end.
        ``may_shrink``: you have accepted that published records are gone from the log.
        """
        failures = list(failed.values())
        attempt = receipt.attempt
        wanted = [sink.name for sink in sinks] + list(failed)
        takes_back = [sink.name for sink in sinks if isinstance(sink.output, TakesBack)]
        note = None
        if self.context.pipeline.transform:
            stored = self.database.attempts.receipts(manifest.id)
            note = note_of(receipt, self.context.pipeline.fingerprint(), stored)
        for sink in sinks:
            if sink.write_mode is WriteMode.APPEND:
                self._refuse_appending_twice(manifest, receipt, sink)
        if not self.database.attempts.store_receipt(receipt, asdict(receipt), wanted, takes_back, note):
            refuse_beyond_generation(self.pipeline_name, self.database, manifest.id)
            raise self.overtaken(manifest.id, attempt)
        receipt = confirmed(self.context, manifest, receipt, may_shrink=may_shrink)
        self.database.attempts.store_epochs(receipt)
        self._discard_unpublished(manifest, attempt, sinks)
        failpoint("publish.receipt")
        moved, published = False, []
        for number, sink in enumerate(sinks, 1):
            try:
                last = number == len(sinks) and not failures
                moved = self._publish_to(sink, manifest, receipt, moved=moved, last=last) or moved
                published.append(sink)
            except Fenced:
                raise
            except TidemarkError as error:
                failures.append(error)
        not_cleaned = self._clean_published(manifest.id, attempt, published)
        if failures:
            raise failures[0]
        failpoint("publish.cleaned")
        counts = self.database.manifests.get(manifest.id).published_counts
        ending = Ending.PUBLISHED if moved else Ending.UNCHANGED
        return Outcome(manifest.id, attempt, ending, counts, note).noting(not_cleaned)

    def _refuse_appending_twice(self, manifest: Manifest, receipt: Receipt, sink: Sink) -> None:
        """Raise ``Blocked`` if a replay made other rows than a sink has appended: these would be appended, too. Nothing
        was put yet. You can allow that other rows follow those of the published attempt (``receipt.follows``)."""
        published = manifest.published(sink.name)
        if published is None or published.digest == receipt.digest(sink.name):
            return
        if receipt.follows.get(sink.name) != published.attempt:
            raise Blocked(
                f"the replay made other rows than {sink.target} has of attempt {published.attempt}, and what was "
                "appended there cannot be taken back",
                next_step="nothing was published, in no sink; make the pipeline as it was; or append them behind the "
                f"others: tidemark replay {self.pipeline_name} --manifest {manifest.id} --append-again --why TEXT; or "
                f"give the sink another target and name, replay, and then: tidemark fill {self.pipeline_name} NAME "
                "--why TEXT",
                sink=sink.name,
            )

    def _discard_unpublished(self, manifest: Manifest, attempt: int, sinks: Sequence[Sink]) -> None:
        for stored in self.database.attempts.receipts(manifest.id):
            for sink in sinks if stored.receipt.attempt < attempt else ():
                if not isinstance(sink.output, TakesBack) or sink.name in stored.taken_back:
                    sink.discard(stored.receipt)

    def _publish_to(self, sink: Sink, manifest: Manifest, receipt: Receipt, *, moved: bool, last: bool) -> bool:
        """Do steps 2 to 4 for one sink; return whether anything moved. ``last``: the manifest is done after this
        sink."""
        attempt = receipt.attempt
        same = self._published_alike(sink, manifest, receipt)
        if same:
            state = AttemptState.PUBLISHED if moved else AttemptState.UNCHANGED
            self._mark(manifest, sink, same, attempt, state=state if last else None)
        else:
            state = AttemptState.PUBLISHED

            def mark() -> None:
                self._mark(manifest, sink, receipt, attempt, state=state if last else None)

            def fence() -> None:
                self._fence(manifest.id, attempt, sink)

            try:
                wait_for_turn(self.context, sink, manifest, fence)
                # Again, because Spark may have run for hours, and the new position of the target would hide it later.
                refuse_went_back(self.database, sink)
                self._pin_target(sink)
                refuse_foreign(sink, self._database_id)
                record = record_of(sink, receipt, manifest.ranges, self._database_id)
                sink.output.put(receipt, record, fence, mark)
            except BaseException as failed:
                self._give_up(sink, receipt)
                if isinstance(failed, TidemarkError):
                    with suppress(Unavailable, AccessDenied):
                        refuse_foreign(sink, self._database_id)  # the database that adopts a target clears its staging
                raise
        failpoint("publish.marked")
        return same is None

    def _pin_target(self, sink: Sink) -> None:
        """Store which target a sink appends to, before the first message. If the target is created again before the
        mark, the evidence of this attempt, which may lie elsewhere, does not count for the new target."""
        if sink.write_mode is WriteMode.APPEND and (position := sink.ledger.position()) is not None:
            self._remember(sink, position)

    def _remember(self, sink: Sink, position: Position) -> None:
        columns = columns_of_rows(sink, position)
        self.database.targets.remember(sink.target, position.identity, position.number, position.table_id, columns)

    def _give_up(self, sink: Sink, receipt: Receipt) -> None:
        """Remove the output of an attempt that ends before its mark. It stays if its record is there and it was not
        taken back.

        Taking back is declared in the database first. A record whose answer was lost may arrive later, and then does
        not count. If the database session is lost, nothing can be declared; then only a record is removed whose objects
        another attempt has taken back.
        """
        if not isinstance(sink.output, TakesBack):
            return
        with suppress(TidemarkError):
            try:
                fenced = not self.database.attempts.may_put(receipt.manifest_id, receipt.attempt, sink.name)
            except Unavailable:
                if sink.ledger.has(receipt) and not sink.output.has(receipt):
                    name = RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt)
                    sink.output.remove_record(name)
                return
            if fenced or not sink.ledger.has(receipt):
                self._take_back(sink, receipt)

    def _take_back(self, sink: Sink, receipt: Receipt) -> None:
        if self.database.attempts.take_back(receipt.manifest_id, receipt.attempt, sink.name):
            sink.discard(receipt)

    def _published_alike(self, sink: Sink, manifest: Manifest, receipt: Receipt) -> Receipt | None:
        """Return the published receipt of a sink if its rows and hours equal the new ones and are all in the target;
        else None."""
        published = manifest.published(sink.name)
        before = self.database.attempts.receipt(manifest.id, published.attempt) if published else None
        if before is None or before.digest(sink.name) != receipt.digest(sink.name) or before.hours != receipt.hours:
            return None
        if not sink.ledger.has(before) or not sink.output.same(before, receipt):
            return None
        lost = [row for row in self.database.audits.missing(self.pipeline_name) if row["lost_values"]]
        if any((row["manifest_id"], row["sink"]) == (manifest.id, sink.name) for row in lost):
            return None  # its rows are there, but have lost values
        return replace(before, expectations=receipt.expectations)  # the expectations may be others now

    def _mark(
        self, manifest: Manifest, sink: Sink, visible: Receipt, attempt: int, *, state: AttemptState | None
    ) -> None:
        """Do step 4: ``visible`` is the receipt that readers see from here on, ``attempt`` the one that publishes it.

        With a ``state`` the attempt ends in it, and the manifest is done. Raises ``Fenced`` if the attempt is not the
        newest, or if ``visible`` was taken back.
        """
        position = None
        with suppress(Unavailable, AccessDenied):  # then the next publication stores a higher one
            position = sink.ledger.position()
        with self.database.transaction():
            counts, digest = asdict(sink.output.counts(visible, manifest.ranges)), visible.digest(sink.name)
            if not self.database.publications.publish(manifest.id, attempt, sink.name, visible.attempt, digest, counts):
                raise self.overtaken(manifest.id, attempt)
            if position is not None:
                self._remember(sink, position)
            if state is not None:
                self._finish(manifest.id, attempt, state)

    def _finish(self, manifest_id: int, attempt: int, state: AttemptState) -> None:
        if not self.database.attempts.finish(manifest_id, attempt, self.context.sink_names()):
            raise self.overtaken(manifest_id, attempt)
        self.database.attempts.end(manifest_id, attempt, state)

    def clean(self, manifest_id: int, attempt: int, sinks: Sequence[Sink]) -> None:
        """Do step 5: remove leftovers of attempts up to this one, except objects and record of the published attempt.

        An attempt above the published one is declared taken back first.
        """
        manifest = self.database.manifests.get(manifest_id)
        receipts = [
            stored.receipt
            for stored in self.database.attempts.receipts(manifest_id)
            if stored.receipt.attempt <= attempt
        ]
        for sink in sinks:
            published = manifest.published(sink.name)
            shown_attempt = published.attempt if published else 0
            for receipt in receipts:
                if receipt.attempt > shown_attempt and isinstance(sink.output, TakesBack):
                    self._take_back(sink, receipt)
                elif receipt.attempt != shown_attempt:
                    sink.discard(receipt)
            for number in range(1, attempt + 1):
                sink.staging.clear(manifest_id, number)

    def _clean_published(self, manifest_id: int, attempt: int, sinks: Sequence[Sink]) -> str | None:
        """Do step 5 for the sinks that show the attempt. Return a note about leftovers that could not be removed and
        that readers do not see; else None."""
        not_cleaned = []
        for sink in sinks:
            try:
                self.clean(manifest_id, attempt, [sink])
            except Fenced:
                raise
            except OF_ONE_SINK as error:
                not_cleaned.append(f"the next retry or close removes what it staged in sink {sink.name}: {error.what}")
        return "; ".join(not_cleaned) or None

    def sweep(self, *, above: int = 0, also: Sequence[int] = (), dry_run: bool = False) -> list[int]:
        """Clean up done manifests after an attempt that died, and make the repairs that need no source.

        Returns the ids of those with staged output, in a dry run too. Looks at manifests with staged output, at those
        with ids above ``above`` whose newest evidence is not that of the published attempt, and at those in ``also``.
        Leaves out manifests with a live attempt, sinks that do not answer, and sinks of another database.
        """
        swept: set[int] = set()
        for sink in self.context.sinks:
            with suppress(*OF_ONE_SINK):
                if not belongs_to(sink, self._database_id) or went_back(self.database, sink):
                    continue
                staged = sink.staging.manifests()
                mismatches = self.out_of_step(sink, above)
                missing = [manifest_id for manifest_id, is_missing in mismatches.items() if is_missing]
                # If the marker of rows in a table is missing, only a replay repairs that.
                out_of_step = [*mismatches] if isinstance(sink.output, TakesBack) else [*(mismatches.keys() - missing)]
                forgotten = self.database.manifests.unknown(staged)  # asked after the sink, so it knows newer manifests
                ids = sorted({*staged, *out_of_step, *also})
                done = self.database.manifests.find(self.pipeline_name, [ManifestState.DONE], ids) if ids else []
                dead = [manifest for manifest in done if not manifest.alive]
                if not dry_run:
                    self._sweep(sink, forgotten, dead)
                    if missing:  # some may have been repaired
                        missing_evidence(self.database, sink, sink.ledger.evidence(above), above)
                    else:
                        keep_missing_evidence(self.database, sink, [], above)
                swept |= {manifest.id for manifest in dead} & set(staged)
        return sorted(swept)

    def out_of_step(self, sink: Sink, above: int = 0) -> dict[int, bool]:
        """Return the done manifests whose newest evidence is not that of the published attempt; true if it is
        missing."""
        return self.database.publications.out_of_step(self.pipeline_name, sink.name, sink.ledger.evidence(above), above)

    def _sweep(self, sink: Sink, forgotten: Sequence[int], dead: Sequence[Manifest]) -> None:
        for manifest_id in forgotten:
            for number in sink.staging.attempts(manifest_id):
                sink.staging.clear(manifest_id, number)
        for manifest in dead:
            if self.settle(manifest, sink, manifest.attempt) is not Verdict.UNKNOWN:
                self.clean(manifest.id, manifest.attempt, [sink])
            self._clear_unknown(sink, manifest.id)

    def _clear_unknown(self, sink: Sink, manifest_id: int) -> None:
        """Remove staging of attempts that this database does not know because it was restored from an older copy."""
        staged = sink.staging.attempts(manifest_id)  # asked before the database, which then knows all live attempts
        newest_attempt = self.database.attempts.newest(manifest_id)
        for number in staged:
            if number > newest_attempt:
                sink.staging.clear(manifest_id, number)

    def settle(self, manifest: Manifest, sink: Sink, attempt: int) -> Verdict:
        """Make database and sink agree about a manifest, as far as that needs no source. Return the verdict after that.

        ``attempt`` is the newest attempt. No attempt but the caller's may be alive.
        """
        for _ in range(attempt + MENDED_AGAIN):  # each attempt may have left something
            judged = judgement(self.database, manifest, sink)
            if not self._mend(judged, attempt):
                return judged.verdict
            manifest = self.database.manifests.get(manifest.id)
        raise WorkFailed(
            f"{sink.target} does not show what was written there: {judged.verdict} after it was mended "
            f"{attempt + MENDED_AGAIN} times",
            next_step="nothing is lost; find out why the target does not keep what it confirms, then: tidemark retry "
            f"{self.context.pipeline_name}",
            manifest=manifest.id,
            sink=sink.name,
        )

    def _mend(self, judged: Judgement, attempt: int) -> bool:
        """Make the repair that a verdict asks for. Return whether something changed, and must be judged again."""
        manifest, sink = judged.manifest, judged.sink
        published = manifest.published(sink.name)
        evidence = judged.stored(judged.shown.evidence)
        match judged.verdict:
            case Verdict.MARK_MISSING if evidence:
                if isinstance(sink.output, ServesCopy):
                    sink.output.serve()  # the attempt may have died after COMMIT, before it updated the copy
                with suppress(Fenced):
                    self._mark(manifest, sink, evidence.receipt, attempt, state=None)
                    return True
                # If the attempt is still the newest, another process has taken the output back meanwhile: judge again.
                return isinstance(sink.output, TakesBack) and self.database.attempts.newest(manifest.id) == attempt
            case Verdict.SUPERSEDED if evidence:
                if not self.database.attempts.take_back(manifest.id, evidence.receipt.attempt, sink.name):
                    return False
                sink.discard(evidence.receipt)
                return True
            case Verdict.EVIDENCE_MISSING if published:
                stored = judged.stored(published.attempt)
                assert stored is not None, "its objects were found by its receipt"
                accepted = self.database.decisions.accepted_damage(manifest.id, sink.name, published.attempt)
                assert isinstance(sink.output, TakesBack), "in the others a record comes with its rows"
                name = RecordName(self.pipeline_name, manifest.id, stored.receipt.attempt)
                record = record_of(sink, stored.receipt, manifest.ranges, self._database_id, accepted)
                sink.output.write_record(name, record)
                return True
        return False

    def recovered(self, manifest: Manifest, attempt: int) -> Outcome:
        """End an attempt that had nothing to do: every sink has a publication, only the state was not ``done``."""
        with self.database.transaction():
            self._finish(manifest.id, attempt, AttemptState.UNCHANGED)
        self.clean(manifest.id, attempt, self.context.sinks)
        done = self.database.manifests.get(manifest.id)
        return Outcome(manifest.id, done.published_attempt or 0, Ending.RECOVERED, done.published_counts)

    def _fence(self, manifest_id: int, attempt: int, sink: Sink) -> None:
        if not self.database.attempts.may_put(manifest_id, attempt, sink.name):
            raise self.overtaken(manifest_id, attempt)

    def overtaken(self, manifest_id: int, attempt: int) -> Fenced:
        """Return the error of an attempt that is no longer the newest, or whose output was taken back."""
        newer = [row for row in self.database.attempts.of_manifest(manifest_id) if row["attempt"] > attempt]
        ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
        newest_attempt = self.database.attempts.newest(manifest_id)
        why = f"attempt {newest_attempt} is the newest"
        if newest_attempt == attempt:
            why = "it was taken for dead, and what it had put was taken back"
        return Fenced(
            f"attempt {attempt} is fenced: {why}",
            superseded=any(row["state"] in ended_well for row in newer),
            next_step="nothing to do here: the newer attempt does the work",
            manifest=manifest_id,
        )
