"""Spark in this process, as the command line and the Python functions use it; Airflow submits a job instead."""

from collections.abc import Callable, Mapping

from tidemark.order import Order
from tidemark.receipt import Receipt
from tidemark.settings import Settings


def stage_in(settings: Settings, master: str, conf: Mapping[str, str]) -> Callable[[Order], Receipt]:
    """Stages in a Spark session of this process, opened with properties of the pipeline when the first order comes."""

    def stage(order: Order) -> Receipt:
        from tidemark.spark.job import stage as stage_order  # Spark takes 1 s to import and 8 s to start
        from tidemark.spark.session import open_session

        log = settings.home / "_logs" / "spark.log"
        session = open_session(master, settings.spark_jars, log, home=settings.home, conf=conf)
        return stage_order(session, order)

    return stage
