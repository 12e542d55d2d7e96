"""Whether a pipeline needs a person: what is unfinished, blocked or late, and what was given up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.lifecycle.context import open_context, refuse_out_of_use
from tidemark.lifecycle.older import commands, described
from tidemark.manifest import Manifest, ManifestState, many
from tidemark.operations.lag import lag
from tidemark.pipeline.settings import Pipeline
from tidemark.planner import OnDataLoss

START = timedelta(minutes=10)  # that a planned manifest may wait for its first attempt: other tasks are before it


class Retained(Protocol):
    """A partition whose offsets below ``log_start`` are gone; those below ``planned`` have manifests."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def log_start(self) -> int: ...
    @property
    def planned(self) -> int: ...


class ProblemKind(StrEnum):
    UNFINISHED = "unfinished"
    BLOCKED = "blocked"
    LATE = "late"
    LOST = "lost"  # retention took offsets before they were planned, and nobody has decided
    UNKNOWN = "unknown"  # something could not be looked at


@dataclass(frozen=True)
class Problem:
    """Something that a person must look at; ``manifest_id`` is None when it is about the whole pipeline."""

    kind: ProblemKind
    what: str
    next_step: str
    manifest_id: int | None = None


@dataclass(frozen=True)
class Status:
    """The state of one pipeline; it is in order when ``problems`` is empty.

    Everything stamped before ``published_up_to`` is published; None: no run says so. ``max_age`` is how long ago that
    may be, None when neither the pipeline file nor the caller says it. ``lag`` counts offsets that are not planned, or
    planned and not published; None when the source was not asked: then a loss that nobody has decided about is not
    known either. ``at_work`` manifests have a live attempt, ``waiting`` ones were planned a moment ago. ``lost``
    offsets and ``dead_lettered`` records were given up by a person or by the pipeline file, so they are no problems.
    ``audits`` are the last one and the last that read all rows, newest first.
    """

    pipeline_name: str
    published_up_to: datetime | None
    max_age: timedelta | None
    lag: int | None
    oldest_unfinished: Manifest | None
    at_work: tuple[int, ...]
    waiting: tuple[int, ...]
    lost: int
    dead_lettered: int
    audits: tuple[Mapping[str, Any], ...]
    problems: tuple[Problem, ...]


def status(
    database: ManifestDatabase,
    pipeline_name: str,
    pipeline: Pipeline | TidemarkError | None,
    *,
    max_lag: int | None = None,
    max_age: timedelta | None = None,
    parts: Sequence[Retained] | None = None,
) -> Status:
    """The state of a pipeline, by the database; the source is asked only for ``max_lag``. ``parts``: its partitions,
    from a caller who has asked.

    ``pipeline`` is what its file says, None without a file: then nothing runs it, and it is not late. ``max_age``
    replaces that of the file. What cannot be looked at is a problem, and no error.
    """
    if isinstance(pipeline, Pipeline) and max_age is None:
        max_age = pipeline.max_age
    losses = _of_losses(pipeline, parts) if isinstance(pipeline, Pipeline) and parts is not None else []
    now = datetime.now(UTC)
    undone = database.undone(pipeline_name)
    waiting = [manifest for manifest in undone if _waits(manifest, now)]
    half_replayed = database.half_replayed(pipeline_name, database.standing_sinks(pipeline_name))
    stopped = [manifest for manifest in (*undone, *half_replayed) if not manifest.alive and not _waits(manifest, now)]
    published_up_to = database.published_up_to(pipeline_name)
    problems = [*_of_manifests(stopped), *_of_chains(database, pipeline_name)]
    offsets = None
    if isinstance(pipeline, Pipeline):
        problems += _retired(database, pipeline_name)
    if isinstance(pipeline, TidemarkError):
        problems.append(Problem(ProblemKind.UNKNOWN, pipeline.what, pipeline.next_step))
    elif pipeline is not None and max_lag is not None:
        try:
            asked = lag(open_context(pipeline, database))
            offsets = sum(part.lag + part.unpublished for part in asked)
            losses = _of_losses(pipeline, asked)
        except TidemarkError as error:
            problems.append(Problem(ProblemKind.UNKNOWN, f"the lag is not known: {error.what}", error.next_step))
    problems += losses
    if max_lag is not None and offsets is not None and offsets > max_lag:
        what = f"{many(offsets, 'offset')} not published, and at most {max_lag:,} are allowed"
        problems.append(Problem(ProblemKind.LATE, what, f"tidemark lag {pipeline_name}"))
    if isinstance(pipeline, Pipeline) and max_age is not None and (late := _too_old(published_up_to, now, max_age)):
        problems.append(
            Problem(ProblemKind.LATE, late, f"look at the runs of the DAG, or: tidemark run {pipeline_name}")
        )
    return Status(
        pipeline_name=pipeline_name,
        published_up_to=published_up_to,
        max_age=max_age,
        lag=offsets,
        oldest_unfinished=undone[0] if undone else None,
        at_work=tuple(manifest.id for manifest in undone if manifest.alive),
        waiting=tuple(manifest.id for manifest in waiting),
        lost=database.lost_offsets(pipeline_name),
        dead_lettered=database.published_sums(pipeline_name)["dead_lettered"],
        audits=tuple(database.last_audits(pipeline_name)),
        problems=tuple(problems),
    )


def _retired(database: ManifestDatabase, pipeline_name: str) -> list[Problem]:
    """A retired pipeline that has a file: whoever put it there expects that it runs."""
    try:
        refuse_out_of_use(pipeline_name, database)
    except ConfigurationError as retired:
        return [Problem(ProblemKind.BLOCKED, retired.what, retired.next_step)]
    return []


def _waits(manifest: Manifest, now: datetime) -> bool:
    """Whether no attempt has started yet, and none could be expected to."""
    never_started = manifest.state is ManifestState.PLANNED and manifest.attempt == 0 and not manifest.alive
    return never_started and now - manifest.created_at < START


def _of_manifests(manifests: Sequence[Manifest]) -> list[Problem]:
    problems = []
    for manifest in manifests:
        kind = ProblemKind.BLOCKED if manifest.state is ManifestState.BLOCKED else ProblemKind.UNFINISHED
        problems.append(Problem(kind, described(manifest), commands([manifest])[0], manifest.id))
    return problems


def _of_chains(database: ManifestDatabase, pipeline_name: str) -> list[Problem]:
    return [
        Problem(
            ProblemKind.BLOCKED,
            f"nothing of {chain.at.name} is planned since it was refused: {chain.blocked}",
            f"the decision that tidemark plan {pipeline_name} --dry-run names",
        )
        for chain in database.chains(pipeline_name)
        if chain.blocked is not None
    ]


def _of_losses(pipeline: Pipeline, parts: Sequence[Retained]) -> list[Problem]:
    if pipeline.source.on_data_loss is OnDataLoss.RECORD:  # the next plan gives them up by itself
        return []
    return [
        Problem(
            ProblemKind.LOST,
            f"retention took offsets [{part.planned:,}, {part.log_start:,}) of {part.topic}-{part.partition} before "
            "they were planned; no run plans anything until a person decides",
            f"tidemark accept-loss {pipeline.name} --why TEXT",
        )
        for part in parts
        if part.planned < part.log_start
    ]


def _too_old(published_up_to: datetime | None, now: datetime, max_age: timedelta) -> str:
    """What to say when what is published ends longer ago than it may; empty when it does not."""
    if published_up_to is None:
        return "no run says up to which time all is published"
    if now - published_up_to <= max_age:
        return ""
    age = timedelta(seconds=round((now - published_up_to).total_seconds()))
    return (
        f"what came after {published_up_to:%Y-%m-%d %H:%M:%S} UTC is not published: that is {age} ago, and at most "
        f"{max_age} are allowed"
    )
