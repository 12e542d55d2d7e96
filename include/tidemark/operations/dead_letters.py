"""Reads the dead letters that are published, manifest by manifest, and groups them by class and reason.

Every sink keeps the same dead letters, so those of one sink are read. Only groups, and as many records as are asked
for, are kept in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from tidemark.errors import NotFound, WorkFailed
from tidemark.event_time import EARLIEST
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import own_manifest
from tidemark.manifest import Manifest
from tidemark.reasons import OTHER_REASONS, template
from tidemark.sinks.base import Sink
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.suggestion import with_nearest

GROUPS = 1_000  # records with further reasons are counted as OTHER_REASONS of their class
NAMED_SCHEMAS = 5  # of one group
MANIFESTS = 100  # that are asked for at once
READS = 3  # of a manifest that is replayed meanwhile: its published files are replaced


@dataclass(frozen=True)
class DeadLetterSelection:
    """Which dead letters: of one manifest, as one sink keeps them, of one class, with this text in their reason; of so
    many of the newest manifests that have some."""

    manifest_id: int | None = None
    sink: str | None = None
    error_class: str | None = None
    reason: str | None = None
    newest: int | None = None

    @property
    def all_of_a_manifest(self) -> bool:
        return self.error_class is None and self.reason is None

    def has(self, letter: DeadLetter) -> bool:
        if self.error_class not in (None, letter.error_class):
            return False
        return self.reason is None or self.reason in letter.reason or self.reason in template(letter.reason)


@dataclass(frozen=True)
class Place:
    """Where a dead letter was read; ``timestamp`` is that of the record in the source."""

    manifest_id: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None

    @property
    def order(self) -> tuple[datetime, str, int, int]:
        return (self.timestamp or EARLIEST, self.topic, self.partition, self.offset)


@dataclass
class ReasonGroup:
    """The dead letters with one class and one template of their reasons; ``first`` and ``last`` by their timestamps."""

    error_class: str
    reason: str
    count: int
    first: Place
    last: Place
    schemas: list[str] = field(default_factory=list)

    def add(self, other: "ReasonGroup") -> None:
        self.count += other.count
        self.first = min(self.first, other.first, key=lambda place: place.order)
        self.last = max(self.last, other.last, key=lambda place: place.order)
        self.schemas += [name for name in other.schemas if name not in self.schemas]
        del self.schemas[NAMED_SCHEMAS:]


@dataclass(frozen=True)
class Kept:
    """One dead letter, with the attempt that published it."""

    manifest_id: int
    attempt: int
    letter: DeadLetter


@dataclass
class Letters:
    """The groups, the most frequent first, the number of dead letters by manifest, and the first ``records``."""

    groups: list[ReasonGroup] = field(default_factory=list)
    manifests: dict[int, int] = field(default_factory=dict)
    records: list[Kept] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.manifests.values())


def dead_letters(context: Context, selection: DeadLetterSelection, *, limit: int = 0) -> Letters:
    """The published dead letters in groups, and the first ``limit`` of them with key, value and headers."""
    letters = Letters()
    groups: dict[tuple[str, str], ReasonGroup] = {}
    for manifest in with_dead_letters(context, selection):
        of_manifest = _of_manifest(context, manifest, selection, limit - len(letters.records))
        for group in of_manifest.groups:
            _put(groups, group)
        letters.records += of_manifest.records
        letters.manifests |= of_manifest.manifests
    letters.groups = sorted(groups.values(), key=lambda group: (-group.count, group.error_class, group.reason))
    return letters


def with_dead_letters(context: Context, selection: DeadLetterSelection) -> Iterator[Manifest]:
    """The manifests that have published dead letters in some sink, oldest first, whatever their class and reason."""
    names = context.sink_names()
    if selection.sink is not None and selection.sink not in names:
        raise NotFound(
            with_nearest(f"the pipeline has no sink {selection.sink}", selection.sink, names),
            next_step=f"name one of: {', '.join(names)}",
            pipeline=context.pipeline_name,
        )
    if selection.manifest_id is not None:
        own_manifest(context, selection.manifest_id)
    ids = context.database.publications.with_dead_letters(
        context.pipeline_name, manifest_id=selection.manifest_id, newest=selection.newest
    )
    for first in range(0, len(ids), MANIFESTS):
        yield from context.database.manifests.find(ids=ids[first : first + MANIFESTS])


def _put(groups: dict[tuple[str, str], ReasonGroup], group: ReasonGroup) -> None:
    key = group.error_class, group.reason
    if key not in groups and len(groups) >= GROUPS:
        key = group.error_class, OTHER_REASONS
    if key in groups:
        groups[key].add(group)
    else:
        groups[key] = replace(group, reason=key[1], schemas=list(group.schemas))


def _of_manifest(context: Context, manifest: Manifest, selection: DeadLetterSelection, limit: int) -> Letters:
    for number in range(1, READS + 1):
        sink = _sink_of(context, manifest, selection)
        published = manifest.published(sink.name) if sink else None
        if sink is None or published is None:
            return Letters()
        try:
            return _read(context, manifest, sink, published.attempt, selection, limit)
        except OSError as error:
            manifest = context.database.manifests.get(manifest.id)
            now = manifest.published(sink.name)
            if number < READS and now is not None and now.attempt != published.attempt:
                continue
            raise WorkFailed(
                f"the dead letters cannot be read: {error}",
                next_step=f"tidemark audit {context.pipeline_name} says what is missing",
                pipeline=context.pipeline_name,
                manifest=manifest.id,
                sink=sink.name,
            ) from error
    raise AssertionError("the last read returns or raises")


def _sink_of(context: Context, manifest: Manifest, selection: DeadLetterSelection) -> Sink | None:
    """The first sink that has dead letters of the manifest; a replay may have reached other sinks only."""
    for sink in context.sinks:
        published = manifest.published(sink.name)
        if selection.sink in (None, sink.name) and published is not None and published.counts.dead_lettered:
            return sink
    return None


def _read(
    context: Context, manifest: Manifest, sink: Sink, attempt: int, selection: DeadLetterSelection, limit: int
) -> Letters:
    receipt = context.database.attempts.receipt(manifest.id, attempt)
    assert receipt is not None, "a publication has a receipt"
    accepted = context.database.decisions.accepted_damage(manifest.id, sink.name, attempt)
    receipt = replace(receipt, objects=tuple(part for part in receipt.objects if part.path not in accepted))
    groups: dict[tuple[str, str], ReasonGroup] = {}
    count = 0
    for letter in sink.output.dead_letters(receipt, values=False):
        if selection.has(letter):
            count += 1
            place = Place(manifest.id, letter.topic, letter.partition, letter.offset, letter.timestamp)
            schemas = [letter.schemas] if letter.schemas else []
            _put(groups, ReasonGroup(letter.error_class, template(letter.reason), 1, place, place, schemas))
    letters = Letters(list(groups.values()), {manifest.id: count} if count else {})
    if count and limit > 0:
        for letter in sink.output.dead_letters(receipt, values=True):
            if selection.has(letter):
                letters.records.append(Kept(manifest.id, attempt, letter))
            if len(letters.records) == limit:
                break
    return letters
