"""Slots of a real Airflow: how many there are, and a DAG of others that needs one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.services.airflow import Airflow

OTHER = """
from airflow.sdk import dag, task

@dag(schedule=None)
def other():
    @task
    def work(): pass
    work()

other()
"""


@contextmanager
def parallelism(airflow: Airflow, slots: int) -> Iterator[None]:
    """So many slots for tasks; none may be running before and after."""
    before = airflow.env["AIRFLOW__CORE__PARALLELISM"]
    airflow.env["AIRFLOW__CORE__PARALLELISM"] = str(slots)
    airflow.restart_scheduler()
    try:
        yield
    finally:
        airflow.env["AIRFLOW__CORE__PARALLELISM"] = before
        airflow.restart_scheduler()
        airflow.wait_healthy()


@contextmanager
def other_dag(airflow: Airflow) -> Iterator[str]:
    """A DAG that is not Tidemark's."""
    file: Path = airflow.dags / "other.py"
    file.write_text(OTHER)
    try:
        airflow.parse()
        airflow.wait_dag("other")
        airflow.unpause("other")
        yield "other"
    finally:
        file.unlink()
        airflow.delete_dag("other")
