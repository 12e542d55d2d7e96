"""Manifests, with what is published of them, their attempts and their history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Counts, Manifest, ManifestState
from tidemark.offsets import Range
from tidemark.receipt import ObjectKind
from tidemark.views.objects import ObjectView, object_view


@dataclass(frozen=True)
class RangeView:
    """Offsets ``[start, end)`` of one partition; ``topic_id`` is the broker's id of the topic they were cut from."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


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


def range_view(covered: Range) -> RangeView:
    return RangeView(covered.at.topic, covered.at.topic_id, covered.at.partition, covered.start, covered.end)


def manifest_views(
    database: ManifestDatabase, manifests: Sequence[Manifest], *, objects: bool = True
) -> list[ManifestView]:
    """Manifests with the paths that are published of them, in the order given; without ``objects`` no path is read."""
    paths: dict[tuple[int, ObjectKind], list[ObjectView]] = {}
    with_paths = [manifest.id for manifest in manifests] if objects else []
    for manifest_id, root, written in database.publications.objects(ids=with_paths):
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
        attempts=tuple(AttemptView(**row) for row in database.attempts.of_manifest(manifest.id)),
        events=tuple(EventView(**row) for row in database.manifests.events(manifest.id)),
    )
