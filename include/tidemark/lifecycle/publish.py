"""How one attempt becomes visible (the numbers are those of docs/guarantees.md):

1. ``publish.receipt``        the receipt is stored, if this attempt is the newest; leftovers of lower ones are removed
2. ``publish.mid``            files: each object moves to its key, which belongs to this attempt alone;
                              tables: the marker row is taken, which no lower attempt can take after it
3. ``publish.before_record``  files: all is made durable, then the record of this attempt is written into the lake;
                              tables: the rows are merged, and the target's transaction commits
4. ``publish.before_mark``    one transaction: the publication names this attempt, the manifest is done when every
                              sink has one; a table in the manifest database itself is merged in this transaction
5. ``publish.marked``, ``publish.cleaned``   what lower attempts left, and this attempt's staging, is removed

With several sinks, 2 to 4 are done for each on its own: what one has published stays when another fails.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum

from tidemark.errors import Fenced, TidemarkError
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import OF_ONE_SINK, refuse_outlived
from tidemark.lifecycle.recover import is_put
from tidemark.manifest import AttemptState, Counts, Manifest, ManifestState
from tidemark.receipt import Receipt
from tidemark.sinks.base import Sink


class Ending(StrEnum):
    """How processing a manifest ended well."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"  # the new attempt's rows equal the published ones; nothing moved
    RECOVERED = "recovered"  # an earlier attempt had published and died before saying so
    ALREADY_DONE = "already done"
    SUPERSEDED = "superseded"  # a newer attempt has published; nothing is left to do


@dataclass(frozen=True)
class Outcome:
    manifest_id: int
    attempt: int
    ending: Ending
    counts: Counts


class Publisher:
    """Publishing for one pipeline: the only place that tells readers something new, or takes something away."""

    def __init__(self, context: Context) -> None:
        self.pipeline_name = context.pipeline_name
        self.database = context.database
        self.sinks = context.sinks
        self._database_id = context.database.id()

    def publish(
        self,
        manifest: Manifest,
        receipt: Receipt,
        sinks: Sequence[Sink],
        failed: Mapping[str, TidemarkError],
    ) -> Outcome:
        """Make one attempt's output visible in the five steps above, then say ``done``; may be repeated.

        ``failed`` are the errors of sinks that this attempt could not work for: they are raised in the end.
        """
        failures = list(failed.values())
        attempt = receipt.attempt
        if not self.database.store_receipt(receipt, asdict(receipt)):
            refuse_outlived(self.pipeline_name, self.database, manifest.id)
            raise self.overtaken(manifest.id, attempt)
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
        self.clean(manifest.id, attempt, published)
        if failures:
            raise failures[0]
        failpoint("publish.cleaned")
        counts = published_counts(self.database.manifest(manifest.id))
        return Outcome(manifest.id, attempt, Ending.PUBLISHED if moved else Ending.UNCHANGED, counts)

    def _discard_unpublished(self, manifest: Manifest, attempt: int, sinks: Sequence[Sink]) -> None:
        for lower, _ in self.database.receipts_below(manifest.id, attempt):
            for sink in sinks:
                published = manifest.published(sink.name)
                if published is None or published.attempt != lower.attempt:
                    sink.discard(lower)

    def _publish_to(self, sink: Sink, manifest: Manifest, receipt: Receipt, *, moved: bool, last: bool) -> bool:
        """Steps 2 to 4 for one sink; whether anything moved. ``last``: with it the manifest is done."""
        attempt = receipt.attempt
        same = self._published_alike(sink, manifest, receipt)
        if same:
            state = AttemptState.PUBLISHED if moved else AttemptState.UNCHANGED
            self._mark(manifest, sink, same, attempt, state=state if last else None)
        else:
            state = AttemptState.PUBLISHED
            sink.put(
                receipt,
                manifest.ranges,
                self._database_id,
                lambda: self._fence(manifest.id, attempt),
                lambda: self._mark(manifest, sink, receipt, attempt, state=state if last else None),
            )
        failpoint("publish.marked")
        return same is None

    def _published_alike(self, sink: Sink, manifest: Manifest, receipt: Receipt) -> Receipt | None:
        """The receipt published in a sink if it has the same rows and they are all there still."""
        published = manifest.published(sink.name)
        before = self.database.receipt(manifest.id, published.attempt) if published else None
        if before is None or before.digest(sink.name) != receipt.digest(sink.name):
            return None
        return before if sink.alike(before, receipt) else None

    def _mark(
        self, manifest: Manifest, sink: Sink, visible: Receipt, attempt: int, *, state: AttemptState | None
    ) -> None:
        """Step 4: guarded by the attempt that says so; ``visible`` is the receipt readers see from here on."""
        with self.database.transaction():
            counts, digest = asdict(sink.counts(visible, manifest.ranges)), visible.digest(sink.name)
            if not self.database.publish(manifest.id, attempt, sink.name, visible.attempt, digest, counts):
                raise self.overtaken(manifest.id, attempt)
            if state is not None:
                self._finish(manifest.id, attempt, state)

    def _finish(self, manifest_id: int, attempt: int, state: AttemptState) -> None:
        if not self.database.finish(manifest_id, attempt, [sink.name for sink in self.sinks]):
            raise self.overtaken(manifest_id, attempt)
        self.database.end_attempt(manifest_id, attempt, state)

    def clean(self, manifest_id: int, attempt: int, sinks: Sequence[Sink]) -> None:
        """Step 5: everything of attempts up to this one but the published one's objects and record."""
        now = self.database.manifest(manifest_id)
        own = self.database.receipt(manifest_id, attempt)
        receipts = [receipt for receipt, _ in self.database.receipts_below(manifest_id, attempt)] + (
            [own] if own else []
        )
        for sink in sinks:
            published = now.published(sink.name)
            for receipt in receipts:
                if published is None or receipt.attempt != published.attempt:
                    sink.discard(receipt)
            for number in range(1, attempt + 1):
                sink.clear_staging(manifest_id, number)

    def sweep(self, *, dry_run: bool = False) -> list[int]:
        """Finish the clean-up of done manifests whose attempt died during it; returns their ids, also of a dry run.

        Staging is removed last, so a manifest without any has nothing left over. What lives is never touched, and a
        sink that does not answer, or is another database's, is left alone.
        """
        swept: set[int] = set()
        for sink in self.sinks:
            with suppress(*OF_ONE_SINK):
                if sink.owner() != self._database_id:
                    continue
                staged = sink.staged_manifests()
                forgotten = self.database.unknown_manifests(staged)  # asked second: newer ones are known
                found = self.database.manifests(self.pipeline_name, [ManifestState.DONE], staged) if staged else []
                left = [one for one in found if not one.alive]
                if not dry_run:
                    self._sweep(sink, forgotten, left)
                swept |= {one.id for one in left}
        return sorted(swept)

    def _sweep(self, sink: Sink, forgotten: Sequence[int], left: Sequence[Manifest]) -> None:
        for manifest in forgotten:
            for number in sink.staged_attempts(manifest):
                sink.clear_staging(manifest, number)
        for one in left:
            self.clean(one.id, one.attempt, [sink])
            self._clear_unknown(sink, one.id)
        if not sink.way.takes_back:
            self._catch_up(sink)

    def _clear_unknown(self, sink: Sink, manifest_id: int) -> None:
        """Remove staging of attempts that this database never gave out: one restored from a copy forgot them."""
        staged = sink.staged_attempts(manifest_id)  # asked first: what starts meanwhile has a number given out by then
        newest = self.database.newest_attempt(manifest_id)
        for number in staged:
            if number > newest:
                sink.clear_staging(manifest_id, number)

    def _catch_up(self, sink: Sink) -> None:
        """A replay whose rows are merged and that died before the mark cannot be undone, so its mark is set."""
        newest = {name.manifest_id: name.attempt for name in sink.newest_records().values()}
        behind = self.database.publications_behind(sink.name, newest)
        for one in self.database.manifests(self.pipeline_name, [ManifestState.DONE], behind) if behind else []:
            receipt = self.database.receipt(one.id, newest[one.id])
            if receipt is not None and not one.alive and sink.holds(receipt):
                self._mark(one, sink, receipt, one.attempt, state=None)

    def recover(self, manifest: Manifest, attempt: int, sink: Sink, receipt: Receipt) -> bool:
        """Whether an earlier attempt put all its output into a sink and died before the mark; then the mark is set."""
        found = is_put(manifest, sink, receipt)
        if found:
            self._mark(manifest, sink, receipt, attempt, state=None)
        return found

    def recovered(self, manifest: Manifest, attempt: int) -> Outcome:
        """Every sink had its output already: only the word ``done`` was missing."""
        with self.database.transaction():
            self._finish(manifest.id, attempt, AttemptState.UNCHANGED)
        self.clean(manifest.id, attempt, self.sinks)
        now = self.database.manifest(manifest.id)
        return Outcome(manifest.id, now.published_attempt or 0, Ending.RECOVERED, published_counts(now))

    def _fence(self, manifest_id: int, attempt: int) -> None:
        if self.database.newest_attempt(manifest_id) != attempt:
            raise self.overtaken(manifest_id, attempt)

    def overtaken(self, manifest_id: int, attempt: int) -> Fenced:
        """The error of an attempt that is not the newest any more."""
        newer = [row for row in self.database.attempts(manifest_id) if row["attempt"] > attempt]
        ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
        return Fenced(
            f"attempt {attempt} is fenced: attempt {self.database.newest_attempt(manifest_id)} is the newest",
            superseded=any(row["state"] in ended_well for row in newer),
            next_step="nothing to do here: the newer attempt does the work",
            pipeline=self.pipeline_name,
            manifest=manifest_id,
        )


def published_counts(manifest: Manifest) -> Counts:
    """What readers see of a manifest; with several sinks, in the first."""
    return manifest.publications[0].counts if manifest.publications else Counts()
