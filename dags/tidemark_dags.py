"""A DAG for each pipeline file."""

from tidemark.airflow import dags

globals().update(dags())
