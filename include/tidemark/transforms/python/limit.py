"""Ends a user's function that works too long."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 1.0  # a function that catches everything is interrupted once more


class TimedOut(BaseException):
    """The time is over; ``frame`` is where the code was. No ``except Exception`` of a user catches it."""

    def __init__(self, frame: FrameType | None) -> None:
        super().__init__()
        self.frame = frame


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimedOut`` inside when it takes longer; only in the main thread, where tasks of Spark work.

    Python is interrupted between two of its own steps: a library that never comes back is not.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        del number
        raise TimedOut(frame)

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, remaining - (time.monotonic() - began)), interval)
