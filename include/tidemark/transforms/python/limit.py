"""Ends a user's function that takes too long."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 1.0  # seconds after which a function that catches everything is interrupted again


class TimedOut(BaseException):
    """The time limit is over; ``frame`` is where the code was. No ``except Exception`` of a user catches it."""

    def __init__(self, frame: FrameType | None) -> None:
        super().__init__()
        self.frame = frame


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimedOut`` in the block if it takes longer. Works only in the main thread, in which tasks of Spark work.

    Python is interrupted only between two of its own steps, so a library that never returns is not interrupted.
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
