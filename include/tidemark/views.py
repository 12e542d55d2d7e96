"""What the Python functions return and what ``--json`` prints: frozen and plain, a field for each key.

Offsets are half-open, times know their zone, ids are numbers. A view is a copy: it does not change with the database.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark.connections import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotFound
from tidemark.lifecycle.close import Closing
from tidemark.lifecycle.plan import PlannedRun
from tidemark.manifest import Counts, Manifest, ManifestState, PublishedRange
from tidemark.offsets import Range
from tidemark.operations.archive import NewArchive
from tidemark.operations.audit import Compared
from tidemark.operations.bring_back import BroughtBack
from tidemark.operations.complete import Completeness
from tidemark.operations.dead_letters import Kept, Letters, Place
from tidemark.operations.fill import Filled
from tidemark.operations.hours import Hour
from tidemark.operations.lag import Lag
from tidemark.operations.locate import ChainOffset
from tidemark.operations.status import ProblemKind, Status
from tidemark.operations.timeline import Step, Timeline
from tidemark.pipeline.settings import Pipeline
from tidemark.receipt import ObjectKind, PublishedObject
from tidemark.sinks.difference import Difference
from tidemark.sinks.located import Standing
from tidemark.sinks.registry import open_sink
from tidemark.suggestion import with_nearest

WITH_LETTERS = 100  # manifests whose dead letters the page shows: receipts, and files, must be read
SHOWN_BYTES = 4_096  # of a key, a value and the value of a header of a dead letter


@dataclass(frozen=True)
class RangeView:
    """Offsets ``[start, end)`` of one partition; ``topic_id`` is the broker's id of the topic they were cut from."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class ObjectView:
    """One published file; ``path`` is absolute, or begins with ``s3://``.

    Each sink of files has a copy of every record, so only files of a single ``sink`` may be counted together.
    """

    path: str
    rows: int
    bytes: int
    sink: str


@dataclass(frozen=True)
class PublicationView:
    """The attempt of one manifest that readers see in one sink.

    ``behind``: a replay has reached another sink and not this one.
    """

    sink: str
    attempt: int
    digest: str
    counts: Counts
    published_at: datetime
    behind: bool


@dataclass(frozen=True)
class ArchivedView:
    """That a manifest is archived: in which ``archive``, when, by whom and why. It cannot be replayed any more."""

    archive: int
    at: datetime
    by: str
    why: str


@dataclass(frozen=True)
class ManifestView:
    """One manifest.

    ``attempt`` is the newest number given out (0: never started), ``published_attempt`` the one that readers see in
    every sink, None while a sink has none. ``counts`` are those of the first sink, None until something is published.
    ``alive``: the newest attempt's process still holds its lock. ``unfilled``: known sinks without a done manifest.
    ``archived`` is None unless a person archived it.
    """

    id: int
    pipeline: str
    run_key: str
    slice: int
    state: ManifestState
    attempt: int
    published_attempt: int | None
    alive: bool
    reason: str | None
    ranges: tuple[RangeView, ...]
    counts: Counts | None
    publications: tuple[PublicationView, ...]
    unfilled: tuple[str, ...]
    objects: tuple[ObjectView, ...]
    dead_letter_objects: tuple[ObjectView, ...]
    created_at: datetime
    done_at: datetime | None
    archived: ArchivedView | None


@dataclass(frozen=True)
class AttemptView:
    """One try at a manifest; ``objects`` counts what its receipt names, ``ended_at`` is None while it runs.

    ``note`` says what people should know of an attempt that ended well: the same code had made other rows before.
    """

    attempt: int
    state: str
    actor: str
    error: str | None
    started_at: datetime
    ended_at: datetime | None
    objects: int
    note: str | None = None


@dataclass(frozen=True)
class EventView:
    """One entry of the history: who changed what of a manifest, and when."""

    at: datetime
    actor: str
    subject: str
    what: dict[str, Any]


@dataclass(frozen=True)
class ManifestHistoryView(ManifestView):
    """One manifest with all its attempts and its history, oldest first."""

    attempts: tuple[AttemptView, ...]
    events: tuple[EventView, ...]


@dataclass(frozen=True)
class EndView:
    """Where a run ends in one partition: at the first ``offset`` that it does not have."""

    topic: str
    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True)
class RunView:
    """A planned run, or with ``dry_run`` what would be planned; it ``ends`` at these offsets, one per partition.

    ``manifests`` are new; ``covered_by`` are older ones that hold another part of what the run stands for: a run is
    done when all of them are published.
    ``reached``: the plan goes up to its cut. ``repeated``: the run key was planned before, and ``slices`` is empty.
    ``unfinished`` are manifests of earlier runs that nobody is at work on; ``notes`` say more of them.
    """

    run_key: str
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    reached: bool
    notes: tuple[str, ...]
    repeated: bool
    dry_run: bool
    slices: tuple[tuple[RangeView, ...], ...]
    ends: tuple[EndView, ...]
    unfinished: tuple[int, ...]


@dataclass(frozen=True)
class ClosedRunView:
    """A run whose manifests are all published; ``hours`` counts rows by event hour: on time, late.

    ``taken_along`` are manifests of earlier runs that were unfinished, and that it processed too.
    """

    run_key: str
    reached: bool
    manifests: tuple[ManifestView, ...]
    covered_by: tuple[int, ...]
    taken_along: tuple[int, ...]
    counts: Counts
    hours: dict[str, list[int]]


@dataclass(frozen=True)
class LeftView:
    """A manifest that a command leaves as it is, and why: a sink cannot get it, or it may not be archived."""

    manifest_id: int
    what: str
    next_step: str


@dataclass(frozen=True)
class FillView:
    """What a sink got that was added later, or with ``dry_run`` would get: ids of manifests, oldest first.

    ``left`` were not tried, since the source or the sink did not answer. ``archived`` manifests that it lacks are not
    read again; so many there are.
    """

    sink: str
    dry_run: bool
    filled: tuple[int, ...]
    not_filled: tuple[LeftView, ...]
    left: tuple[int, ...]
    archived: int


@dataclass(frozen=True)
class ArchiveView:
    """What was archived, or with ``dry_run`` would be: its number (None: nothing was), how many ``manifests``, the
    first and the last of them, and how many ``offsets`` of all chains; and where it ``stops`` on a chain.
    """

    pipeline: str
    archive: int | None
    before: datetime
    dry_run: bool
    manifests: int
    first_manifest: int | None
    last_manifest: int | None
    offsets: int
    stops: tuple[LeftView, ...]


@dataclass(frozen=True)
class LetterPlaceView:
    """Where a dead letter was read; ``timestamp`` is that of the record in the source."""

    manifest_id: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


@dataclass(frozen=True)
class LetterGroupView:
    """Dead letters of one class and reason, with ``N`` and ``..`` for what varies; first and last by timestamp."""

    error_class: str
    reason: str
    count: int
    first: LetterPlaceView
    last: LetterPlaceView
    schemas: tuple[str, ...]


@dataclass(frozen=True)
class DeadLetterView:
    """One dead letter, published by this attempt; in JSON key, value and values of headers are base64.

    Each of them is cut after 4,096 bytes; ``value_bytes`` is the whole length of the value, None without a value.
    """

    manifest_id: int
    attempt: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    error_class: str
    reason: str
    schemas: str | None
    key: bytes | None
    value: bytes | None
    value_bytes: int | None
    headers: tuple[tuple[str, bytes | None], ...] | None


@dataclass(frozen=True)
class DeadLettersView:
    """The published dead letters of a pipeline: ``count`` in these ``manifests``, in groups, the most frequent first.

    ``records`` are the first of them, as many as were asked for.
    """

    count: int
    manifests: tuple[int, ...]
    groups: tuple[LetterGroupView, ...]
    records: tuple[DeadLetterView, ...]


@dataclass(frozen=True)
class ReturnedView:
    """A manifest that was replayed: its dead letters before, and those that remain; None in a dry run."""

    manifest_id: int
    before: int
    brought_back: int | None
    remain: int | None


@dataclass(frozen=True)
class NotReplayedView:
    """A manifest that cannot be replayed, and why."""

    manifest_id: int
    what: str
    next_step: str


@dataclass(frozen=True)
class BroughtBackView:
    """The dead letters that a replay brought back, by manifest, oldest first.

    ``left`` were not tried, since the source or a sink did not answer.
    """

    dry_run: bool
    returned: tuple[ReturnedView, ...]
    failed: tuple[NotReplayedView, ...]
    left: tuple[int, ...]


@dataclass(frozen=True)
class DifferenceView:
    """Something that is not as recorded; ``manifest_id`` is None when it belongs to no manifest."""

    manifest_id: int | None
    what: str
    next_step: str

    def __str__(self) -> str:
        where = "" if self.manifest_id is None else f"manifest {self.manifest_id}: "
        return f"{where}{self.what}; next: {self.next_step}"


@dataclass(frozen=True)
class ComparedView:
    """What one sink shows of a manifest; ``verdict`` is one of ``docs/verdicts.md``.

    It is None while an attempt is at work, and when the sink does not answer. ``next_step`` is empty when there is
    nothing to do.
    """

    sink: str
    target: str
    verdict: str | None
    what: str
    next_step: str


@dataclass(frozen=True)
class MissingView:
    """Offsets ``[start, end)`` of one manifest that ``sink`` does not show; ``state`` is the manifest's."""

    manifest_id: int
    state: ManifestState
    sink: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CompletenessView:
    """Whether everything before the cut time ``until`` is published, and what is missing.

    ``run_key`` is the run that answers, planned up to ``until`` or past it. It is None when no run has planned so far
    yet; then ``planned_up_to`` is that of the furthest run, and ``missing`` is all that is planned and unpublished.
    ``lost`` offsets can never be published and do not make it incomplete.
    """

    until: datetime
    complete: bool
    run_key: str | None
    planned_up_to: datetime | None
    missing: tuple[MissingView, ...]
    lost: tuple[RangeView, ...]


@dataclass(frozen=True)
class LagView:
    """One partition: ``lag`` offsets are not planned yet, ``unpublished`` are planned and not published."""

    topic: str
    partition: int
    log_start: int
    planned: int
    last_stable: int
    log_end: int
    unpublished: int
    open_transaction: str | None
    lag: int


@dataclass(frozen=True)
class ProblemView:
    """Something that a person must look at: ``kind`` is unfinished, blocked, late, lost or unknown (not looked at).

    ``manifest_id`` is None when it is about the whole pipeline.
    """

    kind: ProblemKind
    manifest_id: int | None
    what: str
    next_step: str


@dataclass(frozen=True)
class AuditView:
    """When database and sinks were compared, by whom, and how many differences that found; ``deep``: row by row.

    ``first_differences`` are at most 20 of them, with at most 500 characters a line.
    """

    at: datetime
    actor: str
    deep: bool
    differences: int
    first_differences: tuple[DifferenceView, ...]


@dataclass(frozen=True)
class StatusView:
    """One pipeline; ``healthy`` when it has no ``problems``.

    Everything stamped before ``published_up_to`` is published (None: no run says so), and it is late when that is more
    than ``max_age_s`` ago (None: nobody has said when). ``lag`` counts offsets that are not published, None unless
    ``max_lag`` was given. ``at_work`` are manifests with a live attempt, ``waiting`` those planned a moment ago.
    ``oldest_unfinished`` of all that are not done was planned at ``oldest_unfinished_at``, with these ranges.
    ``lost`` offsets and ``dead_lettered`` records were given up, and are no problems. ``audits`` are the last one and
    the last deep one, newest first.
    """

    pipeline: str
    healthy: bool
    published_up_to: datetime | None
    max_age_s: float | None
    lag: int | None
    oldest_unfinished: int | None
    oldest_unfinished_at: datetime | None
    oldest_unfinished_ranges: tuple[RangeView, ...]
    at_work: tuple[int, ...]
    waiting: tuple[int, ...]
    lost: int
    dead_lettered: int
    audits: tuple[AuditView, ...]
    problems: tuple[ProblemView, ...]


@dataclass(frozen=True)
class PipelineView(StatusView):
    """One pipeline as the page in Airflow lists it: its status, how many ``manifests`` are in each state, how many of
    them are ``archived``, and when the last one was done.

    ``lag`` is known here unless ``why_no_lag`` says why the source was not heard.
    """

    manifests: dict[str, int]
    last_done_at: datetime | None
    why_no_lag: str | None
    archived: int = 0


@dataclass(frozen=True)
class PartView:
    """Offsets ``[start, end)`` of a lane that are not done: planned, running, abandoned (its process is dead), failed,
    blocked or lost.

    ``first_manifest`` is None for lost offsets; ``manifests`` says how many neighbours are in this state together.
    """

    start: int
    end: int
    state: str
    first_manifest: int | None
    manifests: int


@dataclass(frozen=True)
class LettersPartView:
    """Offsets ``[start, end)`` of one manifest in a lane with so many dead letters (``records``)."""

    start: int
    end: int
    records: int
    manifest_id: int


@dataclass(frozen=True)
class LaneView:
    """The chain of one partition, offsets ``[start, end)``: done, except its ``parts``.

    ``last_record_at`` is the timestamp of the newest published record in the source, None without one.
    Offsets below ``archived`` are archived (None: none are). ``retired``: its life has ended. ``blocked`` says why
    nothing more is planned, until a person decides; ``cut`` is true when that is since its log was truncated, else the
    topic is another one or gone. ``dead_letters`` are of the newest 100 manifests of the pipeline that have some.
    """

    topic: str
    topic_id: str
    partition: int
    incarnation: int
    retired: bool
    blocked: str | None
    cut: bool
    start: int
    end: int
    last_record_at: datetime | None
    parts: tuple[PartView, ...]
    archived: int | None = None
    dead_letters: tuple[LettersPartView, ...] = ()


@dataclass(frozen=True)
class PeriodView:
    """The ``runs`` that read up to a time in ``(start, end]``, and how many of their ``manifests`` are in which state:
    planned, running, abandoned (its process is dead), failed, blocked or done.

    ``first_undone`` is the first manifest that is not done; ``read`` counts the records that are published.
    """

    start: datetime
    end: datetime
    runs: int
    manifests: dict[str, int]
    first_undone: int | None
    read: int


@dataclass(frozen=True)
class TimelineView:
    """48 hours, days or weeks (``by``) of a pipeline, oldest first.

    A run stands at the time up to which it has read; one that ended before its cut, or has none, at its cut, or when it
    was planned. Of the runs before the first period ``undone_before`` manifests are not done.
    """

    by: Step
    periods: tuple[PeriodView, ...]
    undone_before: int
    first_undone_before: int | None


@dataclass(frozen=True)
class SpanView:
    """Offsets ``[start, end)`` of a partition that is known."""

    start: int
    end: int


@dataclass(frozen=True)
class CoveringManifestView:
    """The manifest that covers an offset: its number, its state and its newest attempt."""

    id: int
    state: ManifestState
    attempt: int
    run_key: str
    alive: bool
    reason: str | None


@dataclass(frozen=True)
class LocatedView:
    """What one sink has of an offset; ``place`` is a path or a table, ``key`` the key of a table's row."""

    sink: str
    attempt: int | None
    standing: Standing
    message: str
    kind: ObjectKind | None
    place: str | None
    key: dict[str, Any] | None


@dataclass(frozen=True)
class OffsetView:
    """What one pipeline made of an offset of one life (``incarnation``) of a partition; ``retired``: it has ended.

    ``standing`` is the first that is true in a sink: held, missing, unread, replaced, no record, unpublished, lost, not
    planned, before the anchor. ``range`` covers the offset; it is None, and so is ``manifest``, where nothing does.
    """

    pipeline: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    incarnation: int
    retired: bool
    standing: Standing
    message: str
    range: SpanView | None
    manifest: CoveringManifestView | None
    sinks: tuple[LocatedView, ...]


@dataclass(frozen=True)
class HourView:
    """An event hour, from ``start`` in UTC: its published ``rows``, of which ``late`` came after the allowed lateness.

    ``revision`` counts how often it has become complete. An hour that is not ``complete`` was never so (revision 0) or
    is open again, and ``waits_for`` says for what it waits. ``archived`` of the rows are of manifests that are
    archived, and not among ``manifests``.
    """

    start: datetime
    rows: int
    late: int
    manifests: tuple[int, ...]
    archived: int
    complete: bool
    complete_at: datetime | None
    revision: int
    waits_for: str | None


@dataclass(frozen=True)
class DecisionView:
    """What a person decided about a pipeline: who, when, why, and one line for each thing that changed."""

    at: datetime
    actor: str
    decision: str
    why: str
    lines: tuple[str, ...]
    manifests: tuple[int, ...]


def range_view(covered: Range) -> RangeView:
    return RangeView(covered.at.topic, covered.at.topic_id, covered.at.partition, covered.start, covered.end)


def object_view(root: str, published: PublishedObject) -> ObjectView:
    return ObjectView(f"{root}/{published.path}", published.rows, published.bytes, published.sink)


def object_views(
    database: ManifestDatabase,
    pipeline_name: str,
    pipeline: Callable[[], Pipeline],
    *,
    sink: str | None = None,
    dead_letters: bool = False,
) -> list[ObjectView]:
    """What readers may count of a pipeline in one sink, by manifest and path.

    The database knows the files of lakes. A table that names its files is asked, which needs the ``pipeline``, when it
    is ``sink``, or no sink is a lake. Raises ``ConfigurationError`` without ``sink`` when several sinks have files,
    and ``NotFound`` for an unknown sink.
    """
    standing = [known for known in database.sinks(pipeline_name) if known.stands]
    if sink is not None:
        _refuse_unknown_sink(pipeline_name, sink, [known.name for known in standing])
        standing = [known for known in standing if known.name == sink]
    if standing and not dead_letters and not any(known.has_files for known in standing):
        return _files_of_tables(pipeline(), {known.name for known in standing})
    published = database.published_objects(pipeline_name)
    if sink is None:
        _refuse_several(pipeline_name, sorted({written.sink for _, _, written in published}))
    kind = ObjectKind.DEAD_LETTER if dead_letters else ObjectKind.DATA
    return [
        object_view(root, written)
        for _, root, written in published
        if written.kind is kind and sink in (None, written.sink)
    ]


def _files_of_tables(pipeline: Pipeline, names: Collection[str]) -> list[ObjectView]:
    tables = [sink for sink in pipeline.sinks if sink.names_files and sink.name in names]
    _refuse_several(pipeline.name, sorted(table.name for table in tables))
    return [
        ObjectView(*file, table.name)
        for table in tables
        for file in open_sink(pipeline.name, table, from_environment).named_files()
    ]


def _refuse_several(pipeline_name: str, with_files: Sequence[str]) -> None:
    if len(with_files) > 1:
        raise ConfigurationError(
            f"the sinks {', '.join(with_files)} each have files with every record: say which sink to read",
            next_step=" or ".join(f"tidemark objects {pipeline_name} --sink {name}" for name in with_files),
            pipeline=pipeline_name,
        )


def _refuse_unknown_sink(pipeline_name: str, sink: str, known: Sequence[str]) -> None:
    if sink not in known:
        raise NotFound(
            with_nearest(f"nothing was planned for a sink {sink}", sink, known),
            next_step=f"name one of: {', '.join(known)}" if known else f"first: tidemark plan {pipeline_name}",
            pipeline=pipeline_name,
        )


def manifest_views(
    database: ManifestDatabase, manifests: Sequence[Manifest], *, objects: bool = True
) -> list[ManifestView]:
    """Manifests with the paths that are published of them, in the order given; without ``objects`` no path is read."""
    paths: dict[tuple[int, ObjectKind], list[ObjectView]] = {}
    with_paths = [manifest.id for manifest in manifests] if objects else []
    for manifest_id, root, written in database.published_objects(ids=with_paths):
        paths.setdefault((manifest_id, written.kind), []).append(object_view(root, written))
    return [
        ManifestView(
            id=manifest.id,
            pipeline=manifest.pipeline_name,
            run_key=manifest.run_key,
            slice=manifest.slice,
            state=manifest.state,
            attempt=manifest.attempt,
            published_attempt=manifest.published_attempt,
            alive=manifest.alive,
            reason=manifest.reason,
            ranges=tuple(map(range_view, manifest.ranges)),
            counts=manifest.publications[0].counts if manifest.publications else None,
            publications=tuple(
                PublicationView(
                    published.sink,
                    published.attempt,
                    published.digest,
                    published.counts,
                    published.published_at,
                    published.behind,
                )
                for published in manifest.publications
            ),
            unfilled=manifest.unfilled,
            objects=tuple(paths.get((manifest.id, ObjectKind.DATA), ())),
            dead_letter_objects=tuple(paths.get((manifest.id, ObjectKind.DEAD_LETTER), ())),
            created_at=manifest.created_at,
            done_at=manifest.done_at,
            archived=ArchivedView(**vars(manifest.archived)) if manifest.archived else None,
        )
        for manifest in manifests
    ]


def manifest_history_view(database: ManifestDatabase, manifest: Manifest) -> ManifestHistoryView:
    [view] = manifest_views(database, [manifest])
    return ManifestHistoryView(
        **vars(view),
        attempts=tuple(AttemptView(**row) for row in database.attempts(manifest.id)),
        events=tuple(EventView(**row) for row in database.events(manifest.id)),
    )


def run_view(run: PlannedRun, unfinished: Sequence[Manifest], lines: Sequence[str]) -> RunView:
    """``lines`` say what is ``unfinished`` of earlier runs; they follow the run's own notes."""
    slices = tuple(tuple(map(range_view, ranges)) for ranges in run.slices)
    ends = tuple(EndView(at.topic, at.topic_id, at.partition, end) for at, end in run.ends)
    ids = tuple(manifest.id for manifest in unfinished)
    return RunView(**{**vars(run), "notes": (*run.notes, *lines), "slices": slices, "ends": ends, "unfinished": ids})


def closed_run_view(database: ManifestDatabase, closing: Closing) -> ClosedRunView:
    manifests = database.manifests(ids=[*closing.manifests, *closing.taken_along])
    return ClosedRunView(
        closing.run_key, closing.reached, tuple(manifest_views(database, manifests)), closing.covered_by,
        closing.taken_along, closing.counts, closing.hours,
    )  # fmt: skip


def fill_view(filled: Filled) -> FillView:
    not_filled = (LeftView(id_, error.what, error.next_step) for id_, error in filled.not_filled.items())
    ids = tuple(filled.filled)
    return FillView(filled.sink, filled.dry_run, ids, tuple(not_filled), tuple(filled.left), filled.archived)


def archive_view(pipeline_name: str, archived: NewArchive) -> ArchiveView:
    stops = tuple(LeftView(**vars(stop)) for stop in archived.stops)
    return ArchiveView(
        pipeline_name, archived.archive, archived.before, archived.dry_run, archived.manifests, archived.first,
        archived.last, archived.offsets, stops,
    )  # fmt: skip


def dead_letters_view(letters: Letters) -> DeadLettersView:
    groups = (
        LetterGroupView(
            group.error_class, group.reason, group.count, _letter_place(group.first), _letter_place(group.last),
            tuple(group.schemas),
        )
        for group in letters.groups
    )  # fmt: skip
    records = map(_dead_letter_view, letters.records)
    return DeadLettersView(letters.count, tuple(letters.manifests), tuple(groups), tuple(records))


def _letter_place(place: Place) -> LetterPlaceView:
    return LetterPlaceView(**vars(place))


def _dead_letter_view(kept: Kept) -> DeadLetterView:
    letter = kept.letter
    headers = letter.headers and tuple((name, value and value[:SHOWN_BYTES]) for name, value in letter.headers)
    shown = {
        "key": letter.key and letter.key[:SHOWN_BYTES],
        "value": letter.value and letter.value[:SHOWN_BYTES],
        "value_bytes": None if letter.value is None else len(letter.value),
        "headers": headers,
    }
    return DeadLetterView(kept.manifest_id, kept.attempt, **{**vars(letter), **shown})


def brought_back_view(result: BroughtBack) -> BroughtBackView:
    returned = tuple(
        ReturnedView(part.manifest_id, part.before, part.brought_back, part.after) for part in result.returned
    )
    failed = tuple(NotReplayedView(id_, error.what, error.next_step) for id_, error in result.failed.items())
    return BroughtBackView(result.dry_run, returned, failed, tuple(result.left))


def difference_views(differences: Iterable[Difference]) -> list[DifferenceView]:
    return [DifferenceView(each.manifest_id, each.what, each.next_step) for each in differences]


def compared_views(sinks: Iterable[Compared]) -> list[ComparedView]:
    return [ComparedView(**vars(each)) for each in sinks]


def completeness_view(completeness: Completeness) -> CompletenessView:
    missing = tuple(
        MissingView(part.manifest_id, part.state, part.sink, **vars(range_view(part.covered)))
        for part in completeness.missing
    )
    lost = tuple(map(range_view, completeness.lost))
    return CompletenessView(
        completeness.until, completeness.complete, completeness.run_key, completeness.planned_up_to, missing, lost
    )


def lag_views(lags: Iterable[Lag]) -> list[LagView]:
    return [LagView(**asdict(partition), lag=partition.lag) for partition in lags]


def status_view(status: Status) -> StatusView:
    problems = tuple(
        ProblemView(problem.kind, problem.manifest_id, problem.what, problem.next_step) for problem in status.problems
    )
    oldest = status.oldest_unfinished
    return StatusView(
        status.pipeline_name,
        not problems,
        status.published_up_to,
        status.max_age.total_seconds() if status.max_age is not None else None,
        status.lag,
        oldest.id if oldest else None,
        oldest.created_at if oldest else None,
        tuple(map(range_view, oldest.ranges)) if oldest else (),
        status.at_work,
        status.waiting,
        status.lost,
        status.dead_lettered,
        tuple(map(_audit_view, status.audits)),
        problems,
    )


def _audit_view(row: Mapping[str, Any]) -> AuditView:
    first = tuple(DifferenceView(**difference) for difference in row["first_differences"])
    return AuditView(**{**row, "first_differences": first})


def pipeline_view(
    database: ManifestDatabase, status: Status, lag: Sequence[LagView] | None, why_no_lag: str | None
) -> PipelineView:
    """``lag`` by partition, or None; then ``why_no_lag`` says why."""
    states = database.states(status.pipeline_name)
    done = states.get(ManifestState.DONE)
    return PipelineView(
        **{
            **vars(status_view(status)),
            "lag": None if lag is None else sum(part.lag + part.unpublished for part in lag),
        },
        manifests={state.value: states[state]["manifests"] if state in states else 0 for state in ManifestState},
        archived=database.count_archived(status.pipeline_name),
        last_done_at=done["last_done"] if done else None,
        why_no_lag=why_no_lag if lag is None else None,
    )


def lane_views(database: ManifestDatabase, pipeline_name: str) -> list[LaneView]:
    """The chains of a pipeline by topic and partition, an older life of a partition before the newer one."""
    parts: dict[int, list[PartView]] = {}
    for row in database.parts_not_done(pipeline_name):
        parts.setdefault(row.pop("chain_id"), []).append(PartView(**row))
    letters: dict[int, list[LettersPartView]] = {}
    for row in database.parts_with_dead_letters(pipeline_name, WITH_LETTERS):
        letters.setdefault(row.pop("chain_id"), []).append(LettersPartView(**row))
    lanes = database.lanes(pipeline_name)
    newest = database.last_published([(lane["id"], lane["end_offset"]) for lane in lanes])
    return [
        LaneView(
            lane["topic"], lane["topic_id"], lane["partition"], lane["incarnation"], lane["retired"], lane["blocked"],
            lane["cut"], lane["anchor"], lane["end_offset"], _stamp(newest.get(lane["id"])),
            tuple(parts.get(lane["id"], ())), lane["archived"], tuple(letters.get(lane["id"], ())),
        )
        for lane in lanes
    ]  # fmt: skip


def _stamp(published: PublishedRange | None) -> datetime | None:
    """When the last record of a range was written, by its timestamp; None also for a record without a timestamp."""
    if published is None or published.last.timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(published.last.timestamp_ms / 1000, UTC)


def timeline_view(timeline: Timeline) -> TimelineView:
    periods = (PeriodView(**{**vars(period), "manifests": dict(period.manifests)}) for period in timeline.periods)
    return TimelineView(timeline.step, tuple(periods), timeline.undone_before, timeline.first_undone_before)


def offset_views(chains: Iterable[ChainOffset]) -> list[OffsetView]:
    return [
        OffsetView(
            chain.pipeline_name,
            **asdict(chain.at),
            offset=chain.offset,
            incarnation=chain.incarnation,
            retired=chain.retired,
            standing=chain.standing,
            message=chain.message,
            range=None if chain.start is None or chain.end is None else SpanView(chain.start, chain.end),
            manifest=None if chain.manifest is None else _covering_manifest_view(chain.manifest),
            sinks=tuple(LocatedView(**vars(located)) for located in chain.sinks),
        )
        for chain in chains
    ]


def _covering_manifest_view(manifest: Manifest) -> CoveringManifestView:
    return CoveringManifestView(
        manifest.id, manifest.state, manifest.attempt, manifest.run_key, manifest.alive, manifest.reason
    )


def as_json_text(value: object) -> str:
    """What JSON has of a value that it does not know: bytes as base64, times in ISO format."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def hour_views(hours: Iterable[Hour]) -> list[HourView]:
    return [HourView(**vars(hour), complete=hour.complete_at is not None) for hour in hours]


def decision_views(database: ManifestDatabase, pipeline_name: str) -> list[DecisionView]:
    """What people decided about a pipeline, oldest first."""
    return [
        DecisionView(row["at"], row["actor"], row["decision"], row["why"], tuple(row["lines"]), tuple(row["manifests"]))
        for row in database.decisions(pipeline_name)
    ]
