"""What can go wrong, and who has to act.

    TidemarkError
    +-- ConfigurationError        a person: a file or a setting is wrong; nothing was done
    +-- NotFound                  a person: the pipeline or manifest named does not exist
    +-- Unavailable               retry: a broker, database or store does not answer now
    +-- AccessDenied              a person: an outside system answered "no"
    +-- PlanRefused               a person: planning would be a lie, nothing was planned
    |   +-- DataLost              retention took offsets before they were read
    |   +-- TopicChanged          a topic was recreated, vanished or truncated
    |   +-- CutConflict           the run key is planned already, with another cut
    +-- LakeConflict              a person: the lake disagrees with this database
    |   +-- ForeignLake           the root belongs to another database
    |   +-- DatabaseBehindLake    the database was restored from an older copy
    +-- SinkRefused               a person: a sink's target does not take the rows as it is
    +-- WorkFailed                retry: this attempt did not reach its end
    |   +-- UndecodableRecord     a person: a record cannot be decoded and on_error is fail
    |   +-- Fenced                nobody: a newer attempt has taken over
    +-- Blocked                   a person: the numbers do not agree, nothing was published
    +-- IllegalTransition         a person: the manifest is not in a state that allows this

Every message says what happened, to which pipeline, manifest, topic, partition and offsets, and what to do next.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class TidemarkError(Exception):
    """Something a person can read: what happened, where, and the next step.

    ``next_step`` is printed on its own line; ``context`` holds the words an incident is searched by. A place that does
    not know the pipeline or manifest writes ``{pipeline}`` or ``{manifest}`` into the next step; ``about`` fills it.
    """

    exit_code = 1

    def __init__(self, what: str, *, next_step: str = "", **context: object) -> None:
        self.what = what
        self.next_step = next_step
        self.context: dict[str, object] = {}
        self.within(**context)
        super().__init__(what)

    def within(self, **context: object) -> None:
        """Add words to the context where it lacks them, and to the next step where it asks for them."""
        known = {name: value for name, value in context.items() if value is not None}
        self.context = known | self.context
        for name, value in self.context.items():
            self.next_step = self.next_step.replace(f"{{{name}}}", str(value))

    def __str__(self) -> str:
        where = " ".join(f"{name}={value}" for name, value in self.context.items())
        lines = [f"{self.what} [{where}]" if where else self.what]
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


@contextmanager
def about(**context: object) -> Iterator[None]:
    """Whoever knows the pipeline or the manifest completes the errors of places that do not."""
    try:
        yield
    except TidemarkError as error:
        error.within(**context)
        raise


class ConfigurationError(TidemarkError):
    """A file or setting is wrong; nothing was started."""

    exit_code = 2


class NotFound(TidemarkError):
    """No such pipeline, run or manifest."""

    exit_code = 2


class Unavailable(TidemarkError):
    """An outside system does not answer; trying again later may help."""


class AccessDenied(TidemarkError):
    """An outside system answered, and refused."""


class PlanRefused(TidemarkError):
    """Planning would be a lie; nothing was planned."""


class DataLost(PlanRefused):
    """Retention took offsets that the chain has not covered yet."""


class TopicChanged(PlanRefused):
    """The topic is not the one the chain was started on, or is shorter than the chain."""


class CutConflict(PlanRefused):
    """The run key was planned before, with another cut."""


class LakeConflict(TidemarkError):
    """What the lake holds and what this database says cannot both be true."""


class ForeignLake(LakeConflict):
    """The lake root is owned by another manifest database."""


class DatabaseBehindLake(LakeConflict):
    """The lake holds records of manifests that this database has never seen."""


class SinkRefused(TidemarkError):
    """A sink's target is not made for these rows: a column, a key or a right is missing, or a constraint says no."""


class WorkFailed(TidemarkError):
    """The attempt did not reach its end; a retry may."""


class UndecodableRecord(WorkFailed):
    """A record cannot be decoded or placed, and the pipeline says ``fail``."""


class Fenced(WorkFailed):
    """A newer attempt has taken the manifest over; this one must change nothing more.

    ``superseded`` is true when a newer attempt has already published, so there is nothing left to do.
    """

    def __init__(self, what: str, *, superseded: bool = False, next_step: str = "", **context: object) -> None:
        self.superseded = superseded
        super().__init__(what, next_step=next_step, **context)


class Blocked(TidemarkError):
    """The measured numbers do not agree with the range; nothing was published and a person must look."""


class IllegalTransition(TidemarkError):
    """The manifest is not in a state that allows this."""
