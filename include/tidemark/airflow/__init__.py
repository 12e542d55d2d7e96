"""Tidemark in Airflow: a DAG for each pipeline file. Only this folder, ``dags/`` and ``plugins/`` import Airflow."""
