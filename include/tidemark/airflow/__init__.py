"""Tidemark in Airflow: a DAG for each pipeline file. Only this folder and ``dags/`` import Airflow."""
