"""Views of manifests, with their published files, their attempts and their history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.model.expectations import ExpectationCount
from tidemark.model.manifest import Manifest
from tidemark.model.receipt import ObjectKind
from tidemark.model.unknown_fields import UnknownField
from tidemark.views.objects import ObjectView, object_view


@dataclass(frozen=True, kw_only=True)
class ManifestView(Manifest):
    """One manifest with its published files."""

    objects: tuple[ObjectView, ...]
    dead_letter_objects: tuple[ObjectView, ...]


@dataclass(frozen=True)
class AttemptView:
    """One attempt at a manifest; ``objects`` counts the objects in its receipt, ``ended_at`` is None while it runs.

    ``note`` is what you should know of an attempt that ended well: the same code had made other rows before.
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


@dataclass(frozen=True, kw_only=True)
class ManifestHistoryView(ManifestView):
    """One manifest with all its attempts and its history, oldest first.

    ``unknown_fields`` are those that the published attempt has counted; ``expectations`` are the counts of the newest
    attempt that has a receipt.
    """

    attempts: tuple[AttemptView, ...]
    events: tuple[EventView, ...]
    unknown_fields: tuple[UnknownField, ...]
    expectations: tuple[ExpectationCount, ...]


def manifest_views(
    database: ManifestDatabase, manifests: Sequence[Manifest], *, objects: bool = True
) -> list[ManifestView]:
    """Return the manifests with their published paths, in the given order; without ``objects``, paths are not read."""
    paths: dict[tuple[int, ObjectKind], list[ObjectView]] = {}
    with_paths = [manifest.id for manifest in manifests] if objects else []
    for manifest_id, root, written in database.publications.objects(ids=with_paths):
        paths.setdefault((manifest_id, written.kind), []).append(object_view(root, written))
    return [
        ManifestView(
            **vars(manifest),
            objects=tuple(paths.get((manifest.id, ObjectKind.DATA), ())),
            dead_letter_objects=tuple(paths.get((manifest.id, ObjectKind.DEAD_LETTER), ())),
        )
        for manifest in manifests
    ]


def manifest_history_view(database: ManifestDatabase, manifest: Manifest) -> ManifestHistoryView:
    [view] = manifest_views(database, [manifest])
    receipt = database.attempts.receipt(manifest.id, manifest.published_attempt or 0)
    newest = next(iter(database.attempts.receipts(manifest.id)), None)
    return ManifestHistoryView(
        **vars(view),
        attempts=tuple(AttemptView(**row) for row in database.attempts.of_manifest(manifest.id)),
        events=tuple(EventView(**row) for row in database.manifests.events(manifest.id)),
        unknown_fields=receipt.unknown_fields if receipt else (),
        expectations=newest.receipt.expectations if newest else (),
    )
