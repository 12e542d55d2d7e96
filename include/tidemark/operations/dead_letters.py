"""Reads the dead letters that are published, manifest by manifest, and groups them by class and reason.

Every sink keeps the same dead letters, so those of one sink are read. Only groups, and as many records as are asked
for, are kept in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from tidemark.errors import NotFound, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import own_manifest
from tidemark.model.manifest import Manifest
from tidemark.model.reasons import OTHER_REASONS, template
from tidemark.sinks.base import Sink
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.text import with_nearest
from tidemark.times.event_time import EARLIEST

GROUPS = 1_000  # records with further reasons are counted as OTHER_REASONS of their class
NAMED_SCHEMAS = 5  # of one group
MANIFESTS = 100  # that one query asks for
SHOWN_BYTES = 4_096  # of a key, a value and the value of a header of a dead letter
READS = 3  # tries, because a replay may replace the files of a manifest while they are read


@dataclass(frozen=True)
class DeadLetterSelection:
    """A filter of dead letters: by manifest, by the sink to read, by class, and by a text in their reason. ``newest``
    takes only so many of the newest manifests that have some.
    """

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
class LetterPlace:
    """The place where a dead letter was read; ``timestamp`` is that of the record in the source."""

    manifest_id: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None

    @property
    def order(self) -> tuple[datetime, str, int, int]:
        return (self.timestamp or EARLIEST, self.topic, self.partition, self.offset)


@dataclass(frozen=True)
class ReasonGroup:
    """Dead letters of one class and reason, with ``N`` and ``..`` for its varying parts; first and last by
    timestamp.
    """

    error_class: str
    reason: str
    count: int
    first: LetterPlace
    last: LetterPlace
    schemas: tuple[str, ...]

    def joined(self, other: "ReasonGroup") -> "ReasonGroup":
        """Return both groups as one, with the class and the reason of this one."""
        first = min(self.first, other.first, key=lambda place: place.order)
        last = max(self.last, other.last, key=lambda place: place.order)
        schemas = (*self.schemas, *(name for name in other.schemas if name not in self.schemas))[:NAMED_SCHEMAS]
        return ReasonGroup(self.error_class, self.reason, self.count + other.count, first, last, schemas)


@dataclass(frozen=True, kw_only=True)
class PublishedDeadLetter(DeadLetter):
    """One dead letter, and the attempt that published it. In JSON, key, value and the values of headers are base64.

    Each of them is cut after 4,096 bytes. ``value_bytes`` is the whole length of the value; None without a value.
    """

    manifest_id: int
    attempt: int
    value_bytes: int | None

    @classmethod
    def of(cls, manifest_id: int, attempt: int, letter: DeadLetter) -> "PublishedDeadLetter":
        key, value = (content and content[:SHOWN_BYTES] for content in (letter.key, letter.value))
        headers = letter.headers and tuple((name, value and value[:SHOWN_BYTES]) for name, value in letter.headers)
        length = None if letter.value is None else len(letter.value)
        known = {**vars(letter), "key": key, "value": value, "headers": headers}
        return cls(manifest_id=manifest_id, attempt=attempt, value_bytes=length, **known)


@dataclass(frozen=True)
class DeadLetters:
    """The published dead letters of a pipeline: their ``count``, the ``manifests`` that have them, and their
    ``groups``, most frequent first.

    ``records`` are the first dead letters, as many as were asked for.
    """

    count: int = 0
    manifests: tuple[int, ...] = ()
    groups: tuple[ReasonGroup, ...] = ()
    records: tuple[PublishedDeadLetter, ...] = ()


def dead_letters(context: Context, selection: DeadLetterSelection, *, limit: int = 0) -> DeadLetters:
    """Return the published dead letters in groups, and the first ``limit`` of them with key, value and headers."""
    count, manifests, records = 0, list[int](), list[PublishedDeadLetter]()
    groups: dict[tuple[str, str], ReasonGroup] = {}
    for manifest in with_dead_letters(context, selection):
        of_manifest = _read_manifest(context, manifest, selection, limit - len(records))
        for group in of_manifest.groups:
            _put(groups, group)
        records += of_manifest.records
        manifests += of_manifest.manifests
        count += of_manifest.count
    by_count = sorted(groups.values(), key=lambda group: (-group.count, group.error_class, group.reason))
    return DeadLetters(count, tuple(manifests), tuple(by_count), tuple(records))


def with_dead_letters(context: Context, selection: DeadLetterSelection) -> Iterator[Manifest]:
    """Yield the manifests with published dead letters in some sink, oldest first. Class and reason are not compared."""
    names = context.sink_names()
    if selection.sink is not None and selection.sink not in names:
        raise NotFound(
            with_nearest(f"the pipeline has no sink {selection.sink}", selection.sink, names),
            next_step=f"name one of: {', '.join(names)}",
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
    groups[key] = groups[key].joined(group) if key in groups else replace(group, reason=key[1])


def _read_manifest(context: Context, manifest: Manifest, selection: DeadLetterSelection, limit: int) -> DeadLetters:
    for number in range(1, READS + 1):
        sink = _sink_of(context, manifest, selection)
        published = manifest.published(sink.name) if sink else None
        if sink is None or published is None:
            return DeadLetters()
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
                manifest=manifest.id,
                sink=sink.name,
            ) from error
    raise AssertionError("the last read returns or raises")


def _sink_of(context: Context, manifest: Manifest, selection: DeadLetterSelection) -> Sink | None:
    """Return the first sink that has dead letters of the manifest, or None. A replay may have reached other sinks
    only.
    """
    for sink in context.sinks:
        published = manifest.published(sink.name)
        if selection.sink in (None, sink.name) and published is not None and published.counts.dead_lettered:
            return sink
    return None


def _read(
    context: Context, manifest: Manifest, sink: Sink, attempt: int, selection: DeadLetterSelection, limit: int
) -> DeadLetters:
    receipt = context.database.attempts.receipt(manifest.id, attempt)
    assert receipt is not None, "a publication has a receipt"
    accepted = context.database.decisions.accepted_damage(manifest.id, sink.name, attempt)
    receipt = replace(receipt, objects=tuple(part for part in receipt.objects if part.path not in accepted))
    groups: dict[tuple[str, str], ReasonGroup] = {}
    count = 0
    for letter in sink.output.dead_letters(receipt, values=False):
        if selection.has(letter):
            count += 1
            place = LetterPlace(manifest.id, letter.topic, letter.partition, letter.offset, letter.timestamp)
            schemas = (letter.schemas,) if letter.schemas else ()
            _put(groups, ReasonGroup(letter.error_class, template(letter.reason), 1, place, place, schemas))
    records: list[PublishedDeadLetter] = []
    if count and limit > 0:
        for letter in sink.output.dead_letters(receipt, values=True):
            if selection.has(letter):
                records.append(PublishedDeadLetter.of(manifest.id, attempt, letter))
            if len(records) == limit:
                break
    return DeadLetters(count, (manifest.id,) if count else (), tuple(groups.values()), tuple(records))
