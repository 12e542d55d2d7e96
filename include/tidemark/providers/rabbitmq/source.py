"""RabbitMQ streams as the source of a pipeline, for the process that plans."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, assert_never

from tidemark.connections.certificates import check_authorities, check_own
from tidemark.connections.lookup import Lookup
from tidemark.errors import AccessDenied, ConfigurationError, NotFound, PlanRefused, Unavailable
from tidemark.model.dataset import Dataset
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, Record
from tidemark.providers.rabbitmq.chunk import Chunk
from tidemark.providers.rabbitmq.connection import RabbitConnection, rabbit_connection
from tidemark.providers.rabbitmq.settings import ID, Identity, Settings, StoredOffsets, StreamOffsets
from tidemark.providers.rabbitmq.streams import Streams
from tidemark.sources.base import Source
from tidemark.sources.starting_points import common_starts
from tidemark.text import with_nearest

UNNAMED = "unnamed"  # the id of a stream without a stored number: its last record tells it from another


class RabbitSource(Source):
    """Streams of one virtual host. A stream without a record has no partition; it gets one with its first record."""

    title = "RabbitMQ"
    settings: Settings

    def __init__(self, pipeline_name: str, settings: Settings, connection: RabbitConnection) -> None:
        super().__init__(pipeline_name, settings)
        self.address = connection.address
        self._connection = connection
        self._streams = Streams(connection)

    def dataset(self, topic: str) -> Dataset:
        host = self.address.split(",")[0]
        virtual_host = self._connection.login.virtual_host
        return Dataset(f"rabbitmq://{host}", topic if virtual_host == "/" else f"{virtual_host}/{topic}")

    def topics(self) -> list[str]:
        """Return the existing streams that the pipeline file names, or the members of its super stream.

        The server has no list of all streams.
        """
        super_stream = self.settings.super_stream
        if super_stream is None:
            return self._streams.existing(self.settings.topics)
        members = sorted(self._streams.members(super_stream))
        strange = [member for member in members if not self.settings.reads(member)]
        if strange:
            raise ConfigurationError(
                f"the name of member {strange[0]} of the super stream {super_stream} does not begin with "
                f"{super_stream}-",
                next_step="name the streams instead: source.rabbitmq.streams",
                pipeline=self.pipeline_name,
                source=self.address,
            )
        return members

    def nothing_selected(self, rule: str, known: Sequence[str]) -> NotFound:
        del known
        return NotFound(
            f"super stream {rule} does not exist, or has no members",
            next_step="create it (rabbitmq-streams add_super_stream), or correct source.rabbitmq.super_stream; a "
            "single stream is named under streams",
            pipeline=self.pipeline_name,
            source=self.address,
        )

    def missing_topic(self, topic: str) -> NotFound:
        return NotFound(
            with_nearest(f"stream {topic} does not exist", topic, self.topics()),
            next_step="create the stream, or correct source.rabbitmq.streams; a classic or quorum queue of that name "
            "cannot be read, since it has no offsets",
            pipeline=self.pipeline_name,
            source=self.address,
            topic=topic,
        )

    def name_topics(self, planned: Collection[str]) -> None:
        """Store a number in each stream that has records but no number yet.

        The number is computed from the first chunk, so two planners at once store the same. Raises ``AccessDenied`` if
        this user may not store one.
        """
        if self.settings.identity is Identity.LAST_RECORD:
            return
        for stream in self._streams.existing([stream for stream in self.selected() if stream not in planned]):
            if self._streams.stored_offset(stream, ID) is not None:
                continue
            chunks = self._streams.first_and_last(stream)
            if chunks is not None and not self._streams.store_offset(stream, ID, _number_of(chunks[0])):
                raise AccessDenied(
                    f"RabbitMQ does not let this user store an offset in stream {stream}: the number that tells it "
                    "from a recreated one",
                    next_step="nothing was planned; give the user of the connection the right write on the stream "
                    "(rabbitmqctl set_permissions), or write identity: last_record under source.rabbitmq; then plan "
                    "again",
                    pipeline=self.pipeline_name,
                    topic=stream,
                    source=self.address,
                )

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        existing = self._streams.existing(topics)
        ids = {stream: self._id_of(stream) for stream in existing}
        places = [
            TopicPartition(stream, topic_id, 0)
            for stream, topic_id in ids.items()
            if topic_id != UNNAMED or self._streams.first_and_last(stream) is not None
        ]
        return places, sorted(set(topics) - set(existing))

    def _id_of(self, stream: str) -> str:
        if self.settings.identity is Identity.LAST_RECORD:
            return UNNAMED
        number = self._streams.stored_offset(stream, ID)
        return UNNAMED if number is None else f"{number:016x}"

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {place: self._bounds_of(place) for place in places}

    def _bounds_of(self, place: TopicPartition) -> Bounds:
        chunks = self._streams.first_and_last(place.topic)
        if chunks is None:
            raise Unavailable(
                f"stream {place.topic} holds no record now, so its end is unknown",
                next_step="retention took all that it had, since offsets that consumers store fill its segments, too; "
                "plan again when it has a new record",
                pipeline=self.pipeline_name,
                topic=place.topic,
            )
        first, last = chunks
        return Bounds(first.first, last.end, last.end)

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        """Return the first offset of a chunk, because records have the timestamp of their chunk."""
        chunks = {place: self._streams.first_since(place.topic, _milliseconds(when)) for place in places}
        return {place: None if chunk is None else (chunk.first, _moment(chunk)) for place, chunk in chunks.items()}

    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        match self.settings.starting_offsets:
            case "earliest" | "latest" | datetime() as wanted:
                return common_starts(wanted, bounds, self.offsets_at)
            case StoredOffsets(consumer):
                stored = {place: self._streams.stored_offset(place.topic, consumer) for place in bounds}
                known = {place: offset + 1 for place, offset in stored.items() if offset is not None}
                return self._all_known(bounds, known, f"consumer {consumer} has stored no offset in")
            case StreamOffsets(offsets):
                known = {place: offsets[place.topic] for place in bounds if place.topic in offsets}
                return self._all_known(bounds, known, "starting_offsets does not name")
            case other:
                assert_never(other)

    def _all_known(
        self, bounds: Mapping[TopicPartition, Bounds], known: dict[TopicPartition, int], what: str
    ) -> dict[TopicPartition, int]:
        lacking = sorted(bounds.keys() - known.keys())
        if not lacking:
            return known
        written = ", ".join(f"{place.topic}: {known.get(place, 'OFFSET')}" for place in sorted(bounds))
        raise PlanRefused(
            f"{what} {', '.join(place.topic for place in lacking)}",
            next_step="nothing was planned; decide where they start, and write starting_offsets: {offsets: "
            f"{{{written}}}}}",
            pipeline=self.pipeline_name,
            topic=lacking[0].topic,
            partition=0,
        )

    def records(self, covered: Range) -> Iterator[Record]:
        topic, start, end = covered.at.topic, covered.start, covered.end
        for records in self._streams.read(covered, lambda chunk: _records(chunk, topic, start, end)):
            yield from records

    def records_from(
        self, offsets: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], Record | None]:
        bounds = self.bounds(sorted({place for place, _ in offsets}))
        inside = [
            (place, offset)
            for place, offset in offsets
            if bounds[place].log_start <= offset < bounds[place].last_stable
        ]
        answers = {(place, offset): self._record_from(place, offset) for place, offset in inside}
        # Ask for the bounds again: retention may have removed a record after the first answer, so leave those out.
        now = self.bounds(sorted({place for place, _ in answers}))
        return {(place, offset): answers[place, offset] for place, offset in inside if now[place].log_start <= offset}

    def _record_from(self, place: TopicPartition, offset: int) -> Record | None:
        records = self._streams.from_offset(
            place.topic, offset, lambda chunk: _records(chunk, place.topic, offset, chunk.end)
        )
        return records[0] if records else None

    def order(self) -> dict[str, Any]:
        return {"connection": self.settings.connection}

    def endpoints(self) -> list[str]:
        return self.address.split(",")

    @property
    def reports_progress(self) -> bool:
        return self.settings.progress_consumer is not None

    def report_progress(
        self, ends: Mapping[TopicPartition, int], database_id: str, former_names: Collection[str] = ()
    ) -> None:
        """Store the last published offset of each stream under the name ``progress_consumer``.

        The server stores nothing else with it, so two pipelines must not use the same name.
        """
        del database_id, former_names
        consumer = self.settings.progress_consumer
        if consumer is None:
            return
        for place, end in ends.items():
            if end == 0 or self._streams.stored_offset(place.topic, consumer) == end - 1:
                continue
            if not self._streams.store_offset(place.topic, consumer, end - 1):
                raise AccessDenied(
                    f"RabbitMQ does not let this user store the offset of consumer {consumer} in stream {place.topic}",
                    next_step="give the user of the connection the right write on the stream (rabbitmqctl "
                    "set_permissions), or take progress_consumer out of source.rabbitmq",
                    pipeline=self.pipeline_name,
                    topic=place.topic,
                    source=self.address,
                )

    def warnings(self) -> list[str]:
        return self._connection.warnings()


def _records(chunk: Chunk, topic: str, start: int, end: int) -> list[Record]:
    """Return the records of a chunk with offsets in [start, end)."""
    return [
        Record(topic, 0, offset, chunk.timestamp_ms, None, value, tuple(headers) or None, chunk.epoch, unreadable)
        for offset, (value, headers, unreadable) in enumerate(chunk.messages(), chunk.first)
        if start <= offset < end
    ]


def _number_of(first: Chunk) -> int:
    """Return 62 bits that identify the stream that begins with this chunk. The chunk contains the time of the
    server."""
    content = f"{first.first} {first.timestamp_ms} ".encode() + first.data
    return int.from_bytes(sha256(content).digest()[:8], "big") >> 2


def _milliseconds(when: datetime) -> int:
    """Return milliseconds, rounded up, so that they select what is stamped at or after this time."""
    return -int(-when.timestamp() * 1000 // 1)


def _moment(chunk: Chunk) -> datetime:
    return datetime.fromtimestamp(chunk.timestamp_ms / 1000, UTC)


def _check_certificates(pem: Mapping[str, str]) -> None:
    """Report what is wrong with a certificate, because the server would refuse it without a reason."""
    now = datetime.now(UTC)
    if "ca" in pem:
        check_authorities("ca", pem["ca"], now)
    if "certificate" in pem:
        check_own("certificate", pem["certificate"], now)


def open_source(pipeline_name: str, settings: Settings, lookup: Lookup) -> RabbitSource:
    connection = rabbit_connection(settings.connection, pipeline_name, lookup, _check_certificates)
    return RabbitSource(pipeline_name, settings, connection)
