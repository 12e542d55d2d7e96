"""A TCP proxy in front of a server on 127.0.0.1. For each connection a thread passes data on."""

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar


@dataclass
class Conversation:
    """The two sides of a connection."""

    client: socket.socket
    server: socket.socket

    def hang_up(self) -> None:
        """End both sides from another thread: the thread that reads them gets no data, and closes them."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self.client.close()
        self.server.close()


C = TypeVar("C", bound=Conversation)


class TcpProxy(ABC, Generic[C]):
    """A proxy on a free port of 127.0.0.1 that passes data on to ``port``; use it with ``with``."""

    conversation: ClassVar[type[Conversation]]

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[Conversation] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        accepting, *_ = self._threads
        accepting.join()  # only then is every conversation known
        for conversation in self._open:
            conversation.hang_up()
        for thread in self._threads:
            thread.join()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    @abstractmethod
    def _exchange(self, conversation: C) -> bool:
        """Wait for data of either side and pass it on; false when the connection must end."""

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            conversation = self.conversation(client, socket.create_connection(("127.0.0.1", self._target)))
            for side in (conversation.client, conversation.server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it each statement takes 40 ms more
            self._open.append(conversation)
            self._start(self._talk, conversation)

    def _talk(self, conversation: C) -> None:
        with suppress(OSError):
            while self._exchange(conversation):
                pass
        conversation.close()
