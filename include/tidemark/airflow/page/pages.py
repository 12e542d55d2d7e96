"""The pages: each collects values from ``content`` and the views, and passes them to its template."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Literal
from urllib.parse import urlencode

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import StringConstraints

from tidemark.airflow.addresses import TaskTry
from tidemark.airflow.page import content
from tidemark.airflow.page.access import (
    LOGGED_IN,
    MAY_PAUSE,
    MAY_READ,
    MAY_START_RUNS,
    Database,
    ListedDags,
    ListedPipelines,
    MayPause,
    MayStart,
    OwnManifest,
    PipelineName,
    PlanTasks,
    ReadablePipelines,
    StatesInAirflow,
    UnplannedPipelines,
    confirmed,
    refuse_forged,
    signed,
)
from tidemark.airflow.page.actions import (
    Action,
    Wish,
    conf_of,
    dag_states,
    known_runs,
    new_run_id,
    preview,
    run_state,
    set_paused,
    start,
)
from tidemark.airflow.page.calendar import DAYS, calendar_hour, calendar_of, name_of
from tidemark.airflow.page.causes import StatedCause, cause_of_reason, cause_of_text
from tidemark.airflow.page.deferred_tasks import deferred_tasks
from tidemark.airflow.page.json_api import PAGE, Moment, OneManifest
from tidemark.airflow.page.legend import legend
from tidemark.airflow.page.peeking import MOST_RECORDS
from tidemark.airflow.page.plan_tasks import PLAN, PlanTask, dag_of
from tidemark.airflow.page.render import page
from tidemark.airflow.page.runs import LagWindow
from tidemark.airflow.page.state_words import ManifestWords, word
from tidemark.airflow.page.timeline import drawn
from tidemark.airflow.run_conf import Depth
from tidemark.errors import DataLost, NotFound, TidemarkError
from tidemark.model.event_hours import HOUR, HOURS_OF_A_DAY, HourSelection
from tidemark.model.manifest import COUNTED, ManifestSelection, ManifestState
from tidemark.model.problem import Problem
from tidemark.operations.hours import Hour
from tidemark.operations.peek import RecordSelection
from tidemark.operations.status import (
    PipelineProblem,
    State,
    group_of,
    members_in_short,
    own_problems,
    shared_causes,
    worst_first,
)
from tidemark.operations.timeline import Step, timeline
from tidemark.pipeline.each_topic import split_name
from tidemark.views.lanes import WITH_LETTERS
from tidemark.views.manifests import ManifestHistoryView, manifest_history_view, manifest_views
from tidemark.views.pipelines import PipelineView, decision_views

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
Empty = Literal[""]
OBJECTS = 500  # files of a manifest on its page; each sink may have as many as it has hours and partitions
HOURS = DAYS * HOURS_OF_A_DAY  # of a pipeline on its page: the newest, and those that are open
COLUMNS = "not done", "accepted loss", "dead letters"  # of the list, as far as a pipeline has some
MOST_CAUSES = 10  # of a pipeline on its page
MOST_OK = 12  # rows of the list that are ok: more of them are one row
LETTERS = 20  # dead letters on their page
RECORDS = 20  # of a peek, unless another number is asked for
LAST_HOUR = datetime.max.replace(tzinfo=UTC) - HOUR
ASSETS = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "pictures.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}


@router.get("/static/{name}", dependencies=[LOGGED_IN])
def static(name: str) -> Response:
    if name not in ASSETS:
        raise HTTPException(404, "there is no such file")
    folder = files(__package__) / "uplot" if name.startswith("uPlot") else files(__package__)
    return Response((folder / name).read_text("utf-8"), media_type=ASSETS[name])


@router.get("/", dependencies=[LOGGED_IN])
def pipelines(
    request: Request,
    database: Database,
    listed: ListedPipelines,
    unplanned: UnplannedPipelines,
    in_airflow: StatesInAirflow,
    tasks: PlanTasks,
    dags: ListedDags,
    name: str = "",
    state: State | Empty = "",
    group: str | None = None,
) -> Response:
    """Show the list of pipelines: those that need you first, the worst on top; a filter selects among them, ``group``
    the members of one, and an empty one the pipelines without a group.

    A cause that keeps several pipelines from ``ok`` is shown once, above all. Members of a group that need nobody are
    one row, which leads to the list of the group.
    """
    views = sorted((view for view, _ in content.pipelines_of(database, listed, in_airflow)), key=worst_first)
    homes = {name: dag_of(name, tasks) for name in listed}
    shared = shared_causes(views)
    problems = {view.pipeline_name: own_problems(view, shared) for view in views}
    worst = {name: of_pipeline[0] for name, of_pipeline in problems.items() if of_pipeline}
    of_group = [view for view in views if group in (None, group_of(view.pipeline_name) or "")]
    shown = [view for view in of_group if name in view.pipeline_name and state in ("", view.state)]
    first_plans = {each.pipeline: each for each in unplanned}
    new = [view for view in shown if view.state is State.NEW and not first_plans[view.pipeline_name].path]
    rows = [view for view in shown if view not in new]
    is_filtered = bool(name or state or group is not None)
    listed_rows = rows if is_filtered else _folded(rows, views, problems)
    own_rows = [row for row in listed_rows if not isinstance(row, Fold)]
    numbers = {view.pipeline_name: _numbers(view) for view in own_rows}
    runs = content.runs_of_each(database, [view for view in own_rows if view.pipeline_name not in first_plans])
    values = {
        "new": new,
        "rows": listed_rows,
        "numbers": numbers,
        "runs": runs,
        "columns": [column for column in COLUMNS if any(each[column] for each in numbers.values())],
        "causes": dict(zip(worst, content.causes_of(database, [*worst.values()], listed), strict=True)),
        "shared": shared,
        "problems": problems,
        "pipelines": shown,
        "first_plans": first_plans,
        "known": len(views), "wrong": sum(map(bool, problems.values())),
        "homes": homes, "dags": dags, "name": name, "state": state, "states": list(State),
        "group": group, "is_filtered": is_filtered,
    }  # fmt: skip
    return page(request, "pipelines.html", values)


@dataclass(frozen=True)
class Fold:
    """The members of a group without a problem of their own, or the pipelines without a group that are ok, as one row.
    ``words`` count all members, also those with a row of their own; ``query`` selects them all.
    """

    words: str
    healthy: bool
    query: str


def _folded(
    rows: Sequence[PipelineView], views: Sequence[PipelineView], problems: Mapping[str, Sequence[PipelineProblem]]
) -> list[PipelineView | Fold]:
    """Return the same rows. Members of a group without problems are folded in the place of the first one, and so are
    many pipelines without a group that are ok, unless they are all.
    """
    fine = sum(view.state is State.OK and group_of(view.pipeline_name) is None for view in rows)
    folded: list[PipelineView | Fold] = []
    groups = set[str]()
    for view in rows:
        group = group_of(view.pipeline_name)
        if group is None and view.state is State.OK and MOST_OK < fine < len(rows):
            group = ""
        if group is None or problems[view.pipeline_name]:
            folded.append(view)
        elif group not in groups:
            groups.add(group)
            others = Fold(f"{fine:,} ok", healthy=True, query="state=ok&group=")
            folded.append(_fold(group, views) if group else others)
    return folded


def _fold(group: str, views: Sequence[PipelineView]) -> Fold:
    members = [each for each in views if group_of(each.pipeline_name) == group]
    healthy = all(each.healthy for each in members)
    return Fold(members_in_short(group, members), healthy, urlencode({"group": group}))


def _numbers(view: PipelineView) -> dict[str, str]:
    """By column; empty for none."""
    manifests = {"blocked": view.manifests["blocked"], "failed": view.manifests["failed"], "working": len(view.at_work)}
    not_done = ", ".join(f"{count:,} {word}" for word, count in manifests.items() if count)
    given_up, dead = (f"{count:,}" if count else "" for count in (view.lost, view.dead_lettered))
    return dict(zip(COLUMNS, (not_done, given_up, dead), strict=True))


@router.get("/where", dependencies=[LOGGED_IN])
def where(
    request: Request,
    database: Database,
    readable: ReadablePipelines,
    topic: str = "",
    partition: str = "",
    offset: str = "",
) -> Response:
    asked = {"topic": topic.strip(), "partition": partition.strip(), "offset": offset.strip()}
    wrong = [name for name in ("partition", "offset") if any(asked.values()) and not asked[name].isdecimal()]
    chains = []
    if asked["topic"] and not wrong:
        chains = content.chain_offsets(
            database, readable, asked["topic"], int(asked["partition"]), int(asked["offset"])
        )
    words = {name: content.words_of(database, name) for name in {chain.pipeline_name for chain in chains}}
    return page(request, "where.html", {"asked": asked, "wrong": wrong, "chains": chains, "words": words})


def chosen(
    state: ManifestState | Empty = "",
    since: Moment | Empty = "",
    until: Moment | Empty = "",
    topic: str = "",
    partition: int | Empty = "",
    lacks: str = "",
) -> ManifestSelection:
    """Return the selection that a form sends. A field that was left empty is an empty text, or missing."""
    number = None if partition == "" else partition
    return ManifestSelection(state or None, since or None, until or None, topic or None, number, lacks or None)


Selection = Annotated[ManifestSelection, Depends(chosen)]


def _filters(selection: ManifestSelection) -> str:
    """Return the selection as the query of an address; empty if it selects everything."""
    given = {name: value for name, value in vars(selection).items() if value is not None}
    times = {name: value.isoformat() for name, value in given.items() if isinstance(value, datetime)}
    return urlencode(given | times)


@router.get("/pipelines/{dag_id}", dependencies=[MAY_READ])
def pipeline(
    request: Request,
    database: Database,
    name: PipelineName,
    in_airflow: StatesInAirflow,
    tasks: PlanTasks,
    user: GetUserDep,
    selection: Selection,
    may_start: MayStart,
    may_pause: MayPause,
    after: int | None = None,
    by: Step | None = None,
    to: Moment | None = None,
    started: str | None = None,
    window: LagWindow = LagWindow.DAY,
) -> Response:
    """Show a pipeline. ``by`` and ``to`` belong to the drawing along time, ``after`` and the selection to the list of
    manifests.
    """
    [(view, lag)] = content.pipelines_of(database, [name], in_airflow)
    with database.reading_ahead([name]):  # several parts of the page ask the same, such as what is damaged
        manifests = database.manifests.page(name, selection, limit=PAGE, after=after)
        matching = older = 0
        if manifests:
            matching = database.manifests.count(name, selection, most=COUNTED + 1)
            older = database.manifests.count(name, selection, most=COUNTED + 1, after=manifests[-1].id)
        hours, no_hours = _hours(database, name)
        problems = own_problems(view, ())
        retried = [
            PipelineProblem(retry.manifest_id, retry.what, "", kind=State.RETRYING, headline=retry.headline)
            for retry in view.retries[:MOST_CAUSES]
        ]
        known_sinks = database.sinks.known(name)
        now = datetime.now(UTC)
        dag_id = dag_of(name, tasks)
        dag = dag_states([dag_id]).get(dag_id)
        words = ManifestWords.of_pipeline(database, view)
        runs, figures = content.runs_of(database, view, words)
        coverage, calendar = content.coverage_of(database, name, lag), calendar_of(hours)
        time = drawn(timeline(database, name, now, step=by, until=to), now)
        values = {
            "view": view,
            "runs": runs,
            "figures": figures,
            "window": window,
            "windows": list(LagWindow),
            "lags": content.lags_over_time(database, view, window),
            "dag_id": dag_id,
            "dag": dag,
            "deferred": deferred_tasks(tasks.get(split_name(name)[0]) or PlanTask(dag_id, PLAN)),
            "pause_token": signed(user.get_id(), {"dag": dag_id, "pause": not dag.paused})
            if dag and may_pause
            else None,
            "coverage": coverage,
            "time": time,
            "legend": legend(runs, time, coverage, calendar),
            "causes": content.causes_of(database, problems[:MOST_CAUSES], [name]),
            "more_problems": problems[MOST_CAUSES:],
            "retries": list(zip(view.retries[:MOST_CAUSES], content.causes_of(database, retried, [name]), strict=True)),
            "words": words,
            "counts": _counts(database, view, words),
            "manifests": manifest_views(database, manifests, objects=False),
            "states": list(ManifestState),
            "topics": database.chains.topics(name),
            "sinks": [sink.name for sink in known_sinks if sink.is_current],
            "known_sinks": known_sinks,
            "kept": content.kept_text(name),
            "selection": selection,
            "filters": _filters(selection),
            "after": after,
            "matching": matching,
            "older": older,
            "hours": hours,
            "calendar": calendar,
            "unfinished": view.oldest_not_done is not None
            or any(problem.kind is State.FAILED and problem.manifest_id is not None for problem in problems)
            or bool(words.damage.mended_by("retry")),
            "damaged": words.damage.mended_by("replay")[:PAGE],
            "no_hours": no_hours,
            "decisions": decision_views(database, name)[-10:][::-1],
            "started": started,
            "run_state": run_state(dag_id, started) if started else None,
            "may_start": may_start,
            "lost": any(part.log_start > part.planned for part in lag.parts or ())
            or any(f"error={DataLost('').code}" in problem.what for problem in view.problems),
            "lacking": content.lacking(database, name),
            "audits": database.audits.history(name, PAGE),
        }
    return page(request, "pipeline.html", values)


def _counts(database: Database, view: PipelineView, words: ManifestWords) -> list[tuple[ManifestState, int, str]]:
    """Return how many manifests are in which state, with its word. Done ones with a problem are counted apart."""
    dead = view.manifests[ManifestState.RUNNING] - len(view.at_work)
    counts = [
        (state, count, word(state) if state is not ManifestState.RUNNING or not dead else "failed: the process is dead")
        for state in ManifestState
        if state is not ManifestState.DONE and (count := view.manifests[state])
    ]
    known = database.manifests.find(ids=sorted({*words.problems, *words.damage.of_manifest}))
    wrong = Counter(words.of(each).state for each in known if each.state is ManifestState.DONE)
    ok = view.manifests[ManifestState.DONE] - wrong.total()
    done = [*wrong.items(), *([(State.UNKNOWN if words.damage.unnamed else State.OK, ok)] if ok else [])]
    return counts + [(ManifestState.DONE, count, state.value) for state, count in done]


def _hours(database: Database, name: str) -> tuple[list[Hour], str | None]:
    """Return the open hours and the newest ones, newest first; or no hours and the reason why they are unknown."""
    try:
        return content.hours_of(database, name, HourSelection(newest=HOURS, limit=2 * HOURS))[::-1], None
    except TidemarkError as error:
        return [], error.what


@router.get("/pipelines/{dag_id}/manifests/{manifest_id}", dependencies=[MAY_READ])
def manifest(
    request: Request, database: Database, own: OwnManifest, may_start: MayStart, compare: bool = False
) -> Response:
    """Show a manifest; ``compare`` opens the sinks, which may take a while."""
    view = manifest_history_view(database, own)
    tasks = {each.attempt: TaskTry.of(each.actor) for each in view.attempts}
    run = (dag_of_run(view, own.dag_run), own.dag_run) if own.dag_run else None
    words = content.words_of(database, own.pipeline_name)
    values = {
        "view": view,
        "word": words.of(own),
        "damage": next(iter(causes_of_damage(words.damage.problems([own.id]), own.pipeline_name)), None),
        "cause": cause_of_reason(own),
        "run": run,
        "tasks": tasks,
        "known_runs": known_runs({task.run for task in tasks.values() if task} | ({run} if run else set())),
        "span": sum(part.span for part in own.ranges),
        "objects": (*view.objects, *view.dead_letter_objects)[:OBJECTS],
        "compared": content.compared_of(database, own) if compare else None,
        "may_start": may_start,
        "receipt": content.receipt_of(database, own.id, view.published_attempt),
    }
    return page(request, "manifest.html", values)


@router.get("/pipelines/{dag_id}/hours/{start}", dependencies=[MAY_READ])
def hour(request: Request, database: Database, name: PipelineName, start: Moment) -> Response:
    """Show an event hour with the manifests that have rows of it, and their files."""
    known = content.hours_of(database, name, HourSelection(before=min(start, LAST_HOUR) + HOUR, limit=1))
    if not known or known[0].start != start:
        raise NotFound(f"{name} has no event hour {start:%Y-%m-%dT%H:%MZ}", next_step=f"tidemark hours {name}")
    manifests = database.manifests.find(ids=known[0].manifests)
    words = content.words_of(database, name)
    files, of_hour = content.files_of_hour(database, name, known[0])
    values = {
        "pipeline": name,
        "name": name_of(start),
        "shown": calendar_hour(known[0]),
        "damage": causes_of_damage(known[0].damage, name),
        "manifests": manifests,
        "words": words,
        "files": files[:OBJECTS],
        "many": len(files),
        "of_hour": of_hour,
    }
    return page(request, "hour.html", values)


def causes_of_damage(damage: Sequence[Problem], name: str) -> list[StatedCause]:
    return [
        replace(cause_of_text(problem.what, problem.next_step, [name]), manifest_id=problem.manifest_id)
        for problem in damage
    ]


def dag_of_run(view: ManifestHistoryView, run_id: str) -> str:
    """Return the DAG of the run that a manifest was given to, by the task in its history. The DAG has another name if
    the pipeline was renamed since, or is a part of a larger DAG.
    """
    given = (event.actor for event in reversed(view.events) if event.what.get("dag_run") == run_id)
    task = next(filter(None, map(TaskTry.of, given)), None)
    return task.dag_id if task else view.pipeline_name


@router.get("/pipelines/{dag_id}/dead-letters", dependencies=[MAY_READ])
def dead_letters(
    request: Request, database: Database, name: PipelineName, may_start: MayStart, manifest_id: OneManifest = None
) -> Response:
    letters = content.letters_of(database, name, manifest_id, LETTERS if may_start else 0)
    values = {
        "pipeline": name,
        "view": letters,
        "manifest_id": manifest_id,
        "most": WITH_LETTERS,
        "may_start": may_start,
    }
    return page(request, "dead_letters.html", values)


@router.get("/pipelines/{dag_id}/peek", dependencies=[MAY_START_RUNS])
def peek(
    request: Request,
    database: Database,
    name: PipelineName,
    count: Annotated[int, Query(ge=1, le=MOST_RECORDS)] = RECORDS,
    topic: str = "",
    partition: int | Empty = "",
    start: Annotated[int | Empty, Query(alias="from")] = "",
) -> Response:
    """Show real records and what the pipeline makes of them. Values need the right to start runs."""
    asked = {"count": count, "topic": topic, "partition": partition, "from": start}
    numbers = [None if number == "" else number for number in (partition, start)]
    values = {
        "pipeline": name,
        "asked": asked,
        "most": MOST_RECORDS,
        "topics": database.chains.topics(name),
        "view": content.peeked_of(name, RecordSelection(count, topic or None, *numbers)),
    }
    return page(request, "peek.html", values)


@router.get("/pipelines/{dag_id}/start/{action}", dependencies=[MAY_START_RUNS])
def start_form(
    request: Request,
    database: Database,
    user: GetUserDep,
    name: PipelineName,
    tasks: PlanTasks,
    action: Action,
    manifest_ids: Annotated[list[int] | None, Query(alias="manifest")] = None,
    sink: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    depth: Depth = Depth.LIGHT,
) -> Response:
    """Show a preview of the run, and the form that starts it."""
    by_id = action is Action.RETRY and bool(manifest_ids)
    wish = Wish(action, tuple(sorted(set(manifest_ids or ()))), by_id, sink, topic, partition, depth)
    with content.context_of(database, name) as context:
        shown = preview(context, wish)
    if shown.manifests:
        wish = replace(wish, manifests=tuple(each.id for each in shown.manifests))
    group, _ = split_name(name)
    form = {"dag": name, "wish": asdict(wish), "run": new_run_id(action)}
    values = {
        "pipeline": name,
        "wish": wish,
        "preview": shown,
        "manifests": manifest_views(database, shown.manifests[:PAGE], objects=False),
        "words": content.words_of(database, name),
        "causes": {each.id: cause_of_reason(each) for each in shown.manifests[:PAGE]},
        "conf": conf_of(name, wish, "your reason"),
        "dag": dag_states([group]).get(group),
        "dag_id": dag_of(name, tasks),
        "token": signed(user.get_id(), form),
    }
    return page(request, "action.html", values)


@router.post("/pipelines/{dag_id}/start/{action}", dependencies=[Depends(refuse_forged), MAY_START_RUNS])
def begun(
    request: Request,
    database: Database,
    user: GetUserDep,
    name: PipelineName,
    action: Action,
    token: Annotated[str, Form()],
    why: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000), Form()],
) -> Response:
    form = confirmed(user.get_id(), token)
    wish = form["wish"]
    if (form["dag"], wish["action"]) != (name, action):
        raise HTTPException(403, "this form is for something else: open it again")
    confirmed_wish = Wish(**{**wish, "action": action, "manifests": tuple(wish["manifests"])})
    start(database, name, confirmed_wish, why, user, form["run"])
    root = request.scope.get("root_path", "")
    return RedirectResponse(f"{root}/pipelines/{name}?started={form['run']}", 303)


@router.post("/pipelines/{dag_id}/pause", dependencies=[Depends(refuse_forged), MAY_PAUSE])
def paused(
    request: Request, user: GetUserDep, name: PipelineName, tasks: PlanTasks, token: Annotated[str, Form()]
) -> Response:
    """Pause the DAG, or unpause it, as the button said."""
    form = confirmed(user.get_id(), token)
    dag_id = dag_of(name, tasks)
    if form.get("dag") != dag_id or "pause" not in form:
        raise HTTPException(403, "this form is for something else: open it again")
    set_paused(dag_id, form["pause"])
    return RedirectResponse(f"{request.scope.get('root_path', '')}/pipelines/{name}", 303)
