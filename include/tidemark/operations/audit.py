"""Compares the database with what the sinks hold; every difference names its manifest and the next step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from tidemark.database.client import ManifestDatabase
from tidemark.errors import AccessDenied, ForeignLake, LakeConflict, Unavailable, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.expected import ExpectedByDatabase
from tidemark.lifecycle.gone_rows import gone_rows
from tidemark.lifecycle.ownership import refuse_foreign
from tidemark.lifecycle.preflight import OF_ONE_SINK, refuse_vanished, refuse_went_back, went_back
from tidemark.lifecycle.reconcile import Judgement, judgement
from tidemark.model.manifest import Manifest, ManifestSelection, ManifestState, listed
from tidemark.model.problem import Problem
from tidemark.model.verdict import NextStep, Verdict, command
from tidemark.operations.known_damage import Damage
from tidemark.paths import RecordName
from tidemark.sinks.base import Contents, Expected, Sink, WriteMode
from tidemark.sinks.capabilities import KeepsDeadLetterFiles, TakesBack
from tidemark.sinks.object_store.published_files import lost_dead_letters
from tidemark.text import storable

KEPT = 20  # differences that the database keeps of an audit, for the page; the audit itself tells all
KEPT_CHARACTERS = 500  # of each line of a kept difference
NOT_SEEN = (Unavailable, AccessDenied, WorkFailed)  # after these errors it is unknown what the sink holds


def audit(context: Context, *, deep: bool = False) -> list[Problem]:
    """Return every difference between chains, manifests, publications and output; ``deep`` reads all rows.

    Leave out differences of a manifest whose attempt starts or publishes during the audit: its output has changed
    since. The database keeps who ran the audit, how many differences it found, the first ``KEPT`` of them, and when it
    began: it may have missed later changes.
    """
    began = datetime.now(UTC)
    differences = list(_that_stay(context, deep=deep))
    _keep(context, began, differences, deep=deep)
    if not differences:
        context.database.audits.forget_missing(context.pipeline_name)
    return [difference.with_example() for difference in differences]


def audit_between(context: Context, selection: ManifestSelection) -> tuple[list[Manifest], list[Problem]]:
    """Return the manifests of a selection, newest first, and their differences: in counts, and in all objects of each
    sink.

    The cost depends on these manifests alone. Only ``audit`` finds output that belongs to no manifest. Differences are
    kept as the last audit, until an audit of everything finds none. An empty result is not kept, since only a part was
    compared.
    """
    began = datetime.now(UTC)
    manifests = context.database.manifests.page(context.pipeline_name, selection)
    differences = [difference for manifest in manifests for difference in _equations(manifest)]
    for manifest in manifests:
        in_sinks = [in_sink for in_sink in compared(context, manifest) if in_sink.differs]
        if in_sinks and not _changed(context, manifest):
            differences += [Problem(manifest.id, in_sink.what, in_sink.next_step) for in_sink in in_sinks]
    if differences:
        _keep(context, began, differences, deep=False)
    return manifests, differences


def damaged_manifests(context: Context) -> tuple[list[Manifest], list[Problem]]:
    """Audit the pipeline. Return the manifests whose damage a replay mends, with those that stored audits name, and
    the problems that no replay mends, or of which nobody knows.
    """
    name = context.pipeline_name
    now = [each for each in audit(context, deep=False) if not each.harmless]
    problems = [*now, *Damage.of_pipeline(context.database, name).of_manifest.values()]  # deep audits find more
    ids = {each.manifest_id for each in problems if each.names("replay")} - {None}
    others = [each for each in problems if not each.names("replay") and each.manifest_id not in ids]
    return context.database.manifests.find(name, ids=sorted(filter(None, ids))), others


def not_mended(pipeline_name: str, other: Problem) -> WorkFailed:
    """Return the error for a problem that the replays of all damage have not mended."""
    return WorkFailed(
        f"not all that is damaged can be mended by a replay: {other.what}",
        next_step=f"{other.next_step}; then: tidemark audit {pipeline_name}",
        pipeline=pipeline_name,
        manifest=other.manifest_id,
    )


def _keep(context: Context, began: datetime, differences: Sequence[Problem], *, deep: bool) -> None:
    first = [_shortened(difference) for difference in differences[:KEPT]]
    context.database.audits.store(context.pipeline_name, began, deep=deep, differences=len(differences), first=first)


def _shortened(difference: Problem) -> dict[str, Any]:
    """Shorten a difference for the database: a line may name all files of a lake, in any characters that a file system
    allows.
    """
    texts = {"what": difference.what, "next_step": difference.next_step}
    kept = {name: storable(text)[:KEPT_CHARACTERS] for name, text in texts.items()}
    return {
        "manifest_id": difference.manifest_id, **kept, "unseen": difference.unseen, "harmless": difference.harmless,
    }  # fmt: skip


def _that_stay(context: Context, *, deep: bool) -> Iterator[Problem]:
    manifests = context.database.manifests.find(context.pipeline_name)
    before = {manifest.id: manifest for manifest in manifests}
    for difference in _differences(context, manifests, deep=deep):
        if difference.manifest_id not in before or not _changed(context, before[difference.manifest_id]):
            yield difference


def _changed(context: Context, before: Manifest) -> bool:
    """Return whether an attempt has started or published since the manifest was read."""
    now = context.database.manifests.get(before.id)
    return (now.attempt, now.publications) != (before.attempt, before.publications)


@dataclass(frozen=True)
class Compared:
    """The comparison of one manifest with one sink; ``verdict`` is one of ``docs/verdicts.md``.

    ``verdict`` is None while an attempt is at work, and if the sink cannot be compared. ``next_step`` is empty if there
    is nothing to do.
    """

    sink: str
    target: str
    verdict: Verdict | None
    what: str
    next_step: str

    @property
    def differs(self) -> bool:
        """Return whether something must be done. True also if the sink cannot be compared; false while an attempt is at
        work.
        """
        return bool(self.next_step) and self.verdict is not Verdict.UNSTARTED


def compared_and_kept(context: Context, manifest: Manifest) -> list[Compared]:
    """Compare one manifest with each sink. Keep differences of a done manifest as the last audit, as ``audit_between``
    does.

    An unfinished manifest differs in any case, and a sink that does not answer has shown no difference: neither is
    kept.
    """
    began = datetime.now(UTC)
    sinks = compared(context, manifest)
    if manifest.state is ManifestState.DONE and not _changed(context, manifest):
        differing = [in_sink for in_sink in sinks if in_sink.differs and in_sink.verdict is not None]
        differences = [Problem(manifest.id, in_sink.what, in_sink.next_step) for in_sink in differing]
        if differences:
            _keep(context, began, differences, deep=False)
    return sinks


def compared(context: Context, manifest: Manifest) -> list[Compared]:
    """Compare a manifest with each sink, all of its objects or rows included."""
    return [_compared(context, manifest, sink) for sink in context.sinks]


def _compared(context: Context, manifest: Manifest, sink: Sink) -> Compared:
    if manifest.alive:
        return Compared(sink.name, sink.target, None, f"attempt {manifest.attempt} is at work", "")
    try:
        refuse_went_back(context.database, sink)
        judged = judgement(context.database, manifest, sink)
    except (*OF_ONE_SINK, LakeConflict) as error:
        error.within(pipeline=context.pipeline_name, manifest=manifest.id)
        return Compared(sink.name, sink.target, None, f"it cannot be compared: {error.what}", error.next_step)
    if _changed(context, manifest):
        return _compared(context, context.database.manifests.get(manifest.id), sink)
    return Compared(sink.name, sink.target, judged.verdict, described(judged), judged.next_step)


def _differences(context: Context, manifests: list[Manifest], *, deep: bool) -> Iterator[Problem]:
    gone = gone_rows(context.database, context.pipeline_name)
    if gone:  # until they are back, all output would seem to belong to no manifest
        yield from gone
        return
    if context.database.audits.wrong_sums(context.pipeline_name):
        yield Problem(
            None,
            "the stored sums of done manifests, which lists and gauges show, are not what the manifests add up to",
            "the tables were changed by hand; as their owner, count again: SELECT tidemark.count_done()",
        )
    for row in context.database.publications.notes(context.pipeline_name):
        yield Problem(
            row["manifest_id"],
            f"attempt {row['attempt']}, which is published, is {row['note']}",
            "make the transforms depend on the record alone, then: "
            f"tidemark replay {context.pipeline_name} --manifest {row['manifest_id']}",
        )
    for manifest in manifests:
        yield from _equations(manifest)
    for row in context.database.audits.missing(context.pipeline_name):
        if row["lost_values"]:  # other missing output is looked for below
            yield Problem(row["manifest_id"], f"sink {row['sink']}: {row['what']}", row["next_step"])
    for sink in context.sinks:
        try:
            yield from _target(context, sink)
            refuse_vanished(context.database, sink)
            evidence = sink.ledger.evidence()
            for manifest in manifests:
                yield from _verdict(context, sink, manifest, evidence)
            yield from differences_of_sink(context.database, sink, manifests, deep=deep)
        except (*OF_ONE_SINK, LakeConflict) as error:
            error.within(pipeline=context.pipeline_name)
            unseen = isinstance(error, NOT_SEEN)
            yield Problem(None, f"sink {sink.name} cannot be compared: {error.what}", error.next_step, unseen=unseen)


def _target(context: Context, sink: Sink) -> Iterator[Problem]:
    """Yield a difference for a target of another database, and for one that went back. ``refuse_vanished`` reports a
    target that has lost its owner's record or its output.
    """
    owner, database_id = sink.ledger.owner(), context.database.id()
    adopt = command(NextStep.ADOPT, sink.pipeline_name, None, sink.name)
    if owner is not None:
        try:
            refuse_foreign(sink, database_id)
        except ForeignLake as foreign:
            yield Problem(None, foreign.what, foreign.next_step)
    elif context.database.publications.any_in(sink.pipeline_name, sink.name):
        return  # ``refuse_vanished`` reports the loss
    why = went_back(context.database, sink)
    if why is not None:
        yield Problem(None, why, f"check that it is the right one; if it was restored, or cannot be: {adopt}")


def differences_of_sink(
    database: ManifestDatabase, sink: Sink, manifests: Sequence[Manifest], *, deep: bool
) -> Iterator[Problem]:
    """Yield what a target lacks, or holds and should not; ``deep`` reads all rows. ``manifests`` are of this
    pipeline.
    """
    expected, evidence = ExpectedByDatabase(database, sink, manifests), sink.ledger.evidence()
    yield from _left_in_staging(database, sink, manifests)
    contents: Contents = {sink.ledger.record_word: set(evidence)} if sink.ledger.record_word else {}
    if sink.output.exists():
        yield from sink.output.differences(expected, contents, deep=deep)
        if isinstance(sink.output, KeepsDeadLetterFiles):
            store = sink.output.dead_letter_store()
            yield from lost_dead_letters(expected, sink.output, store, evidence, deep=deep)
    elif sink.write_mode is WriteMode.APPEND and (published := expected.published()):
        yield _missing(sink, len(published))
    yield from _unknown_manifests(expected, sink, contents, evidence)


def _left_in_staging(database: ManifestDatabase, sink: Sink, manifests: Sequence[Manifest]) -> Iterator[Problem]:
    """Yield a difference for each of these manifests that is done, has staged output, and has no attempt at work."""
    own = {manifest.id for manifest in manifests}
    staged = [manifest_id for manifest_id in sink.staging.manifests() if manifest_id in own]
    current = database.manifests.find(ids=staged) if staged else []
    dead = [manifest.id for manifest in current if manifest.state is ManifestState.DONE and not manifest.alive]
    # Ask again: an attempt that was running may have ended since, and removed its staging.
    still_staged = set(sink.staging.manifests()) if dead else set()
    for manifest_id in dead:
        if manifest_id in still_staged:
            what = "staging was left by an attempt that died"
            yield Problem(manifest_id, what, f"tidemark retry {sink.pipeline_name}", harmless=True)


def _missing(sink: Sink, published: int) -> Problem:
    """Return the difference for a missing target that output was appended to; ``published`` counts its manifests."""
    restore = "restore it, or give the sink another target and name, and fill that"
    return Problem(None, f"{sink.target} does not exist, and {published:,} manifests are published there", restore)


def _unknown_manifests(
    expected: Expected, sink: Sink, contents: Contents, evidence: Mapping[int, int]
) -> Iterator[Problem]:
    """Yield what a target holds of manifests that no pipeline of the database has; those with ``evidence`` can be
    adopted.
    """
    for unknown in sorted(expected.unknown(set().union(*contents.values()))):
        kinds = " and ".join(kind for kind, manifest_ids in contents.items() if unknown in manifest_ids)
        next_step = "no attempt of Tidemark has left them there: delete those rows by hand"
        if unknown in evidence:
            next_step = f"tidemark db adopt {sink.pipeline_name} --why TEXT"
        yield Problem(
            None, f"{sink.target} has {kinds} of manifest {unknown}, which this database does not know", next_step
        )


def _equations(manifest: Manifest) -> Iterator[Problem]:
    if manifest.state is ManifestState.DONE and not manifest.publications and not manifest.given_up:
        yield Problem(
            manifest.id,
            "is done without a publication",
            f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
        )
    span = sum(range_.span for range_ in manifest.ranges)
    for publication in manifest.publications:
        counts = publication.counts
        if counts.read + counts.invisible != span or not counts.adds_up:
            yield Problem(
                manifest.id,
                f"counts of sink {publication.sink} do not add up to its {span:,} offsets: {counts}",
                f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}",
            )


def _verdict(context: Context, sink: Sink, manifest: Manifest, evidence: Mapping[int, int]) -> Iterator[Problem]:
    """Yield the verdict on a manifest, unless it is only unfinished; ``differences_of_sink`` compares the objects."""
    publication = manifest.published(sink.name)
    if manifest.alive or not manifest.attempt:
        return
    done = manifest.state is ManifestState.DONE
    if done and not manifest.publications:
        return  # ``_equations`` reports it
    judged = judgement(context.database, manifest, sink, objects=False, evidence=evidence)
    stored = judged.stored(publication.attempt) if publication else None
    if publication is not None and (stored is None or stored.receipt.digest(sink.name) != publication.digest):
        what = f"the receipt of attempt {publication.attempt} is not what was published"
        yield Problem(manifest.id, what, command(NextStep.REPLAY, sink.pipeline_name, manifest.id, sink.name))
    elif judged.verdict not in (Verdict.IN_STEP, Verdict.UNSTARTED) and (publication or judged.shown.evidence or done):
        yield Problem(manifest.id, described(judged), judged.next_step)


def _missing_files(judged: Judgement, attempt: int | None) -> list[str]:
    """Return the files of a published attempt that a target of files lacks, or has with another size."""
    sink, stored = judged.sink, judged.stored(attempt)
    if stored is None or not isinstance(sink.output, TakesBack):
        return []
    return [file.path for file in sink.output.missing(stored.receipt)]


def described(judged: Judgement) -> str:
    """Return a verdict as a sentence with the target and the attempts concerned."""
    target, evidence = judged.sink.target, judged.shown.evidence
    publication = judged.manifest.published(judged.sink.name)
    attempt = publication.attempt if publication else None
    match judged.verdict:
        case Verdict.MARK_MISSING:
            return f"{target} shows attempt {evidence}, which is whole and not published: it died before that"
        case Verdict.SUPERSEDED:
            return (
                f"{target} has a record of attempt {evidence}, which died and is not published; its output is not whole"
            )
        case Verdict.UNKNOWN:
            return f"{target} has a record of attempt {evidence} that this database has no receipt of"
        case Verdict.EVIDENCE_MISSING:
            name = RecordName(judged.sink.pipeline_name, judged.manifest.id, attempt or 0)
            return f"its record is missing or says something else: {name}"
        case Verdict.DAMAGED:
            of_attempt = f"{target} does not show all of attempt {attempt}, which is published"
            missing = _missing_files(judged, attempt)
            are = "file is" if len(missing) == 1 else "files are"
            return f"its {are} missing or cut: {listed(missing)}; {of_attempt}" if missing else of_attempt
        case Verdict.BEHIND if publication is None:
            return f"sink {judged.sink.name} has nothing of it yet: it is published in other sinks only"
        case Verdict.BEHIND:
            return f"sink {judged.sink.name} shows attempt {attempt}, and a replay has reached only other sinks"
        case Verdict.UNFILLED:
            return f"sink {judged.sink.name} has nothing of it: it was added to the pipeline later"
        case Verdict.IN_STEP:
            return "database and target agree"
        case Verdict.UNSTARTED:
            return f"sink {judged.sink.name} has nothing of it, and nothing of it is published"
        case _:
            assert_never(judged.verdict)
