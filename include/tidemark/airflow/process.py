"""``process``: one manifest from attempt to publication, as one Airflow task."""

import os
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import psutil  # Airflow itself requires it
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.airflow.lookup import in_environment, opened, spark_master
from tidemark.airflow.verdict import airflow_verdict
from tidemark.errors import TidemarkError
from tidemark.lifecycle.attempt import process as process_manifest
from tidemark.lifecycle.publish import Outcome
from tidemark.order import Order
from tidemark.pipeline.settings import Pipeline
from tidemark.receipt import Receipt
from tidemark.settings import Settings
from tidemark.spark.session import check_master, spark_configuration
from tidemark.spark.shipped import is_local, package_zip
from tidemark.spark.submitted import read_receipt, remove_order, write_order

# Spark says 450 lines of INFO for one manifest, in which nobody finds the one that matters.
QUIET = {"spark.log.level": "WARN"}
APPLICATION = Path(str(files("tidemark.spark"))) / "application.py"


class ProcessManifestOperator(SparkSubmitOperator):
    """Starts an attempt, submits its order to the Spark connection, publishes what the receipt says.

    ``durable`` is off: the provider may else call a cleared task successful without running it. A done manifest is
    left alone, unless a person cleared the task (Airflow then raises ``max_tries``) or the trigger form asks.
    """

    template_fields = ("manifest_id", *SparkSubmitOperator.template_fields)

    def __init__(self, *, pipeline: Pipeline, manifest_id: int, conn_id: str = "spark_default", **kwargs: Any) -> None:
        ours = spark_configuration(Settings.from_environment().spark_jars)
        settings = {**ours, **QUIET, **pipeline.spark.conf}
        super().__init__(application=str(APPLICATION), conn_id=conn_id, conf=settings, durable=False, **kwargs)
        self.pipeline = pipeline
        self.manifest_id = manifest_id

    def execute(self, context: Any) -> None:
        with airflow_verdict(), opened(self.pipeline, context) as own:
            self._send_to(spark_master(self._conn_id))
            outcome = process_manifest(
                own,
                int(self.manifest_id),
                lambda order: self._stage(order, context),
                replay=self._asked_to_replay(context),
            )
            self.log.info(describe(self.pipeline.name, outcome))

    def _send_to(self, master: str) -> None:
        """The driver runs on Airflow's own Python, whatever the executors have; on a cluster it serves our package."""
        check_master(master)
        self.conf = {"spark.pyspark.driver.python": sys.executable, **(self.conf or {})}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not is_local(master):
            self.py_files = str(package_zip(Settings.from_environment().home))

    def _asked_to_replay(self, context: Any) -> bool:
        cleared = context["ti"].max_tries > self.retries
        return cleared or bool(context["params"].get("replay"))

    def _stage(self, order: Order, context: Any) -> Receipt:
        settings = Settings.from_environment()
        file = write_order(order, settings.home, self._shared_folder(order))
        self.application_args = [str(file)]
        self.name = f"tidemark {order.pipeline} manifest {order.manifest_id} attempt {order.attempt}"
        try:
            self._submit(file, order, context)
            return read_receipt(file, order)
        finally:
            remove_order(file)

    def _shared_folder(self, order: Order) -> str | None:
        """A folder of a sink that the attempt works for: what finds its staging finds the order, too."""
        names = {sink.name for sink in order.sinks}
        folders = (sink.folders() for sink in self.pipeline.sinks if sink.name in names)
        return next((folder for each in folders for folder in sorted(each)), None)

    def _submit(self, file: Path, order: Order, context: Any) -> None:
        try:
            with in_environment(self.pipeline):
                super().execute(context)
        except AirflowException as failed:
            self._raise_reason(file, order)
            raise failed
        except BaseException:  # a time limit, or a log that nobody reads any more: Spark is still at work
            end(started())
            raise

    def on_kill(self) -> None:
        """SIGTERM came: end Spark. Airflow's own way kills the JVM of spark-submit and leaves its Python behind."""
        left = started()  # before the JVM dies: its Python then belongs to nobody
        if self._hook is not None:
            super().on_kill()
        end(left)

    def _raise_reason(self, file: Path, order: Order) -> None:
        """Raise what the job says of its failure, alone: Airflow's exception would bury it below Spark's last lines."""
        try:
            read_receipt(file, order)
        except TidemarkError as reason:
            raise reason from None


def started() -> list[psutil.Process]:
    """Every process below this one: spark-submit and what it has started."""
    return list(psutil.Process().children(recursive=True))


def end(processes: list[psutil.Process]) -> None:
    """SIGKILL to each that is still there; what the attempt staged stays below its own folder."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def describe(pipeline: str, outcome: Outcome) -> str:
    """One line for the log."""
    counts = outcome.counts
    return (
        f"{pipeline} manifest {outcome.manifest_id} attempt {outcome.attempt}: {outcome.ending}, read {counts.read:,}, "
        f"written {counts.written:,}, dead-lettered {counts.dead_lettered:,}; more: tidemark show {outcome.manifest_id}"
    )
