"""The story of a run: ``plan >> process (one mapped task per manifest) >> close``.

``plan`` cuts the chains and records manifests, ``process`` has Spark stage each and publishes it, ``close`` asks the
database whether all of the run is published. A retry, a clear, a backfill run the same three.
"""

import time
from datetime import UTC, datetime
from datetime import time as time_of_day
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task
from croniter import croniter  # type: ignore[import-untyped]

from tidemark.airflow.lookup import opened, spark_master
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.airflow.verdict import airflow_verdict
from tidemark.config.values import cron
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.lifecycle.close import close as close_planned
from tidemark.lifecycle.close import require_done
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, manifests_between
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.select import own_manifest, refuse_at_work, unfinished
from tidemark.manifest import ManifestState, RunKind
from tidemark.pipeline.settings import Pipeline

OTHERS_POLL = 3.0  # seconds; a manifest takes from 15 s to minutes
LONGEST_WAIT = 1800.0  # seconds that a replay waits for an attempt that is alive, before a person must look at it
PARAMS = {
    "plan_until": Param(
        None, type=["null", "string"], format="date-time", title="Plan until",
        description="Read up to this moment (UTC without a zone) instead of the run's own date.",
    ),
    "replay": Param(
        [], type=["array", "boolean"], items={"type": "integer"}, title="Replay these manifests",
        description="Their ids, such as [12, 13]. They are processed once more, and their new output replaces the "
        "published one. true in a backfill's conf: those that cover its interval.",
    ),
    "retry_unfinished": Param(
        False, type="boolean", title="Retry what is unfinished",
        description="Plan nothing new; finish what is planned, failed or abandoned.",
    ),
}  # fmt: skip


def asset_of(pipeline: Pipeline) -> Asset:
    """What the pipeline makes, for DAGs that wait for it."""
    return Asset(name=f"tidemark_{pipeline.name}", uri=f"tidemark://pipeline/{pipeline.name}")


def build_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline file; needs no I/O, so parsing stays quick."""
    asset = asset_of(pipeline)
    with DAG(
        dag_id=pipeline.name,
        description=pipeline.description,
        schedule=pipeline.schedule,
        start_date=datetime.combine(pipeline.start_date, time_of_day(), UTC),
        catchup=pipeline.catchup,
        max_active_runs=pipeline.max_active_runs,
        params=PARAMS,
        tags=["tidemark"],
        default_args={"retries": pipeline.retries, "retry_delay": pipeline.retry_delay},
        doc_md=f"Topics {', '.join(pipeline.source.topics)}. {pipeline.description}\n\n"
        f"On the command line: `tidemark manifests {pipeline.name}`, `tidemark audit {pipeline.name}`, "
        "and `tidemark show 1` for manifest 1.",
    ) as dag:

        @task
        def plan() -> list[int]:
            return plan_run(pipeline)

        @task(trigger_rule="none_failed", outlets=[asset])
        def close(planned: list[int], *, outlet_events: Any = None) -> None:
            event = close_run(pipeline, planned)
            outlet_events[asset].extra = event

        planned: Any = plan()
        process = ProcessManifestOperator.partial(
            task_id="process", pipeline=pipeline, map_index_template="manifest {{ task.manifest_id }}"
        ).expand(manifest_id=planned)
        process >> close(planned)
    return dag


def tick_of(task_context: Any) -> Tick:
    """The tick of a DAG run: its cut is the form's, else the interval's end, else the logical date, else none."""
    run = task_context["dag_run"]
    kind = {"scheduled": RunKind.SCHEDULED, "backfill": RunKind.BACKFILL}.get(str(run.run_type.value), RunKind.MANUAL)
    until = task_context["params"].get("plan_until")
    cut = moment(until) if until else run.data_interval_end or run.logical_date
    return Tick.at(cut, kind) if cut else Tick(run.run_id, kind, None)


def moment(text: str) -> datetime:
    """A time of the form or a run's configuration, without a zone in UTC; Airflow lets any text through."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"plan_until is {text!r}, which is no time",
            next_step="write it as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00",
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def interval_start(pipeline: Pipeline, task_context: Any, tick: Tick) -> datetime | None:
    """Where the interval that ends at the tick's cut begins; None without a schedule.

    Airflow 3's cron timetable has no interval: its start is its end. Then it is the schedule's moment before the cut.
    """
    begin: datetime | None = task_context["dag_run"].data_interval_start
    if begin and tick.cut_at and begin < tick.cut_at:
        return begin
    if pipeline.schedule is None or tick.cut_at is None:
        return None
    before: datetime = croniter(cron(pipeline.schedule), tick.cut_at).get_prev(datetime)
    return before


def plan_run(pipeline: Pipeline) -> list[int]:
    """Manifest ids to process: the run's plan, or what the trigger form asked for instead."""
    task_context: Any = get_current_context()
    params = task_context["params"]
    with airflow_verdict(), opened(pipeline, task_context) as context:
        spark_master("spark_default")
        if isinstance(params.get("replay"), list) and params["replay"]:
            named = [own_manifest(context, one) for one in params["replay"]]
            refuse_at_work(named)
            return [one.id for one in named]
        if params.get("retry_unfinished"):
            return [one.id for one in unfinished(context)]
        tick = tick_of(task_context)
        run = plan_ranges(context, tick)
        if params.get("replay"):
            begin = interval_start(pipeline, task_context, tick)
            found = manifests_between(context, begin, tick.cut_at) if begin and tick.cut_at else run.covered_by
            planned = context.database.manifests(ids=run.manifests)
            todo = [one.id for one in planned if one.state is not ManifestState.DONE]  # nobody else will do that
            ids = sorted({*todo, *found})
            wait_for_others(context, ids, limit=LONGEST_WAIT)
            refuse_at_work(context.database.manifests(ids=ids))
            return ids
        for note in run.notes:
            print(note)
        print(f"run {run.run_key}: manifests {list(run.manifests)}, covered by {list(run.covered_by)}")
        return list(run.manifests)


def close_run(pipeline: Pipeline, planned: list[int]) -> dict[str, Any]:
    """Fail unless everything the run stands for is published; returns what the asset event carries."""
    task_context: Any = get_current_context()
    params = task_context["params"]
    with airflow_verdict(), opened(pipeline, task_context) as context:
        if params.get("replay") or params.get("retry_unfinished"):
            return {"manifests": [one.id for one in require_done(context, planned)]}
        tick = tick_of(task_context)
        run = context.database.find_run(pipeline.name, tick.run_key)
        ids = [*run["manifests"], *run["covered_by"]] if run else []
        wait_for_others(context, ids, [ManifestState.RUNNING])
        closing = close_planned(context, tick.run_key)
        cut = tick.cut_at
        return {
            "run_key": closing.run_key,
            "cut": cut.isoformat() if cut else None,
            "reached": closing.reached,
            "manifests": list(closing.manifests),
            "covered_by": list(closing.covered_by),
            "read": closing.counts.read,
            "written": closing.counts.written,
            "dead_lettered": closing.counts.dead_lettered,
            "hours": sorted(closing.hours),
        }


def wait_for_others(
    context: Context, ids: list[int], states: list[ManifestState] | None = None, limit: float | None = None
) -> None:
    """Another run may be at work on manifests of this one: wait as long as it is alive, or ``limit`` seconds, instead
    of a false alarm, and before a replay that would fence it."""
    said, end = "", time.monotonic() + limit if limit else None
    while busy := [one for one in context.database.manifests(states=states, ids=ids) if one.alive]:
        waiting = f"waiting for manifests {[one.id for one in busy]}: another task is at work on them"
        if waiting != said:
            print(waiting)
            said = waiting
        if end and time.monotonic() > end:
            return
        time.sleep(OTHERS_POLL)


def broken_dag(name: str, error: TidemarkError) -> DAG:
    """A DAG in the place of a pipeline file that cannot be read: it says why, and fails when run."""
    with DAG(dag_id=name, schedule=None, tags=["tidemark", "broken"], doc_md=f"```\n{error}\n```") as dag:

        @task(task_id="read_pipeline_file", retries=0)
        def read_pipeline_file() -> None:
            with airflow_verdict():
                raise error

        read_pipeline_file()
    return dag
