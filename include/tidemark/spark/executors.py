"""Executors of a running application: how many there are, and an end to waiting for them.

Spark waits without limit for a cluster that has no room, or lost its last worker. A person who waits for a manifest is
told instead, and the attempt is tried again later.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tidemark.errors import Unavailable
from tidemark.spark.shipped import is_local

PATIENCE_S = 300.0  # a worker starts an executor within seconds; a queue of a busy cluster may take minutes
POLL_S = 1.0


def count(session: SparkSession) -> int:
    """How many executors are registered; the driver does not count."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


@contextmanager
def expected(session: SparkSession) -> Iterator[None]:
    """Cancel the jobs inside, and raise ``Unavailable``, when there was no executor for five minutes together."""
    if is_local(str(session.sparkContext.master)):
        yield
        return
    over, given_up = threading.Event(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, over, given_up), name="executors", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as failed:
        if given_up.is_set():
            raise Unavailable(
                f"Spark had no executor for {PATIENCE_S:.0f} s",
                next_step="look at the master's page: are workers alive, with a free core and spark.executor.memory? "
                "Nothing is published",
                master=session.sparkContext.master,
            ) from failed
        raise
    finally:
        over.set()
        watcher.join()


def _watch(session: SparkSession, over: threading.Event, given_up: threading.Event) -> None:
    since = time.monotonic()
    with suppress(Py4JError, ConnectionError):  # the JVM is gone: whoever waits for the job hears of it
        while not over.wait(POLL_S):
            if count(session) > 0:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                given_up.set()
                session.sparkContext.cancelAllJobs()  # again at every look: the job may come only after the first
