"""The state of a pipeline: its status, its lag, its last audits, and what people decided about it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Counts, ManifestState
from tidemark.operations.lag import Lag
from tidemark.operations.lags import Answer
from tidemark.operations.status import State, Status
from tidemark.views.checks import DifferenceView
from tidemark.views.manifests import RangeView, range_view


@dataclass(frozen=True)
class LagView:
    """One partition: ``lag`` offsets are not planned yet, ``unpublished`` are planned and not published.

    ``changed``: how its log is not the one that was planned, so that the next plan refuses it; empty when it is.
    """

    topic: str
    partition: int
    log_start: int
    planned: int
    last_stable: int
    log_end: int
    unpublished: int
    open_transaction: str | None
    changed: str
    lag: int


@dataclass(frozen=True)
class ProblemView:
    """Something that a person must look at: ``kind`` is failing, blocked, lost, damaged, unfinished, dead letters, late
    or unknown (not looked at).

    ``manifest_id`` is None when it is not about one manifest, ``place`` (``topic-partition``) when not about one
    partition.
    """

    kind: State
    manifest_id: int | None
    what: str
    next_step: str
    place: str | None = None


@dataclass(frozen=True)
class AuditView:
    """When database and sinks were compared, by whom, and how many differences that found; ``deep``: row by row.

    ``first_differences`` are at most 20 of them, with at most 500 characters a line.
    """

    at: datetime
    actor: str
    deep: bool
    differences: int
    first_differences: tuple[DifferenceView, ...]


@dataclass(frozen=True)
class StatusView:
    """One pipeline; ``healthy`` when it has no ``problems``.

    ``state`` is the one word for it: the kind of the first, and worst, problem, or working, waiting or ok.

    Everything stamped before ``published_up_to`` is published (None: no run says so), and it is late when that is more
    than ``max_age_s`` ago (None: nobody has said when). ``lag`` counts offsets that are not published, None when the
    source was not heard. ``at_work`` are manifests with a live attempt, ``waiting`` those planned a moment ago.
    ``oldest_unfinished`` of all that are not done was planned at ``oldest_unfinished_at``, with these ranges.
    ``lost`` offsets and ``dead_lettered`` records were given up, and are no problems. ``newest`` is what the newest two
    manifests with records have counted. ``audits`` are the last one and
    the last deep one, newest first.
    """

    pipeline: str
    state: State
    healthy: bool
    published_up_to: datetime | None
    max_age_s: float | None
    lag: int | None
    oldest_unfinished: int | None
    oldest_unfinished_at: datetime | None
    oldest_unfinished_ranges: tuple[RangeView, ...]
    at_work: tuple[int, ...]
    waiting: tuple[int, ...]
    lost: int
    dead_lettered: int
    newest: Counts
    audits: tuple[AuditView, ...]
    problems: tuple[ProblemView, ...]


@dataclass(frozen=True)
class PipelineView(StatusView):
    """One pipeline as the page in Airflow lists it: its status, how many ``manifests`` are in each state, how many of
    them are ``archived``, and when the last one was done.

    ``why_no_lag`` says why the source was not heard.
    """

    manifests: dict[str, int]
    last_done_at: datetime | None
    why_no_lag: str | None
    archived: int = 0


@dataclass(frozen=True)
class DecisionView:
    """What a person decided about a pipeline: who, when, why, and one line for each thing that changed."""

    at: datetime
    actor: str
    decision: str
    why: str
    lines: tuple[str, ...]
    manifests: tuple[int, ...]


def lag_views(lags: Iterable[Lag]) -> list[LagView]:
    return [LagView(**asdict(partition), lag=partition.lag) for partition in lags]


def status_view(status: Status) -> StatusView:
    problems = tuple(
        ProblemView(problem.kind, problem.manifest_id, problem.what, problem.next_step, problem.place)
        for problem in status.problems
    )
    oldest = status.oldest_unfinished
    return StatusView(
        status.pipeline_name,
        status.state,
        not problems,
        status.published_up_to,
        status.max_age.total_seconds() if status.max_age is not None else None,
        status.lag,
        oldest.id if oldest else None,
        oldest.created_at if oldest else None,
        tuple(map(range_view, oldest.ranges)) if oldest else (),
        status.at_work,
        status.waiting,
        status.lost,
        status.dead_lettered,
        status.newest,
        tuple(map(_audit_view, status.audits)),
        problems,
    )


def _audit_view(row: Mapping[str, Any]) -> AuditView:
    first = tuple(DifferenceView(**difference) for difference in row["first_differences"])
    return AuditView(**{**row, "first_differences": first})


def pipeline_view(database: ManifestDatabase, status: Status, heard: Answer) -> PipelineView:
    states = database.states(status.pipeline_name)
    done = states.get(ManifestState.DONE)
    return PipelineView(
        **vars(status_view(status)),
        manifests={state.value: states[state]["manifests"] if state in states else 0 for state in ManifestState},
        archived=database.count_archived(status.pipeline_name),
        last_done_at=done["last_done"] if done else None,
        why_no_lag=heard.why,
    )


def decision_views(database: ManifestDatabase, pipeline_name: str) -> list[DecisionView]:
    """What people decided about a pipeline, oldest first."""
    return [
        DecisionView(row["at"], row["actor"], row["decision"], row["why"], tuple(row["lines"]), tuple(row["manifests"]))
        for row in database.decisions(pipeline_name)
    ]
