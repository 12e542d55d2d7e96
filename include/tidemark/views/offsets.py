"""The place of an offset: in which manifest, and what each sink has of it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.manifest import Manifest, ManifestState
from tidemark.operations.locate import ChainOffset
from tidemark.receipt import ObjectKind
from tidemark.sinks.located import Standing


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
