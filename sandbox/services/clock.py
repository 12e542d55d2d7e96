"""Where the time went: named steps, also those that run side by side."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step; ``start`` and ``seconds`` count from the clock's first tick."""

    name: str
    start: float
    seconds: float


class Clock:
    """Collects steps from any thread."""

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self._steps: list[Step] = []
        self._lock = threading.Lock()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block, also when it fails."""
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._steps.append(Step(name, start - self._zero, time.monotonic() - start))

    @property
    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._zero

    @property
    def steps(self) -> list[Step]:
        """The finished steps, by when they began."""
        with self._lock:
            return sorted(self._steps, key=lambda step: step.start)
