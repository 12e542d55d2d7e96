"""The tag of an attempt's job: by it Spark ends this job, and none of the other slices that work at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


def tag_of(manifest_id: int, attempt: int) -> str:
    return f"tidemark manifest {manifest_id} attempt {attempt}"


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Jobs that this thread begins in the block bear the tag."""
    session.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM is gone, and the error that says so is on its way
            session.sparkContext.removeJobTag(tag)


def end_job(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with the tag, if there are any yet."""
    with suppress(Py4JError, ConnectionError):
        session.sparkContext.cancelJobsWithTag(tag)
