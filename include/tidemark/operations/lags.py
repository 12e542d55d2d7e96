"""How far pipelines are behind, asked side by side: all answers are there soon, also when a source is silent."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from tidemark.errors import TidemarkError
from tidemark.operations.lag import Lag

LIMIT = 8.0  # seconds that a command waits for sources, all together; scrapers wait for 10
FRESH = 5.0  # seconds for which an answer is given again
OLD = 60.0  # seconds for which an answer is given while the source is asked again
AT_ONCE = 16  # sources: each takes a session of the manifest database and a client

Ask = Callable[[str], tuple[Lag, ...]]


@dataclass(frozen=True)
class Answer:
    """``parts`` by partition, or None; then ``why`` says why the lag is not known, and ``next_step`` what to do."""

    parts: tuple[Lag, ...] | None
    why: str | None = None
    next_step: str = ""


class Lags:
    """Asks for each pipeline once at a time, so that a silent source holds one thread of ours for a pipeline.

    ``limit``: seconds that a caller waits for all answers together.
    """

    def __init__(self, ask: Ask, *, limit: float = LIMIT) -> None:
        self._ask = ask
        self._limit = limit
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._asked: dict[str, tuple[float, Future[tuple[Lag, ...]]]] = {}
        self._heard: dict[str, tuple[float, tuple[Lag, ...]]] = {}

    def of(self, names: Iterable[str]) -> dict[str, Answer]:
        """The answers that are there within ``limit`` seconds, or were a minute ago; the others say they are not."""
        asked = {name: self._begun(name) for name in names}
        wait(asked.values(), timeout=self._limit)
        return {name: self._answer(name, future) for name, future in asked.items()}

    def _answer(self, name: str, future: Future[tuple[Lag, ...]]) -> Answer:
        heard_at, parts = self._heard.get(name, (0.0, ()))
        if not future.done() and heard_at and time.monotonic() - heard_at < OLD:
            return Answer(parts)
        return _answer(future, self._limit)

    def _begun(self, name: str) -> Future[tuple[Lag, ...]]:
        with self._lock:
            began, future = self._asked.get(name, (0.0, None))
            if future is None or (future.done() and time.monotonic() - began > FRESH):
                future = Future()
                self._asked[name] = time.monotonic(), future
                threading.Thread(target=self._run, args=(name, future), daemon=True).start()
            return future

    def _run(self, name: str, future: Future[tuple[Lag, ...]]) -> None:
        try:
            with self._places:
                parts = self._ask(name)
            self._heard[name] = time.monotonic(), parts
            future.set_result(parts)
        except Exception as error:  # it belongs to whoever asked
            self._heard.pop(name, None)
            future.set_exception(error)


def _answer(future: Future[tuple[Lag, ...]], limit: float) -> Answer:
    if not future.done():
        return Answer(None, f"the source has not answered within {limit:g} s")
    error = future.exception()
    if error is None:
        return Answer(future.result())
    if isinstance(error, TidemarkError):
        return Answer(None, error.what, error.next_step)
    return Answer(None, f"{type(error).__name__}: {error}")
