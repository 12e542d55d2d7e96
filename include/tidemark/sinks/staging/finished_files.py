"""Finishes the files of a task, in threads if the store makes it wait for each of them."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tidemark.sinks.writer import StagedPart

SMALL_BYTES = 8 * 2**20  # a larger file waits for bandwidth rather than for answers, and is in memory in parts


class FinishedFiles:
    """The files of a task that are finished, with the parts that they hold.

    If ``at_once`` is above 1, so many small files are finished in threads at once. The error of one is raised by a
    later call.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once)
        self._parts: list[StagedPart | Future[StagedPart]] = []
        self._running: set[Future[StagedPart]] = set()

    def add(self, size: int, finish: Callable[[], StagedPart]) -> None:
        """Finish a file of ``size`` bytes, now or in a thread. Waits first if ``at_once`` files are being finished."""
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
        """Wait until all files are finished, and return their parts, in the order of ``add``."""
        with self._threads:
            return [part.result() if isinstance(part, Future) else part for part in self._parts]

    def abandon(self) -> None:
        """Wait for the files that are being finished; never raises."""
        self._threads.shutdown()
