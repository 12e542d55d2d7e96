"""Clients that a command or task keeps open for all its requests, and that the members of a group share.

To connect takes longer than most requests. A client that would otherwise close its connections after each request keeps
them until the block ends, or until Spark begins to work, so that none stays open for the hours of Spark's work.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Client = TypeVar("Client")


class KeptClients:
    """The clients of one block, by a key that contains everything they were opened with."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._clients: dict[Hashable, Any] = {}

    def client(self, key: Hashable, opened: Callable[[], AbstractContextManager[Client]]) -> Client:
        """Return the client with this key. The first call opens it; the end of the block closes it."""
        if key not in self._clients:
            self._clients[key] = self._stack.enter_context(opened())
        client: Client = self._clients[key]
        return client

    def close(self) -> None:
        """Close all clients; the next call of ``client`` opens one again."""
        self._clients.clear()
        self._stack.close()


_KEPT: ContextVar[KeptClients | None] = ContextVar("kept clients", default=None)  # each thread has its own


@contextmanager
def keep_clients() -> Iterator[None]:
    """Keep clients until the block ends. A block inside another one uses the clients of the outer block."""
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
    """Return the clients of the present block; None outside of any block."""
    return _KEPT.get()


def close_kept_clients() -> None:
    """Close the clients of the present block before something that may take hours."""
    kept = kept_clients()
    if kept is not None:
        kept.close()
