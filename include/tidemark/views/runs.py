"""The results of commands: what was planned, closed, filled or archived, or would be in a dry run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.close import Closing
from tidemark.lifecycle.plan import PlannedRun
from tidemark.manifest import Counts, Manifest
from tidemark.operations.archive import NewArchive
from tidemark.operations.fill import Filled
from tidemark.views.manifests import ManifestView, RangeView, manifest_views, range_view


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


def run_view(run: PlannedRun, unfinished: Sequence[Manifest], lines: Sequence[str]) -> RunView:
    """``lines`` say what is ``unfinished`` of earlier runs; they follow the run's own notes."""
    slices = tuple(tuple(map(range_view, ranges)) for ranges in run.slices)
    ends = tuple(EndView(at.topic, at.topic_id, at.partition, end) for at, end in run.ends)
    ids = tuple(manifest.id for manifest in unfinished)
    return RunView(**{**vars(run), "notes": (*run.notes, *lines), "slices": slices, "ends": ends, "unfinished": ids})


def closed_run_view(database: ManifestDatabase, closing: Closing) -> ClosedRunView:
    manifests = database.manifests.find(ids=[*closing.manifests, *closing.taken_along])
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
