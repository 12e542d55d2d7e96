"""A TCP proxy in front of a Kafka broker. It loses answers or requests of one kind, which the test chooses, or holds
requests back until the test delivers them.

Answers contain the broker's address, so clients would bypass the proxy: in every answer it replaces the port.
"""

import select
import socket
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults import counts
from tests.faults.tcp_proxy import Conversation, TcpProxy

PRODUCE = 0  # the numbers of requests
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
END_TXN = 26  # commits or aborts a transaction


class Fault(StrEnum):
    """The fault of a request; the connection ends with it."""

    ANSWER_LOST = "answer lost"  # the broker has done it, the client gets no answer
    CUT_BEFORE = "cut before"  # the broker does not get it
    HELD = "held"  # the broker gets it when the test delivers it


@dataclass
class Armed:
    """A fault at each of the first ``times`` requests of one kind; ``struck`` counts them, ``held`` keeps them."""

    fault: Fault
    times: int = 1
    request: int = END_TXN
    struck: int = 0
    held: list[bytes] = field(default_factory=list)


@dataclass
class _Requests(Conversation):
    """The state of a connection, with the bytes of an incomplete message, and the request whose answer is lost."""

    rest: dict[socket.socket, bytes] = field(default_factory=dict)
    lost: bytes = b""  # the correlation id

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


class KafkaProxy(TcpProxy[_Requests]):
    """A proxy in front of the broker on ``port``."""

    conversation = _Requests

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._armed: Armed | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def arm(self, armed: Armed) -> Armed:
        """Let faults happen from now on."""
        self._armed = armed
        return armed

    def deliver(self, request: bytes) -> bytes:
        """Send a held request to the broker, on a connection of its own; return the answer."""
        with (
            socket.create_connection(("127.0.0.1", self._target), timeout=30) as server,
            server.makefile("rb") as answers,
        ):
            server.sendall(request)
            answer = answers.read(int.from_bytes(answers.read(4)))
        assert answer[:4] == request[8:12], "the broker has answered another request"
        return answer

    def _exchange(self, conversation: _Requests) -> bool:
        """Pass on messages from either side; False when the connection must end."""
        client, server = conversation.client, conversation.server
        ready = select.select([client, server], [], [])[0]
        if client in ready:
            requests = conversation.messages(client)
            for request in requests or ():
                fault = self._fault_of(request)
                if fault in (Fault.CUT_BEFORE, Fault.HELD):
                    return False
                if fault is Fault.ANSWER_LOST:
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

    def _fault_of(self, request: bytes) -> Fault | None:
        armed = self._armed
        if armed is None or armed.struck >= armed.times or int.from_bytes(request[4:6]) != armed.request:
            return None
        if armed.fault is Fault.HELD:
            armed.held.append(request)
        armed.struck += 1
        counts.REACHED[counts.HIT] += 1
        return armed.fault

    def _readdressed(self, answer: bytes) -> bytes:
        return answer.replace(b"127.0.0.1" + self._target.to_bytes(4), b"127.0.0.1" + self.port.to_bytes(4))
