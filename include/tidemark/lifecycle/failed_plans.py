"""Notes why a plan failed, so that whoever looks at the pipeline sees it: the database knows nothing else of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tidemark.database.client import ManifestDatabase
from tidemark.errors import CutConflict, NotFound, TidemarkError


class PlanWatch:
    """Whether the plan that is watched has ended; what fails after it is no failure of the plan."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


@contextmanager
def watched_plan(
    open_database: Callable[[], ManifestDatabase], pipeline_name: str, *, note: bool = True
) -> Iterator[PlanWatch]:
    """Note an error that is raised before ``end`` is called; a stored plan takes the note away.

    ``note`` is false for a dry run, and for a run that a person gave a time: it says nothing about the next one.
    """
    watch = PlanWatch()
    try:
        yield watch
    except TidemarkError as error:
        if note and not watch.ended and not _is_of_the_call(error):
            # A database that does not answer cannot be told; the error that is raised says so.
            with suppress(TidemarkError), open_database() as database:
                database.note_failed_plan(pipeline_name, error.what, error.next_step)
        raise


def _is_of_the_call(error: TidemarkError) -> bool:
    """Whether the caller gave a wrong key or name: the next run plans all the same. A topic may be missing too."""
    return isinstance(error, CutConflict) or (isinstance(error, NotFound) and "topic" not in error.context)
