"""The work of the tasks ``plan`` and ``close`` of a run, and the task ``process``, which is mapped between them."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from airflow.sdk import Asset, get_current_context

from tidemark.airflow import addresses, event_log, run_conf
from tidemark.airflow.bundles import flat
from tidemark.airflow.list_limit import longest_list, refuse_over_limit
from tidemark.airflow.log_lines import label_of
from tidemark.airflow.lookup import database_of, opened, spark_master
from tidemark.airflow.other_runs import WaitingOperator, wait_for_others
from tidemark.airflow.planned import PlannedManifests, manifests_of_run
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.airflow.run_notes import push_labels
from tidemark.airflow.verdict import airflow_verdict, next_try
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import NotPublished, TidemarkError, WorkFailed, about
from tidemark.lifecycle import events
from tidemark.lifecycle.close import forget_failed, published_sums, ranges_of_hours, require_run_done
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.covering import manifests_between
from tidemark.lifecycle.failed_tasks import Task, begun, watched
from tidemark.lifecycle.hours import close_hours, hours_to_tell
from tidemark.lifecycle.older import HeldElsewhere, choose_to_take_along, older_unfinished, unfinished_lines
from tidemark.lifecycle.plan import PlannedRun, Tick, covered, nothing_new
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.turns import sort_by_turn
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.pipeline.group import Group, shared_settings
from tidemark.pipeline.schedule import Schedule
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.engines import engine_of
from tidemark.spark.remote import remote_of

KINDS_OF_RUNS = {
    "scheduled": RunKind.SCHEDULED, "asset_triggered": RunKind.SCHEDULED, "backfill": RunKind.BACKFILL,
}  # fmt: skip
log = logging.getLogger(__name__)  # printed lines may appear below "Post Execute", which Airflow's page folds


def asset_of(name: str) -> Asset:
    """Return the asset that other DAGs wait for. It has an event for each run that has published something."""
    return Asset(name=f"tidemark_{name}", uri=f"tidemark://pipeline/{name}")


def hours_asset_of(name: str) -> Asset:
    """Return the asset whose partitions are event hours, such as ``2024-03-01T10:00:00``. It has an event for each
    complete hour.
    """
    return Asset(name=f"tidemark_{name}_hours", uri=f"tidemark://pipeline/{name}/hours")


def process_tasks(pipeline: Pipeline | Group, planned: Any, process: Mapping[str, Any]) -> Any:
    """Return ``process``, mapped over the manifests, or bundles of them, that ``plan`` returns."""
    shared = shared_settings(pipeline)
    process_arguments = {
        "map_index_template": "{{ task.manifest_label() }}",
        # Airflow starts them in the order of runs and of their index, so none waits for its turn inside a process.
        "max_active_tis_per_dag": 1 if shared.in_order else shared.spark.most_drivers(),
        **shared.airflow.process_arguments(),
        **process,
    }
    processed: Any = ProcessManifestOperator.partial(task_id="process", pipeline=pipeline, **process_arguments).expand(
        manifest_id=planned
    )
    processed.expand_input = PlannedManifests(
        processed.expand_input.value, pipeline.name, bundled=shared.airflow.bundle > 1
    )
    return processed


def tick_of(task_context: Any) -> Tick:
    """Return the tick of a DAG run. Its cut is ``plan_until``, or the end of the interval, or the logical date, or
    None, as for a run that an asset has started.
    """
    run = task_context["dag_run"]
    kind = KINDS_OF_RUNS.get(str(run.run_type.value), RunKind.MANUAL)
    until = task_context["params"].get("plan_until")
    cut = run_conf.moment(until) if until else run.data_interval_end or run.logical_date
    return Tick.at(cut, kind) if cut else Tick(run.run_id, kind, None)


def interval_start(pipeline: Pipeline, task_context: Any, tick: Tick) -> datetime | None:
    """Return the start of the interval that ends at the tick's cut; None without a schedule.

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
    """Return the tick with the start of its interval. A manual run has none: it covers everything before its time."""
    return tick if tick.kind is RunKind.MANUAL else replace(tick, since=begin)


def stands_for(tick: Tick, begin: datetime | None) -> str:
    """Return a line for the log with the time that a run covers: its name in Airflow has only one end of it."""
    if tick.cut_at is None:
        return "this run has no date: it stands for what is there now"
    end = f"{tick.cut_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if tick.kind is RunKind.MANUAL or begin is None:
        return f"this run stands for everything up to {end}"
    return f"this run stands for the interval from {begin.astimezone(UTC):%Y-%m-%d %H:%M:%S} to {end}"


def plan_run(pipeline: Pipeline, problem: TidemarkError | None = None) -> list[int]:
    """Return the manifest ids to process: those of the run's plan, or those that the trigger form asks for.

    Raises ``problem``, the error in the pipeline's file. If the next run will meet the same error, it is stored for the
    state of the pipeline.
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
        push_labels_of(context.database, task_context, pipeline.name, [[each] for each in ids], notes)
        run_conf.refuse_differences(context, task_context["params"])
        return ids


def push_labels_of(
    database: ManifestDatabase, task_context: Any, name: str, tasks: list[list[int]], notes: list[str]
) -> None:
    """Give the scheduler the labels of the tasks that process these manifests, and the notes of the run of a pipeline
    or group.
    """
    ids = flat(tasks)
    manifests = {manifest.id: manifest for manifest in database.manifests.find(ids=ids)} if ids else {}
    labels = [label_of([manifests[manifest_id] for manifest_id in own]) for own in tasks]
    push_labels(task_context, labels, notes, addresses.links(name, ids))


def require_spark(pipeline: Pipeline, context: Context) -> None:
    """Raise ``ConfigurationError`` if Airflow has no connection for the pipeline's engine: otherwise each task would
    fail.
    """
    environment = Environment.from_variables()
    if engine_of(pipeline, environment) is Engine.CONNECT:
        remote_of(environment, context.lookup)
    elif not pipeline.spark.submit:
        spark_master("spark_default")


def manifests_to_process(
    context: Context, pipeline: Pipeline, task_context: Any, most: int | None = None
) -> tuple[list[int], list[str]]:
    """Return the manifest ids to process, and notes about this run for the log. ``most`` limits the sum of own
    manifests and those of earlier runs.
    """
    params, run_id = task_context["params"], task_context["dag_run"].run_id
    if params.get("accept"):
        decision = run_conf.accept(context, params["accept"], run_id=run_id, dry_run=False)
        log.info("\n".join(decision.lines))
        event_log.emit(events.decided(context.pipeline_name, params["accept"]["decision"], decision))
    if params.get("audit"):
        return [], run_conf.audit_lines(context, run_conf.Depth(params["audit"]))
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
        ids = sorted({*todo, *covering})  # `process` waits for those that others are at work on
        return handed_out(context, task_context, refuse_over_limit(ids)), list(run.notes)
    own = handed_out(context, task_context, refuse_over_limit(run.manifests))
    older = older_unfinished(context, own, held_elsewhere(task_context))
    able = choose_to_take_along(context, older)[: max(0, (most or longest_list()) - len(own))]
    taken = context.database.manifests.hand_out(able, run_id)
    log.info(planned_text(run))
    event_log.emit(events.planned(context.pipeline_name, run))
    mine, others = context.database.manifests.find(ids=own), context.database.manifests.find(ids=taken)
    return [manifest.id for manifest in sort_by_turn(context, mine, others)], [
        *run.notes,
        *unfinished_lines(context, older, taken),
    ]


def would_process(context: Context, pipeline: Pipeline, task_context: Any) -> list[str]:
    """Return the lines of a dry run; nothing is stored."""
    params = task_context["params"]
    if params.get("accept"):  # a plan would be refused until the decision is made
        return [*run_conf.accept(context, params["accept"], dry_run=True).lines]
    if params.get("audit"):
        return ["would compare what is recorded with what the sinks hold"]
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
    """Return the same ids, after noting that this DAG run now processes them."""
    context.database.manifests.hand_out(context.database.manifests.find(ids=ids), task_context["dag_run"].run_id)
    return ids


def held_elsewhere(task_context: Any) -> HeldElsewhere:
    """Return a function that tells whether another DAG run that has not ended is to process a manifest: it may try it
    again by itself.
    """
    own = task_context["dag_run"].run_id

    @cache
    def at_work(run_id: str) -> bool:
        task_instance = task_context["ti"]
        return bool(task_instance.get_dr_count(task_instance.dag_id, run_ids=[run_id], states=["queued", "running"]))

    return lambda manifest: manifest.dag_run not in (None, own) and at_work(manifest.dag_run)


@contextmanager
def form_named(context: Context, held: HeldElsewhere) -> Iterator[None]:
    """Add the trigger form to the next step of ``NotPublished``. While another DAG run is to process a manifest, raise
    ``WorkFailed`` instead, which Airflow tries again.
    """
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
    """The end of a run for its assets: the extra of the asset event (None: nothing new), and keys of event hours."""

    event: dict[str, Any] | None
    hours: list[str]


class CloseOperator(WaitingOperator):
    """``close``: ends a run, and emits the events of its assets. ``planned`` is the list that ``plan`` returned."""

    template_fields = ("planned",)

    def __init__(self, *, pipeline: Pipeline | Group, planned: Any, **arguments: Any) -> None:
        shared = shared_settings(pipeline)
        outlets = [asset_of(pipeline.name), hours_asset_of(pipeline.name)]
        super().__init__(task_id="close", outlets=outlets, deferrable=shared.airflow.deferrable, **arguments)
        self.pipeline: Any = pipeline  # of the group's operator: the group
        self.planned = planned

    def execute(self, context: Any) -> None:
        asset, hours_asset = self.outlets
        closed = close_run(self.pipeline, self.planned)
        if closed.event is not None:
            context["outlet_events"][asset].extra = closed.event
        if closed.hours:
            context["outlet_events"][hours_asset].add_partitions(closed.hours)
        # Airflow emits an event for every outlet that the task still has when it ends.
        news = ((asset, closed.event is not None), (hours_asset, bool(closed.hours)))
        self.outlets = [outlet for outlet, is_news in news if is_news]


def close_run(pipeline: Pipeline, planned: list[int] | None) -> Closed:
    """Fail unless every manifest of the run is published, then close the event hours that are complete.

    ``planned`` is None when Airflow has removed the list, as ``airflow db clean`` does.
    """
    task_context: Any = get_current_context()
    if task_context["params"].get("dry_run"):
        return Closed(None, [])
    with airflow_verdict(), about(pipeline=pipeline.name), database_of(task_context) as database:
        covered = covered_by_run(database, pipeline.name, task_context["params"], tick_of(task_context))
        wait_for_others(task_context, database, covered, also_replays=False)
    watching = watched(lambda: database_of(task_context), pipeline.name, Task.CLOSE, next_try=next_try(task_context))
    with airflow_verdict(), watching, opened(pipeline, task_context) as context:
        if planned is None:
            planned = manifests_of_run(context.database, pipeline.name, task_context["ti"])
        return close_pipeline(context, task_context, planned, task_context["params"], run_ended_well(task_context))


def covered_by_run(database: ManifestDatabase, pipeline_name: str, params: Mapping[str, Any], tick: Tick) -> list[int]:
    """Return the manifests that must be published when a run closes; none if the trigger form chose other ones."""
    run = None if run_conf.chooses_manifests(params) else database.runs.find(pipeline_name, tick.run_key)
    return [*run["manifests"], *run["covered_by"]] if run else []


def close_pipeline(
    context: Context,
    task_context: Any,
    planned: list[int],
    params: Mapping[str, Any],
    has_told: Callable[[str], bool | None],
) -> Closed:
    """Require the manifests of the run to be published, and close the hours of one pipeline.

    ``params`` is what the form asked of it; ``has_told`` returns whether another run has announced its hours.
    """
    held = held_elsewhere(task_context)
    with form_named(context, held):
        require_published(context, task_context, params, planned, held)
    event = event_of(context, tick_of(task_context), planned)
    with begun(context.database, context.pipeline_name, Task.CLOSE):
        closed = Closed(event, close_hours_of_run(context, task_context, has_told))
    forget_failed(context)
    return closed


def require_published(
    context: Context, task_context: Any, params: Mapping[str, Any], planned: list[int], held: HeldElsewhere
) -> None:
    """Raise unless every manifest that the run covers is published."""
    if not run_conf.require_chosen_done(context, params, planned):
        require_run_done(context, tick_of(task_context).run_key, processed=planned, held=held)


def run_ended_well(task_context: Any) -> Callable[[str], bool | None]:
    """Return a function that tells whether a DAG run has succeeded; None while it has not ended."""
    instance = task_context["ti"]

    def ended_well(run_id: str) -> bool | None:
        def is_in(*states: str) -> bool:
            return bool(instance.get_dr_count(instance.dag_id, run_ids=[run_id], states=list(states)))

        return None if is_in("queued", "running") else is_in("success")

    return ended_well


def close_hours_of_run(context: Context, task_context: Any, has_told: Callable[[str], bool | None]) -> list[str]:
    """Close the complete event hours. Return the keys of the hours to announce now."""
    own = task_context["dag_run"].run_id
    closed = close_hours(context)
    if closed:
        ranges = ", ".join(f"{start} to {end}" for start, end in ranges_of_hours(closed))
        log.info("event hours complete: %s", ranges)
        event_log.emit(events.hours_complete(context.pipeline_name, closed))
    return hours_to_tell(context, own, has_told)


def event_of(context: Context, tick: Tick, published: list[int]) -> dict[str, Any] | None:
    """Return the extra of the asset event about the manifests that a run has published; None if there are none.

    ``cut``, ``reached`` and ``covered_by`` are those of the run's plan; null, false and empty if it planned nothing
    itself.
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
    """Return a line for the log with what a run found."""
    if not run.manifests:
        return f"run {run.run_key}: {nothing_new(run)}"
    return f"run {run.run_key}: manifests {', '.join(map(str, run.manifests))}{covered(run)}"
