"""Executors of a running application: their number, and a limit for the time without any.

Spark waits without limit when a cluster has no free core or lost its last worker. We end the attempt with an error
instead, and it can be retried later.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tidemark.errors import Unavailable
from tidemark.spark.shipped import is_local
from tidemark.spark.tags import end_job

PATIENCE_S = 300.0  # a worker starts an executor within seconds; on a busy cluster it may take minutes
POLL_S = 1.0


def count(session: SparkSession) -> int:
    """The number of registered executors, without the driver."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


@contextmanager
def expected(session: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the jobs with the tag, those of the block, and raise ``Unavailable`` after ``PATIENCE_S`` without an
    executor."""
    if is_local(str(session.sparkContext.master)):
        yield
        return
    ended, given_up = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, tag, ended, given_up), name="executors", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if given_up.is_set():
            raise Unavailable(
                f"Spark had no executor for {PATIENCE_S:.0f} s",
                next_step="look at the master's page: some worker needs a free core and spark.executor.memory. "
                "Nothing is published",
                master=session.sparkContext.master,
            ) from error
        raise
    finally:
        ended.set()
        watcher.join()


def _watch(session: SparkSession, tag: str, ended: threading.Event, given_up: threading.Event) -> None:
    since = time.monotonic()
    with suppress(Py4JError, ConnectionError):  # the JVM is gone: the job fails with its own error
        while not ended.wait(POLL_S):
            if count(session) > 0:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                given_up.set()
                end_job(session, tag)  # every time: the job may start after the first cancellation
