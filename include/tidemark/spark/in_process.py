"""Spark in this process, as the command line and the Python functions use it; Airflow submits a job instead."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from tidemark.environment import Environment
from tidemark.order import Order
from tidemark.receipt import Receipt


def stage_in(
    environment: Environment, master: str, conf: Mapping[str, str], tell: Callable[[str], object] | None = None
) -> Callable[[Order], Receipt]:
    """Stages in a Spark session of this process, opened with properties of the pipeline when the first order comes.

    ``tell``: gets a line about a job each 30 seconds.
    """

    def stage(order: Order) -> Receipt:
        from tidemark.spark.job import stage as stage_order  # Spark takes 1 s to import and 8 s to start
        from tidemark.spark.progress import told
        from tidemark.spark.session import open_session

        log = environment.home / "_logs" / "spark.log"
        session = open_session(master, environment.spark_jars, log, home=environment.home, conf=conf)
        with told(session, tell) if tell else nullcontext():
            return stage_order(session, order, log)

    return stage
