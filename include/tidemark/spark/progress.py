"""Tells how far a job of Spark is, while it runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

EVERY_S = 30.0


@contextmanager
def report_jobs(
    session: SparkSession, tag: str, report: Callable[[str], object], every: float = EVERY_S
) -> Iterator[None]:
    """Call ``tell`` with a line about the jobs with a tag every so many seconds, in a thread, until the block ends."""
    ended = threading.Event()
    teller = threading.Thread(target=_report, args=(session, tag, report, every, ended), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _report(
    session: SparkSession, tag: str, report: Callable[[str], object], every: float, ended: threading.Event
) -> None:
    began = time.monotonic()
    while not ended.wait(every):
        try:
            tasks = _tasks(session, tag)
        except (Py4JError, OSError):  # the JVM is gone, and the job's own error says so
            return
        report(f"after {time.monotonic() - began:.0f} s: {tasks}")


def _tasks(session: SparkSession, tag: str) -> str:
    tracker = session.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in _jobs(session, tag)]
    ids = {stage for job in jobs if job is not None for stage in job.stageIds}
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds() if stage in ids]
    done, running, of, failed = 0, 0, 0, 0
    for stage in stages:
        if stage is not None:
            done, running = done + stage.numCompletedTasks, running + stage.numActiveTasks
            of, failed = of + stage.numTasks, failed + stage.numFailedTasks
    return tasks_text(done, running, of, failed)


def _jobs(session: SparkSession, tag: str) -> list[int]:
    """The jobs with a tag; PySpark's own tracker knows groups only."""
    return list(session.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag))


def tasks_text(done: int, running: int, of: int, failed: int = 0) -> str:
    """How far a job is, in words."""
    if not of:
        return "Spark has no task yet"
    again = f", {failed} failed and tried again" if failed else ""
    return f"{done} of {of} tasks of Spark done, {running} at work{again}"
