"""Notes in the database why a task ``plan``, ``process`` or ``close`` failed, if nothing else there says it.

Notes errors of any kind, also those that our own code does not raise. An attempt notes its own end. What fails before
it has a number, or after its end, is noted here. A note is removed when the same step succeeds.
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
from tidemark.lifecycle.deferral import AttemptDeferred
from tidemark.model.manifest import ManifestState
from tidemark.text import storable

OpenDatabase = Callable[[], ManifestDatabase]
NextTry = Callable[[BaseException], datetime | None]  # the latest time at which the caller repeats a failed task
BEGUN = (ManifestState.PLANNED, ManifestState.RUNNING, ManifestState.FAILED)
NOT_BEGUN = (ManifestState.PLANNED,)


class Task(StrEnum):
    PLAN = "plan"
    PROCESS = "process"
    CLOSE = "close"


class Watch:
    """The state of a watched task. What fails after its ``end`` is no failure of the task."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


def never(error: BaseException) -> datetime | None:
    """Return None: the command line repeats no task by itself."""
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
    """Note an error that is raised before ``end`` is called. A plan or close that succeeds removes the note.

    If the run is not ``like_the_next``, such as a run by hand up to a time, only errors that are not our own are noted:
    a refusal of this run says nothing about the next one.
    """
    watch = Watch()
    try:
        yield watch
    except BaseException as error:
        if task is Task.PLAN and not watch.ended and isinstance(error, TidemarkError):
            error.is_repeated_by(f"run {pipeline_name}")
        says_something = like_the_next or not isinstance(error, TidemarkError)
        needs_no_note = watch.ended or _is_interrupt(error) or _needs_no_note(error)
        if says_something and not needs_no_note:
            _note_task(open_database, pipeline_name, task, error, _when(next_try, error))
        raise


@contextmanager
def watched_process(
    open_database: OpenDatabase, pipeline_name: str, manifest_id: int, *, next_try: NextTry = never
) -> Iterator[None]:
    """Note an error of the work on one manifest, unless a newer attempt is at work.

    If the manifest cannot have the note because it is done, an error that is not our own is noted for the pipeline,
    until a ``process`` succeeds.
    """
    try:
        yield
    except AttemptDeferred:
        raise
    except BaseException as error:
        if not _is_of_other_manifests(error):
            retry_at = _when(next_try, error)
            is_noted = _note_manifests(open_database, [manifest_id], error, BEGUN, retry_at)
            if not is_noted and not isinstance(error, TidemarkError) and not _is_interrupt(error):
                _note_task(open_database, pipeline_name, Task.PROCESS, error, retry_at)
        raise


@contextmanager
def watched_work(open_database: OpenDatabase, manifests: Sequence[int]) -> Iterator[None]:
    """Note an error that stops manifests from being started; manifests that were started have their own notes."""
    try:
        yield
    except BaseException as error:
        if manifests and not _is_of_other_manifests(error):
            _note_manifests(open_database, manifests, error, NOT_BEGUN, None)
        raise


@contextmanager
def begun(database: ManifestDatabase, pipeline_name: str, task: Task, run_key: str = "") -> Iterator[None]:
    """Note that a task has begun. The note is removed when the task succeeds; ``watched`` replaces it when it fails.

    The note of a killed task stays, also if Airflow ended it because you marked it as failed or successful.
    """
    database.tasks.note_begun(pipeline_name, task, run_key)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) or _needs_no_note(error):
            with suppress(TidemarkError):
                database.tasks.forget_begun(pipeline_name, task)
        raise


def reason_of(error: BaseException) -> str:
    """Return the text of an error as the database stores it; if the error is not our own, with its class."""
    if isinstance(error, TidemarkError):
        return storable(str(error))
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by Ctrl-C"
    return storable(f"{type(error).__name__}: {error}".removesuffix(": "))


def silent_source_of(error: BaseException) -> str | None:
    """Return the address of the source that does not answer, if that is the error; else None."""
    return error.silent if isinstance(error, Unavailable) else None


def _note_manifests(
    open_database: OpenDatabase,
    manifests: Sequence[int],
    error: BaseException,
    states: Sequence[ManifestState],
    retry_at: datetime | None,
) -> bool:
    """Note an error for those manifests that are in one of these states; return whether any is.

    If the database does not answer, nothing is noted: the error that is raised says so.
    """
    with suppress(Exception), open_database() as database:
        return database.manifests.note_failed(manifests, reason_of(error), states, retry_at, silent_source_of(error))
    return False


def _note_task(
    open_database: OpenDatabase, pipeline_name: str, task: Task, error: BaseException, retry_at: datetime | None
) -> None:
    what, next_step = _described(error, pipeline_name, task)
    refused = isinstance(error, DataLost | TopicChanged)  # a decision resolves it
    silent = silent_source_of(error)
    with suppress(Exception), open_database() as database:
        database.tasks.note_failed(
            pipeline_name, task, what, next_step, refused=refused, retry_at=retry_at, silent=silent
        )


def _when(next_try: NextTry, error: BaseException) -> datetime | None:
    """Return when the task is tried again. A failure to find that out must not hide the error that is noted."""
    with suppress(Exception):
        return next_try(error)
    return None


def _is_interrupt(error: BaseException) -> bool:
    """Return whether Ctrl-C, or the end of the program, has stopped the work."""
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def _needs_no_note(error: BaseException) -> bool:
    """Return whether the manifests show the error, or the caller gave a wrong run key or name, so that the next run
    plans all the same. A missing topic does need a note."""
    if isinstance(error, NotFound):
        return "topic" not in error.context
    return isinstance(error, CutConflict | NotPublished | Fenced)


def _is_of_other_manifests(error: BaseException) -> bool:
    """Return whether an error is not about this manifest itself: another attempt has it, or you must release it, or
    the error sums up those of single manifests, which are noted already."""
    return isinstance(error, Fenced | IllegalTransition | NotDone)


def _described(error: BaseException, pipeline_name: str, task: Task) -> tuple[str, str]:
    if isinstance(error, TidemarkError):
        return storable(error.what), storable(error.next_step)
    what = reason_of(error).splitlines()[0]
    return what, f"the log of {task} says more; when the cause is mended: tidemark run {pipeline_name}"
