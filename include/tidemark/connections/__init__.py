"""Connections of Airflow, by their ids: addresses, secrets and certificates."""
