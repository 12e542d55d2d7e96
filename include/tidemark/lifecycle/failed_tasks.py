"""Notes why a plan or a closing failed, for whoever looks at the pipeline: nothing else in the database says it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from tidemark.database.client import ManifestDatabase
from tidemark.errors import CutConflict, DataLost, Fenced, NotFound, NotPublished, TidemarkError, TopicChanged


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
            what, next_step = _described(error, task)
            # A database that does not answer cannot be told; the error that is raised says so.
            with suppress(TidemarkError), open_database() as database:
                database.tasks.note_failed(pipeline_name, task, what, next_step, refused=_is_refusal(error))
        raise


@contextmanager
def begun(database: ManifestDatabase, pipeline_name: str, task: Task, run_key: str = "") -> Iterator[None]:
    """Note that a task has begun. Whoever sees it succeed takes the note away, and of one that fails ``watched`` makes
    another; that of a killed one stays, also when Airflow ends it, since somebody marked it."""
    database.tasks.note_begun(pipeline_name, task, run_key)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) or _is_told_otherwise(error):
            with suppress(TidemarkError):
                database.tasks.forget_begun(pipeline_name, task)
        raise


def _is_refusal(error: Exception) -> bool:
    """Whether a person's decision answers it: about lost offsets, or a topic that was cut, is another one or gone."""
    return isinstance(error, DataLost | TopicChanged)


def _is_told_otherwise(error: Exception) -> bool:
    """Whether the manifests show it, or the caller gave a wrong key or name: the next run plans all the same. A topic
    may be missing too."""
    if isinstance(error, NotFound):
        return "topic" not in error.context
    return isinstance(error, CutConflict | NotPublished | Fenced)


def _described(error: Exception, task: Task) -> tuple[str, str]:
    if isinstance(error, TidemarkError):
        return error.what, error.next_step
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}", f"the log of {task} says more"
