"""Turns our errors into Airflow's: retry the task, or fail at once because a person must act."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.errors import Fenced, NotPublished, TidemarkError, Unavailable, UndecodableRecord, WorkFailed


def may_help(error: TidemarkError) -> bool:
    """Whether a later retry of the same task may succeed."""
    return isinstance(error, Unavailable | WorkFailed) and not isinstance(
        error, Fenced | NotPublished | UndecodableRecord
    )


@contextmanager
def airflow_verdict() -> Iterator[None]:
    """Let Airflow retry errors that a retry may solve; others fail the task at once. The message says what to do."""
    try:
        yield
    except TidemarkError as error:
        verdict = AirflowException if may_help(error) else AirflowFailException
        raise verdict(str(error)) from error.__cause__  # not from error: the log would show the message twice
