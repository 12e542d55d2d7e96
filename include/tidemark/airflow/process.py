"""``process``: one manifest from attempt to publication, as one Airflow task."""

import os
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import psutil  # Airflow itself requires it
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.airflow import addresses, event_log, log_lines
from tidemark.airflow.lineage import Lineage, facets, lineage_if_asked
from tidemark.airflow.lookup import database_of, opened, put_in_environment, spark_master
from tidemark.airflow.other_runs import LONGEST_WAIT, replayed_since, wait_for_others
from tidemark.airflow.run_conf import sinks_of
from tidemark.airflow.verdict import airflow_verdict, next_try
from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import Fenced, TidemarkError, WorkFailed
from tidemark.lifecycle import events
from tidemark.lifecycle.attempt import Stage
from tidemark.lifecycle.attempt import process as process_manifest
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.failed_tasks import watched_process
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group, shared_settings
from tidemark.pipeline.loader import member_of_file
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.engines import OnServer, engine_of
from tidemark.spark.session import check_master, driver_configuration, spark_configuration
from tidemark.spark.shipped import is_local, package_zip
from tidemark.spark.submitted import read_receipt, remove_order, write_order

# Spark logs 450 lines of INFO for one manifest, and they hide the line that matters.
QUIET = {"spark.log.level": "WARN"}
INTERRUPT_S = 3.0  # Airflow kills this process some seconds after SIGTERM
APPLICATION = Path(str(files("tidemark.spark"))) / "application.py"


class ProcessManifestOperator(SparkSubmitOperator):
    """Starts an attempt, submits its order to the Spark connection and publishes the output that the receipt names.

    ``durable`` is off, because with it the provider may mark a cleared task as successful without running it. A done
    manifest is not processed again, unless a person cleared the task (then Airflow raises ``max_tries``) or the trigger
    form asks for a replay.
    """

    template_fields = ("manifest_id", *SparkSubmitOperator.template_fields)

    def __init__(
        self, *, pipeline: Pipeline | Group, manifest_id: int, conn_id: str = "spark_default", **kwargs: Any
    ) -> None:
        ours = spark_configuration(Environment.from_variables().spark_jars)
        settings = {**ours, **QUIET, **shared_settings(pipeline).spark.conf}
        super().__init__(application=str(APPLICATION), conn_id=conn_id, conf=settings, durable=False, **kwargs)
        self.deployed_as = pipeline
        self.pipeline = shared_settings(pipeline)
        self.manifest_id = manifest_id
        self.ended_by_airflow = False
        self.lineage: Lineage | None = None
        self._label: str | None = None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Airflow's provider for OpenLineage calls this by its name when the task has ended, in the task's process."""
        del task_instance
        return None if self.lineage is None else facets(self.lineage)

    def execute(self, context: Any) -> None:
        with airflow_verdict():
            self.pipeline = self._own_pipeline(context)
        watching = watched_process(
            lambda: database_of(context), self.pipeline.name, int(self.manifest_id), next_try=next_try(context)
        )
        with airflow_verdict(), watching, opened(self.pipeline, context) as whole_context:
            pipeline_context = sinks_of(whole_context, context["params"])
            if self._was_replayed_by_another(context, pipeline_context):
                return
            try:
                outcome = process_manifest(
                    pipeline_context,
                    int(self.manifest_id),
                    self._stage_of(context, pipeline_context),
                    replay=self._is_replay(context),
                )
            except Fenced as fenced:
                if self._was_replayed_by_another(context, pipeline_context):
                    return
                fenced.next_step = (
                    f"the newer attempt does the work. When tidemark show {self.manifest_id} says that it is "
                    "published, mark this task as success and clear the task close of this run"
                )
                raise
            self.lineage = lineage_if_asked(pipeline_context, outcome)
            self._write_log(log_lines.ends(pipeline_context, outcome, self._page()))
            event_log.emit(events.attempt_ends(pipeline_context.pipeline_name, outcome))

    def _own_pipeline(self, context: Any) -> Pipeline:
        """Return the member of a group that the manifest belongs to."""
        if not isinstance(self.deployed_as, Group):
            return self.deployed_as
        with database_of(context) as database:
            name = database.manifests.get(int(self.manifest_id)).pipeline_name
        return member_of_file(self.deployed_as, split_name(name)[1] or name)

    def manifest_label(self) -> str:
        """Manifest and ranges, for the square of the task; Airflow renders it when the task starts, and at its end."""
        if self._label is None:
            manifest_id = int(self.manifest_id)
            with ManifestDatabase(Environment.from_variables().database(), "airflow label") as database:
                self._label = log_lines.label(manifest_id, database.manifests.get(manifest_id).ranges)
        return self._label

    def _page(self) -> str | None:
        return addresses.page_address(self.pipeline.name, int(self.manifest_id))

    def _write_log(self, lines: list[str]) -> None:
        for line in lines:
            self.log.info(line)

    def _send_to(self, master: str) -> None:
        """The driver runs on Airflow's own Python, executors on theirs. A cluster gets our package from the driver."""
        check_master(master)
        self.conf = {"spark.pyspark.driver.python": sys.executable, **(self.conf or {})}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not is_local(master):
            self.py_files = str(package_zip(Environment.from_variables().home))

    def _is_replay(self, context: Any) -> bool:
        cleared = context["ti"].max_tries > self.retries
        return cleared or bool(context["params"].get("replay") or context["params"].get("fill"))

    def _was_replayed_by_another(self, context: Any, pipeline_context: Context) -> bool:
        """Runs of a backfill that replays may share a manifest: each waits for the others, and one of them does it.

        A run that was cleared begins anew, so what was done before that does not count.
        """
        if not context["params"].get("replay"):
            return False
        manifest_id = int(self.manifest_id)
        wait_for_others(pipeline_context, [manifest_id], limit=LONGEST_WAIT)
        attempt = replayed_since(pipeline_context, manifest_id, context["dag_run"].start_date)
        if attempt is not None:
            self.log.info("nothing to do: %s has done manifest %s again since this run began", attempt, manifest_id)
        return attempt is not None

    def _stage_of(self, context: Any, pipeline_context: Context) -> Stage:
        """Stages by an application that is submitted, or on a Spark Connect server."""
        environment = Environment.from_variables()
        if engine_of(self.pipeline, environment) is Engine.SUBMIT:
            self._send_to(spark_master(self._conn_id))
            return lambda order: self._submitted(order, context, pipeline_context)
        stage = OnServer(pipeline_context, environment, self.log.info)
        return lambda order: self._stage_on_server(order, stage, pipeline_context)

    def _begins(self, order: Order, pipeline_context: Context) -> None:
        names = {sink.name for sink in order.sinks}
        targets = [sink.target for sink in pipeline_context.sinks if sink.name in names]
        self._write_log(log_lines.begins(order, targets, self._page()))
        event_log.emit(events.attempt_begins(order))

    def _stage_on_server(self, order: Order, stage: Stage, pipeline_context: Context) -> Receipt:
        self._begins(order, pipeline_context)
        try:
            with put_in_environment(self.pipeline, pipeline_context.lookup):
                return stage(order)
        except TidemarkError:
            self._raise_if_ended_by_airflow(order)
            raise

    def _submitted(self, order: Order, context: Any, pipeline_context: Context) -> Receipt:
        self._begins(order, pipeline_context)
        environment = Environment.from_variables()
        orders = environment.home / "_orders" / pipeline_context.database.id()
        file = write_order(order, orders, self._own_folder(order))
        self.application_args = [str(file)]
        self.name = f"tidemark {order.pipeline_name} manifest {order.manifest_id} attempt {order.attempt}"
        try:
            self._submit(file, order, context, pipeline_context.lookup)
            return read_receipt(file, order)
        finally:
            remove_order(file)

    def _own_folder(self, order: Order) -> str | None:
        """The folder of one of the order's sinks, or None. There the order is removed with the attempt's staging."""
        names = {sink.name for sink in order.sinks}
        folders = [sink.own_folder(self.pipeline.name) for sink in self.pipeline.sinks if sink.name in names]
        return next((folder for folder in folders if folder and folder.startswith("/")), None)

    def _submit(self, file: Path, order: Order, context: Any, lookup: Lookup) -> None:
        try:
            with TemporaryDirectory(prefix="tidemark-spark-") as folder, put_in_environment(self.pipeline, lookup):
                master, jars = spark_master(self._conn_id), Environment.from_variables().spark_jars
                self.conf = driver_configuration(master, Path(folder), self.conf or {}, order.span, jars)
                super().execute(context)
        except AirflowException as failed:
            self._raise_reason(file, order)
            raise failed  # spark-submit did not start, or failed after the job's end
        except BaseException:  # a time limit, or a log that cannot be written any more: Spark still runs
            end(started())
            raise

    def on_kill(self) -> None:
        """Airflow calls this on SIGTERM. Its own ``on_kill`` kills the JVM of spark-submit, but not its Python."""
        self.ended_by_airflow = True
        end_jobs_on_servers()
        processes = started()  # before the JVM dies: afterwards its Python is no child of ours
        if self._hook is not None:
            super().on_kill()
        end(processes)

    def _raise_reason(self, file: Path, order: Order) -> None:
        """Raise why Spark failed, if it says so, alone: Airflow's exception would hide it below Spark's log."""
        self._raise_if_ended_by_airflow(order)
        submitted = self._hook and self._hook._submit_sp
        if submitted:
            try:
                read_receipt(file, order, submitted.returncode)
            except TidemarkError as reason:
                raise reason from None

    def _raise_if_ended_by_airflow(self, order: Order) -> None:
        if self.ended_by_airflow:
            raise WorkFailed(
                "Airflow ended this task, and Spark with it: somebody marked or cleared it, or its worker was stopped",
                next_step="nothing is published; clear the task to do the manifest, or: "
                f"tidemark retry {order.pipeline_name} --manifest {order.manifest_id}",
                pipeline=order.pipeline_name,
                manifest=order.manifest_id,
                attempt=order.attempt,
            ) from None


def started() -> list[psutil.Process]:
    """Every process below this one: spark-submit and its children."""
    return list(psutil.Process().children(recursive=True))


def end_jobs_on_servers() -> None:
    """End the jobs that this process has on Spark Connect servers; none of the modules is imported for that."""
    connected = sys.modules.get("tidemark.spark.connected")
    if connected is not None:
        ending = Thread(target=connected.end_jobs)  # the process's own thread waits for the server's answer
        ending.start()
        ending.join(INTERRUPT_S)


def end(processes: list[psutil.Process]) -> None:
    """SIGKILL to each process that still exists; the attempt's staged output stays in its own folder."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
