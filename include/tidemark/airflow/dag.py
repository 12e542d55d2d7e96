"""The steps of a run: ``plan >> process (one mapped task per manifest) >> close``.

``plan`` cuts the chains and records manifests. ``process`` lets Spark stage one manifest and publishes it. ``close``
checks in the database that every manifest of the run is published. Retries, clears and backfills run the same tasks.
"""

from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from datetime import time as time_of_day
from types import MappingProxyType
from typing import Any

from airflow.sdk import DAG, TaskGroup, get_parsing_context, task
from airflow.sdk.definitions.param import ParamsDict

from tidemark.airflow import run_conf
from tidemark.airflow.deadline import deadline_of
from tidemark.airflow.group_dag import group_tasks
from tidemark.airflow.runs import CloseOperator, plan_run, process_tasks
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.pipeline.deployed import Deployed, deployed, deployed_named
from tidemark.pipeline.group import Group, shared_settings
from tidemark.pipeline.settings import Pipeline

NOTHING: Mapping[str, Any] = MappingProxyType({})


def dags() -> dict[str, DAG]:
    """Return the DAG of each pipeline file, by its id, for a DAG file that says ``globals().update(dags())``.

    A task gets only its own DAG, so that other files cost it nothing. Pipelines whose file says
    ``airflow: {own_dag: true}`` are left out.
    """
    pipelines = Environment.from_variables().pipelines
    of_task = get_parsing_context().dag_id  # None if all DAGs are needed
    every = deployed(pipelines) if of_task is None else [deployed_named(pipelines, of_task)]
    return {
        each.pipeline.name: build_dag(each.pipeline, each.problem)
        for each in every
        if not shared_settings(each.pipeline).airflow.own_dag
    }


def pipeline_dag(name: str, *, process: Mapping[str, Any] = NOTHING, **arguments: Any) -> DAG:
    """Return the DAG of the pipeline with this name, for a DAG file of your own. The file says
    ``airflow: {own_dag: true}``.

    ``arguments`` are those of Airflow's DAG, such as ``dagrun_timeout``, ``deadline`` or ``on_failure_callback``, and
    replace the file's; ``default_args`` and ``tags`` are added to Tidemark's. ``process`` has arguments of the operator
    that processes a manifest, such as ``execution_timeout`` or ``executor_config``.

    Raises ``NotFound``, and ``ConfigurationError`` for a pipeline whose DAG Tidemark makes itself.
    """
    own = _own_dag_pipeline(name)
    if "dag_id" in arguments:
        raise ConfigurationError(
            "the DAG of a pipeline has the pipeline's name", next_step="leave dag_id out", pipeline=name
        )
    return build_dag(own.pipeline, own.problem, process=process, **arguments)


def pipeline_tasks(name: str, *, group_id: str | None = None, process: Mapping[str, Any] = NOTHING) -> TaskGroup:
    """Return the tasks of a pipeline as a task group in a DAG of your own; call it within the DAG's ``with`` block.

    The runs of the DAG are the runs of the pipeline: their dates decide what is read. ``group_id`` is by default the
    pipeline's name. ``process`` and errors are as for ``pipeline_dag``.
    """
    own = _own_dag_pipeline(name)
    pipeline = shared_settings(own.pipeline)
    defaults = pipeline.airflow.retries(pipeline.retries, pipeline.retry_delay)
    with TaskGroup(group_id or name, default_args=defaults) as group:  # type: ignore[arg-type]
        _tasks(own.pipeline, own.problem, process)
    return group


def _own_dag_pipeline(name: str) -> Deployed:
    """Return the pipeline or group of that name. Raises ``NotFound``, and ``ConfigurationError`` if Tidemark makes its
    DAG.
    """
    own = deployed_named(Environment.from_variables().pipelines, name)
    if not shared_settings(own.pipeline).airflow.own_dag:
        raise ConfigurationError(
            "Tidemark makes the DAG of this pipeline, and Airflow would find two of one name",
            next_step="write airflow: {own_dag: true} into its file",
            pipeline=name,
        )
    return own


def build_dag(
    deployed_as: Pipeline | Group,
    problem: TidemarkError | None = None,
    *,
    process: Mapping[str, Any] = NOTHING,
    **arguments: Any,
) -> DAG:
    """Return the DAG of one pipeline file, of a pipeline or a group. Does no I/O, because Airflow parses DAG files
    often.

    ``problem`` says what is wrong with the file now; ``deployed_as`` is then from its last valid text. ``plan`` fails
    with the problem, and the tasks of planned runs go on. ``process`` and ``arguments`` are as for ``pipeline_dag``.
    """
    pipeline = shared_settings(deployed_as)
    form = run_conf.PARAMS if deployed_as is pipeline else run_conf.PARAMS_OF_GROUP
    defaults = {**pipeline.airflow.retries(pipeline.retries, pipeline.retry_delay), **arguments.pop("default_args", {})}
    tags = ["tidemark", *(["broken"] if problem else []), *arguments.pop("tags", ())]
    wrong = f"Its file is wrong; `plan` fails until it is corrected:\n```\n{problem}\n```\n\n" if problem else ""
    of_file: dict[str, Any] = {
        "description": pipeline.description,
        "schedule": _schedule(pipeline),
        "start_date": datetime.combine(pipeline.start_date, time_of_day(), UTC),
        "catchup": pipeline.catchup,
        "max_active_runs": pipeline.max_active_runs,
        "deadline": deadline_of(pipeline),
        "doc_md": f"{wrong}Topics {pipeline.source.described}. {pipeline.description}\n\n"
        f"On the command line: `tidemark manifests {pipeline.name}`, `tidemark audit {pipeline.name}`, "
        "and `tidemark show 1` for manifest 1.",
        "params": form,
    }
    of_dag = {**of_file, **arguments}
    # Set after the tasks. Otherwise Airflow copies the params into each task, checks every copy several times and
    # stores it: that is most of the time to parse a DAG. Tasks get the params of their DAG in any case.
    params = of_dag.pop("params")
    with DAG(dag_id=pipeline.name, tags=tags, default_args=defaults, **of_dag) as dag:
        _tasks(deployed_as, problem, process)
    if params is form:  # they are valid; an assignment would check them again for each DAG
        object.__setattr__(dag, "params", ParamsDict(deepcopy(params)))
    else:
        dag.params = params
    return dag


def _schedule(pipeline: Pipeline) -> Any:
    """Return Airflow's ``schedule`` of a pipeline. Only a DAG with a trigger needs Airflow's modules of watchers."""
    if pipeline.trigger is None:
        return pipeline.schedule
    from tidemark.airflow.watcher import schedule_of

    return schedule_of(pipeline)


def _tasks(pipeline: Pipeline | Group, problem: TidemarkError | None, process: Mapping[str, Any]) -> None:
    """Create ``plan >> process >> close`` in the DAG or task group that the caller has open; for a group, its own
    tasks.
    """
    if isinstance(pipeline, Group):
        group_tasks(pipeline, problem, process)
        return

    @task
    def plan() -> list[int]:
        return plan_run(pipeline, problem)

    planned: Any = plan()
    processed = process_tasks(pipeline, planned, process)
    processed >> CloseOperator(pipeline=pipeline, planned=planned, trigger_rule="none_failed")
