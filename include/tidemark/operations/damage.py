"""Gives up output for good that is damaged, or that one sink never got, if the source has lost its records too."""

from collections.abc import Iterator, Sequence

from tidemark.errors import DataLost, IllegalTransition, NotFound, TopicChanged
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.in_target import record_of
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.reconcile import Judgement, judgement
from tidemark.lifecycle.select import own_manifest, refuse_at_work
from tidemark.model.manifest import Decision, Manifest, ManifestSelection, count_of
from tidemark.model.receipt import PublishedObject
from tidemark.model.verdict import NextStep, Verdict, command
from tidemark.operations.audit import differences_of_sink
from tidemark.operations.decisions import deciding
from tidemark.paths import RecordName
from tidemark.sinks.capabilities import TakesBack

LOSSES = (Verdict.DAMAGED, Verdict.UNFILLED, Verdict.BEHIND)


def accept_damage(context: Context, manifest_id: int, why: str, *, dry_run: bool) -> Decision:
    """Give up the missing output of a published manifest in each sink, and what a sink lacks that another one has. It
    no longer counts as missing. ``retry`` then finishes an unfinished manifest.

    Reads all output, so it also gives up what only a deep audit finds. Changed files stay where they are, but belong to
    no manifest: ``repair`` removes them. Half of an attempt's output in totals is taken out again. Raises ``NotFound``
    if nothing is missing, and ``IllegalTransition`` while the source still has the records.
    """
    check_for_plan(context, dry_run=True)
    manifest = own_manifest(context, manifest_id)
    if not _is_lost(context, manifest):
        raise IllegalTransition(
            f"{context.source.title} still holds its offsets, so nothing of it is gone for good",
            next_step=f"do it once more: {command(NextStep.REPLAY, context.pipeline_name, manifest.id, '')}",
            manifest=manifest.id,
        )
    with deciding(context, why, [manifest_id]):
        manifest = context.database.manifests.get(manifest_id)
        refuse_at_work([manifest])
        lines = tuple(_give_up_in_sinks(context, manifest, deep=True, dry_run=dry_run))
        if not lines:
            raise NotFound(
                "none of its published output is missing, and no sink lacks what another one has",
                next_step=f"look with: tidemark audit {context.pipeline_name} --deep",
                manifest=manifest_id,
            )
        return _noted(context, Decision(lines, (manifest_id,), dry_run))


def accept_damage_between(context: Context, selection: ManifestSelection, why: str, *, dry_run: bool) -> Decision:
    """Do the same as ``accept_damage`` for all manifests of a selection whose records the source has lost, for example
    after a lifecycle rule of a bucket.

    Give up what an audit finds without reading rows. The decision has one line for each manifest. Raises ``NotFound``
    if nothing of them is missing.
    """
    check_for_plan(context, dry_run=True)
    database, pipeline_name = context.database, context.pipeline_name
    selected = sorted(manifest.id for manifest in database.manifests.page(pipeline_name, selection))
    lost = [manifest.id for manifest in database.manifests.find(ids=selected) if _is_lost(context, manifest)]
    given_up: list[int] = []
    lines: list[str] = []
    with deciding(context, why, lost):
        for manifest in database.manifests.find(ids=lost):
            refuse_at_work([manifest])
            of_manifest = list(_give_up_in_sinks(context, manifest, deep=False, dry_run=dry_run))
            if of_manifest:
                more = f"; and {len(of_manifest) - 1:,} more" if len(of_manifest) > 1 else ""
                lines.append(f"manifest {manifest.id}: {of_manifest[0]}{more}")
                given_up.append(manifest.id)
        if not given_up:
            raise NotFound(
                f"of {count_of(len(selected), 'manifest')} in this time {len(lost):,} cannot be read again, and "
                "none of their published output is missing",
                next_step=f"what can be read is replayed: tidemark audit {pipeline_name} names it",
            )
        return _noted(context, Decision(tuple(lines), tuple(given_up), dry_run))


def _noted(context: Context, decision: Decision) -> Decision:
    if not decision.dry_run:
        for manifest_id in decision.manifests:
            context.database.audits.forget_missing(context.pipeline_name, manifest_id)
        context.database.decisions.note(context.pipeline_name, "accept-damage", decision)
    return decision


def _give_up_in_sinks(context: Context, manifest: Manifest, *, deep: bool, dry_run: bool) -> Iterator[str]:
    """Give up what is missing of a manifest in each sink; yield a line for each object. ``deep`` also reads what seems
    whole.
    """
    judged = [judgement(context.database, manifest, sink) for sink in context.sinks]
    for in_sink in judged:
        if in_sink.verdict in LOSSES or (deep and _is_changed(context, in_sink)):
            yield from _give_up(context, in_sink, dry_run=dry_run)


def note_shrunken(context: Context, manifests: Sequence[Manifest], why: str) -> None:
    """Write into the history that replays of these manifests may publish fewer records than before."""
    lines = tuple(f"a replay of manifest {manifest.id} may publish fewer records" for manifest in manifests)
    decision = Decision(lines, tuple(manifest.id for manifest in manifests))
    with context.database.because(why):
        context.database.decisions.note(context.pipeline_name, "accept-shrunken", decision)


def _is_lost(context: Context, manifest: Manifest) -> bool:
    """Return whether the records of a manifest cannot be read again."""
    if manifest.retired:
        return True
    try:
        context.source.check(manifest.id, manifest.ranges, before_reading=True)
    except (DataLost, TopicChanged):
        return True
    return False


def _is_changed(context: Context, judged: Judgement) -> bool:
    """Return whether a sink with all its objects or rows has other ones than were published, as a deep audit finds."""
    manifest, sink = judged.manifest, judged.sink
    published = manifest.published(sink.name)
    stored = judged.stored(published.attempt) if published else None
    if judged.verdict is not Verdict.IN_STEP or published is None or stored is None:
        return False
    if isinstance(sink.output, TakesBack):
        accepted = context.database.decisions.accepted_damage(manifest.id, sink.name, published.attempt)
        return any(part.path not in accepted for part in sink.output.damaged(stored.receipt))
    differences = differences_of_sink(context.database, sink, [manifest], deep=True)
    return any(difference.manifest_id == manifest.id for difference in differences)


def _give_up(context: Context, judged: Judgement, *, dry_run: bool) -> Iterator[str]:
    """Store what is missing in one sink, and write the record of the rest; yield a line for each missing object."""
    manifest, sink = judged.manifest, judged.sink
    published = manifest.published(sink.name)
    if judged.verdict in (Verdict.UNFILLED, Verdict.BEHIND):
        how = f"with attempt {published.attempt} of" if published else "without"
        yield f"sink {sink.name} stays {how} {_ranges(manifest)}"
        if not dry_run:
            context.database.decisions.accept_damage(manifest.id, sink.name, manifest.attempt, [""])
        return
    stored = judged.stored(published.attempt) if published else None
    assert published is not None, "only what is published can be damaged"
    assert stored is not None, "a publication has a receipt"
    if isinstance(sink.output, TakesBack):
        before = context.database.decisions.accepted_damage(manifest.id, sink.name, published.attempt)
        gone = [part for part in sink.output.damaged(stored.receipt) if part.path not in before]
        paths = [part.path for part in gone]
    else:
        gone, paths = list(stored.receipt.objects_of(sink.name)), [""]
    yield from (_line(sink.name, part) for part in gone)
    if dry_run:
        return
    context.database.decisions.accept_damage(manifest.id, sink.name, published.attempt, paths)
    if isinstance(sink.output, TakesBack):
        accepted = context.database.decisions.accepted_damage(manifest.id, sink.name, published.attempt)
        name = RecordName(context.pipeline_name, manifest.id, published.attempt)
        sink.output.write_record(
            name, record_of(sink, stored.receipt, manifest.ranges, context.database.id(), accepted)
        )


def _ranges(manifest: Manifest) -> str:
    return ", ".join(f"{covered.at.name} [{covered.start}, {covered.end})" for covered in manifest.ranges)


def _line(sink_name: str, part: PublishedObject) -> str:
    what = f"{part.path} is" if part.path else "rows are"
    return f"sink {sink_name}: {what} lost, with {count_of(part.rows, 'record')} of {part.places}"
