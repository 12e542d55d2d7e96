"""How one attempt becomes visible (the numbers are those of docs/guarantees.md):

1. ``publish.receipt``        the receipt is stored, if this attempt is the newest; leftovers of lower attempts are
                              removed
2. ``publish.mid``            files: each object moves to its key, which belongs to this attempt alone;
                              tables: the attempt takes the marker row, and no lower attempt can take it any more
3. ``publish.before_record``  files: all objects are made durable, then the record of this attempt is written into the
                              lake; tables: the rows are merged, and the target's transaction commits
4. ``publish.before_mark``    one transaction: the publication names this attempt, the manifest is done when every
                              sink has a publication; a table in the manifest database is merged in this transaction
5. ``publish.marked``, ``publish.cleaned``   leftovers of lower attempts and the staging of this one are removed

With several sinks, steps 2 to 4 are done for each sink on its own: when one fails, the others stay published.
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
    RECOVERED = "recovered"  # an earlier attempt had put all its output and died before the publication
    ALREADY_DONE = "already done"
    SUPERSEDED = "superseded"  # a newer attempt has published; nothing is left to do


@dataclass(frozen=True)
class Outcome:
    manifest_id: int
    attempt: int
    ending: Ending
    counts: Counts


class Publisher:
    """Publishing for one pipeline: only this class adds what readers see, or removes it."""

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
        """Make one attempt's output visible in the five steps above, so that the manifest is done; may be repeated.

        ``failed`` has the errors of sinks that this attempt could not write to; the first error is raised at the end.
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
        """The published receipt of a sink, if its rows equal the new ones and are all still there; else None."""
        published = manifest.published(sink.name)
        before = self.database.receipt(manifest.id, published.attempt) if published else None
        if before is None or before.digest(sink.name) != receipt.digest(sink.name):
            return None
        return before if sink.alike(before, receipt) else None

    def _mark(
        self, manifest: Manifest, sink: Sink, visible: Receipt, attempt: int, *, state: AttemptState | None
    ) -> None:
        """Step 4: ``visible`` is the receipt that readers see from here on, ``attempt`` the one that publishes it.

        With a ``state`` the attempt ends so, and the manifest is done. Raises ``Fenced`` when it is not the newest.
        """
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
        """Step 5: remove all that attempts up to this one left, except objects and record of the published attempt."""
        manifest = self.database.manifest(manifest_id)
        receipts = [receipt for receipt, _ in self.database.receipts_below(manifest_id, attempt)]
        own = self.database.receipt(manifest_id, attempt)
        if own is not None:
            receipts.append(own)
        for sink in sinks:
            published = manifest.published(sink.name)
            for receipt in receipts:
                if published is None or receipt.attempt != published.attempt:
                    sink.discard(receipt)
            for number in range(1, attempt + 1):
                sink.clear_staging(manifest_id, number)

    def sweep(self, *, dry_run: bool = False) -> list[int]:
        """Clean up done manifests whose attempt died in step 5; returns their ids, in a dry run too.

        Staging is removed last, so a manifest without staging has no leftovers. Manifests with a live attempt are left
        alone, and so is a sink that does not answer or belongs to another database.
        """
        swept: set[int] = set()
        for sink in self.sinks:
            with suppress(*OF_ONE_SINK):
                if sink.owner() != self._database_id:
                    continue
                staged = sink.staged_manifests()
                forgotten = self.database.unknown_manifests(staged)  # after the sink: so it knows newer manifests
                done = self.database.manifests(self.pipeline_name, [ManifestState.DONE], staged) if staged else []
                dead = [manifest for manifest in done if not manifest.alive]
                if not dry_run:
                    self._sweep(sink, forgotten, dead)
                swept |= {manifest.id for manifest in dead}
        return sorted(swept)

    def _sweep(self, sink: Sink, forgotten: Sequence[int], dead: Sequence[Manifest]) -> None:
        for manifest_id in forgotten:
            for number in sink.staged_attempts(manifest_id):
                sink.clear_staging(manifest_id, number)
        for manifest in dead:
            self.clean(manifest.id, manifest.attempt, [sink])
            self._clear_unknown(sink, manifest.id)
        if not sink.way.takes_back:
            self._catch_up(sink)

    def _clear_unknown(self, sink: Sink, manifest_id: int) -> None:
        """Remove staging of attempts that this database does not know, since it was restored from an older copy."""
        staged = sink.staged_attempts(manifest_id)  # before the database is asked: it knows all of these attempts
        newest = self.database.newest_attempt(manifest_id)
        for number in staged:
            if number > newest:
                sink.clear_staging(manifest_id, number)

    def _catch_up(self, sink: Sink) -> None:
        """Publish replays that merged their rows and died before step 4: merged rows cannot be taken back."""
        newest = {name.manifest_id: name.attempt for name in sink.newest_records().values()}
        behind = self.database.publications_behind(sink.name, newest)
        if not behind:
            return
        for manifest in self.database.manifests(self.pipeline_name, [ManifestState.DONE], behind):
            receipt = self.database.receipt(manifest.id, newest[manifest.id])
            if receipt is not None and not manifest.alive and sink.holds(receipt):
                self._mark(manifest, sink, receipt, manifest.attempt, state=None)

    def recover(self, manifest: Manifest, attempt: int, sink: Sink, receipt: Receipt) -> bool:
        """Publish an earlier attempt's receipt if all its output is in the sink; False when it is not."""
        if not is_put(manifest, sink, receipt):
            return False
        self._mark(manifest, sink, receipt, attempt, state=None)
        return True

    def recovered(self, manifest: Manifest, attempt: int) -> Outcome:
        """End an attempt that had nothing to do: every sink has a publication, only the state was not ``done``."""
        with self.database.transaction():
            self._finish(manifest.id, attempt, AttemptState.UNCHANGED)
        self.clean(manifest.id, attempt, self.sinks)
        done = self.database.manifest(manifest.id)
        return Outcome(manifest.id, done.published_attempt or 0, Ending.RECOVERED, published_counts(done))

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
    """The counts of what readers see of a manifest; with several sinks those of the first."""
    return manifest.publications[0].counts if manifest.publications else Counts()
