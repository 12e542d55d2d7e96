"""A DAG per pipeline file; nothing else. ``airflow`` and ``dag`` stand here so that Airflow looks into this file."""

from tidemark.airflow.dag import broken_dag, build_dag
from tidemark.pipeline.loader import load_each
from tidemark.pipeline.settings import Pipeline
from tidemark.settings import Settings

for file, found in load_each(Settings.from_environment().pipelines):
    dag = build_dag(found) if isinstance(found, Pipeline) else broken_dag(file.stem, found)
    globals()[dag.dag_id] = dag
