"""The keeper starts a service once for all who ask, hands out copies, and ends it with the run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandbox.services.processes import Service
from tests.fixtures.keeper import Keeper, ask


class Silent(Service):
    """A service without a process; its folder has a line for each time that it was started or stopped."""

    def __init__(self, state: Path, name: str) -> None:
        self.log = state / name

    def start(self) -> None:
        self._tell("started")

    def stop(self) -> None:
        self._tell("stopped")

    def _tell(self, what: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{what}\n")


def silent(_: Keeper, state: Path, name: str) -> Silent:
    return Silent(state, name)


@contextmanager
def upon(keeper: Keeper, state: Path) -> Iterator[str]:
    yield f"upon {keeper.get(silent, state, 'one').log.name}"


@contextmanager
def only_the_second_time(_: Keeper, state: Path) -> Iterator[str]:
    first = state / "first"
    if not first.exists():
        first.touch()
        raise OSError("no port is free")
    yield "well"


def test_it_starts_once_for_all_who_ask_and_ends_with_the_keeper(tmp_path: Path) -> None:
    with closing(Stopping()) as keeper, ThreadPoolExecutor(4) as pool:
        wanted = (silent, tmp_path, "one")
        told = list(pool.map(lambda _: ask(keeper.address(), wanted), range(4)))
        assert [failure for _, failure in told] == [""] * 4
        assert {service.log for service, _ in told} == {tmp_path / "one"}
        assert keeper.get(upon, tmp_path) == "upon one"
        assert keeper.get(silent, tmp_path, "two").log == tmp_path / "two"
        assert (tmp_path / "one").read_text() == "started\n"
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["started\nstopped\n"] * 2


def test_a_start_that_failed_is_told_and_tried_again_by_the_next_who_asks(tmp_path: Path) -> None:
    with closing(Stopping()) as keeper:
        answer, failure = ask(keeper.address(), (only_the_second_time, tmp_path))
        assert (answer, "no port is free" in failure) == (None, True)
        assert ask(keeper.address(), (only_the_second_time, tmp_path)) == ("well", "")


def test_a_copy_can_neither_kill_nor_restart_the_service(tmp_path: Path) -> None:
    with closing(Stopping()) as keeper:
        copy = keeper.get(silent, tmp_path, "one")
        for change in (copy.kill, copy.restart, copy.stop_signal):
            with pytest.raises(AssertionError, match="not started"):
                change()


class Stopping(Keeper):
    def close(self) -> None:
        self.stop()
