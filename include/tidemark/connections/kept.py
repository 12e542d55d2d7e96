"""Clients that a command or task keeps open for all its questions, and that the members of a group share.

To connect takes longer than most questions do. A client that would otherwise close its connections after each question
keeps them until the block ends, or until Spark begins to work, so that none stays open for its hours.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Client = TypeVar("Client")


class KeptClients:
    """The clients of one block, by a key that says all that they were opened with."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._clients: dict[Hashable, Any] = {}

    def client(self, key: Hashable, opened: Callable[[], AbstractContextManager[Client]]) -> Client:
        """The client with this key; the first question opens it, and the end of the block closes it."""
        if key not in self._clients:
            self._clients[key] = self._stack.enter_context(opened())
        client: Client = self._clients[key]
        return client

    def close(self) -> None:
        """Close all clients; the next question opens one again."""
        self._clients.clear()
        self._stack.close()


_KEPT: ContextVar[KeptClients | None] = ContextVar("kept clients", default=None)  # each thread has its own


@contextmanager
def keep_clients() -> Iterator[None]:
    """Keep clients until the block ends; a block inside another one belongs to that."""
    if _KEPT.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _KEPT.set(KeptClients(stack))
        try:
            yield
        finally:
            _KEPT.reset(token)


def kept_clients() -> KeptClients | None:
    """The clients of the block at work; None outside of any."""
    return _KEPT.get()


def close_kept_clients() -> None:
    """Close the clients of the block at work before something that may take hours."""
    kept = kept_clients()
    if kept is not None:
        kept.close()
