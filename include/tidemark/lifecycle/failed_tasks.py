"""Notes why a plan or a closing failed, for whoever looks at the pipeline: nothing else in the database says it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from tidemark.database.client import ManifestDatabase
from tidemark.errors import CutConflict, Fenced, NotFound, NotPublished, TidemarkError


class Task(StrEnum):
    PLAN = "plan"
    CLOSE = "close"


class Watch:
    """Whether the task that is watched has ended; what fails after it is no failure of the task."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


@contextmanager
def watched(
    open_database: Callable[[], ManifestDatabase], pipeline_name: str, task: Task, *, note: bool = True
) -> Iterator[Watch]:
    """Note an error that is raised before ``end`` is called; whoever plans or closes takes the note away.

    ``note`` is false for a dry run, and for a run that a person gave a time: it says nothing about the next one.
    """
    watch = Watch()
    try:
        yield watch
    except Exception as error:
        if note and not watch.ended and not _is_told_otherwise(error):
            what, next_step = _in_words(error, task)
            # A database that does not answer cannot be told; the error that is raised says so.
            with suppress(TidemarkError), open_database() as database:
                database.note_failed_task(pipeline_name, task, what, next_step)
        raise


@contextmanager
def begun(database: ManifestDatabase, pipeline_name: str, task: Task) -> Iterator[None]:
    """Note that a task has begun, until it ends, well or not. The note of one that is killed stays, also of one that
    Airflow ends, since somebody marked it."""
    database.note_begun_task(pipeline_name, task)
    try:
        yield
    except (Exception, KeyboardInterrupt):
        with suppress(TidemarkError):
            database.forget_begun_task(pipeline_name, task)
        raise
    database.forget_begun_task(pipeline_name, task)


def _is_told_otherwise(error: Exception) -> bool:
    """Whether the manifests show it, or the caller gave a wrong key or name: the next run plans all the same. A topic
    may be missing too."""
    if isinstance(error, NotFound):
        return "topic" not in error.context
    return isinstance(error, CutConflict | NotPublished | Fenced)


def _in_words(error: Exception, task: Task) -> tuple[str, str]:
    if isinstance(error, TidemarkError):
        return error.what, error.next_step
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}", f"the log of {task} says more"
