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
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.attempt import process as process_manifest
from tidemark.lifecycle.publish import Outcome
from tidemark.order import Order
from tidemark.pipeline.settings import Pipeline
from tidemark.receipt import Receipt
from tidemark.spark.session import check_master, spark_configuration
from tidemark.spark.shipped import is_local, package_zip
from tidemark.spark.submitted import read_receipt, remove_order, write_order

# Spark logs 450 lines of INFO for one manifest, and they hide the line that matters.
QUIET = {"spark.log.level": "WARN"}
APPLICATION = Path(str(files("tidemark.spark"))) / "application.py"


class ProcessManifestOperator(SparkSubmitOperator):
    """Starts an attempt, submits its order to the Spark connection and publishes the output that the receipt names.

    ``durable`` is off, because with it the provider may mark a cleared task as successful without running it. A done
    manifest is not processed again, unless a person cleared the task (then Airflow raises ``max_tries``) or the trigger
    form asks for a replay.
    """

    template_fields = ("manifest_id", *SparkSubmitOperator.template_fields)

    def __init__(self, *, pipeline: Pipeline, manifest_id: int, conn_id: str = "spark_default", **kwargs: Any) -> None:
        ours = spark_configuration(Environment.from_variables().spark_jars)
        settings = {**ours, **QUIET, **pipeline.spark.conf}
        super().__init__(application=str(APPLICATION), conn_id=conn_id, conf=settings, durable=False, **kwargs)
        self.pipeline = pipeline
        self.manifest_id = manifest_id

    def execute(self, context: Any) -> None:
        with airflow_verdict(), opened(self.pipeline, context) as pipeline_context:
            self._send_to(spark_master(self._conn_id))
            outcome = process_manifest(
                pipeline_context,
                int(self.manifest_id),
                lambda order: self._stage(order, context),
                replay=self._is_replay(context),
            )
            self.log.info(describe(self.pipeline.name, outcome))

    def _send_to(self, master: str) -> None:
        """The driver runs on Airflow's own Python, executors on theirs. A cluster gets our package from the driver."""
        check_master(master)
        self.conf = {"spark.pyspark.driver.python": sys.executable, **(self.conf or {})}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not is_local(master):
            self.py_files = str(package_zip(Environment.from_variables().home))

    def _is_replay(self, context: Any) -> bool:
        cleared = context["ti"].max_tries > self.retries
        return cleared or bool(context["params"].get("replay"))

    def _stage(self, order: Order, context: Any) -> Receipt:
        environment = Environment.from_variables()
        file = write_order(order, environment.home, self._shared_folder(order))
        self.application_args = [str(file)]
        self.name = f"tidemark {order.pipeline} manifest {order.manifest_id} attempt {order.attempt}"
        try:
            self._submit(file, order, context)
            return read_receipt(file, order)
        finally:
            remove_order(file)

    def _shared_folder(self, order: Order) -> str | None:
        """A folder of one of the order's sinks, or None. There the order is removed with the attempt's staging."""
        names = {sink.name for sink in order.sinks}
        folders = [folder for sink in self.pipeline.sinks if sink.name in names for folder in sorted(sink.folders())]
        return folders[0] if folders else None

    def _submit(self, file: Path, order: Order, context: Any) -> None:
        try:
            with in_environment(self.pipeline):
                super().execute(context)
        except AirflowException as failed:
            self._raise_reason(file, order)
            raise failed
        except BaseException:  # a time limit, or a log that cannot be written any more: Spark still runs
            end(started())
            raise

    def on_kill(self) -> None:
        """Airflow calls this on SIGTERM. Its own ``on_kill`` kills the JVM of spark-submit, but not its Python."""
        processes = started()  # before the JVM dies: afterwards its Python is no child of ours
        if self._hook is not None:
            super().on_kill()
        end(processes)

    def _raise_reason(self, file: Path, order: Order) -> None:
        """Raise the error that the job left, if any, alone: Airflow's exception would hide it below Spark's log."""
        try:
            read_receipt(file, order)
        except TidemarkError as reason:
            raise reason from None


def started() -> list[psutil.Process]:
    """Every process below this one: spark-submit and its children."""
    return list(psutil.Process().children(recursive=True))


def end(processes: list[psutil.Process]) -> None:
    """SIGKILL to each process that still exists; the attempt's staged output stays in its own folder."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def describe(pipeline_name: str, outcome: Outcome) -> str:
    counts = outcome.counts
    return (
        f"{pipeline_name} manifest {outcome.manifest_id} attempt {outcome.attempt}: {outcome.ending}, "
        f"read {counts.read:,}, written {counts.written:,}, dead-lettered {counts.dead_lettered:,}; "
        f"more: tidemark show {outcome.manifest_id}"
    )
