"""Clients that are kept open for a block: one for each key, closed at its end, also when the block fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidemark.connections.kept import close_kept_clients, keep_clients, kept_clients


class Opened:
    """Notes what is opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def client(self, name: str) -> Iterator[str]:
        self.events.append(f"open {name}")
        try:
            yield name
        finally:
            self.events.append(f"close {name}")

    def ask(self, name: str) -> str:
        kept = kept_clients()
        assert kept is not None
        return kept.client(name, lambda: self.client(name))


def test_those_who_ask_in_one_block_share_a_client_for_each_key() -> None:
    opened = Opened()
    with keep_clients():
        with keep_clients():
            assert [opened.ask(name) for name in ("a", "b", "a")] == ["a", "b", "a"]
        assert opened.ask("a") == "a", "the inner block belongs to the outer one"
        assert opened.events == ["open a", "open b"]
    assert opened.events == ["open a", "open b", "close b", "close a"]
    assert kept_clients() is None


def test_a_block_that_fails_closes_them_and_the_next_one_opens_its_own() -> None:
    opened = Opened()

    @keep_clients()
    def failing() -> None:
        opened.ask("a")
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            failing()
    assert opened.events == ["open a", "close a"] * 2
    assert kept_clients() is None


def test_a_client_that_does_not_open_is_tried_again() -> None:
    opened = Opened()

    @contextmanager
    def broken() -> Iterator[str]:
        raise ConnectionError
        yield ""

    with keep_clients():
        kept = kept_clients()
        assert kept is not None
        with pytest.raises(ConnectionError):
            kept.client("a", broken)
        assert opened.ask("a") == "a"


def test_before_long_work_they_are_closed_and_the_next_question_opens_its_own() -> None:
    opened = Opened()
    with keep_clients():
        opened.ask("a")
        close_kept_clients()
        assert opened.events == ["open a", "close a"]
        assert opened.ask("a") == "a"
    assert opened.events == ["open a", "close a"] * 2
    close_kept_clients()  # outside of any block there is nothing to close
