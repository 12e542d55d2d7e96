"""The story of a run: ``plan >> process (one mapped task per manifest) >> close``.

``plan`` cuts the chains and records manifests. ``process`` lets Spark stage one manifest and publishes it. ``close``
asks the database whether every manifest of the run is published. Retries, clears and backfills run the same tasks.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from datetime import time as time_of_day
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow.sdk import DAG, Asset, TaskGroup, get_current_context, get_parsing_context, task
from airflow.sdk.definitions.param import ParamsDict

from tidemark.airflow import addresses, event_log, run_conf
from tidemark.airflow.deadline import deadline_of
from tidemark.airflow.list_limit import longest_list, refuse_over_limit
from tidemark.airflow.log_lines import label
from tidemark.airflow.lookup import database_of, opened, spark_master
from tidemark.airflow.other_runs import LONGEST_WAIT, wait_for_others
from tidemark.airflow.planned import PlannedManifests, manifests_of_run
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.airflow.run_notes import push_labels
from tidemark.airflow.verdict import airflow_verdict, next_try
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, NotPublished, TidemarkError, WorkFailed, about
from tidemark.lifecycle import events
from tidemark.lifecycle.close import forget_failed, published_sums, ranges_of_hours, require_run_done
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.covering import manifests_between
from tidemark.lifecycle.failed_tasks import Task, begun, watched
from tidemark.lifecycle.hours import close_hours, hours_to_tell
from tidemark.lifecycle.older import HeldElsewhere, choose_to_take_along, older_unfinished, unfinished_lines
from tidemark.lifecycle.plan import PlannedRun, Tick, covered, nothing_new
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.select import refuse_at_work
from tidemark.lifecycle.turns import sort_by_turn
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.pipeline.deployed import Deployed, deployed, deployed_named
from tidemark.pipeline.schedule import Schedule
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.engines import engine_of
from tidemark.spark.remote import remote_of

log = logging.getLogger(__name__)  # what is printed may stand below "Post Execute", which Airflow's page folds
NOTHING: Mapping[str, Any] = MappingProxyType({})


def asset_of(pipeline: Pipeline) -> Asset:
    """The asset that other DAGs wait for: an event for each run that has published something."""
    return Asset(name=f"tidemark_{pipeline.name}", uri=f"tidemark://pipeline/{pipeline.name}")


def hours_asset_of(pipeline: Pipeline) -> Asset:
    """The asset whose partitions are event hours, such as ``2024-03-01T10:00:00``: an event when one is complete."""
    return Asset(name=f"tidemark_{pipeline.name}_hours", uri=f"tidemark://pipeline/{pipeline.name}/hours")


def dags() -> dict[str, DAG]:
    """The DAG of each pipeline file by its id, for a DAG file that says ``globals().update(dags())``.

    A task gets its own DAG alone, so that the other files cost it nothing. Pipelines whose file says
    ``airflow: {own_dag: true}`` are left out.
    """
    pipelines = Environment.from_variables().pipelines
    of_task = get_parsing_context().dag_id  # None where all DAGs are wanted
    every = deployed(pipelines) if of_task is None else [deployed_named(pipelines, of_task)]
    return {
        each.pipeline.name: build_dag(each.pipeline, each.problem)
        for each in every
        if not each.pipeline.airflow.own_dag
    }


def pipeline_dag(name: str, *, process: Mapping[str, Any] = NOTHING, **arguments: Any) -> DAG:
    """The DAG of the pipeline with this name, for a DAG file of your own; its file says ``airflow: {own_dag: true}``.

    ``arguments`` are those of Airflow's DAG, such as ``dagrun_timeout``, ``deadline`` or ``on_failure_callback``, and
    win over the file's; ``default_args`` and ``tags`` come beside ours. ``process``: arguments of the operator that
    processes a manifest, such as ``execution_timeout`` or ``executor_config``.

    Raises ``NotFound``, and ``ConfigurationError`` for a pipeline whose DAG Tidemark makes itself.
    """
    own = _own_dag_pipeline(name)
    if "dag_id" in arguments:
        raise ConfigurationError(
            "the DAG of a pipeline has the pipeline's name", next_step="leave dag_id out", pipeline=name
        )
    return build_dag(own.pipeline, own.problem, process=process, **arguments)


def pipeline_tasks(name: str, *, group_id: str | None = None, process: Mapping[str, Any] = NOTHING) -> TaskGroup:
    """The tasks of a pipeline as a task group inside a DAG of your own, to be called within its ``with`` block.

    The runs of the pipeline are those of the DAG: their dates decide what is read. ``group_id`` is the pipeline's name
    if not set; ``process``, and what is raised: as for ``pipeline_dag``.
    """
    own = _own_dag_pipeline(name)
    pipeline = own.pipeline
    defaults = pipeline.airflow.retries(pipeline.retries, pipeline.retry_delay)
    with TaskGroup(group_id or name, default_args=defaults) as group:  # type: ignore[arg-type]
        _tasks(pipeline, own.problem, process)
    return group


def _own_dag_pipeline(name: str) -> Deployed:
    """Raises ``NotFound``, and ``ConfigurationError`` for a pipeline whose DAG Tidemark makes itself."""
    own = deployed_named(Environment.from_variables().pipelines, name)
    if not own.pipeline.airflow.own_dag:
        raise ConfigurationError(
            "Tidemark makes the DAG of this pipeline, and Airflow would find two of one name",
            next_step="write airflow: {own_dag: true} into its file",
            pipeline=name,
        )
    return own


def build_dag(
    pipeline: Pipeline, problem: TidemarkError | None = None, *, process: Mapping[str, Any] = NOTHING, **arguments: Any
) -> DAG:
    """The DAG of one pipeline file. It does no I/O, because Airflow parses DAG files often.

    ``problem``: what is wrong with the file now; ``pipeline`` is from its last right text then. ``plan`` fails with the
    problem, and the tasks of runs that are planned go on. ``process``, ``arguments``: as for ``pipeline_dag``.
    """
    defaults = {**pipeline.airflow.retries(pipeline.retries, pipeline.retry_delay), **arguments.pop("default_args", {})}
    tags = ["tidemark", *(["broken"] if problem else []), *arguments.pop("tags", ())]
    wrong = f"Its file is wrong; `plan` fails until it is corrected:\n```\n{problem}\n```\n\n" if problem else ""
    of_file: dict[str, Any] = {
        "description": pipeline.description,
        "schedule": pipeline.schedule,
        "start_date": datetime.combine(pipeline.start_date, time_of_day(), UTC),
        "catchup": pipeline.catchup,
        "max_active_runs": pipeline.max_active_runs,
        "deadline": deadline_of(pipeline),
        "doc_md": f"{wrong}Topics {pipeline.source.described}. {pipeline.description}\n\n"
        f"On the command line: `tidemark manifests {pipeline.name}`, `tidemark audit {pipeline.name}`, "
        "and `tidemark show 1` for manifest 1.",
        "params": run_conf.PARAMS,
    }
    of_dag = {**of_file, **arguments}
    # Set when the tasks are there. Else Airflow copies these into each task, checks every copy several times and stores
    # it, which is most of the time that a DAG takes to be parsed. Tasks get those of their DAG in any case.
    params = of_dag.pop("params")
    with DAG(dag_id=pipeline.name, tags=tags, default_args=defaults, **of_dag) as dag:
        _tasks(pipeline, problem, process)
    if params is run_conf.PARAMS:  # right in any case; an assignment would check them for each DAG
        object.__setattr__(dag, "params", ParamsDict(deepcopy(params)))
    else:
        dag.params = params
    return dag


def _tasks(pipeline: Pipeline, problem: TidemarkError | None, process: Mapping[str, Any]) -> None:
    """``plan >> process >> close``, in the DAG or the task group of the caller."""
    asset, hours_asset = asset_of(pipeline), hours_asset_of(pipeline)

    @task
    def plan() -> list[int]:
        return plan_run(pipeline, problem)

    @task(trigger_rule="none_failed", outlets=[asset, hours_asset])
    def close(planned: list[int] | None, *, outlet_events: Any = None) -> None:
        closed = close_run(pipeline, planned)
        if closed.event is not None:
            outlet_events[asset].extra = closed.event
        if closed.hours:
            outlet_events[hours_asset].add_partitions(closed.hours)
        # Airflow emits an event for every outlet that the task still has when it ends.
        has_news = {asset.name: closed.event is not None, hours_asset.name: bool(closed.hours)}
        closing: Any = get_current_context()["ti"].task
        closing.outlets = [outlet for outlet in closing.outlets if has_news[outlet.name]]

    planned: Any = plan()
    process_arguments = {
        "map_index_template": "{{ task.manifest_label() }}",
        # Airflow starts them in the order of runs and of their index: none then waits for a turn in a process.
        "max_active_tis_per_dag": 1 if pipeline.in_order else None,
        **pipeline.airflow.process_arguments(),
        **process,
    }
    processed: Any = ProcessManifestOperator.partial(task_id="process", pipeline=pipeline, **process_arguments).expand(
        manifest_id=planned
    )
    processed.expand_input = PlannedManifests(processed.expand_input.value, pipeline.name)
    processed >> close(planned)


def tick_of(task_context: Any) -> Tick:
    """The tick of a DAG run. Its cut is ``plan_until``, or the end of the interval, or the logical date, or None."""
    run = task_context["dag_run"]
    kind = {"scheduled": RunKind.SCHEDULED, "backfill": RunKind.BACKFILL}.get(str(run.run_type.value), RunKind.MANUAL)
    until = task_context["params"].get("plan_until")
    cut = run_conf.moment(until) if until else run.data_interval_end or run.logical_date
    return Tick.at(cut, kind) if cut else Tick(run.run_id, kind, None)


def interval_start(pipeline: Pipeline, task_context: Any, tick: Tick) -> datetime | None:
    """The start of the interval that ends at the tick's cut; None without a schedule.

    Airflow 3's cron timetable has empty intervals (start = end). Then the start is the last scheduled time before the
    cut.
    """
    begin: datetime | None = task_context["dag_run"].data_interval_start
    if begin and tick.cut_at and begin < tick.cut_at:
        return begin
    if pipeline.schedule is None or tick.cut_at is None:
        return None
    return Schedule(pipeline.schedule).before(tick.cut_at)


def with_interval(tick: Tick, begin: datetime | None) -> Tick:
    """The tick with its interval's start; a run by hand stands for all that was before its time."""
    return tick if tick.kind is RunKind.MANUAL else replace(tick, since=begin)


def stands_for(tick: Tick, begin: datetime | None) -> str:
    """Return which time a run speaks for, in one line of the log: its name in Airflow has only one end of it."""
    if tick.cut_at is None:
        return "this run has no date: it stands for what is there now"
    end = f"{tick.cut_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if tick.kind is RunKind.MANUAL or begin is None:
        return f"this run stands for everything up to {end}"
    return f"this run stands for the interval from {begin.astimezone(UTC):%Y-%m-%d %H:%M:%S} to {end}"


def plan_run(pipeline: Pipeline, problem: TidemarkError | None = None) -> list[int]:
    """Manifest ids to process: those of the run's plan, or those that the trigger form asked for.

    Raises ``problem``, what is wrong with the pipeline's file. An error of a run that says what the next one will meet
    too is kept for whoever looks at the pipeline.
    """
    task_context: Any = get_current_context()
    special = run_conf.is_special(task_context["params"])
    like_the_next = not special and tick_of(task_context).kind is not RunKind.BACKFILL
    if not pipeline.airflow.own_dag:
        with airflow_verdict(), about(pipeline=pipeline.name):
            run_conf.refuse_unknown(task_context["dag_run"].conf or {})
    watching = watched(
        lambda: database_of(task_context), pipeline.name, Task.PLAN,
        like_the_next=like_the_next, next_try=next_try(task_context),
    )  # fmt: skip
    with airflow_verdict(), nullcontext() if task_context["params"].get("dry_run") else watching:
        if problem:
            with about(pipeline=pipeline.name):
                raise problem
        return _planned(pipeline, task_context)


def _planned(pipeline: Pipeline, task_context: Any) -> list[int]:
    with opened(pipeline, task_context) as context:
        if task_context["params"].get("dry_run"):
            for line in would_process(context, pipeline, task_context):
                log.info(line)
            return []
        require_spark(pipeline, context)
        ids, notes = manifests_to_process(context, pipeline, task_context)
        for line in notes:
            log.warning(line)
        manifests = {manifest.id: manifest for manifest in context.database.manifests.find(ids=ids)}
        labels = [label(manifest_id, manifests[manifest_id].ranges) for manifest_id in ids]
        push_labels(task_context, labels, notes, addresses.links(pipeline.name, ids))
        return ids


def require_spark(pipeline: Pipeline, context: Context) -> None:
    """Raise ``ConfigurationError`` when Airflow has no connection for the pipeline's engine: else tasks would tell."""
    environment = Environment.from_variables()
    if engine_of(pipeline, environment) is Engine.CONNECT:
        remote_of(environment, context.lookup)
    else:
        spark_master("spark_default")


def manifests_to_process(context: Context, pipeline: Pipeline, task_context: Any) -> tuple[list[int], list[str]]:
    """(manifest ids, what a person should know of this run)."""
    params, run_id = task_context["params"], task_context["dag_run"].run_id
    if params.get("accept"):
        decision = run_conf.accept(context, params["accept"], run_id=run_id, dry_run=False)
        log.info("\n".join(decision.lines))
        event_log.emit(events.decided(context.pipeline_name, params["accept"]["decision"], decision))
    ids = run_conf.manifests_asked_for(context, params)
    if ids is not None:
        run_conf.release_named(context, params)
        return handed_out(context, task_context, ids), []
    tick = tick_of(task_context)
    begin = interval_start(pipeline, task_context, tick)
    log.info(stands_for(tick, begin))
    run = plan_ranges(context, with_interval(tick, begin))
    if params.get("replay"):
        covering = manifests_between(context, begin, tick.cut_at) if begin and tick.cut_at else run.covered_by
        planned = context.database.manifests.find(ids=run.manifests)
        # No other run processes what this plan has just recorded.
        todo = [manifest.id for manifest in planned if manifest.state is not ManifestState.DONE]
        ids = sorted({*todo, *covering})
        wait_for_others(context, ids, limit=LONGEST_WAIT)
        refuse_at_work(context.database.manifests.find(ids=ids))
        return handed_out(context, task_context, refuse_over_limit(ids)), list(run.notes)
    own = handed_out(context, task_context, refuse_over_limit(run.manifests))
    older = older_unfinished(context, own, held_elsewhere(task_context))
    able = choose_to_take_along(context, older)[: longest_list() - len(own)]
    taken = context.database.manifests.hand_out(able, run_id)
    log.info(planned_text(run))
    event_log.emit(events.planned(context.pipeline_name, run))
    mine, others = context.database.manifests.find(ids=own), context.database.manifests.find(ids=taken)
    return [manifest.id for manifest in sort_by_turn(context, mine, others)], [
        *run.notes,
        *unfinished_lines(context, older, taken),
    ]


def would_process(context: Context, pipeline: Pipeline, task_context: Any) -> list[str]:
    """Return what a dry run says; nothing is stored."""
    params = task_context["params"]
    if params.get("accept"):  # until that is decided, a plan would be refused
        return [*run_conf.accept(context, params["accept"], dry_run=True).lines]
    ids = run_conf.manifests_asked_for(context, params)
    if ids is not None:
        return run_conf.preview(context, ids)
    tick = tick_of(task_context)
    begin = interval_start(pipeline, task_context, tick)
    run = plan_ranges(context, with_interval(tick, begin), dry_run=True)
    slices = [", ".join(f"{part.at.name} [{part.start}, {part.end})" for part in slice_) for slice_ in run.slices]
    lines = [f"would plan {ranges}" for ranges in slices] or ["would plan nothing: there is nothing new"]
    return [
        stands_for(tick, begin),
        *lines,
        *run.notes,
        *unfinished_lines(context, older_unfinished(context, run.manifests)),
    ]


def handed_out(context: Context, task_context: Any, ids: list[int]) -> list[int]:
    """The same ids, after noting that this DAG run processes them, whichever did before."""
    context.database.manifests.hand_out(context.database.manifests.find(ids=ids), task_context["dag_run"].run_id)
    return ids


def held_elsewhere(task_context: Any) -> HeldElsewhere:
    """Return whether another DAG run that has not ended is to process a manifest: it may try it again by itself."""
    own = task_context["dag_run"].run_id

    @cache
    def at_work(run_id: str) -> bool:
        task_instance = task_context["ti"]
        return bool(task_instance.get_dr_count(task_instance.dag_id, run_ids=[run_id], states=["queued", "running"]))

    return lambda manifest: manifest.dag_run not in (None, own) and at_work(manifest.dag_run)


@contextmanager
def form_named(context: Context, held: HeldElsewhere) -> Iterator[None]:
    """Add the trigger form's way to ``NotPublished``; it becomes ``WorkFailed``, which Airflow tries again, while
    another DAG run is to process a manifest."""
    try:
        yield
    except NotPublished as error:
        manifests = context.database.manifests.find(ids=error.manifests)
        if any(held(manifest) for manifest in manifests):
            raise WorkFailed(
                error.what, next_step="wait until the other DAG run that has these manifests ends", **error.context
            ) from None
        if any(manifest.state is not ManifestState.BLOCKED for manifest in manifests):
            form = (
                f'trigger the DAG {context.pipeline_name} with "{run_conf.PARAMS["retry_unfinished"].schema["title"]}"'
            )
            error.next_step = f"{form}, or: {error.next_step}; then clear the task close of this run"
        raise


class Closed(NamedTuple):
    """The end of a run, as it is told: the extra of the asset event (None: no news), and keys of event hours."""

    event: dict[str, Any] | None
    hours: list[str]


def close_run(pipeline: Pipeline, planned: list[int] | None) -> Closed:
    """Fail unless every manifest of the run is published, then close the event hours that are complete.

    ``planned`` is None when Airflow has removed the list, as ``airflow db clean`` does.
    """
    task_context: Any = get_current_context()
    if task_context["params"].get("dry_run"):
        return Closed(None, [])
    held = held_elsewhere(task_context)
    watching = watched(lambda: database_of(task_context), pipeline.name, Task.CLOSE, next_try=next_try(task_context))
    with airflow_verdict(), watching, opened(pipeline, task_context) as context:
        if planned is None:
            planned = manifests_of_run(context.database, pipeline.name, task_context["ti"])
        with form_named(context, held):
            require_published(context, task_context, planned, held)
        event = event_of(context, tick_of(task_context), planned)
        with begun(context.database, pipeline.name, Task.CLOSE):
            closed = Closed(event, close_hours_of_run(context, task_context))
        forget_failed(context)
        return closed


def require_published(context: Context, task_context: Any, planned: list[int], held: HeldElsewhere) -> None:
    """Raise unless every manifest that the run stands for is published; waits for those at work in other runs."""
    if run_conf.require_chosen_done(context, task_context["params"], planned):
        return
    tick = tick_of(task_context)
    run = context.database.runs.find(context.pipeline_name, tick.run_key)
    ids = [*run["manifests"], *run["covered_by"]] if run else []
    wait_for_others(context, ids, [ManifestState.RUNNING])
    require_run_done(context, tick.run_key, processed=planned, held=held)


def close_hours_of_run(context: Context, task_context: Any) -> list[str]:
    """Close the event hours that are complete; returns the keys of those that are to be told now."""
    instance, own = task_context["ti"], task_context["dag_run"].run_id

    def ended_well(run_id: str) -> bool | None:
        def is_in(*states: str) -> bool:
            return bool(instance.get_dr_count(instance.dag_id, run_ids=[run_id], states=list(states)))

        return None if is_in("queued", "running") else is_in("success")

    closed = close_hours(context)
    if closed:
        ranges = ", ".join(f"{start} to {end}" for start, end in ranges_of_hours(closed))
        log.info("event hours complete: %s", ranges)
        event_log.emit(events.hours_complete(context.pipeline_name, closed))
    return hours_to_tell(context, own, ended_well)


def event_of(context: Context, tick: Tick, published: list[int]) -> dict[str, Any] | None:
    """The extra of the asset event about the manifests that a run has published; None when there are none.

    ``cut``, ``reached`` and ``covered_by`` are of the run's plan: null, false and empty when it planned nothing itself.
    """
    if not published:
        return None
    run = context.database.runs.find(context.pipeline_name, tick.run_key)
    manifests = context.database.manifests.find(ids=published)
    counts, hours = published_sums(context, manifests)
    revisions = context.database.publications.revisions(published)
    return {
        "run_key": tick.run_key,
        "cut": tick.cut_at.isoformat() if run and tick.cut_at else None,
        "reached": bool(run and run["reached"]),
        "manifests": sorted(published),
        "published": [
            {"manifest": manifest.id, "attempt": manifest.published_attempt, "revision": revisions[manifest.id]}
            for manifest in manifests
        ],
        "covered_by": list(run["covered_by"]) if run else [],
        "read": counts.read,
        "written": counts.written,
        "dead_lettered": counts.dead_lettered,
        "filtered": counts.filtered,
        "deduplicated": counts.deduplicated,
        "unmet": counts.unmet,
        "hours": ranges_of_hours(datetime.fromisoformat(hour).replace(tzinfo=UTC) for hour in hours),
    }


def planned_text(run: PlannedRun) -> str:
    """Return what a run found, in one line of the log."""
    if not run.manifests:
        return f"run {run.run_key}: {nothing_new(run)}"
    return f"run {run.run_key}: manifests {', '.join(map(str, run.manifests))}{covered(run)}"
