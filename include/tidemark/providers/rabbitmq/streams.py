"""All requests about streams go through this module: where they are, what they hold, and the chunks of a range.

Every read checks three things, because the server reports none of them:

- If retention has removed an offset, a subscription silently begins with the first remaining chunk.
- If an offset is beyond the end of the log, it begins lower, as soon as a record arrives.
- Offsets have gaps: a stored offset of a consumer takes one, and so does each new segment of the log.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

from tidemark.errors import DataLost, TidemarkError, Unavailable, WorkFailed
from tidemark.model.offsets import Range
from tidemark.providers.rabbitmq.chunk import Chunk, Damaged
from tidemark.providers.rabbitmq.client import CREDIT, Gone, Node, NoStream, StreamClient, unavailable
from tidemark.providers.rabbitmq.connection import RabbitConnection
from tidemark.providers.rabbitmq.wire import Start

LEADER_S = 3.0
T = TypeVar("T")


class Streams:
    """The streams of one virtual host, over one connection to each node. Threads take turns.

    Raises ``Unavailable`` if no node answers, ``AccessDenied`` if one refuses the user.
    """

    def __init__(self, connection: RabbitConnection) -> None:
        self._connection = connection
        self._clients: dict[Node, StreamClient] = {}
        self._leaders: dict[str, Node] = {}
        self._turn = RLock()

    def existing(self, streams: Sequence[str]) -> list[str]:
        """Return which of the streams exist, sorted. Raises ``Unavailable`` if one of them has no leader now."""
        if not streams:
            return []
        leaders = self._leaders_of(streams)
        without = sorted(stream for stream, node in leaders.items() if node is None)
        if without:
            raise self._no_leader(without[0])
        self._leaders |= {stream: node for stream, node in leaders.items() if node is not None}
        return sorted(leaders)

    def members(self, super_stream: str) -> list[str]:
        """Return the streams of a super stream; empty if it does not exist."""
        try:
            return self._any(lambda client: client.members(super_stream))
        except NoStream:
            return []

    def first_and_last(self, stream: str) -> tuple[Chunk, Chunk] | None:
        """Return the first and the last chunk with records in the log; None if it has no records."""
        return self._of(stream, lambda client: _first_and_last(client, stream))

    def first_since(self, stream: str, timestamp_ms: int) -> Chunk | None:
        """Return the first chunk with a timestamp at or after this one, as the server finds it; None if there is no
        such chunk.

        It asks for the last chunk first, because it takes longer to learn that no further chunk comes.
        """

        def ask(client: StreamClient) -> Chunk | None:
            client.subscribe(stream, Start.LAST)
            last = client.next_chunk()
            if last is None or Chunk.of(last).timestamp_ms < timestamp_ms:
                return None
            chunks = map(Chunk.of, client.chunks(stream, Start.TIMESTAMP, timestamp_ms))
            return next((chunk for chunk in chunks if chunk.timestamp_ms >= timestamp_ms), None)

        return self._of(stream, ask)

    def from_offset(self, stream: str, offset: int, parse: Callable[[Chunk], T]) -> T | None:
        """Return the result of ``parse`` for the chunk with the first record at or after an offset; None if no record
        follows."""

        def ask(client: StreamClient) -> T | None:
            chunks = map(Chunk.of, client.chunks(stream, Start.OFFSET, offset))
            return next((parse(chunk) for chunk in chunks if chunk.end > offset), None)

        return self._of(stream, ask)

    def stored_offset(self, stream: str, name: str) -> int | None:
        """Return the offset that a consumer of that name has stored; None if it has stored no offset."""
        return self._of(stream, lambda client: client.stored_offset(stream, name))

    def store_offset(self, stream: str, name: str, offset: int) -> bool:
        """Store an offset under a name; return whether the server has it now. It has not if this user may not write."""

        def ask(client: StreamClient) -> bool:
            client.store_offset(stream, name, offset)
            return client.stored_offset(stream, name) == offset

        return self._of(stream, ask)

    def read(self, covered: Range, parse: Callable[[Chunk], T]) -> Iterator[T]:
        """Yield the result of ``parse`` for each chunk with records of a range, in order.

        The first and the last chunk may also have records outside the range. Raises ``WorkFailed`` for a chunk that
        cannot be read, ``DataLost`` if retention removed offsets of the range, even during the read, and
        ``Unavailable`` if the log ends below the range's end.
        """
        stream, first_gap, expected = covered.at.topic, None, covered.start
        where: dict[str, object] = {"topic": stream, "partition": 0, "offsets": f"[{covered.start},{covered.end})"}
        with self._own_client(stream, where) as client:
            for chunk in map(Chunk.of, client.chunks(stream, Start.OFFSET, covered.start, ahead=CREDIT)):
                if chunk.end <= expected:
                    continue
                if chunk.first > expected and first_gap is None:
                    first_gap = expected
                if chunk.first < covered.end:
                    yield parse(chunk)
                expected = chunk.end
                if expected >= covered.end:
                    break
            if expected < covered.end:
                raise Unavailable(
                    f"{covered.at.name} ends at offset {expected}, but the range ends at {covered.end}: its log was "
                    "cut, or a replica lags",
                    next_step="try again; if it repeats: tidemark lag {pipeline}",
                    **where,
                )
            if first_gap is not None:
                _refuse_taken(client, covered, first_gap, where)

    def _any(self, ask: Callable[[StreamClient], T]) -> T:
        """Return the answer of the first node that answers."""
        with self._turn:
            problem: Gone | None = None
            for node in self._connection.nodes:
                try:
                    return self._answer(node, ask)
                except Gone as gone:
                    problem = gone
            assert problem is not None
            raise unavailable(problem, server=self._connection.address)

    def _of(self, stream: str, ask: Callable[[StreamClient], T]) -> T:
        """Return the answer of the leader of a stream, which has all confirmed records."""
        with self._turn, self._translated({"topic": stream}):
            try:
                return self._answer(self._leader(stream), ask)
            except (Gone, NoStream):  # the leader may have moved
                self._leaders.pop(stream, None)
                return self._answer(self._leader(stream), ask)

    def _leader(self, stream: str) -> Node:
        if stream not in self._leaders and not self.existing([stream]):
            raise NoStream(stream, exists=False)
        return self._leaders[stream]

    def _leaders_of(self, streams: Sequence[str]) -> dict[str, Node | None]:
        """Return the nodes of the leaders. Waits a moment for them, because after its start a server has none for a
        second."""
        deadline = time.monotonic() + LEADER_S
        while True:
            leaders = self._any(lambda client: client.leaders(streams))
            if None not in leaders.values() or time.monotonic() > deadline:
                return leaders
            time.sleep(0.1)

    def _answer(self, node: Node, ask: Callable[[StreamClient], T]) -> T:
        """Ask over the existing connection, or over a new one if that has ended."""
        known = self._clients.pop(node, None)
        if known is not None:
            try:
                return self._asked(node, known, ask)
            except Gone:
                known.close()
        return self._asked(node, StreamClient(node, self._connection.login), ask)

    def _asked(self, node: Node, client: StreamClient, ask: Callable[[StreamClient], T]) -> T:
        answer = ask(client)
        self._clients[node] = client
        return answer

    @contextmanager
    def _own_client(self, stream: str, where: Mapping[str, object]) -> Iterator[StreamClient]:
        """Yield a connection to the leader for a long read, for which nobody else waits."""
        with self._translated(where):
            with self._turn:
                node = self._leader(stream)
            client = StreamClient(node, self._connection.login)
            try:
                yield client
            except (Gone, NoStream):
                self._leaders.pop(stream, None)  # the leader may have moved
                raise
            finally:
                client.close()

    @contextmanager
    def _translated(self, where: Mapping[str, object]) -> Iterator[None]:
        try:
            yield
        except Gone as gone:
            raise unavailable(gone, server=self._connection.address, **where) from None
        except NoStream as absent:
            raise (
                self._no_leader(absent.stream)
                if absent.exists
                else Unavailable(
                    f"stream {absent.stream} does not exist",
                    next_step="it was deleted, perhaps to be made again; find what does that, then try again",
                    server=self._connection.address,
                    **where,
                )
            ) from None
        except Damaged as damaged:
            raise WorkFailed(
                f"a chunk of the stream cannot be read: {damaged}",
                next_step="nothing of it is published; if a producer's codec is the cause, tell us; if the checksum is "
                "wrong, look at the server's disk",
                server=self._connection.address,
                **where,
            ) from None

    def _no_leader(self, stream: str) -> TidemarkError:
        return Unavailable(
            f"stream {stream} has no leader now",
            next_step="wait for the nodes of RabbitMQ that have it: rabbitmq-streams stream_status",
            server=self._connection.address,
            topic=stream,
        )


def _first_and_last(client: StreamClient, stream: str) -> tuple[Chunk, Chunk] | None:
    ends = []
    for start in (Start.FIRST, Start.LAST):
        client.subscribe(stream, start)
        content = client.next_chunk()
        if content is None:
            return None
        ends.append(Chunk.of(content))
    client.unsubscribe()
    return ends[0], ends[1]


def _refuse_taken(client: StreamClient, covered: Range, first_gap: int, where: Mapping[str, object]) -> None:
    """Raise ``DataLost`` unless the log still begins at or before the first gap: then that gap never held a record."""
    client.subscribe(covered.at.topic, Start.FIRST)
    content = client.next_chunk()
    first = covered.end if content is None else Chunk.of(content).first
    if first > first_gap:
        raise DataLost(
            f"retention took offsets [{first_gap}, {min(first, covered.end)}) of {covered.at.name} before they were "
            "read",
            next_step="nothing of this attempt is published; tidemark retry {pipeline} finds out what is left",
            **where,
        )
