"""Describes how a process of Spark ended: a signal or an exit status, and its usual cause."""

import signal

OUT_OF_MEMORY = 52  # the exit status of a driver or an executor of Spark after java.lang.OutOfMemoryError
KILLED_CHILD = 128  # added to the signal by which a child of the JVM or of a shell has ended
MEMORY = (
    "see whether it was the memory: dmesg -T | grep -i 'killed process' (in a container: its memory limit); if so, "
    "lower slice.max_records of the pipeline or spark.driver.memory, or give the machine more"
)
ABOVE = "Spark says more above in this log"
WORKER_DIED = "Python worker exited unexpectedly"  # Spark's message for a worker that died before it answered


def describe_end(status: int, process: str = "Spark") -> str:
    """Return how a process ended. ``status`` is the value of ``subprocess``: negative for a signal."""
    number = -status if status < 0 else status - KILLED_CHILD
    name = _name(number)
    if name is None:
        memory = ": it had no memory left" if status == OUT_OF_MEMORY else ""
        return f"{process} ended with exit status {status}{memory}"
    memory = ", often because the machine had no memory left" if number == signal.SIGKILL else ""
    return f"{process} was killed by signal {number} ({name}){memory}"


def advice(status: int) -> str:
    """Return the first thing to look at, or an empty text."""
    return MEMORY if status in (-signal.SIGKILL, KILLED_CHILD + signal.SIGKILL, OUT_OF_MEMORY) else ""


def _name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
