"""Who must act on an error, in Airflow's words: try again, or stop and wait for a person."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.errors import Fenced, TidemarkError, Unavailable, UndecodableRecord, WorkFailed


def may_help(error: TidemarkError) -> bool:
    """Whether the same task, run again a little later, may end differently."""
    return isinstance(error, Unavailable | WorkFailed) and not isinstance(error, Fenced | UndecodableRecord)


@contextmanager
def airflow_verdict() -> Iterator[None]:
    """Let Airflow retry what a retry may help; everything else fails at once, with the message that says what to do."""
    try:
        yield
    except TidemarkError as error:
        verdict = AirflowException if may_help(error) else AirflowFailException
        raise verdict(str(error)) from error.__cause__  # not from error: the log would say everything twice
