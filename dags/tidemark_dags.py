"""A DAG for each pipeline file. Airflow parses only files that contain the words ``airflow`` and ``dag``."""

from airflow.sdk import get_parsing_context

from tidemark.airflow.dag import broken_dag, build_dag
from tidemark.environment import Environment
from tidemark.pipeline.loader import load_each, load_named
from tidemark.pipeline.settings import Pipeline

pipelines = Environment.from_variables().pipelines
dag_id = get_parsing_context().dag_id  # the DAG of the task that will run; None: all DAGs
for file, result in load_each(pipelines) if dag_id is None else load_named(pipelines, dag_id):
    dag = build_dag(result) if isinstance(result, Pipeline) else broken_dag(file.stem, result)
    globals()[dag.dag_id] = dag
