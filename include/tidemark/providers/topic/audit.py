"""The audit of a topic compares its markers with publications, and, if ``deep``, its messages with the markers.

Messages that retention or compaction removed are not reported, because the topic belongs to its owner. So a manifest is
compared message by message only if the topic still has everything that its marker lists.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidemark.model.digest import Digest, row_digest
from tidemark.model.partitions import Record
from tidemark.model.problem import Problem
from tidemark.providers.topic.appended import Appended, appended_of
from tidemark.providers.topic.headers import From, reason_of, source_of
from tidemark.providers.topic.messages import SinkTopics, messages_between
from tidemark.providers.topic.staged import MESSAGES
from tidemark.sinks.base import Expected, Ledger

CHUNK = 5_000  # messages in memory
Sent = tuple[int, int]  # the manifest and the attempt of a message, by its headers

_BY_HAND = "nobody can take messages out of a topic: find who sends them, and tell the readers of the topic"


def differences_of_topic(expected: Expected, ledger: Ledger, topics: SinkTopics) -> Iterator[Problem]:
    """Compare all messages with all markers."""
    markers = dict(topics.markers.all())
    published = expected.published()
    digests: dict[Sent, Digest] = defaultdict(Digest.zero)
    others: Counter[str] = Counter()
    first: dict[str, Record] = {}
    kept: dict[tuple[str, int], int] = {}  # the first offset that a partition still has
    policy = topics.cluster.options_of(topics.data).get("cleanup.policy", "")
    for topic in (topics.data, topics.dead_letters):
        for place, bounds in topics.cluster.bounds(topics.cluster.partitions([topic])[0]).items():
            kept[topic, place.partition] = bounds.log_start
            chunk: list[tuple[Record, From]] = []
            for message in messages_between(topics.cluster, topic, place.partition, 0, bounds.last_stable):
                source = source_of(message)
                if source is None:
                    others[topic] += 1
                    first.setdefault(topic, message)
                    continue
                chunk.append((message, source))
                if len(chunk) == CHUNK:
                    _add(digests, chunk)
                    chunk = []
            _add(digests, chunk)
    for topic, number in others.items():
        place_of_first = f"{topic}-{first[topic].partition} offset {first[topic].offset}"
        yield Problem(
            None, f"{topic} has {number:,} messages that are not Tidemark's, first {place_of_first}", _BY_HAND
        )
    known = {manifest.id for manifest, _ in published}
    unknown = expected.unknown({manifest_id for manifest_id, _ in digests} - known)
    for manifest_id in sorted(unknown - markers.keys()):
        number = sum(digest.count for (of, _), digest in digests.items() if of == manifest_id)
        what = f"{ledger.target} has {number:,} messages of manifest {manifest_id}, and no marker of it"
        yield Problem(None, what, _BY_HAND)
    for manifest, publication in published:
        marker = markers.get(manifest.id)
        if marker is None or expected.given_up(manifest.id, publication.attempt):  # the caller has told the first
            continue
        sent = appended_of(marker)
        for attempt, part in sent.items():
            is_whole = "compact" not in policy and _is_kept(part, kept)
            yield from _manifest(
                manifest.id, Digest.parse(part.digest), digests[manifest.id, attempt], is_whole=is_whole
            )
        yield from _unnamed(manifest.id, digests, sent)


def _is_kept(part: Appended, kept: Mapping[tuple[str, int], int]) -> bool:
    return all(first >= kept.get((topic, partition), 0) for topic, partition, _, first, _ in part.delivered)


def _unnamed(manifest_id: int, digests: Mapping[Sent, Digest], sent: Mapping[int, Appended]) -> Iterator[Problem]:
    for (of, attempt), digest in digests.items():
        if of == manifest_id and attempt not in sent:
            what = f"the topic has {digest.count:,} messages of its attempt {attempt}, which its marker does not name"
            yield Problem(manifest_id, what, _BY_HAND)


def _manifest(manifest_id: int, expected: Digest, seen: Digest, *, is_whole: bool) -> Iterator[Problem]:
    if seen.count > expected.count or (is_whole and seen.count < expected.count):
        what = f"the topic has {seen.count:,} messages of it where {expected.count:,} were sent"
        yield Problem(manifest_id, what, _BY_HAND)
    elif is_whole and seen != expected:
        yield Problem(manifest_id, f"the topic has other messages of it than were sent (digest {seen})", _BY_HAND)


def _add(digests: dict[Sent, Digest], chunk: list[tuple[Record, From]]) -> None:
    rows: dict[Sent, list[tuple[object, ...]]] = defaultdict(list)
    for message, source in chunk:
        rows[source.manifest_id, source.attempt].append(
            (source.topic, source.partition, source.offset, source.row, message.key, message.value, reason_of(message))
        )
    for sent, messages in rows.items():
        columns = zip(*messages, strict=True)
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, MESSAGES, strict=True)]
        digests[sent] += row_digest(pa.RecordBatch.from_arrays(arrays, schema=MESSAGES))
