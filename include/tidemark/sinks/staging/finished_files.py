"""Finishes the files of a task: beside its work, where the store makes it wait for each of them."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tidemark.sinks.writer import StagedPart

SMALL_BYTES = 8 * 2**20  # a larger file waits for the network and not for an answer, and lies in memory in parts


class FinishedFiles:
    """Finishes each file that it is given, and keeps what it holds.

    With ``at_once`` above 1 as many small files are finished in threads. The error of one is raised by a later call.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once)
        self._parts: list[StagedPart | Future[StagedPart]] = []
        self._running: set[Future[StagedPart]] = set()

    def add(self, size: int, finish: Callable[[], StagedPart]) -> None:
        """Finish a file of ``size`` bytes, or begin to, once fewer than ``at_once`` are being finished."""
        if self._at_once == 1 or size > SMALL_BYTES:
            self._parts.append(finish())
            return
        if len(self._running) == self._at_once:
            done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
            for file in done:
                file.result()
        begun = self._threads.submit(finish)
        self._running.add(begun)
        self._parts.append(begun)

    def parts(self) -> list[StagedPart]:
        """Return the parts that all files hold, in the order in which they were given; each is finished now."""
        with self._threads:
            return [part.result() if isinstance(part, Future) else part for part in self._parts]

    def abandon(self) -> None:
        """Wait for the files that are being finished; never raises."""
        self._threads.shutdown()
