"""Checks before a pipeline plans or an attempt writes: the targets of the sinks, and whether the planned records are
still in the source."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import (
    AccessDenied,
    DatabaseBehindLake,
    LakeConflict,
    SinkRefused,
    TidemarkError,
    TopicChanged,
    Unavailable,
    WorkFailed,
)
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.expected import ExpectedByDatabase
from tidemark.lifecycle.ownership import claim, refuse_foreign
from tidemark.lifecycle.reconcile import step_without_evidence, unknown_evidence
from tidemark.model.manifest import count_of, listed
from tidemark.model.verdict import NextStep, command
from tidemark.paths import OWNER, TARGET, RecordName
from tidemark.planner import acceptance
from tidemark.sinks.base import Position, Sink, WriteMode, newest
from tidemark.sinks.capabilities import MayBeRolledBack, TakesBack
from tidemark.sinks.object_store.owner_file import claimed_around, claimed_inside, owner_in

# Each plan compares only this many of the newest manifests with their records, so that plans do not become slower over
# the years. An attempt compares its own manifest.
RECENT = 10_000
OF_ONE_SINK = (Unavailable, AccessDenied, SinkRefused, WorkFailed)  # errors that stop one sink while the others go on


def check_for_plan(context: Context, *, dry_run: bool) -> list[str]:
    """Claim the targets and compare their records with the database. Return notes about targets that do not answer or
    that lack records of published manifests.

    Raises ``LakeConflict``, and the first target's error if none of them answers.
    """
    pipeline_name, database, sinks = context.pipeline_name, context.database, context.sinks
    recent = recent_manifests(database)
    answered: list[tuple[Sink, list[RecordName]]] = []
    silent: list[tuple[Sink, TidemarkError]] = []
    for sink in sinks:  # first the targets, then the database: it may get new manifests meanwhile
        try:
            refuse_vanished(database, sink)
            _refuse_shared(database, sink)
            refuse_nested(database, sink)
            if not dry_run:
                claim(sink, database.id())
            elif sink.ledger.owner() is not None:
                refuse_foreign(sink, database.id())
            refuse_other_name(database, sink, sinks, dry_run=dry_run)
            refuse_went_back(database, sink)
            if isinstance(sink.output, MayBeRolledBack):
                _refuse_orphans(database, sink)
            answered.append((sink, sink.ledger.records(own=False, above=recent)))
        except OF_ONE_SINK as error:
            silent.append((sink, error))
    if not answered:
        raise silent[0][1]
    notes = [f"sink {sink.name} could not be compared with the database: {error.what}" for sink, error in silent]
    last, last_own = database.manifests.highest_id(), database.manifests.highest_id(pipeline_name)
    for sink, names in answered:
        own = newest(name for name in names if name.pipeline_name == pipeline_name)
        _refuse_records_beyond(sink, last, names)
        _refuse_records_beyond(sink, last_own, own.values())
        evidence = {manifest_id: name.attempt for manifest_id, name in own.items()}
        refuse_unknown(database, sink, evidence)
        notes += _without_evidence(database, sink, evidence, recent, dry_run=dry_run)
    return notes


def recent_manifests(database: ManifestDatabase) -> int:
    """Return the id above which each plan and each close compares manifests with their records."""
    return max(0, database.manifests.highest_id() - RECENT)


def _without_evidence(
    database: ManifestDatabase, sink: Sink, evidence: Mapping[int, int], above: int, *, dry_run: bool
) -> list[str]:
    missing = missing_evidence(database, sink, evidence, above, keep=not dry_run)
    if not missing:
        return []
    next_step = step_without_evidence(database, missing[0], sink)
    what = f"{sink.target} shows no record of the published manifests {listed(missing)}"
    return [f"sink {sink.name}: {what}; next: {next_step}"]


def missing_evidence(
    database: ManifestDatabase, sink: Sink, evidence: Mapping[int, int], above: int = 0, *, keep: bool = True
) -> list[int]:
    """Return the published manifests above an id that have no record in a sink. ``evidence`` is what the sink shows;
    with ``keep`` the result is stored in the database."""
    out_of_step = database.publications.out_of_step(sink.pipeline_name, sink.name, evidence, above)
    missing = [manifest_id for manifest_id, is_missing in out_of_step.items() if is_missing]
    if keep:
        keep_missing_evidence(database, sink, missing, above)
    return missing


def keep_missing_evidence(database: ManifestDatabase, sink: Sink, missing: Sequence[int], above: int = 0) -> None:
    """Store which manifests above an id have no record in a sink. Forget those that were missing before and are not
    missing now."""
    database.audits.forget_missing_evidence(sink.pipeline_name, sink.name, above, missing)
    steps: dict[str, list[int]] = {}
    for manifest_id in missing:
        steps.setdefault(step_without_evidence(database, manifest_id, sink), []).append(manifest_id)
    for next_step, manifests in steps.items():
        what = f"it is published and not in {sink.target}"
        database.audits.note_missing(manifests, sink.name, what, next_step, only_evidence=True)


def check_for_attempt(database: ManifestDatabase, sink: Sink, manifest_id: int) -> None:
    """Claim one target. Raises ``LakeConflict`` if it went back to an older state, or shows an attempt that the
    database does not know."""
    refuse_vanished(database, sink)
    _refuse_shared(database, sink)
    claim(sink, database.id())
    refuse_other_name(database, sink)
    refuse_went_back(database, sink)
    # First the target, then the database: it may get new attempts meanwhile.
    recorded = sink.ledger.recorded_attempt(manifest_id)
    if recorded is not None:
        refuse_unknown(database, sink, {manifest_id: recorded})


def refuse_unknown(database: ManifestDatabase, sink: Sink, evidence: Mapping[int, int]) -> None:
    """Raise ``DatabaseBehindLake`` for evidence (attempts by manifest id) of which this database has no receipt."""
    for manifest_id, attempt in unknown_evidence(database, sink, evidence):
        raise not_known(sink, manifest_id, attempt)


def refuse_unknown_anywhere(context: Context) -> None:
    """Raise ``DatabaseBehindLake`` if a target shows an attempt at a recent manifest that this database does not know.

    Leaves out sinks that do not answer and targets of another database: the attempts check those.
    """
    above = recent_manifests(context.database)
    for sink in context.sinks:
        with suppress(*OF_ONE_SINK):
            owner = sink.ledger.owner()
            if owner is not None and owner.database == context.database.id():
                refuse_unknown(context.database, sink, sink.ledger.evidence(above))


def not_known(sink: Sink, manifest_id: int, attempt: int | None) -> DatabaseBehindLake:
    """Return the error for a target with an attempt of which this database has no receipt, or a different one."""
    adopt = command(NextStep.ADOPT, sink.pipeline_name, manifest_id, sink.name)
    return DatabaseBehindLake(
        f"{sink.target} holds a record of attempt {attempt}, and this database has no receipt of it",
        next_step="nothing was started; the database was restored from an older copy, or lost its last transactions "
        f"when it failed over. Read the records back with: {adopt}",
        manifest=manifest_id,
        sink=sink.name,
    )


def _refuse_records_beyond(sink: Sink, manifest_id: int, names: Iterable[RecordName]) -> None:
    """Raise ``DatabaseBehindLake`` if the target has records of higher manifests than the database."""
    last = max(names, key=lambda name: name.manifest_id, default=None)
    if last is not None and last.manifest_id > manifest_id:
        raise DatabaseBehindLake(
            f"{sink.target} holds a record of manifest {last.manifest_id}, this database ends at {manifest_id}",
            next_step="nothing was planned; the database was restored from an older copy. Read the records back "
            f"with: tidemark db adopt {last.pipeline_name} --why TEXT",
            sink=sink.name,
        )


def _refuse_orphans(database: ManifestDatabase, sink: Sink) -> None:
    """Raise ``DatabaseBehindLake`` if the target has rows of ``orphaned_manifests``."""
    orphans = sorted(orphaned_manifests(database, sink))
    if orphans:
        raise DatabaseBehindLake(
            f"{sink.target} has rows of the manifests {listed(orphans)}, which this database does not know, and "
            "no evidence of them",
            next_step="nothing was planned, as their offsets would be there twice. Enter them, or learn how to "
            f"remove their rows: tidemark db adopt {sink.pipeline_name} --why TEXT",
            sink=sink.name,
        )


def orphaned_manifests(database: ManifestDatabase, sink: Sink) -> dict[int, dict[str, Any] | None]:
    """Return the manifests of which the target has rows but no evidence, and which this database does not know; each
    with the newest record of it that still exists."""
    if not isinstance(sink.output, MayBeRolledBack):
        return {}
    return sink.output.orphaned_manifests(ExpectedByDatabase(database, sink))


ANOTHER = "check that the connection names the right database; when it does, accept it"
OLDER = "if it was restored from an older copy, or failed over to a server that lacks its last transactions, accept it"


def went_back(database: ManifestDatabase, sink: Sink) -> str | None:
    """Return the reason why a target is not as this database last published to it; None if it is."""
    difference = _went_back(database, sink)
    return None if difference is None else difference[0]


def _went_back(database: ManifestDatabase, sink: Sink) -> tuple[str, str] | None:
    """Return the reason as ``went_back``, and what to do before the target is accepted as it is."""
    stored = database.targets.get(sink.target)  # first the database, then the target, whose position only grows
    if stored is None:
        return None
    position = sink.ledger.position()
    if position is None:
        return f"{sink.target} no longer exists, and this database has published to it", ANOTHER
    if position.identity != stored["identity"]:
        return f"{sink.target} is another one than this database has published to", ANOTHER
    lost = _lost_table(database, sink, stored["table_id"], position.table_id)
    if lost is not None:
        return lost, "restore the table if you have a copy, then accept it"
    if position.number < stored["position"]:
        what = (
            f"{sink.target} went back: it stands at position {position.number}, and this database has published up to "
            f"position {stored['position']} there{position.hint}"
        )
        return what, OLDER
    lacking = _without_columns(database, sink, lost_columns(stored, position))
    return None if lacking is None else (lacking, "give a renamed column its name back, or accept the table")


def columns_of_rows(sink: Sink, position: Position) -> dict[str, str] | None:
    """Return the columns of a target that the rows of a prepared attempt have, with their nested fields; None if there
    are none."""
    written = sink.output.written_columns
    paths = position.columns or {}
    return {
        path: column
        for path, column in paths.items()
        if any(path == name or path.startswith(f"{name}.") for name in written)
    } or None


def lost_columns(stored: Row, position: Position) -> list[str]:
    """Return the columns of published rows that the same table no longer has. A column that was dropped and created
    again counts too: its values are null."""
    if not position.table_id or position.table_id != stored["table_id"]:
        return []
    now = position.columns or {}
    return sorted(path for path, column in (stored["columns"] or {}).items() if now.get(path) != column)


def _without_columns(database: ManifestDatabase, sink: Sink, lost: Sequence[str]) -> str | None:
    published = _published_in(database, sink)
    if not lost or not published:
        return None
    return (
        f"{sink.target} has lost columns of published rows ({', '.join(lost)}): dropped, renamed, or dropped and "
        f"created again without their values; published there: {published}"
    )


def _published_in(database: ManifestDatabase, sink: Sink) -> str:
    return ", ".join(
        f"{count_of(manifests, 'manifest')} of sink {name} of pipeline {pipeline}"
        for pipeline, name, manifests in database.targets.published(sink.target)
    )


def _lost_table(database: ManifestDatabase, sink: Sink, before: str | None, now: str | None) -> str | None:
    """Return why the table of a target is not the one that this database has published to. None if it is, if nothing is
    published there, or if its loss was accepted."""
    if now is None or now == before or before == "" or (now and before is None):
        return None
    if now and before and now.rpartition("/")[0] != before.rpartition("/")[0]:
        return None  # restored from a dump, as a whole
    published = _published_in(database, sink)
    if not published:
        return None
    what = "is not the table that it was: it was dropped, and created again" if now else "does not exist any more"
    return f"{sink.target} {what}; published there: {published}"


def refuse_went_back(database: ManifestDatabase, sink: Sink) -> None:
    """Raise ``LakeConflict`` for a target that was restored from an older copy, or replaced by another one."""
    difference = _went_back(database, sink)
    if difference is not None:
        what, accept = difference
        adopt = command(NextStep.ADOPT, sink.pipeline_name, None, sink.name)
        step = f"nothing was written; {accept} as it is: {adopt}, which lists what must be replayed"
        raise LakeConflict(what, next_step=step, sink=sink.name)


def refuse_vanished(database: ManifestDatabase, sink: Sink) -> None:
    """Raise ``LakeConflict`` if a target held published output and is empty now, as if a disk is not mounted."""
    if sink.ledger.owner() is None and database.publications.any_in(sink.pipeline_name, sink.name):
        raise vanished(sink)


def holds_output(sink: Sink) -> bool:
    """Return whether a target without an owner still has records, or a table."""
    return bool(sink.ledger.records()) or (not isinstance(sink.output, TakesBack) and sink.output.exists())


def vanished(sink: Sink) -> LakeConflict:
    """Return the error for a target that has no owner although manifests are published there."""
    what = f"{sink.target} is empty, and manifests are published there"
    is_ownerless = holds_output(sink)
    if is_ownerless:
        what = f"{sink.target} has lost what says which database owns it, and manifests are published there"
    if is_ownerless and sink.write_mode is not WriteMode.APPEND:  # a replay makes no row twice there
        return LakeConflict(
            what,
            next_step="nothing was written; check that this is the right folder or database, restore what was lost; or "
            "accept it as it is, which lists what must be replayed: "
            + command(NextStep.ADOPT, sink.pipeline_name, None, sink.name),
            sink=sink.name,
        )
    return LakeConflict(
        what,
        next_step="nothing was written; check that the disk is mounted and that this is the right folder or "
        "database. If the output is lost: restore a copy; or give it up: write another place and another name of "
        f"the sink into the pipeline file, then tidemark retire sink {sink.pipeline_name} {sink.name} --why TEXT and "
        f"tidemark fill {sink.pipeline_name} NAME --why TEXT",
        sink=sink.name,
    )


def _refuse_shared(database: ManifestDatabase, sink: Sink) -> None:
    """Raise ``SinkRefused`` if a sink would append to the target of another pipeline, as the database knows it: the
    target itself may no longer name its owner."""
    if sink.write_mode is not WriteMode.APPEND:
        return
    if others := database.targets.other_writers(sink.pipeline_name, sink.target):
        raise SinkRefused(
            f"pipeline {others[0]} writes to {sink.target} already; two pipelines would mix their output there",
            next_step="nothing was written; give this sink a target of its own",
            sink=sink.name,
        )


def refuse_nested(database: ManifestDatabase, sink: Sink) -> None:
    """Raise ``SinkRefused`` if a folder of the sink lies in a folder that another sink has claimed, or the reverse.

    A sink that has published already is not refused: audits know which folders lie in which.
    """
    if database.publications.any_in(sink.pipeline_name, sink.name):
        return
    for store in sink.staging.places():
        outer = claimed_around(store)
        # If this folder has an owner already, a folder inside of it was claimed later, and that sink was refused.
        inner = claimed_inside(key for key, _ in store.list()) if owner_in(store) is None else set()
        if outer is None and not inner:
            continue
        where = f"lies in {outer}" if outer else f"has the folder {min(inner)} in it"
        raise SinkRefused(
            f"{store.root} {where}, where another sink writes: the one would take files of the other for leftovers",
            next_step="nothing was written; give this sink a folder of its own, beside that one, then: "
            f"tidemark plan {sink.pipeline_name}; where nobody writes there any more, remove its {OWNER} and {TARGET}",
            sink=sink.name,
        )


def refuse_other_name(
    database: ManifestDatabase, sink: Sink, of_pipeline: Sequence[Sink] = (), *, dry_run: bool = False
) -> None:
    """Note in the place of a sink the target name that the sink has for it.

    Raises ``SinkRefused`` if another sink, known to the database or one ``of_pipeline``, has another name for the same
    place.
    """
    registered = sink.ledger.registered_targets()
    others = registered - {sink.target}
    # The output of a retired sink stays. A sink that takes back output must not take it for leftovers, so it counts.
    writers = database.targets.writers(others, retired=isinstance(sink.output, TakesBack)) if others else []
    writers += [(other.pipeline_name, other.name, other.target) for other in of_pipeline if other.target in others]
    if not database.publications.any_in(sink.pipeline_name, sink.name):  # older versions wrote no note into a place
        same = {target for target in database.targets.known() if target != sink.target and sink.ledger.is_at(target)}
        known = database.targets.writers(same, retired=isinstance(sink.output, TakesBack)) if same else []
        writers += [writer for writer in known if database.publications.any_in(*writer[:2])]
    if writers:
        other_pipeline, name, target = writers[0]
        raise SinkRefused(
            f"{sink.target} and {target} are one place, which sink {name} of pipeline {other_pipeline} writes "
            "already; two sinks would mix their output there",
            next_step="nothing was written; take this sink out of the pipeline file, and add one of another name, with "
            f"a place of its own; then: tidemark retire sink {sink.pipeline_name} {sink.name} --why TEXT and tidemark "
            f"fill {sink.pipeline_name} NAME --why TEXT. When sink {name} is retired, this place can be used again by "
            f"the name {target}",
            sink=sink.name,
        )
    if sink.target not in registered and not dry_run:
        sink.ledger.note_target()


def refuse_beyond_generation(pipeline_name: str, database: ManifestDatabase, manifest_id: int) -> None:
    """Raise ``TopicChanged`` if a manifest has offsets above the known end of its log generation: the records there now
    belong to a later one."""
    if rows := database.ranges.beyond_generation(manifest_id):
        raise _beyond_generation(pipeline_name, manifest_id, rows[0])


def _beyond_generation(pipeline_name: str, manifest_id: int, row: Row) -> TopicChanged:
    if row["noticed"]:
        next_step = (
            "nothing of this attempt is published, what was published before stays; to accept the truncation: "
            + acceptance(pipeline_name, row["topic"], cut=row["partition"])
        )
    else:
        next_step = (
            "what is published of it stays; when a sink lacks it, accept that with tidemark accept damage "
            f"{pipeline_name} --manifest {manifest_id} --why TEXT, then finish it with tidemark retry {pipeline_name}"
        )
    return TopicChanged(
        f"the log that it was planned on ended at {row['generation_end']}; its offsets above that hold other records "
        "now",
        next_step=next_step,
        manifest=manifest_id,
        topic=row["topic"],
        partition=row["partition"],
        offsets=f"[{row['start_offset']},{row['end_offset']})",
    )
