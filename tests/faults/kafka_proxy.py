"""A TCP proxy in front of a Kafka broker. It loses answers or questions of one kind of request, which the test chooses.

Answers name the broker's address, so that clients would go around the proxy: in every answer its port is replaced.
"""

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from tests.faults import counts

END_TXN = 26  # the number of the request that commits or aborts a transaction
INIT_PRODUCER_ID = 22


class Fault(StrEnum):
    """The fault of a request; the connection ends with it."""

    ANSWER_LOST = "answer lost"  # the broker has done it, the client gets no answer
    CUT_BEFORE = "cut before"  # the broker does not get it


@dataclass
class Armed:
    """A fault at each of the first ``times`` requests of one kind; ``struck`` counts them."""

    fault: Fault
    times: int = 1
    request: int = END_TXN
    struck: int = 0


@dataclass
class _Conversation:
    """The two sides of a connection, what has come of an incomplete message, and the request whose answer is lost."""

    client: socket.socket
    server: socket.socket
    rest: dict[socket.socket, bytes] = field(default_factory=dict)
    lost: bytes = b""  # the correlation id

    def close(self) -> None:
        for side in (self.client, self.server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def messages(self, side: socket.socket) -> list[bytes] | None:
        """The complete messages that have come from a side; None when it has ended."""
        received = side.recv(1 << 16)
        content = self.rest.pop(side, b"") + received
        messages = []
        while len(content) >= 4 and len(content) >= (size := 4 + int.from_bytes(content[:4])):
            messages.append(content[:size])
            content = content[size:]
        self.rest[side] = content
        return messages if received else None


class KafkaProxy:
    """Listens on a free port of 127.0.0.1; use it with ``with``."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._armed: Armed | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[_Conversation] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        accepting, *talking = self._threads
        accepting.join()  # only then is every conversation known
        for conversation in self._open:
            conversation.close()
        for thread in talking:
            thread.join()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def arm(self, armed: Armed) -> Armed:
        """Let faults happen from now on."""
        self._armed = armed
        return armed

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            conversation = _Conversation(client, socket.create_connection(("127.0.0.1", self._target)))
            for side in (conversation.client, conversation.server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(conversation)
            self._start(self._talk, conversation)

    def _talk(self, conversation: _Conversation) -> None:
        with suppress(OSError, ValueError):
            while self._exchange(conversation):
                pass
        conversation.close()

    def _exchange(self, conversation: _Conversation) -> bool:
        """Pass on messages from either side; False when the connection must end."""
        client, server = conversation.client, conversation.server
        ready = select.select([client, server], [], [])[0]
        if client in ready:
            requests = conversation.messages(client)
            for request in requests or ():
                if self._strikes(request):
                    if self._armed is None or self._armed.fault is Fault.CUT_BEFORE:
                        return False
                    conversation.lost = request[8:12]
                server.sendall(request)
            if requests is None:
                return False
        if server in ready:
            answers = conversation.messages(server)
            for answer in answers or ():
                if conversation.lost and answer[4:8] == conversation.lost:
                    return False
                client.sendall(self._readdressed(answer))
            return answers is not None
        return True

    def _strikes(self, request: bytes) -> bool:
        armed = self._armed
        if armed is None or armed.struck >= armed.times or int.from_bytes(request[4:6]) != armed.request:
            return False
        armed.struck += 1
        counts.REACHED[counts.HIT] += 1
        return True

    def _readdressed(self, answer: bytes) -> bytes:
        mine = int(self._listener.getsockname()[1])
        return answer.replace(b"127.0.0.1" + self._target.to_bytes(4), b"127.0.0.1" + mine.to_bytes(4))
