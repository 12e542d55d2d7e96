"""Reads the records of the targets back into the database: after a restore from an older copy, or into an empty one.

A record names ranges, counts and objects: all that the database must know of a published manifest. Offsets between
records that no manifest covers are planned again, and ``tidemark retry`` reads them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from tidemark.database.statements import Row
from tidemark.errors import LakeConflict, Unavailable
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.folders import claim_folders
from tidemark.lifecycle.known_sinks import remember_sinks
from tidemark.lifecycle.logs.divergence import first_difference_now
from tidemark.lifecycle.ownership import claim, hand_over
from tidemark.lifecycle.preflight import (
    holds_output,
    lost_columns,
    missing_evidence,
    orphaned_manifests,
    vanished,
    went_back,
)
from tidemark.lifecycle.reconcile import judgement, step_without_evidence
from tidemark.lifecycle.select import at_work, refuse_at_work
from tidemark.model.manifest import Decision, Manifest, ManifestState, RangeKind, RunKind
from tidemark.model.offsets import Range, TopicPartition, range_from
from tidemark.model.receipt import MALFORMED, Receipt
from tidemark.model.verdict import NextStep, Verdict, command
from tidemark.operations.audit import audit
from tidemark.operations.decisions import deciding, give_up_beyond_generations
from tidemark.paths import RecordName
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.rows import TransformedRows
from tidemark.planner import Chain
from tidemark.sinks.base import Owner, Position, Sink, WriteMode
from tidemark.sinks.capabilities import DerivesTotals

Generation = tuple[TopicPartition, int]  # a partition, and the number of its log generation


@dataclass(frozen=True)
class _Entry:
    """One manifest, as the records of the sinks show it. The sinks may show different attempts.

    ``receipts`` are those to publish, by sink: of the newest record whose output is whole, or of the newest record if
    none is whole. ``others`` are of higher records whose output is not whole; ``retry`` removes them.
    """

    manifest_id: int
    ranges: tuple[Range, ...]
    receipts: dict[str, Receipt] = field(default_factory=dict)
    given_up: dict[str, frozenset[str]] = field(default_factory=dict)  # paths of objects that were given up, by sink
    others: list[Receipt] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # the sinks where not even the output of ``receipts`` is whole
    orphans: list[str] = field(default_factory=list)  # the sinks that have rows of it and no evidence

    @property
    def attempt(self) -> int:
        return max(receipt.attempt for receipt in self.receipts.values())

    @property
    def objects(self) -> int:
        return sum(len(receipt.objects) for receipt in self.receipts.values())

    def by_attempt(self) -> list[Receipt]:
        """Return one receipt per attempt, lowest attempt first, with the objects of all sinks that have a record of
        it.
        """
        joined: dict[int, Receipt] = {}
        for receipt in sorted((*self.receipts.values(), *self.others), key=lambda receipt: receipt.attempt):
            joined[receipt.attempt] = receipt.joined(joined.get(receipt.attempt))
        return list(joined.values())

    def line(self, pipeline_name: str) -> str:
        line = f"manifest {self.manifest_id} attempt {self.attempt}: {self.objects} objects"
        if self.damaged:
            replay = command(NextStep.REPLAY, pipeline_name, self.manifest_id, "")
            line += f", some of them are missing in {', '.join(self.damaged)}; next: {replay}"
        return line


def adopt(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Enter the targets' records into the database, and accept the present state of the targets.

    Raises ``LakeConflict`` if the database and the records contradict each other. Raises ``IllegalTransition`` while an
    attempt is alive at an undone manifest, or at one that would be adopted.
    """
    database, pipeline_name = context.database, context.pipeline_name
    entries, unreadable = _entries(context)
    ids = [entry.manifest_id for entry in entries]
    with deciding(context, why, ids):
        # Compare the records with the database. Refuse before anything is changed.
        known = {manifest.id: manifest for manifest in database.manifests.find(ids=ids)}
        evidence = {sink.name: sink.ledger.evidence() for sink in context.sinks}
        unknown = [entry for entry in entries if not _is_known(context, entry, known, evidence)]
        _refuse_unreadable(context, unreadable)
        missing = _without_known(context, unknown)
        deleted = _DeletedRows.of(context, entries)
        adopted = tuple(entry.manifest_id for entry in unknown)
        refuse_at_work([*at_work(context), *(known[manifest_id] for manifest_id in adopted if manifest_id in known)])
        _refuse_changed(context, unknown)
        # Say what will be done, one line each. Owners, markers, totals and positions of the targets follow the records.
        lines = [entry.line(pipeline_name) for entry in unknown]
        lines += deleted.lines()
        foreign = _foreign(context, dry_run=dry_run)
        lines += [
            f"{sink.target}: database {owner.database} may not write there any more, this one may"
            for sink, owner in foreign
        ]
        lines += _claim_again(context, dry_run=dry_run)
        back = _went_back(context)
        if lines or back:
            derived = [sink.output for sink in context.sinks if isinstance(sink.output, DerivesTotals)]
            for each in derived:
                each.refuse_other_definition()
            lines += [line for each in derived for line in each.derive_again(dry_run=dry_run)]
        accepted, replaced = _accept_targets(context, back, dry_run=dry_run)
        lines += accepted
        if dry_run or not lines:
            return Decision(tuple(lines), adopted, dry_run)

        # Store it. New manifests and attempts get numbers above all that the targets know.
        staged = _keep_ids_free(context, adopted)
        if unknown or deleted:
            lines += _enter(context, unknown, missing, deleted, known, staged, why)
        for manifest in database.manifests.find(ids=sorted(staged)):
            database.adoption.skip_attempts(manifest.id, staged[manifest.id])
        decision = Decision(tuple(lines), adopted)
        database.decisions.note(pipeline_name, "adopt", decision)
        for sink, owner in foreign:  # last: when anything is refused, the other database stays the owner
            hand_over(sink, Owner(database.id(), (*owner.before, owner.database)))
    # Another table may lack rows of any manifest: until they are there, the pipeline must not be ok.
    return replace(decision, lines=(*lines, *map(str, audit(context, deep=False)))) if replaced else decision


def keep_ids_of(context: Context) -> None:
    """Reserve the ids of all manifests that the targets have. Call it for every pipeline before the first one is
    adopted: otherwise a plan between two adoptions could reuse an id of a pipeline that is adopted later.
    """
    _keep_ids_free(context, ())


def _keep_ids_free(context: Context, adopted: Sequence[int]) -> dict[int, int]:
    """Reserve the ids of manifests that the targets have, or that are adopted.

    Return the highest staged attempt of each manifest with staged output. A paused attempt of the former database may
    own it, and has written no record yet.
    """
    recorded = {name.manifest_id for sink in context.sinks for name in sink.ledger.records(own=False)}
    staged: dict[int, int] = {}
    for sink in context.sinks:
        for manifest_id in sink.staging.manifests():
            staged[manifest_id] = max(staged.get(manifest_id, 0), *sink.staging.attempts(manifest_id), 0)
    context.database.manifests.keep_ids_above(max((*recorded, *staged, *adopted), default=0))
    return staged


@dataclass(frozen=True)
class _DeletedRows:
    """Rows that were deleted from the database, and that no record of a target restores: manifests by id, and for each
    chain the offsets [start, end) that no range covers any longer.
    """

    manifests: tuple[int, ...]
    gaps: Mapping[int, Sequence[tuple[int, int]]]
    offsets: tuple[str, ...]  # the gaps as texts

    @classmethod
    def of(cls, context: Context, entries: Sequence[_Entry]) -> Self:
        """Find the deleted rows. Raises ``LakeConflict`` for a chain whose anchor was deleted."""
        recorded = {entry.manifest_id for entry in entries}
        manifests, gaps, offsets = [], dict[int, list[tuple[int, int]]](), []
        for row in context.database.audits.gone_rows(context.pipeline_name, None):
            if row["gone_from"] in ("manifest", "run") and row["manifest_id"] not in recorded:
                manifests.append(row["manifest_id"])
            if row["chain_id"] is None:
                continue
            if row["start_offset"] is None:
                raise LakeConflict(
                    f"the anchor of {row['topic']}-{row['partition']} was deleted from the table manifest_range, so "
                    "the start of its chain is unknown",
                    next_step="nothing was adopted; restore a copy of the manifest database, and then adopt; or adopt "
                    "into an empty one",
                )
            gaps.setdefault(row["chain_id"], []).append((row["start_offset"], row["end_offset"]))
            offsets.append(f"[{row['start_offset']}, {row['end_offset']}) of {row['topic']}-{row['partition']}")
        return cls(tuple(manifests), gaps, tuple(offsets))

    def __bool__(self) -> bool:
        return bool(self.manifests or self.gaps)

    def lines(self) -> list[str]:
        return [
            f"manifest {manifest_id}: its row was deleted, and no target has a record of it; it is planned again"
            for manifest_id in self.manifests
        ] + [f"offsets {offsets}: the rows of their ranges were deleted" for offsets in self.offsets]


def _without_known(context: Context, unknown: Sequence[_Entry]) -> list[_Entry]:
    """Return the entries, each with only those of its ranges that no chain has yet; leave out entries without such
    ranges.

    Raises ``LakeConflict`` if the database has other ranges of a manifest than its record.
    """
    known = context.database.adoption.ranges_of(context.pipeline_name, [entry.manifest_id for entry in unknown])
    missing = []
    for entry in unknown:
        ranges = known.get(entry.manifest_id, ())
        if not {*ranges} <= {*entry.ranges}:
            raise LakeConflict(
                f"manifest {entry.manifest_id} covers other offsets in the lake than in this database",
                next_step="this database planned manifests after it was restored; restore the copy again, then adopt",
            )
        if {*ranges} < {*entry.ranges}:
            missing.append(replace(entry, ranges=tuple(each for each in entry.ranges if each not in ranges)))
    return missing


def _enter(
    context: Context,
    unknown: Sequence[_Entry],
    missing: Sequence[_Entry],
    deleted: _DeletedRows,
    known: Mapping[int, Manifest],
    staged: Mapping[int, int],
    why: str,
) -> list[str]:
    """Insert manifests, ``missing`` ranges, attempts and publications. Return one line for each hole that is planned
    again and for each range that is given up.
    """
    database, pipeline_name = context.database, context.pipeline_name
    remember_sinks(context.pipeline, database)
    run_key = f"adopt__{datetime.now(UTC).isoformat()}"
    run_id = database.runs.insert(
        pipeline_name, run_key, RunKind.MANUAL, cut_at=None, reached=False, covered_by=[], notes=[why]
    )
    for slice_number, entry in enumerate(unknown):
        if entry.manifest_id not in known:
            database.adoption.insert_manifest(run_id, pipeline_name, entry.manifest_id, slice_number)
    slices = len(unknown) + len(deleted.manifests)
    for slice_number, manifest_id in enumerate(deleted.manifests, len(unknown)):
        database.adoption.insert_manifest(run_id, pipeline_name, manifest_id, slice_number, staged.get(manifest_id, 0))
    topics = {range_.at.topic for entry in unknown for range_ in entry.ranges}
    claim_folders(context, sorted(topics), dry_run=False)
    before = _all_chains(context)
    holes = _insert_ranges(context, run_id, missing, before, deleted.gaps, first_slice=slices)
    for entry in unknown:
        _publish(context, entry)
    holes += _plan_unknown_generations(context, run_id, before.keys(), first_slice=slices + len(holes))
    lines = [f"{hole.at.name}: offsets [{hole.start}, {hole.end}) are planned again" for hole in holes]
    return lines + give_up_beyond_generations(context)


def _entries(context: Context) -> tuple[list[_Entry], list[tuple[Sink, RecordName]]]:
    """Return an entry for each manifest that a sink shows, ordered by id, and the records that could not be read."""
    entries: dict[int, _Entry] = {}
    unreadable: list[tuple[Sink, RecordName]] = []
    for sink in context.sinks:
        names: dict[int, list[RecordName]] = {}
        for name in sink.ledger.records():
            names.setdefault(name.manifest_id, []).append(name)
        if not names:
            _refuse_other_name(context, sink)
        for manifest_id, of_manifest in names.items():
            highest_first = sorted(of_manifest, key=lambda name: name.attempt, reverse=True)
            unread: list[RecordName] = []
            read = _whole_or_newest(sink, highest_first, unread)
            unreadable += [(sink, name) for name in unread]
            if read is None:
                continue
            newest_whole, above, is_whole = read
            entry = _added(entries, sink, manifest_id, newest_whole)
            entry.others.extend(other.receipt for other in above)
            if not is_whole:
                entry.damaged.append(sink.name)
    for sink in context.sinks:
        orphans = orphaned_manifests(context.database, sink)
        for manifest_id, content in orphans.items():
            _enter_orphan(sink, manifest_id, content, entries)
    return [entries[manifest_id] for manifest_id in sorted(entries)], unreadable


def _added(entries: dict[int, _Entry], sink: Sink, manifest_id: int, read: "_Content") -> _Entry:
    """Add what a sink shows of a manifest to its entry; return the entry."""
    entry = entries.setdefault(manifest_id, _Entry(manifest_id, read.ranges))
    if entry.ranges != read.ranges:
        raise LakeConflict(
            f"the sinks' records of manifest {entry.manifest_id} cover different offsets",
            next_step="one of the targets was restored from another copy; correct that first",
            sink=sink.name,
        )
    entry.receipts[sink.name] = read.receipt
    entry.given_up[sink.name] = read.given_up
    return entry


def _enter_orphan(sink: Sink, manifest_id: int, content: dict[str, Any] | None, entries: dict[int, _Entry]) -> None:
    """Add a manifest of which a sink has rows and no evidence. ``content``, its newest record, says which offsets the
    rows cover; a replay replaces them.

    Raises ``LakeConflict`` if no sink has a record of it: the rows must be removed before their offsets are planned
    again.
    """
    if content is None and manifest_id not in entries:
        raise LakeConflict(
            f"{sink.target} has rows of manifest {manifest_id}, which this database does not know, and no evidence of"
            " it exists: the offsets that they cover are unknown",
            next_step=f"nothing was adopted; delete the rows WHERE _manifest_id = {manifest_id} from it with an "
            f"engine, such as Spark, then repeat: tidemark db adopt {sink.pipeline_name} --why TEXT. Their offsets "
            "are planned again",
            manifest=manifest_id,
            sink=sink.name,
        )
    if content is None:
        return  # an attempt replaces them: the manifest is done when every sink has it
    attempt = content.get("attempt")
    if not isinstance(attempt, int):
        raise _damaged(sink, RecordName(sink.pipeline_name, manifest_id, 1))
    read = _read(sink, RecordName(sink.pipeline_name, manifest_id, attempt), content)
    entry = _added(entries, sink, manifest_id, read)
    entry.damaged.append(sink.name)
    entry.orphans.append(sink.name)


def _refuse_other_name(context: Context, sink: Sink) -> None:
    """Raise ``LakeConflict`` if a target has evidence of this pipeline, but of a sink with another name."""
    if any(name.pipeline_name == context.pipeline_name for name in sink.ledger.records(own=False)):
        raise LakeConflict(
            f"{sink.target} has evidence that this pipeline wrote there as a sink of another name, not {sink.name}",
            next_step="give the sink in the pipeline file the name that it had, adopt, and then rename it: "
            f"tidemark rename sink {context.pipeline_name} OLD {sink.name} --why TEXT",
            sink=sink.name,
        )


@dataclass(frozen=True)
class _Content:
    """The content of a record; ``given_up`` are the paths of objects that were given up."""

    receipt: Receipt
    ranges: tuple[Range, ...]
    given_up: frozenset[str]


def _whole_or_newest(
    sink: Sink, names: Sequence[RecordName], unread: list[RecordName]
) -> tuple[_Content, list[_Content], bool] | None:
    """Choose one of a manifest's records; ``names`` has the highest attempt first.

    Return the first record whose output is whole, the records above it, and True. If none is whole, return the first
    readable record, no others, and False. Return None if none can be read. Unreadable records that were tried are
    appended to ``unread``.
    """
    above: list[_Content] = []
    for name in names:
        content = sink.ledger.record(name)
        if content is None:
            unread.append(name)
            continue
        read = _read(sink, name, content)
        if sink.is_whole(read.receipt, read.given_up):
            return read, above, True
        above.append(read)
    return (above[0], [], False) if above else None


def _read(sink: Sink, name: RecordName, content: dict[str, Any]) -> _Content:
    try:
        parts = (*content["objects"], *content["gone"])
        objects = [{**part, "sink": sink.name, "staged": ""} for part in parts]
        raw = {"manifest_id": name.manifest_id, "attempt": name.attempt, "sinks": [sink.name], "objects": objects}
        raw["follows"] = {}  # a decision to append again was carried out by this attempt
        measured = {name: content[name] for name in ("partitions", "hours", "reasons", "schemas")}
        raw |= {part: content.get(part, ()) for part in ("unknown_fields", "expectations")}  # of older releases: none
        receipt = Receipt.from_raw({**raw, **measured})
        ranges = tuple(range_from(raw_range) for raw_range in content["ranges"])
        return _Content(receipt, ranges, frozenset(part["path"] for part in content["gone"]))
    except MALFORMED as damaged:
        raise _damaged(sink, name) from damaged


def _damaged(sink: Sink, name: RecordName) -> LakeConflict:
    return LakeConflict(
        f"{name} cannot be read as a record: it is damaged, or of another version",
        next_step="restore it from a copy of the target; without a copy, move it and its output out of the target, "
        "and its offsets are planned again",
        sink=sink.name,
        manifest=name.manifest_id,
    )


def _refuse_unreadable(context: Context, unreadable: Sequence[tuple[Sink, RecordName]]) -> None:
    """Raise ``LakeConflict`` for an unreadable record of an attempt that this database does not know. It cannot be
    adopted, and every plan would be refused because of it. A record that was removed meanwhile does not count.
    """
    for sink, name in unreadable:
        receipt = context.database.attempts.receipt(name.manifest_id, name.attempt)
        if (receipt is None or sink.name not in receipt.sinks) and name in sink.ledger.records(
            above=name.manifest_id - 1
        ):
            raise _damaged(sink, name)


def _is_known(
    context: Context, entry: _Entry, known: Mapping[int, Manifest], evidence: Mapping[str, Mapping[int, int]]
) -> bool:
    """Return whether the database knows all that the sinks show of a manifest. ``evidence`` has, by sink, the attempt
    that shows each manifest.
    """
    manifest = known.get(entry.manifest_id)
    if manifest is None:
        return False
    if manifest.pipeline_name != context.pipeline_name:
        raise LakeConflict(
            f"manifest {entry.manifest_id} belongs to pipeline {manifest.pipeline_name} in this database: it was "
            "planned after a restore and before this pipeline was adopted, so its id was given out twice",
            next_step=f"restore the copy again, move the output and the record of manifest {entry.manifest_id} of "
            f"{manifest.pipeline_name} out of its target, and adopt every pipeline before you plan any of them",
            manifest=entry.manifest_id,
        )
    if manifest.ranges != entry.ranges or (
        manifest.state is ManifestState.DONE and not manifest.publications and not manifest.given_up
    ):
        return False  # its rows were deleted by hand, or ``_without_known`` refuses it
    sinks = [sink for sink in context.sinks if sink.name in entry.receipts]
    return not any(
        judgement(context.database, manifest, sink, evidence=evidence[sink.name]).verdict is Verdict.UNKNOWN
        for sink in sinks
    )


def _refuse_changed(context: Context, unknown: Sequence[_Entry]) -> None:
    """Raise ``Unavailable`` if an attempt removed output while the records were read, which takes time."""
    for entry in unknown:
        for sink in context.sinks:
            receipt = entry.receipts.get(sink.name)
            if receipt is None:
                continue
            newest_attempt = max(other.attempt for other in (receipt, *entry.others) if sink.name in other.sinks)
            shown = None if sink.name in entry.orphans else newest_attempt
            moved = sink.name not in entry.damaged and not sink.is_whole(receipt, entry.given_up[sink.name])
            if sink.ledger.recorded_attempt(entry.manifest_id) != shown or moved:
                raise Unavailable(
                    f"{sink.target} changed while its records were read",
                    next_step=f"nothing was adopted; repeat: tidemark db adopt {sink.pipeline_name} --why TEXT",
                    manifest=entry.manifest_id,
                    sink=sink.name,
                )


def _generation_of(range_: Range) -> Generation:
    return range_.at, range_.generation


def _foreign(context: Context, *, dry_run: bool) -> list[tuple[Sink, Owner]]:
    """Return the sinks whose target another database owns, each with that owner. This database may take over from it.

    Raises ``ForeignLake`` if this database has manifests of its own.
    """
    foreign, database_id = [], context.database.id()
    for sink in context.sinks:
        owner = sink.ledger.owner()
        if owner is not None and owner.database != database_id:
            if not dry_run and not context.database.adoption.succeed(owner.database):
                raise sink.ledger.not_owned(owner, database_id)
            foreign.append((sink, owner))
    return foreign


def _claim_again(context: Context, *, dry_run: bool) -> list[str]:
    """Claim the targets of this database that have lost their owner's record; return one line for each.

    Raises ``LakeConflict`` for a target without any published output, and for one that is only appended to: a replay
    would append the rows a second time.
    """
    lines = []
    for sink in context.sinks:
        if sink.ledger.owner() is not None or not context.database.publications.any_in(sink.pipeline_name, sink.name):
            continue
        if not holds_output(sink) or sink.write_mode is WriteMode.APPEND:
            raise vanished(sink)
        if not dry_run:
            claim(sink, context.database.id())
        lines.append(f"{sink.target}: this database owns it again")
    return lines


def _went_back(context: Context) -> list[tuple[Sink, str]]:
    """Return the sinks whose target went back to an older state, each with the reason.

    Raises ``LakeConflict`` for a target that no longer exists, and for totals that lost a column: a replay adds the
    difference to the previous totals, which are unknown.
    """
    owned = [sink for sink in context.sinks if sink.ledger.owner() is not None]  # in a dry run nothing is claimed again
    back = [(sink, why) for sink in owned if (why := went_back(context.database, sink)) is not None]
    for sink, why in back:
        position, stored = sink.ledger.position(), context.database.targets.get(sink.target)
        if position is None:
            raise LakeConflict(
                why,
                next_step="nothing was adopted; restore it, or create it again empty, then repeat: "
                f"tidemark db adopt {context.pipeline_name} --why TEXT",
                sink=sink.name,
            )
        if stored is not None and isinstance(sink.output, DerivesTotals) and lost_columns(stored, position):
            raise LakeConflict(
                why,
                next_step="nothing was adopted; give the column its name back, or restore the tables from a copy; or "
                "write another table and another name of the sink into the pipeline file, then tidemark retire sink "
                f"{sink.pipeline_name} {sink.name} --why TEXT and tidemark fill {sink.pipeline_name} NAME --why TEXT",
                sink=sink.name,
            )
    return back


def _accept_targets(context: Context, back: Sequence[tuple[Sink, str]], *, dry_run: bool) -> tuple[list[str], bool]:
    """Accept the present state of targets that went back. Return one line for each change, and whether a table was
    dropped, or created again, since the last publication there.
    """
    lines, replaced = list[str](), False
    for sink, why in back:
        position = sink.ledger.position()
        stored = context.database.targets.get(sink.target)
        is_another = position is not None and stored is not None and stored["table_id"] != position.table_id
        replaced |= is_another
        if is_another and position is not None and position.table_id:
            why = f"{why}; to see whether it has all rows: tidemark audit {context.pipeline_name} --deep"
        if position is not None and stored is not None and position.number < stored["position"]:
            why += _lost_beside(context, lost_columns(stored, position))
        lost = [] if stored is None or position is None else _lost_and_wanted(context, stored, position)
        if not dry_run and position is not None:
            context.database.targets.accept(sink.target, position.identity, position.number, position.table_id)
            sink.ledger.forget_lost_rows()
        lines += [why, *_without_evidence(context, sink, dry_run=dry_run)]
        lines += _without_values(context, sink, lost, dry_run=dry_run)
    return lines, replaced


def _lost_beside(context: Context, lost: Sequence[str]) -> str:
    """Return the end of a line that names columns missing in a table that went back. The older copy may have been made
    before these columns, so only its rows can show whether values were lost.
    """
    if not lost:
        return ""
    return (
        f"; its columns ({', '.join(lost)}) are missing too; to see whether rows have lost their values: "
        f"tidemark audit {context.pipeline_name} --deep"
    )


def _lost_and_wanted(context: Context, stored: Row, position: Position) -> list[str]:
    """Return the columns that a table has lost, without those that the pipeline file no longer has.

    Return none for a table that went back: it is unknown whether its rows ever had them, and ``_lost_beside`` names
    them.
    """
    lost = lost_columns(stored, position)
    if not lost or position.number < stored["position"]:
        return []
    decode = pinned(context.pipeline, context.lookup, {}).decode
    names = TransformedRows(decode, context.pipeline.transforms()).field_types()
    return [path for path in lost if path.startswith("_") or any(f"{path}.".startswith(f"{name}.") for name in names)]


def _without_values(context: Context, sink: Sink, columns: Sequence[str], *, dry_run: bool) -> list[str]:
    """Note that published rows have no values in these columns, until a replay writes them. Return one line per
    manifest.
    """
    lines = []
    for manifest in context.database.manifests.find(context.pipeline_name) if columns else ():
        published = manifest.published(sink.name)
        if published is None or not published.counts.written:
            continue
        replay = command(NextStep.REPLAY, context.pipeline_name, manifest.id, sink.name)
        what = f"its rows in {sink.target} have lost {', '.join(columns)}"
        if not dry_run:
            context.database.audits.note_missing([manifest.id], sink.name, what, replay, lost_values=True)
        lines.append(f"manifest {manifest.id}: {what}; next: {replay}")
    return lines


def _without_evidence(context: Context, sink: Sink, *, dry_run: bool) -> list[str]:
    missing = missing_evidence(context.database, sink, sink.ledger.evidence(), keep=not dry_run)
    return [
        f"manifest {manifest_id} is published and not in {sink.target}; "
        f"next: {step_without_evidence(context.database, manifest_id, sink)}"
        for manifest_id in missing
    ]


def _all_chains(context: Context) -> dict[Generation, Chain]:
    """Return all chains that the database knows, also retired ones: a record may be of an ended generation."""
    chains = context.database.chains.of_all_generations(context.pipeline_name)
    return {(chain.at, chain.generation): chain for chain in chains}


def _insert_ranges(
    context: Context,
    run_id: int,
    entries: Sequence[_Entry],
    chains: Mapping[Generation, Chain],
    gaps: Mapping[int, Sequence[tuple[int, int]]],
    *,
    first_slice: int,
) -> list[Range]:
    """Insert the records' ranges into their chains, and plan manifests for the holes between them; return the holes.

    ``gaps`` has, by chain id, the offsets inside a chain that no range covers.
    """
    database, pipeline_name = context.database, context.pipeline_name
    by_generation: dict[Generation, list[tuple[Range, int]]] = {}
    for entry in entries:
        for range_ in entry.ranges:
            by_generation.setdefault((range_.at, range_.generation), []).append((range_, entry.manifest_id))
    ids = {generation: chain.id for generation, chain in chains.items()}
    ids |= database.adoption.insert_chains(
        pipeline_name, [generation for generation in sorted(by_generation) if generation not in ids]
    )
    rows, holes = [], []
    for generation, recorded in by_generation.items():
        rows += [(ids[generation], range_.start, range_.end, manifest_id) for range_, manifest_id in recorded]
        ranges = sorted(range_ for range_, _ in recorded)
        _set_anchor(context, ids[generation], chains.get(generation), ranges)
        holes += _holes(chains.get(generation), ranges, gaps.get(ids[generation], ()))
    for generation, chain in chains.items():
        if generation not in by_generation:
            holes += _holes(chain, (), gaps.get(chain.id, ()))
    holes += _unread_before_a_cut(chains, by_generation)
    database.ranges.insert(RangeKind.DATA, rows)
    _plan(context, run_id, holes, ids, first_slice=first_slice)
    return holes


def _plan(
    context: Context, run_id: int, holes: Sequence[Range], ids: Mapping[Generation, int], *, first_slice: int
) -> None:
    """Plan manifests for the holes; ``ids`` are the ids of their chains."""
    database, rows = context.database, []
    for number, part in enumerate(_one_per_partition(holes)):
        [manifest_id] = database.manifests.insert(run_id, context.pipeline_name, 1, first=first_slice + number)
        rows += [(ids[_generation_of(hole)], hole.start, hole.end, manifest_id) for hole in part]
    database.ranges.insert(RangeKind.DATA, rows)


def _set_anchor(context: Context, chain_id: int, chain: Chain | None, ranges: Sequence[Range]) -> None:
    """Anchor a chain that is new; move the anchor of a known chain back if the recorded ranges begin before it."""
    anchor = min(range_.anchor for range_ in ranges)
    if chain is None:
        context.database.ranges.insert(RangeKind.ANCHOR, [(chain_id, None, anchor, None)])
    elif anchor < chain.anchor:
        context.database.chains.extend_back(chain.id, anchor)


def _holes(chain: Chain | None, ranges: Sequence[Range], gaps: Sequence[tuple[int, int]]) -> list[Range]:
    """Return the offsets from the anchor on that neither the recorded ranges nor the known chain covers. ``gaps`` are
    offsets inside the known chain that it does not cover.

    Raises ``LakeConflict`` if two ranges overlap.
    """
    covered = list(ranges)
    if chain:
        starts = [chain.anchor, *(end for _, end in gaps)]
        ends = [*(start for start, _ in gaps), chain.end]
        parts = [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
        covered += [Range(chain.at, start, end, chain.generation) for start, end in parts]
    anchors = [range_.anchor for range_ in ranges] + ([chain.anchor] if chain else [])
    end = min(anchors)
    holes = []
    for range_ in sorted(covered):
        if range_.start < end:
            raise LakeConflict(
                f"the records of {range_.at.name} cover [{range_.start}, {min(end, range_.end)}) twice",
                next_step="this database planned manifests after it was restored; restore the copy again, then adopt",
            )
        if range_.start > end:
            holes.append(Range(range_.at, end, range_.start, range_.generation))
        end = range_.end
    if chain and end < chain.anchor:
        holes.append(Range(chain.at, end, chain.anchor, chain.generation))
    return holes


def _unread_before_a_cut(
    chains: Mapping[Generation, Chain], by_generation: Mapping[Generation, Sequence[tuple[Range, int]]]
) -> list[Range]:
    """Return the offsets that an earlier generation had still to read when its log was cut, for each cut that the
    database learns of now.

    Below the cut, where the later generation begins, the log is still the same.
    """
    ends = {generation: chain.end for generation, chain in chains.items()}
    for generation, recorded in by_generation.items():
        ends[generation] = max(ends.get(generation, 0), *(range_.end for range_, _ in recorded))
    unread = []
    for later in sorted(by_generation.keys() - chains.keys()):
        cut = min(range_.anchor for range_, _ in by_generation[later])
        before = _before(ends, later)
        if before is not None and ends[before] < cut and _unknown_between(ends, before, later) is None:
            unread.append(Range(before[0], ends[before], cut, before[1]))
    return unread


def _before(known: Collection[Generation], later: Generation) -> Generation | None:
    """Return the last known generation of the same log before a later one, or None."""
    return max((each for each in known if each[0] == later[0] and each[1] < later[1]), default=None)


def _unknown_between(known: Collection[Generation], before: Generation | None, later: Generation) -> int | None:
    """Return the highest number of a generation between ``before`` and ``later`` that has left no record, or None.

    Without ``before``, check only the number right below ``later``: lower numbers belong to other topics of this name.
    """
    at, number = later
    numbers = {each for place, each in known if (place.topic, place.partition) == (at.topic, at.partition)}
    lowest = max(number - 1, 1) if before is None else before[1] + 1
    return max(set(range(lowest, number)) - numbers, default=None)


def _plan_unknown_generations(
    context: Context, run_id: int, known_before: Collection[Generation], *, first_slice: int
) -> list[Range]:
    """Plan what generations without a record had to read; return these ranges.

    Each ends where the next generation begins. It starts where the log differs from what earlier generations published,
    or else at their end; at offset 0 if no earlier generation is known.
    """
    database, pipeline_name = context.database, context.pipeline_name
    holes: list[Range] = []
    chains = _all_chains(context)
    for later in sorted(chains.keys() - known_before):
        before = _before(chains, later)
        number = _unknown_between(chains, before, later)
        start, cut = 0, chains[later].anchor
        if before is not None:
            differs = None if number is None else first_difference_now(context, chains[before])
            start = chains[before].end if differs is None else min(chains[before].end, differs)
        if number is None or start >= cut:
            continue
        hole = Range(later[0], start, cut, number)
        ids = database.adoption.insert_chains(pipeline_name, [_generation_of(hole)])
        database.ranges.insert(RangeKind.ANCHOR, [(ids[_generation_of(hole)], None, start, None)])
        _plan(context, run_id, [hole], ids, first_slice=first_slice + len(holes))
        chains[_generation_of(hole)] = Chain(ids[_generation_of(hole)], hole.at, number, start, cut)
        holes.append(hole)
    return holes


def _one_per_partition(holes: Sequence[Range]) -> list[list[Range]]:
    """Split the holes into lists with at most one hole per partition: a manifest has one range on a chain."""
    parts: list[list[Range]] = []
    for hole in holes:
        free = next((part for part in parts if all(other.at != hole.at for other in part)), None)
        if free is None:
            parts.append(free := [])
        free.append(hole)
    return parts


def _publish(context: Context, entry: _Entry) -> None:
    """Enter attempts and publications. The manifest is done if every sink of the pipeline has a record of it."""
    database = context.database
    database.manifests.unblock(entry.manifest_id)
    for receipt in entry.by_attempt():
        joined = receipt.joined(database.attempts.receipt(entry.manifest_id, receipt.attempt))
        database.adoption.insert_attempt(joined, asdict(joined))
    newest_attempt = database.attempts.newest(entry.manifest_id)
    for sink in context.sinks:
        if sink.name in entry.receipts:
            receipt = entry.receipts[sink.name]
            given_up = sorted(entry.given_up[sink.name])
            database.decisions.accept_damage(entry.manifest_id, sink.name, receipt.attempt, given_up)
            counts = asdict(sink.output.counts(receipt, entry.ranges))
            database.publications.publish(
                entry.manifest_id, newest_attempt, sink.name, receipt.attempt, receipt.digest(sink.name), counts
            )
    for sink_name in entry.damaged:
        what = f"some of its published output is missing in sink {sink_name}"
        replay = command(NextStep.REPLAY, context.pipeline_name, entry.manifest_id, sink_name)
        database.audits.note_missing([entry.manifest_id], sink_name, what, replay)
    if not database.attempts.finish(entry.manifest_id, newest_attempt, [sink.name for sink in context.sinks]):
        database.attempts.fail(entry.manifest_id, newest_attempt, "adopted; not every sink has a record of it")
