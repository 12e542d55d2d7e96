"""Airflow's face: a DAG per pipeline file. Only this folder, ``dags/`` and ``plugins/`` import Airflow."""
