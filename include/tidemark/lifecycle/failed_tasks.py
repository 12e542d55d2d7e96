"""Notes why a plan, a process or a closing failed: nothing else in the database says it.

Errors of any kind are noted, also those that no code of ours raises. An attempt notes its own end. What fails before it
has a number, or after its end, is noted here. A note goes when the same step succeeds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum

from tidemark.database.client import ManifestDatabase
from tidemark.errors import (
    CutConflict,
    DataLost,
    Fenced,
    IllegalTransition,
    NotDone,
    NotFound,
    NotPublished,
    TidemarkError,
    TopicChanged,
    Unavailable,
)
from tidemark.model.manifest import ManifestState
from tidemark.text import storable

OpenDatabase = Callable[[], ManifestDatabase]
NextTry = Callable[[BaseException], datetime | None]  # when the caller repeats a task that raised this, at the latest
BEGUN = (ManifestState.PLANNED, ManifestState.RUNNING, ManifestState.FAILED)
NOT_BEGUN = (ManifestState.PLANNED,)


class Task(StrEnum):
    PLAN = "plan"
    PROCESS = "process"
    CLOSE = "close"


class Watch:
    """The state of the task that is watched: whether it has ended; what fails after it is no failure of the task."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


def never(error: BaseException) -> datetime | None:
    """For the command line, which repeats nothing by itself."""
    del error
    return None


@contextmanager
def watched(
    open_database: OpenDatabase,
    pipeline_name: str,
    task: Task,
    *,
    like_the_next: bool = True,
    next_try: NextTry = never,
) -> Iterator[Watch]:
    """Note an error that is raised before ``end`` is called; whoever plans or closes takes the note away.

    Of a run that is not ``like_the_next``, such as one that a person gave a time, only what is no error of ours is
    noted: a refusal of it says nothing about the next one.
    """
    watch = Watch()
    try:
        yield watch
    except BaseException as error:
        if task is Task.PLAN and not watch.ended and isinstance(error, TidemarkError):
            error.is_repeated_by(f"run {pipeline_name}")
        says_something = like_the_next or not isinstance(error, TidemarkError)
        told_otherwise = watch.ended or _is_interrupt(error) or _is_told_otherwise(error)
        if says_something and not told_otherwise:
            _note_task(open_database, pipeline_name, task, error, _when(next_try, error))
        raise


@contextmanager
def watched_process(
    open_database: OpenDatabase, pipeline_name: str, manifest_id: int, *, next_try: NextTry = never
) -> Iterator[None]:
    """Note an error of the work on one manifest, unless a newer attempt is at work.

    Of a manifest that is done, what is no error of ours is noted for the pipeline, until a process succeeds.
    """
    try:
        yield
    except BaseException as error:
        if not _is_of_other_manifests(error):
            retry_at = _when(next_try, error)
            is_noted = _note_manifests(open_database, [manifest_id], error, BEGUN, retry_at)
            if not is_noted and not isinstance(error, TidemarkError) and not _is_interrupt(error):
                _note_task(open_database, pipeline_name, Task.PROCESS, error, retry_at)
        raise


@contextmanager
def watched_work(open_database: OpenDatabase, manifests: Sequence[int]) -> Iterator[None]:
    """Note an error that keeps manifests from being begun; those that were begun have notes of their own."""
    try:
        yield
    except BaseException as error:
        if manifests and not _is_of_other_manifests(error):
            _note_manifests(open_database, manifests, error, NOT_BEGUN, None)
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


def reason_of(error: BaseException) -> str:
    """Return what an error says, as the database keeps it; of one that is not ours with its kind."""
    if isinstance(error, TidemarkError):
        return storable(str(error))
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by Ctrl-C"
    return storable(f"{type(error).__name__}: {error}".removesuffix(": "))


def silent_source_of(error: BaseException) -> str | None:
    """Return the address of the source that does not answer, when that is the error."""
    return error.silent if isinstance(error, Unavailable) else None


def _note_manifests(
    open_database: OpenDatabase,
    manifests: Sequence[int],
    error: BaseException,
    states: Sequence[ManifestState],
    retry_at: datetime | None,
) -> bool:
    """A database that does not answer cannot be told; the error that is raised says so."""
    with suppress(Exception), open_database() as database:
        return database.manifests.note_failed(manifests, reason_of(error), states, retry_at, silent_source_of(error))
    return False


def _note_task(
    open_database: OpenDatabase, pipeline_name: str, task: Task, error: BaseException, retry_at: datetime | None
) -> None:
    what, next_step = _described(error, pipeline_name, task)
    refused = isinstance(error, DataLost | TopicChanged)  # a person's decision answers it
    silent = silent_source_of(error)
    with suppress(Exception), open_database() as database:
        database.tasks.note_failed(
            pipeline_name, task, what, next_step, refused=refused, retry_at=retry_at, silent=silent
        )


def _when(next_try: NextTry, error: BaseException) -> datetime | None:
    """No error of a note hides the one that is noted."""
    with suppress(Exception):
        return next_try(error)
    return None


def _is_interrupt(error: BaseException) -> bool:
    """Return whether a person, or the end of the program, has stopped the work."""
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def _is_told_otherwise(error: BaseException) -> bool:
    """Return whether the manifests show it, or the caller gave a wrong key or name: the next run plans all the same. A
    topic may be missing too."""
    if isinstance(error, NotFound):
        return "topic" not in error.context
    return isinstance(error, CutConflict | NotPublished | Fenced)


def _is_of_other_manifests(error: BaseException) -> bool:
    """Return whether an error says nothing about a manifest that it keeps from being done: another attempt has it, or a
    person must release it, or the errors of single manifests are noted."""
    return isinstance(error, Fenced | IllegalTransition | NotDone)


def _described(error: BaseException, pipeline_name: str, task: Task) -> tuple[str, str]:
    if isinstance(error, TidemarkError):
        return storable(error.what), storable(error.next_step)
    what = reason_of(error).splitlines()[0]
    return what, f"the log of {task} says more; when the cause is mended: tidemark run {pipeline_name}"
