"""A DAG per pipeline file; nothing else. ``airflow`` and ``dag`` stand here so that Airflow looks into this file."""

from airflow.sdk import get_parsing_context

from tidemark.airflow.dag import broken_dag, build_dag
from tidemark.pipeline.loader import load_each, load_named
from tidemark.pipeline.settings import Pipeline
from tidemark.settings import Settings

pipelines = Settings.from_environment().pipelines
wanted = get_parsing_context().dag_id  # that of the task which is to run; None where all DAGs are wanted
for file, found in load_each(pipelines) if wanted is None else load_named(pipelines, wanted):
    dag = build_dag(found) if isinstance(found, Pipeline) else broken_dag(file.stem, found)
    globals()[dag.dag_id] = dag
