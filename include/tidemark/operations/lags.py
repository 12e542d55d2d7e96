"""Asks many sources for their lag in parallel, and returns in time even if a source is silent."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import cache

from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError, Unavailable, about
from tidemark.lifecycle.context import refuse_out_of_use
from tidemark.lifecycle.known_sinks import refuse_unlike
from tidemark.operations.lag import Lag, Planned, behind, planned
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.registry import open_source

LIMIT = 8.0  # seconds that a command waits for connections and sources, all together; scrapers wait for 10
LOOK_UP = 5.0  # seconds of them that it waits for connections
FRESH = 5.0  # seconds for which an answer is used again
OLD = 60.0  # seconds for which an answer is used while the source is asked again
AT_ONCE = 16  # threads that ask; a silent source holds one of them until it gives up
STUCK = 0.5  # seconds without any answer, after which as many threads are added: the others may all be silent

Ask = Callable[[], tuple[Lag, ...]]
_Answering = Future[tuple[Lag, ...]]
SOURCE = "the source"
ANY_SOURCE: Mapping[str, object] = {}


@dataclass(frozen=True)
class System:
    """A source that can be asked; ``trouble`` returns the newest reason why it has not answered, if one is known."""

    title: str
    address: str
    trouble: Callable[[], str] = field(default=str, compare=False)

    def __str__(self) -> str:
        return f"{self.title} at {self.address}"


@dataclass(frozen=True)
class Answer:
    """The lag of each partition (``parts``), or None; then ``why`` says why it is unknown, and ``next_step`` what to
    do.

    ``system`` names the source and its address, if known. ``silent`` means that the source does not answer.
    """

    parts: tuple[Lag, ...] | None
    why: str | None = None
    next_step: str = ""
    system: System | None = field(default=None, compare=False)
    silent: bool = field(default=False, compare=False)


class Lags:
    """Asks the source of each pipeline, once at a time. A caller waits ``limit`` seconds for all answers together."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._answering: dict[str, tuple[object, float, _Answering]] = {}
        self._heard: dict[str, tuple[object, float, tuple[Lag, ...]]] = {}
        self._waiting: deque[tuple[str, object, Ask, _Answering]] = deque()
        self.systems: dict[str, System] = {}  # the name and the address of each source that was opened

    def of(self, asks: Mapping[str, Ask], sources: Mapping[str, object] = ANY_SOURCE) -> dict[str, Answer]:
        """Return an answer for each pipeline: the one that arrives within ``limit`` seconds, else one at most a minute
        old, else one that says that the source has not answered.

        ``sources`` are the source settings in the files now, with what is planned. An answer under others does not
        count: after a run the lag is that of after it.
        """
        futures = {name: self._begun(name, sources.get(name), ask) for name, ask in asks.items()}
        self._add_threads()
        waited_for, deadline = set(futures.values()), time.monotonic() + self._limit
        while waited_for and (remaining := deadline - time.monotonic()) > 0:
            done, waited_for = wait(waited_for, timeout=min(STUCK, remaining), return_when=FIRST_COMPLETED)
            if not done:
                self._add_threads()
        return {name: self._answer(name, sources.get(name), future) for name, future in futures.items()}

    def _answer(self, name: str, source: object, future: _Answering) -> Answer:
        if not future.done() and name in self._heard:
            of_source, heard_at, parts = self._heard[name]
            if of_source == source and time.monotonic() - heard_at < OLD:
                return Answer(parts)
        return _answer(future, self._limit, self.systems.get(name))

    def _begun(self, name: str, source: object, ask: Ask) -> _Answering:
        with self._lock:
            of_source, began, future = self._answering.get(name, (None, 0.0, None))
            is_old = future is not None and future.done() and time.monotonic() - began > FRESH
            if future is None or is_old or of_source != source:
                if of_source != source:
                    self.systems.pop(name, None)
                future = Future()
                self._answering[name] = source, time.monotonic(), future
                self._waiting.append((name, source, ask, future))
            return future

    def _add_threads(self) -> None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        """Ask one source after the other, while any waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                name, source, ask, future = self._waiting.popleft()
            try:
                parts = ask()
                self._heard[name] = source, time.monotonic(), parts
                future.set_result(parts)
            except Exception as error:  # the caller of ``of`` gets it
                self._heard.pop(name, None)
                future.set_exception(error)


def ask_sources(
    database: ManifestDatabase, pipelines: Mapping[str, Pipeline], lookup: Lookup, lags: Lags
) -> dict[str, Answer]:
    """Return the answers of the sources of these pipelines. The database is asked first, in the caller's thread.

    ``lookup`` finds each connection once, for all pipelines that share it.
    """
    connection_of = cache(lookup)
    asks: dict[str, Ask] = {}
    sources: dict[str, object] = {}
    refused: dict[str, Answer] = {}
    with database.reading_ahead(pipelines):
        for name, pipeline in pipelines.items():
            try:
                with about(pipeline=name):
                    refuse_out_of_use(name, database)
                    refuse_unlike(pipeline, database.sinks.known(name))
                    known = planned(database, pipeline)
                    asks[name] = _ask(pipeline, connection_of, known, lags.systems)
                    sources[name] = pipeline.source, known
            except TidemarkError as error:
                refused[name] = Answer(None, error.what, error.next_step)
    return refused | lags.of(asks, sources)


def _ask(pipeline: Pipeline, lookup: Lookup, known: Planned, systems: dict[str, System]) -> Ask:
    def ask() -> tuple[Lag, ...]:
        with about(pipeline=pipeline.name):
            source = open_source(pipeline.name, pipeline.source, lookup)
            systems[pipeline.name] = System(source.title, source.address, source.trouble)
            return tuple(behind(source, known))

    return ask


def _answer(future: _Answering, limit: float, system: System | None) -> Answer:
    if not future.done():
        trouble = system.trouble() if system else ""
        cause = f"{trouble}, so " if trouble else ""
        why = f"{cause}{SOURCE} has not answered within {round(limit, 2):g} s"
        return Answer(None, why, system=system, silent=True)
    error = future.exception()
    if error is None:
        return Answer(future.result(), system=system)
    if isinstance(error, TidemarkError):
        return Answer(None, error.what, error.next_step, system, isinstance(error, Unavailable))
    return Answer(None, f"{type(error).__name__}: {error}", system=system)
