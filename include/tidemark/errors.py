"""The tree of errors, by who has to act.

    TidemarkError
    +-- ConfigurationError        you: a file or a setting is wrong; nothing was done
    +-- NotFound                  you: the pipeline or manifest does not exist
    +-- Unavailable               retry: a source, database or store does not answer now
    +-- AccessDenied              you: an outside system refused access
    +-- PlanRefused               you: a plan would be wrong, nothing was planned
    |   +-- DataLost              retention took offsets before they were read
    |   +-- TopicChanged          a topic was recreated, vanished or truncated
    |   +-- CutConflict           the run key was planned before, with another cut
    +-- LakeConflict              you: the lake disagrees with this database
    |   +-- ForeignLake           the root belongs to another database
    |   +-- DatabaseBehindLake    the database was restored from an older copy
    +-- SinkRefused               you: the target of a sink does not accept the rows
    +-- WorkFailed                retry: this attempt failed
    |   +-- UndecodableRecord     you: a record cannot be decoded and on_error is fail
    |   |   +-- TooManyDeadLetters  more than max_dead_letters records cannot be used
    |   +-- NotPublished          you: manifests that a run is responsible for, or must wait for, are not published
    |   +-- Fenced                nobody: a newer attempt has taken over
    +-- Blocked                   you: the counts do not agree, nothing was published
    +-- IllegalTransition         you: the manifest is not in a state that allows this
    +-- NotDone                   you: a part of what you asked for was not done

Every message says what happened, to which pipeline, manifest, topic, partition and offsets, and what to do next.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

# The end of a next step after which a retry succeeds. ``about`` fills in the names. It finishes all manifests that are
# not blocked; a blocked one, and only that, must be named.
THEN_RETRY = "; then: tidemark retry {pipeline}"
THEN_RETRY_BLOCKED = "; then: tidemark retry {pipeline} --manifest {manifest}"

_THEN = "; then: "
_RETRY = re.compile(THEN_RETRY.removeprefix(_THEN).replace("{pipeline}", r"\S+(?: --manifest \S+)?$"))
_ADDRESSES = ("bootstrap_servers", "server")  # keys of the context


class TidemarkError(Exception):
    """An error that tells the user what happened, where, and the next step.

    ``next_step`` is printed on its own line; ``context`` holds the names and numbers to search logs for. ``code`` is a
    heading of docs/errors.md, and never changes. A place that does not know the pipeline or manifest writes
    ``{pipeline}`` or ``{manifest}`` into the next step; ``about`` fills it in.
    """

    exit_code = 1
    before_context = " "

    def __init__(self, what: str, *, next_step: str = "", **context: object) -> None:
        self.what = what
        self.next_step = next_step
        self.context: dict[str, object] = {}
        self.within(**context)
        super().__init__(what)

    @property
    def code(self) -> str:
        """Return the code of the nearest class of this module; empty for ``TidemarkError``. A subclass in another
        module has the code of its base."""
        [kind] = [kind for kind in type(self).__mro__ if kind.__module__ == __name__][:1]
        if kind is TidemarkError:
            return ""
        return re.sub(r"\B[A-Z]", lambda letter: f"-{letter[0]}", kind.__name__.removesuffix("Error")).lower()

    def within(self, **context: object) -> None:
        """Add the names that the context lacks, and fill them into the placeholders of the next step."""
        known = {name: value for name, value in context.items() if value is not None}
        self.context = known | self.context
        for name, value in self.context.items():
            self.next_step = self.next_step.replace(f"{{{name}}}", str(value))

    def is_repeated_by(self, command: str) -> None:
        """Replace a retry at the end of the next step with this command. A failed plan leaves no manifest to retry, a
        failed replay leaves one that is done, and a peek has none."""
        step = _RETRY.sub("", self.next_step)
        if step == self.next_step:
            return
        if f"tidemark {command}" in step and step.endswith(_THEN):
            self.next_step = step.removesuffix(_THEN)
        else:
            self.next_step = f"{step}tidemark {command}"

    def __str__(self) -> str:
        where = {"error": self.code, **self.context} if self.code else self.context
        words = " ".join(f"{name}={value}" for name, value in where.items())
        lines = [f"{self.what}{self.before_context}[{words}]" if words else self.what]
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


@contextmanager
def about(**context: object) -> Iterator[None]:
    """Add this context, such as the pipeline or the manifest, to each ``TidemarkError`` that leaves the block.

    The code that opens the context of a pipeline uses it, so that code inside need not name the pipeline.
    """
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

    @property
    def silent(self) -> str | None:
        """Return the address of the source that does not answer, as ``Source.address`` gives it; None for another
        system."""
        return next((str(self.context[word]) for word in _ADDRESSES if word in self.context), None)


class AccessDenied(TidemarkError):
    """An outside system answered and refused access."""


class PlanRefused(TidemarkError):
    """A plan would be wrong; nothing was planned."""


class DataLost(PlanRefused):
    """Retention took offsets that the chain has not covered yet."""


class TopicChanged(PlanRefused):
    """The topic has another id than the chain was started with, or is shorter than the chain."""


class CutConflict(PlanRefused):
    """The run key was planned before, with another cut."""


class LakeConflict(TidemarkError):
    """The lake and this database contradict each other."""


class ForeignLake(LakeConflict):
    """The lake root is owned by another manifest database."""


class DatabaseBehindLake(LakeConflict):
    """The lake holds records of manifests or attempts that this database does not know."""


class SinkRefused(TidemarkError):
    """The target of a sink does not accept the rows: a column, a key or a right is missing, or a constraint fails."""


class WorkFailed(TidemarkError):
    """The attempt failed; a retry may succeed."""


class UndecodableRecord(WorkFailed):
    """A record cannot be decoded or has no valid event time, and ``on_error`` is ``fail``."""


class TooManyDeadLetters(UndecodableRecord):
    """More than ``max_dead_letters`` records of a manifest cannot be used."""


class NotPublished(WorkFailed):
    """Manifests that a run is responsible for, or must wait for, are not published; ``manifests`` are their ids."""

    def __init__(self, what: str, *, manifests: Sequence[int] = (), next_step: str = "", **context: object) -> None:
        self.manifests = tuple(manifests)
        super().__init__(what, next_step=next_step, **context)


class Fenced(WorkFailed):
    """A newer attempt has taken over the manifest; this attempt must change nothing more.

    ``superseded`` is true when a newer attempt has already published, so there is nothing left to do.
    """

    def __init__(self, what: str, *, superseded: bool = False, next_step: str = "", **context: object) -> None:
        self.superseded = superseded
        super().__init__(what, next_step=next_step, **context)

    @classmethod
    def by_a_higher(cls, attempt: int, newest: int, what: str, **context: Any) -> Self:
        """Return the error for a target that already has ``what`` of a higher attempt, such as rows."""
        return cls(
            f"attempt {attempt} is fenced: the newer attempt {newest} already has {what}",
            next_step="nothing to do here: the newer attempt does the work",
            **context,
        )


class Blocked(TidemarkError):
    """The measured counts do not match the range; nothing was published, and you must look at the cause."""


class IllegalTransition(TidemarkError):
    """The state of the manifest does not allow what was asked for."""


class NotDone(TidemarkError):
    """A part of what was asked for was not done; the rest was done."""
