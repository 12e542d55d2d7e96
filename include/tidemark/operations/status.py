"""Computes the state of a pipeline: the one word that the page, ``status``, the notices and the metrics show."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.lifecycle.context import refuse_out_of_use
from tidemark.lifecycle.failed_tasks import Task
from tidemark.lifecycle.gone_rows import NEWEST, gone_rows
from tidemark.lifecycle.known_sinks import is_not_filled
from tidemark.lifecycle.older import described, next_step_of
from tidemark.model import event_hours
from tidemark.model.json_values import NOT_IN_JSON, in_json
from tidemark.model.manifest import Counts, Manifest, ManifestState, count_of, listed
from tidemark.model.offsets import Range
from tidemark.model.problem import Problem
from tidemark.operations.lag import Lag
from tidemark.operations.lags import SOURCE, Answer
from tidemark.pipeline.deployed import Deployed
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.schedule import Schedule
from tidemark.pipeline.settings import Pipeline, Unfinished
from tidemark.planner import OnDataLoss, acceptance_of

PAUSED = "paused"  # the cause of a problem
UNPAUSE_LATER = "unpause the DAG when the other problems are mended"
START = timedelta(minutes=10)  # the longest that a planned manifest may wait for its first attempt, behind other tasks
TRY = timedelta(minutes=10)  # the longest delay of a next try, behind other tasks
LONGEST_PLAN = timedelta(minutes=10)  # up to half of it may pass before its cut is due
RUN = timedelta(minutes=15)  # the longest that a run may take, however short the interval of its schedule is
MOST_DEAD = 0.5  # the share of dead letters from which on the newest manifests are a problem


class State(StrEnum):
    """The one word for the state of a pipeline, the worst first. Up to ``UNKNOWN`` you must look, and each of these can
    be the kind of a ``PipelineProblem``. What readers see is wrong while it is damaged; the others only delay it.
    """

    DAMAGED = "damaged"  # a plan, an adopt or an audit has found that a sink differs from its publications
    BLOCKED = "blocked"
    LOST = "lost"  # retention removed offsets before they were planned, and you have not decided yet
    FAILED = "failed"  # the last try of a plan, a manifest or a close ended with an error, and nothing repeats it
    DEAD_LETTERS = "dead letters"  # most of the newest records became dead letters
    STALE = "stale"  # the newest manifest has changed no row of the table: its rows were older
    LATE = "late"
    UNKNOWN = "unknown"  # something could not be looked at
    RETRYING = "retrying"  # a try has failed, and Airflow makes the next one
    WORKING = "working"  # an attempt is alive
    WAITING = "waiting"  # manifests were planned a moment ago
    NEW = "never planned"  # no run has planned anything yet
    OK = "ok"


_SO_SILENT = re.compile(r"(?P<trouble>[^\n]+?), so .+ (?:does not answer|has not answered)")
STATES = tuple(State)
PROBLEMS = STATES[: STATES.index(State.UNKNOWN) + 1]


@dataclass(frozen=True, kw_only=True)
class PipelineProblem(Problem):
    """A problem that keeps a pipeline from ``ok``.

    ``manifest_id`` is None if it is not about one manifest, ``place`` (``topic-partition``) if it is not about one
    partition. ``cause`` tells a problem without either from a later one of its kind. ``shared_cause`` is the same text
    for all pipelines with this cause: a source that does not answer keeps each of them from ``ok``. ``silent`` is the
    address of the source that did not answer, if that was the cause. ``headline`` is the end of ``what`` that is the
    cause itself, if what stands before it says only where that was seen.
    """

    kind: State
    place: str | None = None
    shared_cause: str | None = None
    silent: str | None = field(default=None, metadata=NOT_IN_JSON)
    cause: str = field(default="", metadata=NOT_IN_JSON)
    headline: str = field(default="", metadata=NOT_IN_JSON)


@dataclass(frozen=True)
class SharedCause:
    """One thing that is wrong and keeps several pipelines from ``ok``; ``trouble`` is the reason of a silent source, if
    it is known.
    """

    what: str
    next_step: str
    pipelines: tuple[str, ...]
    trouble: str = ""

    def __str__(self) -> str:
        return f"{self.trouble}, so {self.what}" if self.trouble else self.what


@dataclass(frozen=True)
class LastAudit:
    """The last comparison of database and sinks: its time, who ran it, and how many differences it found; ``deep``: it
    read all rows.

    ``first_differences`` are at most 20 of them, with at most 500 characters a line.
    """

    at: datetime
    actor: str
    deep: bool
    differences: int
    first_differences: tuple[Problem, ...]


@dataclass(frozen=True)
class FailedRun:
    """A DAG run whose task ``plan`` ended at ``at`` without success and left no note in the manifest database."""

    at: datetime
    what: str
    next_step: str


@dataclass(frozen=True)
class InAirflow:
    """The facts that Airflow has of a pipeline: its newest scheduled run if that failed to plan, and its DAG if that is
    paused.
    """

    failed_run: FailedRun | None = None
    paused_dag: str | None = None


NOT_ASKED = InAirflow()


@dataclass(frozen=True)
class Retry:
    """A failed task that Airflow tries again by itself, at ``at`` or before. ``manifest_id`` is None for a plan and a
    close; ``headline`` is as that of a ``PipelineProblem``.
    """

    manifest_id: int | None
    what: str
    at: datetime
    headline: str = field(default="", metadata=NOT_IN_JSON)


@dataclass(frozen=True)
class Status:
    """The state of one pipeline. It is ``healthy``, and you need not look, if it has no ``problems`` (worst first).

    ``state`` is the one word for it: the kind of the first problem, or retrying, working, waiting, never planned or ok.
    ``retries`` are failed tasks that Airflow tries again.

    Everything stamped before ``published_up_to`` is published; None if no run says so. ``max_age`` (in JSON seconds,
    ``max_age_s``) is how long ago that may be, by the caller, the file, its schedule or its trigger; None if none of
    them says it. ``lag`` counts offsets that are not planned, or planned and not published. It is None if the source
    did not answer; then a loss without a decision is unknown too.

    ``oldest_not_done`` is the oldest manifest that is not done, planned at ``oldest_not_done_at``, with its ranges.
    ``at_work`` manifests have a live attempt; ``waiting`` ones were planned a moment ago. ``lost`` offsets and
    ``dead_lettered`` records were given up by you or by the pipeline file, so they are no problems. ``newest`` sums the
    counts of the newest manifests, for the share of records that became no rows.

    ``audits`` are the last one and the last that read all rows, newest first. Problems of the kinds ``unseen`` were not
    looked for. ``planned``: a plan has succeeded. ``leftover``: something that the last audit found and no reader sees,
    such as the staging of a dead attempt.
    """

    pipeline_name: str
    published_up_to: datetime | None
    max_age: timedelta | None = field(metadata=NOT_IN_JSON)
    lag: int | None
    oldest_not_done: int | None
    oldest_not_done_at: datetime | None
    oldest_not_done_ranges: tuple[Range, ...]
    at_work: tuple[int, ...]
    waiting: tuple[int, ...]
    lost: int
    dead_lettered: int
    newest: Counts
    audits: tuple[LastAudit, ...]
    problems: tuple[PipelineProblem, ...]
    retries: tuple[Retry, ...]
    leftover: Problem | None
    unseen: tuple[State, ...] = field(metadata=NOT_IN_JSON)
    planned: bool = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def state(self) -> State:
        if self.problems:
            return self.problems[0].kind
        if self.retries:
            return State.RETRYING
        if self.at_work:
            return State.WORKING
        if self.waiting:
            return State.WAITING
        return State.OK if self.planned else State.NEW

    @property
    @in_json
    def warning(self) -> str | None:
        """Return a warning if the newest manifests filtered all that they read. That may be intended, so it is no
        problem.
        """
        if not self.newest.read or self.newest.filtered < self.newest.read:
            return None
        return f"all of the newest {count_of(self.newest.read, 'record')} were filtered, so no row was written"

    @property
    @in_json
    def healthy(self) -> bool:
        return not self.problems

    @property
    @in_json
    def max_age_s(self) -> float | None:
        return None if self.max_age is None else self.max_age.total_seconds()


def status(
    database: ManifestDatabase,
    pipeline_name: str,
    deployed: Deployed | TidemarkError | None,
    *,
    heard: Answer | None = None,
    in_airflow: InAirflow = NOT_ASKED,
    max_lag: int | None = None,
    max_age: timedelta | None = None,
) -> Status:
    """Return the state of a pipeline, from the database and from ``heard``, the answer of its source; None: it was not
    asked.

    ``deployed`` is what its file says; None without a file: then nothing runs the pipeline, and it is not late.
    ``max_age`` replaces that of the file. What cannot be looked at is a problem, and no error.
    """
    pipeline = None
    if isinstance(deployed, Deployed) and isinstance(deployed.pipeline, Pipeline):
        pipeline = deployed.pipeline  # a group itself runs nothing: its members do
    wrong_file = deployed.problem if isinstance(deployed, Deployed) else deployed
    now = database.now()
    planned_at = database.runs.planned_at(pipeline_name)
    since = published_up_to = database.runs.published_up_to(pipeline_name)
    if pipeline is not None and max_age is None:
        max_age = pipeline.max_age
        if max_age is None:  # with open transactions a run has no time up to which it read, but it has read
            max_age = _max_age_by_runs(pipeline, now)
            since = max(filter(None, (published_up_to, planned_at["last_without_time"])), default=None)
    # Manifests with a live attempt, and those planned a moment ago, are no problem.
    undone = database.manifests.undone(pipeline_name)
    waiting = _waiting(database, pipeline_name, undone, now)
    half_replayed = database.manifests.half_replayed(pipeline_name, database.sinks.current_names(pipeline_name))
    stopped = [each for each in (*undone, *half_replayed) if not each.alive and each not in waiting]
    audits = last_audits(database, pipeline_name)
    retired = database.pipelines.retired_at(pipeline_name) is not None
    dead_lettered = database.publications.sums(pipeline_name)["dead_lettered"]
    newest = database.publications.newest_counts(pipeline_name)
    refused = _chain_problems(database, pipeline_name, pipeline)
    retries = [] if retired else _manifest_retries(stopped, now)
    retried = {retry.manifest_id for retry in retries}
    # Problems that the database alone shows, then those that need a pipeline file, then those of a run.
    problems = [*_manifest_problems([each for each in stopped if each.id not in retried]), *refused]
    if not retired or deployed is not None:
        problems += _audit_problems(pipeline_name, audits)
        problems += _missing_output_problems(database, pipeline_name)
        problems += _gone_row_problems(database, pipeline_name)
    if pipeline is not None:
        problems += _retirement_problems(database, pipeline_name)
        problems += _retired_sink_problems(database, pipeline)
        problems += _left_out_problems(database, pipeline)
        problems += _dead_letter_problems(pipeline_name, newest)
        problems += _stale_row_problems(pipeline_name, database.publications.stale_in_sinks(pipeline_name))
        problems += _source_problems(pipeline, heard, max_lag, {problem.place for problem in refused})
        problems += _open_transaction_problems(database, pipeline, heard, now, max_age)
        late = _too_old(since or planned_at["first"], now, max_age)
        if planned_at["last"] is None and isinstance(deployed, Deployed):
            late = _never_ran(pipeline, deployed.since, now, max_age)
        paused_dag = in_airflow.paused_dag if late or planned_at["last"] else None  # a new DAG is paused at first
        stands_still = _paused_problems(pipeline, paused_dag, heard, undone, late)
        problems += stands_still
        if late and not stands_still:
            triggerer = " and at Airflow's triggerer" if pipeline.trigger is not None else ""
            look = f"look at the runs of the DAG{triggerer}, or: tidemark run {pipeline_name}"
            problems.append(PipelineProblem(None, late, look, kind=State.LATE))
    # Plans are refused until you have decided, so a failed plan is not shown as a second problem.
    waits_for_decision = any(problem.place is not None and problem.kind is not State.LATE for problem in problems)
    if not retired and wrong_file is not None:
        cause = _cause(wrong_file.what)
        wrong = PipelineProblem(None, wrong_file.what, wrong_file.next_step, kind=State.FAILED, cause=cause)
        problems.append(wrong)
    elif not retired:
        failed = None if waits_for_decision else in_airflow.failed_run
        of_tasks, task_retries = _failed_tasks(
            database, pipeline_name, failed, planned_at["last"], now, decided=not waits_for_decision
        )
        problems += of_tasks
        retries += task_retries
        explained = bool(of_tasks or retries) or _keep_runs_open(pipeline, stopped)
        if pipeline is not None and not explained:
            file_since = deployed.since if isinstance(deployed, Deployed) else None
            problems += _open_hour_problems(
                database, pipeline, file_since, published_up_to, half_replayed, now, max_age
            )
    if not retired and deployed is None:
        what = "it has no pipeline file here, so nothing is known of its next run"
        restore = (
            f"put its file back; or, when nobody needs it any more: tidemark retire pipeline {pipeline_name} --why TEXT"
        )
        problems.append(PipelineProblem(None, what, restore, kind=State.UNKNOWN))
    return Status(
        pipeline_name=pipeline_name,
        published_up_to=published_up_to,
        max_age=max_age,
        lag=None if heard is None or heard.parts is None else sum(part.lag + part.unpublished for part in heard.parts),
        oldest_not_done=undone[0].id if undone else None,
        oldest_not_done_at=undone[0].created_at if undone else None,
        oldest_not_done_ranges=undone[0].ranges if undone else (),
        at_work=tuple(manifest.id for manifest in undone if manifest.alive),
        waiting=tuple(manifest.id for manifest in waiting),
        lost=database.ranges.lost_offsets(pipeline_name),
        dead_lettered=dead_lettered,
        newest=sum(newest, Counts()),
        audits=audits,
        problems=tuple(
            sorted(
                (_with_shared_cause(problem, heard) for problem in _unpaused_last(problems)),
                key=lambda problem: PROBLEMS.index(problem.kind),
            )
        ),
        retries=tuple(sorted(retries, key=lambda retry: retry.at)),
        leftover=_first_harmless_audit(pipeline_name, audits),
        unseen=_unseen(pipeline, heard, max_age),
        planned=planned_at["last"] is not None,
    )


def worst_first(status: Status) -> tuple[int, str]:
    """Return the key by which every list of pipelines is sorted."""
    return STATES.index(status.state), status.pipeline_name


def group_of(pipeline_name: str) -> str | None:
    """Return the group of a member, or None for any other pipeline. A file without a readable name goes by its file
    name, which has a dot too, and is in no group.
    """
    group, topic = split_name(pipeline_name)
    return None if topic is None or pipeline_name.endswith((".yaml", ".yml")) else group


def members_in_short(group: str, statuses: Iterable[Status]) -> str:
    """Return a line such as ``shop: 28 ok, 2 need you``."""
    members = [each for each in statuses if group_of(each.pipeline_name) == group]
    needing = sum(not each.healthy for each in members)
    need = f", {needing} need{'s' if needing == 1 else ''} you" if needing else ""
    return f"{group}: {len(members) - needing} ok{need}"


def shared_causes(statuses: Iterable[Status]) -> list[SharedCause]:
    """Return the causes that keep more than one of these pipelines from ``ok``, each once."""
    by_cause: dict[str, dict[str, PipelineProblem]] = {}
    for each in statuses:
        for problem in each.problems:
            if problem.shared_cause is not None:
                by_cause.setdefault(problem.shared_cause, {}).setdefault(each.pipeline_name, problem)
    return [
        SharedCause(what, next(iter(problems.values())).next_step, tuple(problems), _trouble(problems.values()))
        for what, problems in by_cause.items()
        if len(problems) > 1
    ]


def _trouble(problems: Iterable[PipelineProblem]) -> str:
    """Return the reason why a source is silent, which stands first in its errors."""
    known = (_SO_SILENT.match(problem.headline or problem.what) for problem in problems)
    return next((match["trouble"] for match in known if match), "")


def own_problems(status: Status, shared: Collection[SharedCause]) -> list[PipelineProblem]:
    """Return the problems of a pipeline without those that several pipelines share. A silent source is told once: with
    the worst problem, and with each manifest that failed because of it.
    """
    told = {cause.what for cause in shared}
    own, silent = list[PipelineProblem](), set[str | None]()
    for problem in status.problems:
        if problem.shared_cause in told or (problem.manifest_id is None and problem.silent in silent - {None}):
            continue
        own.append(problem)
        silent.add(problem.silent)
    return own


def _with_shared_cause(problem: PipelineProblem, heard: Answer | None) -> PipelineProblem:
    """Return the problem, with its silent source as the shared cause if that caused it: a failed plan may have the same
    cause.
    """
    if heard is None or not heard.silent or heard.system is None or problem.silent != heard.system.address:
        return problem
    return replace(problem, shared_cause=f"{heard.system} does not answer")


def _unseen(pipeline: Pipeline | None, heard: Answer | None, max_age: timedelta | None) -> tuple[State, ...]:
    if pipeline is None:
        return (State.LOST, State.DEAD_LETTERS, State.STALE, State.LATE, State.UNKNOWN)
    of_source = (State.LOST, State.UNKNOWN) if heard is None else (State.LOST,) if heard.parts is None else ()
    silent = heard is not None and heard.parts is None  # an open transaction may make it late
    return (*of_source, State.LATE) if silent or max_age is None else of_source


def _retirement_problems(database: ManifestDatabase, pipeline_name: str) -> list[PipelineProblem]:
    """Return a problem for a retired pipeline that has a file: the file was put there to run it."""
    try:
        refuse_out_of_use(pipeline_name, database)
    except ConfigurationError as retired:
        return [PipelineProblem(None, retired.what, retired.next_step, kind=State.BLOCKED)]
    return []


def _waiting(
    database: ManifestDatabase, pipeline_name: str, undone: Sequence[Manifest], now: datetime
) -> list[Manifest]:
    """Return the manifests that no attempt has started yet, while none can be expected.

    They were planned a moment ago; or other manifests of their run, or of earlier ones, are at work or were done a
    moment ago. Manifests that a later run has overtaken do not wait.
    """
    waiting = [each for each in undone if each.state is ManifestState.PLANNED and not each.attempt and not each.alive]
    if all(now - each.created_at < START for each in waiting):
        return waiting
    done = [
        (row["id"], row["run_key"])
        for row in database.manifests.newest_done(pipeline_name)
        if now - row["done_at"] < START
    ]
    worked_on = [*done, *((each.id, each.run_key) for each in undone if each.alive)]
    runs, first = {run_key for _, run_key in worked_on}, min((manifest_id for manifest_id, _ in worked_on), default=0)
    return [each for each in waiting if now - each.created_at < START or each.run_key in runs or 0 < first < each.id]


def _failed_tasks(
    database: ManifestDatabase,
    pipeline_name: str,
    failed_run: FailedRun | None,
    last_planned_at: datetime | None,
    now: datetime,
    *,
    decided: bool,
) -> tuple[list[PipelineProblem], list[Retry]]:
    """Return the problems of runs that planned nothing or were not closed, and the tasks that Airflow tries again.

    Unless ``decided``, leave out refused plans, which other problems report.
    """
    problems, retries = list[PipelineProblem](), list[Retry]()
    failed_tasks = database.tasks.failed(pipeline_name)
    decisions = database.decisions.of_pipeline(pipeline_name) if failed_tasks else []
    for failed in failed_tasks:
        if failed["refused"] and not decided:
            continue
        if not failed["times"]:
            if now - failed["since"] > LONGEST_PLAN:
                begin = f"{failed['since']:%Y-%m-%d %H:%M} UTC"
                what = f"{failed['task']} began {begin} and has not ended: it was killed, or it hangs"
                run = f"tidemark run {pipeline_name}"
                problems.append(PipelineProblem(None, what, run, kind=State.FAILED, cause=failed["task"]))
            continue
        times = f"has failed {failed['times']:,} times" if failed["times"] > 1 else "has failed"
        what = f"{failed['task']} {times} since {failed['since']:%Y-%m-%d %H:%M} UTC: {failed['what']}"
        if _is_retried(failed["retry_at"], now):
            retries.append(Retry(None, what, failed["retry_at"], failed["what"]))
            continue
        next_step = failed["next_step"] or f"tidemark {Task.PLAN} {pipeline_name} --dry-run"
        if any(made["decision"] == "adopt" and made["at"] > failed["at"] for made in decisions):
            next_step = f"it was adopted since then: tidemark run {pipeline_name}"
        elif "tidemark " not in next_step:
            next_step = f"{next_step}; then: tidemark run {pipeline_name}"
        causes = {"cause": _cause(failed["what"]), "silent": failed["silent"], "headline": failed["what"]}
        problems.append(PipelineProblem(None, what, next_step, kind=State.FAILED, **causes))
    told = bool(problems or retries)
    if not told and failed_run is not None and (last_planned_at is None or last_planned_at < failed_run.at):
        problems.append(PipelineProblem(None, failed_run.what, failed_run.next_step, kind=State.FAILED))
    return problems, retries


def _manifest_retries(manifests: Sequence[Manifest], now: datetime) -> list[Retry]:
    """Return the failed manifests that Airflow tries again by itself."""
    return [
        Retry(manifest.id, described(manifest), manifest.retry_at)
        for manifest in manifests
        if manifest.state is ManifestState.FAILED and manifest.retry_at and _is_retried(manifest.retry_at, now)
    ]


def _is_retried(retry_at: datetime | None, now: datetime) -> bool:
    """Return whether the next try can still be expected: it is not overdue by more than ``TRY``."""
    return retry_at is not None and now - retry_at <= TRY


def _open_hour_problems(
    database: ManifestDatabase,
    pipeline: Pipeline,
    file_since: datetime | None,
    published_up_to: datetime | None,
    half_replayed: Sequence[Manifest],
    now: datetime,
    max_age: timedelta | None,
) -> list[PipelineProblem]:
    """Return a problem for hours that runs could have closed for longer than ``max_age``: a close that dies before it
    begins leaves no note. The time counts from the present file on, because another lateness makes other hours due.
    """
    if published_up_to is None or max_age is None:
        return []
    lateness = pipeline.event_time.allowed_lateness
    last = event_hours.last_due(published_up_to, lateness)
    hours = [hour for hour in database.hours.open(pipeline.name) if hour <= last]
    if not hours:
        return []
    held = {row["hour"] for row in database.hours.held(pipeline.name, [manifest.id for manifest in half_replayed])}
    dues = {hour: event_hours.due(hour, lateness) for hour in hours if hour not in held}
    since = database.hours.closable_since(pipeline.name, dues)
    if since is None:
        return []
    since = max(since, file_since or since)
    if now - since <= max_age:
        return []
    what = (
        f"{count_of(len(dues), 'event hour')} could be complete since {since:%Y-%m-%d %H:%M} UTC, and no run has "
        f"closed them: {_ages(now - since, max_age)}"
    )
    run = f"look at the task {Task.CLOSE} of the DAG, or: tidemark run {pipeline.name}"
    return [PipelineProblem(None, what, run, kind=State.FAILED, cause="open hours")]


def _keep_runs_open(pipeline: Pipeline | None, stopped: Sequence[Manifest]) -> bool:
    """Return whether no run can close before these manifests are finished, by ``unfinished`` of the file."""
    if pipeline is None or pipeline.unfinished is Unfinished.REPORT:
        return False
    of_all = pipeline.unfinished is Unfinished.FAIL  # otherwise a blocked manifest keeps no later run open
    return any(of_all or each.state is not ManifestState.BLOCKED for each in stopped)


def _cause(what: str) -> str:
    """Return a text without its numbers, which change while the cause stays."""
    return re.sub(r"\d+", "#", what)[:200]


def _manifest_problems(manifests: Sequence[Manifest]) -> list[PipelineProblem]:
    problems = []
    for manifest in manifests:
        kind = State.BLOCKED if manifest.state is ManifestState.BLOCKED else State.FAILED
        silent = manifest.silent if kind is State.FAILED else None
        what, next_step = described(manifest), next_step_of(manifest)
        problems.append(PipelineProblem(manifest.id, what, next_step, kind=kind, silent=silent))
    return problems


def _chain_problems(database: ManifestDatabase, pipeline_name: str, pipeline: Pipeline | None) -> list[PipelineProblem]:
    """Return a problem for each refused chain, of the topics that the pipeline file selects."""
    return [
        PipelineProblem(
            None,
            f"nothing of {chain.at.name} is planned since it was refused: {chain.blocked}",
            acceptance_of(pipeline_name, chain),
            kind=State.BLOCKED,
            place=chain.at.name,
        )
        for chain in database.chains.of_pipeline(pipeline_name)
        if chain.blocked is not None and (pipeline is None or pipeline.source.reads(chain.at.topic))
    ]


def last_audits(database: ManifestDatabase, pipeline_name: str) -> tuple[LastAudit, ...]:
    rows = database.audits.last(pipeline_name)
    return tuple(
        LastAudit(**{**row, "first_differences": tuple(Problem(**first) for first in row["first_differences"])})
        for row in rows
    )


def unresolved_audits(audits: Sequence[LastAudit]) -> list[LastAudit]:
    """Return the last audits with differences. Each counts until an audit that looks at as much finds nothing."""
    return [
        audit
        for number, audit in enumerate(audits)
        if audit.differences and not any(later.deep >= audit.deep for later in audits[:number])
    ]


def _is_harmless(audit: LastAudit) -> bool:
    kept = audit.first_differences
    return audit.differences == len(kept) and all(difference.harmless for difference in kept)


def _first_harmless_audit(pipeline_name: str, audits: Sequence[LastAudit]) -> Problem | None:
    """Return the first unresolved audit that found only what no reader sees, such as files that nobody removed; None
    without such an audit."""
    for audit in filter(_is_harmless, unresolved_audits(audits)):
        first = audit.first_differences[0]
        times = f"{count_of(audit.differences, 'time')}, " if audit.differences > 1 else ""
        what = (
            f"the audit of {audit.at:%Y-%m-%d %H:%M} UTC found something that no reader sees, {times}first manifest "
            f"{first.manifest_id}: {first.what}"
        )
        return Problem(first.manifest_id, what, f"{first.next_step}; then: tidemark audit {pipeline_name}")
    return None


def _audit_problems(pipeline_name: str, audits: Sequence[LastAudit]) -> list[PipelineProblem]:
    """Return at most one problem: the worst unresolved audit that found damage, or that could not compare something."""
    problems = []
    for audit in unresolved_audits(audits):
        if _is_harmless(audit):
            continue
        again = f"tidemark audit {pipeline_name}{' --deep' if audit.deep else ''}"
        known = sorted(audit.first_differences, key=lambda difference: (difference.harmless, difference.unseen))
        first = next(iter(known), Problem(None, "", again))
        step = _step_of_all(pipeline_name, first.next_step, {each.manifest_id for each in known} - {None}, again)
        is_unseen = first.unseen and audit.differences == len(audit.first_differences)
        where = f"manifest {first.manifest_id}: " if first.manifest_id is not None else ""
        differences = count_of(audit.differences, "difference")
        what = f"the audit of {audit.at:%Y-%m-%d %H:%M} UTC found {differences}, first {where}{first.what}"
        next_step = step if again in step else f"{step}; then: {again}"
        kind = State.UNKNOWN if is_unseen else State.DAMAGED
        cause, headline = _cause(first.what), first.what
        problems.append(PipelineProblem(first.manifest_id, what, next_step, kind=kind, cause=cause, headline=headline))
    return sorted(problems, key=lambda problem: PROBLEMS.index(problem.kind))[:1]


def _step_of_all(pipeline_name: str, step: str, manifests: Collection[object], again: str) -> str:
    """Return the step for all damaged manifests, instead of the replay of one of them.

    That replay audits first, so its damage counts until the audit ``again``.
    """
    *words, manifest_id = step.split() or [""]
    is_replay = len(manifests) > 1 and words[:2] == ["tidemark", "replay"] and manifest_id.isdecimal()
    return f"tidemark replay {pipeline_name} --damaged; then: {again}" if is_replay else step


def _missing_output_problems(database: ManifestDatabase, pipeline_name: str) -> list[PipelineProblem]:
    """Return the published output that a plan, an adopt or a close found missing: one problem for each sink and next
    step.
    """
    by_step: dict[tuple[str, str, str], list[Row]] = {}
    for row in database.audits.missing(pipeline_name):
        of_this_step = row["next_step"].replace(str(row["manifest_id"]), "#")
        by_step.setdefault((row["sink"], row["what"], of_this_step), []).append(row)
    problems = []
    for (sink, what, _), rows in by_step.items():
        first, manifests = rows[0], [row["manifest_id"] for row in rows]
        since = min(row["found_at"] for row in rows)
        which = f"manifest {manifests[0]}" if len(rows) == 1 else f"each of the manifests {listed(manifests)}"
        problems.append(
            PipelineProblem(
                first["manifest_id"],
                f"sink {sink}, of {which}, as was found at {since:%Y-%m-%d %H:%M} UTC: {what}",
                _step_of_all(pipeline_name, first["next_step"], manifests, f"tidemark audit {pipeline_name}"),
                kind=State.DAMAGED,
                cause=f"missing {sink}",
                headline=what,
            )
        )
    return problems


def _gone_row_problems(database: ManifestDatabase, pipeline_name: str) -> list[PipelineProblem]:
    """Return a problem for each deleted row of the manifest database itself."""
    return [
        PipelineProblem(
            gone.manifest_id, gone.what, gone.next_step, kind=State.DAMAGED, cause=f"gone rows {gone.manifest_id}"
        )
        for gone in gone_rows(database, pipeline_name, NEWEST)
    ]


def _retired_sink_problems(database: ManifestDatabase, pipeline: Pipeline) -> list[PipelineProblem]:
    """Return a problem for manifests that are done and that no sink shows any longer."""
    nowhere = database.publications.nowhere(pipeline.name)
    if not nowhere:
        return []
    what = f"no sink shows these manifests, which are done; those that did are retired: {listed(nowhere)}"
    fill = f"tidemark fill {pipeline.name} {pipeline.sinks[0].name} --why TEXT"
    return [PipelineProblem(None, what, fill, kind=State.DAMAGED, cause="retired sinks")]


def _left_out_problems(database: ManifestDatabase, pipeline: Pipeline) -> list[PipelineProblem]:
    """Return a problem for done manifests that a sink of the file lacks, because the file did not have it when they
    were done.
    """
    names = {sink.name for sink in pipeline.sinks}
    problems = []
    for sink, manifests in database.publications.left_out(pipeline.name).items():
        if sink in names:
            lacks = is_not_filled(pipeline.name, sink, manifests)
            problems.append(PipelineProblem(None, *lacks, kind=State.DAMAGED, cause=f"left out {sink}"))
    return problems


def _dead_letter_problems(pipeline_name: str, newest: Sequence[Counts]) -> list[PipelineProblem]:
    """Return a problem if most records of each of the newest manifests with records became dead letters."""
    if not newest or any(each.dead_lettered / each.read < MOST_DEAD for each in newest):
        return []
    read, dead = sum(each.read for each in newest), sum(each.dead_lettered for each in newest)
    what = f"{dead:,} of the {read:,} records of the newest {count_of(len(newest), 'manifest')} are dead letters"
    return [PipelineProblem(None, what, f"tidemark dead-letters {pipeline_name}", kind=State.DEAD_LETTERS)]


def _stale_row_problems(pipeline_name: str, stale: Sequence[tuple[int, str]]) -> list[PipelineProblem]:
    """Return a problem if all rows of the newest manifest with rows were older in a table by ``order_by`` than the rows
    there. The numbers of ``order_by`` may have started again, so that the table no longer changes.
    """
    return [
        PipelineProblem(
            None,
            f"all rows of manifest {manifest_id} were stale in sink {sink}: a newer row of each key stood there",
            f"look at order_by of sink {sink}: when its numbers have started again, write a sink with another one, or "
            "none, and with a name and a table of its own, then: "
            f"tidemark fill {pipeline_name} NAME --why TEXT; without order_by the rows are of another topic or "
            "partition, and those have no order",
            kind=State.STALE,
            cause=sink,
        )
        for manifest_id, sink in stale
    ]


def _source_problems(
    pipeline: Pipeline, heard: Answer | None, max_lag: int | None, refused: Collection[str | None]
) -> list[PipelineProblem]:
    """Return problems for what the source says, or for its silence; without the partitions that were ``refused``."""
    if heard is None:
        return []
    if heard.parts is None:
        why = (heard.why or "").replace(SOURCE, str(heard.system or SOURCE))
        ask = heard.next_step or f"tidemark lag {pipeline.name}"
        silent = heard.system.address if heard.silent and heard.system else None
        shared = heard.why if heard.system and not heard.silent else None
        what = f"the lag is not known: {why}"
        return [PipelineProblem(None, what, ask, kind=State.UNKNOWN, silent=silent, shared_cause=shared, headline=why)]
    problems = [*_loss_problems(pipeline, heard.parts), *_change_problems(pipeline, heard.parts, refused)]
    offsets = sum(part.lag + part.unpublished for part in heard.parts)
    if max_lag is not None and offsets > max_lag:
        what = f"{count_of(offsets, 'offset')} not published, and at most {max_lag:,} are allowed"
        problems.append(PipelineProblem(None, what, f"tidemark lag {pipeline.name}", kind=State.LATE))
    return problems


def _loss_problems(pipeline: Pipeline, parts: Sequence[Lag]) -> list[PipelineProblem]:
    if pipeline.source.on_data_loss is OnDataLoss.RECORD:  # the next plan gives them up by itself
        return []
    return [
        PipelineProblem(
            None,
            f"retention took offsets [{part.planned}, {part.log_start}) of {part.topic}-{part.partition} before "
            "they were planned; no run plans anything until a person decides",
            f"tidemark accept loss {pipeline.name} --why TEXT",
            kind=State.LOST,
            place=f"{part.topic}-{part.partition}",
        )
        for part in parts
        if part.planned < part.log_start and not part.changed
    ]


def _change_problems(
    pipeline: Pipeline, parts: Sequence[Lag], refused: Collection[str | None]
) -> list[PipelineProblem]:
    """Return problems for what the next plan will refuse. A broker may report too low an end of a log for a moment, so
    only a plan that has looked at the records says that a log was cut.
    """
    return [
        PipelineProblem(
            None,
            f"{part.changed}; the next plan refuses it, and names the decision",
            f"tidemark plan {pipeline.name} --dry-run",
            kind=State.UNKNOWN,
            place=f"{part.topic}-{part.partition}",
        )
        for part in parts
        if part.changed and f"{part.topic}-{part.partition}" not in refused
    ]


def _open_transaction_problems(
    database: ManifestDatabase, pipeline: Pipeline, heard: Answer | None, now: datetime, max_age: timedelta | None
) -> list[PipelineProblem]:
    """Return the partitions of which an open transaction has let nothing be planned for longer than ``max_age``. The
    age of the transaction does not help: the producer sets the timestamp of its first record.
    """
    parts = heard.parts or () if heard is not None else ()
    held = [part for part in parts if part.open_transaction and part.planned >= part.last_stable and not part.changed]
    if not held or max_age is None:
        return []
    held_since = database.chains.held_since(pipeline.name)
    problems = []
    for part in held:
        since = held_since.get((part.topic, part.partition))
        if since is None or now - since <= max_age:
            continue
        what = (
            f"{part.open_transaction}; nothing of {part.topic}-{part.partition} was planned since "
            f"{since:%Y-%m-%d %H:%M:%S} UTC: {_ages(now - since, max_age)}"
        )
        end = "when its producer hangs, stop it, or end the transaction at the broker; docs/operations.md says how"
        place = f"{part.topic}-{part.partition}"
        problems.append(PipelineProblem(None, what, end, kind=State.LATE, place=place))
    return problems


def _paused_problems(
    pipeline: Pipeline, paused_dag: str | None, heard: Answer | None, undone: Sequence[Manifest], late: str
) -> list[PipelineProblem]:
    """Return a problem for a paused DAG while work waits for it. ``late`` has the words if it waits for too long."""
    idle = [manifest for manifest in undone if not manifest.alive]
    offsets = sum(part.lag + part.unpublished for part in heard.parts or ()) if heard is not None else 0
    waiting = [count_of(offsets, "offset")] if offsets else []
    waiting += [count_of(len(idle), "manifest")] if idle else []
    if paused_dag is None or not (waiting or late):
        return []
    what = f"its DAG {paused_dag} is paused, and no run starts: {', '.join([*waiting, *filter(None, [late])])}"
    step = f"unpause the DAG; or do the work now: tidemark run {pipeline.name}"
    return [PipelineProblem(None, what, step, kind=State.LATE, cause=PAUSED)]


def _unpaused_last(problems: Sequence[PipelineProblem]) -> list[PipelineProblem]:
    """Return the problems; beside others, that of a paused DAG offers no run, which the others would stop too."""
    if len(problems) == 1:
        return [*problems]
    return [replace(each, next_step=UNPAUSE_LATER) if each.cause == PAUSED else each for each in problems]


def _max_age_by_runs(pipeline: Pipeline, now: datetime) -> timedelta | None:
    """Return the age of the last scheduled run but one that was due, because the last may still be at work; with a
    trigger, the longest time between two runs and that of a run; with both, the shorter. None if the times of runs are
    unknown.
    """
    if pipeline.airflow.own_dag:
        return None
    ages = list[timedelta]()
    if pipeline.trigger is not None:
        ages.append(pipeline.trigger.at_least_every + RUN)
    if pipeline.schedule is not None and pipeline.start_date <= now.date():
        schedule = Schedule(pipeline.schedule)
        ages.append(now - schedule.before(schedule.before(now - RUN)))
    return min(ages, default=None)


def _too_old(since: datetime | None, now: datetime, max_age: timedelta | None) -> str:
    """Return words if the end of the published data, or without one the first plan, is longer ago than ``max_age``.
    Empty otherwise, and before the first plan.
    """
    if since is None or max_age is None or now - since <= max_age:
        return ""
    return f"not all is published that came after {since:%Y-%m-%d %H:%M:%S} UTC: {_ages(now - since, max_age)}"


def _never_ran(pipeline: Pipeline, since: datetime | None, now: datetime, max_age: timedelta | None) -> str:
    """Return words for a pipeline that Airflow has had for longer than ``max_age`` and that no run has planned: its DAG
    is paused, or its runs die before they begin.
    """
    if since is None:
        return ""
    since = max(since, datetime.combine(pipeline.start_date, time(), UTC))
    if max_age is None or now - since <= max_age:
        return ""
    return (
        f"no run has planned anything since Airflow has its file, from {since:%Y-%m-%d %H:%M:%S} UTC on: "
        f"{_ages(now - since, max_age)}"
    )


def _ages(age: timedelta, max_age: timedelta) -> str:
    shown, most = (timedelta(seconds=round(each.total_seconds())) for each in (age, max_age))
    return f"that is {shown} ago, and at most {most} are allowed"
