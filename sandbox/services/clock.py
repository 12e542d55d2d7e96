"""Measures how long named steps take, also steps that run at the same time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A measured step. ``start``: seconds after the clock was created. ``seconds``: its duration."""

    name: str
    start: float
    seconds: float


class Clock:
    """Measures steps, which may come from any thread."""

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self._steps: list[Step] = []
        self._lock = threading.Lock()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block, also if it fails."""
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._steps.append(Step(name, start - self._zero, time.monotonic() - start))

    @property
    def elapsed(self) -> float:
        """Return the seconds since the clock was created."""
        return time.monotonic() - self._zero

    @property
    def steps(self) -> list[Step]:
        """Return the finished steps, ordered by start."""
        with self._lock:
            return sorted(self._steps, key=lambda step: step.start)
