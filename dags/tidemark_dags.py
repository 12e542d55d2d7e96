"""A DAG for each pipeline file. Airflow parses only files that contain the words ``airflow`` and ``dag``."""

from airflow.sdk import get_parsing_context

from tidemark.airflow.dag import build_dag
from tidemark.environment import Environment
from tidemark.pipeline.deployed import deployed, deployed_named

pipelines = Environment.from_variables().pipelines
dag_id = get_parsing_context().dag_id  # the DAG of the task that will run; None: all DAGs
for each in deployed(pipelines) if dag_id is None else [deployed_named(pipelines, dag_id)]:
    if not each.pipeline.airflow.own_dag:
        globals()[each.pipeline.name] = build_dag(each.pipeline, each.problem)
