"""The jobs of an attempt in a session: their tag, their progress, and a limit for the time without any executor.

By its tag, Spark ends a job and no other slice that works at the same time. Spark waits without limit if a cluster has
no free core or lost its last worker. We end the attempt with an error instead, and it can be retried later.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tidemark.errors import Unavailable
from tidemark.spark.masters import step_to_executors

EVERY_S = 30.0
PATIENCE_S = 300.0  # a worker starts an executor within seconds; on a busy cluster it may take minutes
POLL_S = 1.0


def tag_of(manifest_id: int, attempt: int) -> str:
    return f"tidemark manifest {manifest_id} attempt {attempt}"


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs that this thread begins in the block."""
    session.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM has ended, and another error reports it
            session.sparkContext.removeJobTag(tag)


def end_job(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with the tag, if there are any yet."""
    with suppress(Py4JError, ConnectionError):
        session.sparkContext.cancelJobsWithTag(tag)


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run ``work`` in a thread while the block runs. The event tells it that the block has ended."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def report_jobs(
    session: SparkSession, tag: str, report: Callable[[str], object], every: float = EVERY_S
) -> Iterator[None]:
    """Call ``report`` with a line about the jobs with a tag every ``every`` seconds, until the block ends."""
    with beside(partial(_report, session, tag, report, every)):
        yield


def _report(
    session: SparkSession, tag: str, report: Callable[[str], object], every: float, ended: threading.Event
) -> None:
    began = time.monotonic()
    while not ended.wait(every):
        try:
            tasks = _tasks(session, tag)
        except (Py4JError, OSError):  # the JVM has ended, and the job's own error reports it
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
    """Return the jobs with a tag; PySpark's own tracker knows only groups."""
    return list(session.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag))


def tasks_text(done: int, running: int, of: int, failed: int = 0) -> str:
    """Return the progress of a job in words."""
    if not of:
        return "Spark has no task yet"
    again = f", {failed} failed and tried again" if failed else ""
    return f"{done} of {of} tasks of Spark done, {running} at work{again}"


def count_executors(session: SparkSession) -> int:
    """Return the number of registered executors, without the driver."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


@contextmanager
def expecting_executors(session: SparkSession, tag: str) -> Iterator[None]:
    """Run the block; after ``PATIENCE_S`` without an executor, cancel its jobs, which have the tag, and raise
    ``Unavailable``.
    """
    given_up = threading.Event()
    try:
        with beside(partial(_watch, session, tag, given_up)):
            yield
    except Exception as error:
        if given_up.is_set():
            raise Unavailable(
                f"Spark had no executor for {PATIENCE_S:.0f} s",
                next_step=f"{step_to_executors(str(session.sparkContext.master))}. Nothing is published",
                master=session.sparkContext.master,
            ) from error
        raise


def _watch(session: SparkSession, tag: str, given_up: threading.Event, ended: threading.Event) -> None:
    since = time.monotonic()
    with suppress(Py4JError, ConnectionError):  # the JVM has ended: the job fails with its own error
        while not ended.wait(POLL_S):
            if count_executors(session) > 0:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                given_up.set()
                end_job(session, tag)  # every time: the job may start after the first cancellation
