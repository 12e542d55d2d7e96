"""Turns Tidemark's errors into Airflow's: retry the task, or fail at once because you must act."""

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog  # Airflow's tasks log through it
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.airflow import addresses, event_log
from tidemark.errors import (
    Fenced,
    NotFound,
    NotPublished,
    TidemarkError,
    Unavailable,
    UndecodableRecord,
    WorkFailed,
)
from tidemark.lifecycle import events
from tidemark.lifecycle.failed_tasks import NextTry

LONGEST_DELAY_S = 86400.0  # Airflow waits no longer, whatever the number of the try


def may_help(error: TidemarkError) -> bool:
    """Return whether a later retry of the same task may succeed."""
    return isinstance(error, Unavailable | WorkFailed) and not isinstance(
        error, Fenced | NotPublished | UndecodableRecord
    )


def next_try(task_context: Any) -> NextTry:
    """Return a function that gives the latest time at which Airflow tries a task again after an error, or None.
    ``task_context`` is Airflow's.

    With exponential backoff Airflow waits the delay of this try, or up to twice as long.
    """

    def at(error: BaseException) -> datetime | None:
        instance = task_context["ti"]
        gives_up = isinstance(error, AirflowFailException) or (isinstance(error, TidemarkError) and not may_help(error))
        if gives_up or instance.try_number > instance.max_tries:
            return None
        task = instance.task
        delay: timedelta = task.retry_delay
        if task.retry_exponential_backoff:
            factor = float(task.retry_exponential_backoff)
            seconds = max(1.0, delay.total_seconds()) * (factor if factor > 1 else 2.0) ** (instance.try_number - 1) * 2
            delay = timedelta(seconds=min(seconds, LONGEST_DELAY_S))
        if task.max_retry_delay:
            delay = min(delay, task.max_retry_delay)
        return datetime.now(UTC) + delay

    return at


class TriedAgain(AirflowException):
    """An error of Tidemark that a retry may solve."""


class FailedAtOnce(AirflowFailException):
    """An error of Tidemark that only you can solve."""


@contextmanager
def airflow_verdict() -> Iterator[None]:
    """Let Airflow retry errors that a retry may solve; fail the task at once for others. The message has the next step
    and the page that shows more.
    """
    _keep_tracebacks_out()
    try:
        yield
    except TidemarkError as error:
        event_log.emit(events.failed(error))
        verdict = TriedAgain if may_help(error) else FailedAtOnce
        raise verdict("\n".join([str(error), *_page(error)])) from None


def _page(error: TidemarkError) -> list[str]:
    """Return the address of the page of the manifest or the pipeline of an error; none for something that does not
    exist.
    """
    pipeline, manifest = error.context.get("pipeline"), error.context.get("manifest")
    if not isinstance(pipeline, str) or isinstance(error, NotFound):
        return []
    page = addresses.page_address(pipeline, manifest if isinstance(manifest, int) else None)
    return [f"page: {page}"] if page else []


def _keep_tracebacks_out() -> None:
    """Make Airflow log Tidemark's errors as their message only. Its loggers, also existing ones, share the list of
    processors.
    """
    processors = structlog.get_config()["processors"]
    if message_only not in processors:
        processors.insert(0, message_only)


def message_only(_logger: object, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the traceback of Airflow's code by the message, in an entry about an error of Tidemark. A processor of
    structlog.
    """
    error = entry.get("exc_info")
    error = sys.exc_info()[1] if error is True else error
    if isinstance(error, TriedAgain | FailedAtOnce):
        return {**{name: value for name, value in entry.items() if name != "exc_info"}, "event": str(error)}
    return entry


def ended_by_airflow(pipeline_name: str, manifest_id: int) -> WorkFailed:
    """Return the error of an attempt that Airflow has ended."""
    return WorkFailed(
        "Airflow ended this task, and Spark with it: the task was marked or cleared, or its worker was stopped",
        next_step=f"nothing is published; clear the task to do the manifest, or: tidemark retry {pipeline_name}",
        pipeline=pipeline_name,
        manifest=manifest_id,
    )
