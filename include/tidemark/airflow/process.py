"""``process``: takes one manifest, or a bundle of them, from attempt to publication, as one Airflow task."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import psutil  # Airflow itself requires it
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, TaskDeferralError, TaskDeferralTimeout, TaskDeferred

from tidemark.airflow import addresses, event_log, log_lines
from tidemark.airflow.bundles import Planned, flat, in_turn, refuse_failed
from tidemark.airflow.lineage import Lineage, facets, lineage_if_asked
from tidemark.airflow.lookup import airflow_lookup, database_of, opened, put_in_environment, spark_master
from tidemark.airflow.other_runs import WaitingOperator, replayed_since, wait_for_others
from tidemark.airflow.run_conf import sinks_of
from tidemark.airflow.verdict import airflow_verdict, ended_by_airflow, may_help, next_try
from tidemark.database.client import ManifestDatabase, without_machine
from tidemark.environment import Environment
from tidemark.errors import Fenced, TidemarkError, Unavailable, WorkFailed, about
from tidemark.lifecycle import events
from tidemark.lifecycle.attempt import Stage, end_deferred
from tidemark.lifecycle.attempt import process as process_manifest
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.deferral import AttemptDeferred, Deferral
from tidemark.lifecycle.failed_tasks import reason_of, watched_process
from tidemark.lifecycle.work import SharedStage
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group, shared_settings
from tidemark.pipeline.loader import member_of_file
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.cluster import (
    APPLICATION,
    DETACHED,
    OnCluster,
    application_for,
    check_cluster,
    cluster_configuration,
    name_of,
    open_orders,
)
from tidemark.spark.engines import InSession, OnServer, engine_of
from tidemark.spark.failures import failure_from, failure_of
from tidemark.spark.masters import check_master, is_local
from tidemark.spark.orders import (
    OrderFolder,
    find_answer,
    folder_of,
    read_receipt,
    remove_orders,
    without_receipt,
    write_order_here,
)
from tidemark.spark.session import driver_configuration, spark_configuration
from tidemark.spark.shipped import package_zip

# Spark logs 450 lines of INFO for one manifest, which would hide the important line.
QUIET = {"spark.log.level": "WARN"}
INTERRUPT_S = 3.0  # Airflow kills this process some seconds after SIGTERM


class ProcessManifestOperator(WaitingOperator, SparkSubmitOperator):
    """Starts an attempt, submits its order to the Spark connection and publishes the output that the receipt names.

    ``durable`` is off, because with it the provider may mark a cleared task as successful without running it. A done
    manifest is not processed again, unless a user cleared the task (Airflow then raises ``max_tries``) or the trigger
    form asks for a replay.

    The manifests of a bundle are done one after the other, in a Spark session of this process, each with an attempt of
    its own. A cleared bundle is replayed if all of it is done; otherwise only its undone manifests are processed.
    """

    template_fields = ("manifest_id", *SparkSubmitOperator.template_fields)

    def __init__(
        self, *, pipeline: Pipeline | Group, manifest_id: Planned, conn_id: str = "spark_default", **kwargs: Any
    ) -> None:
        ours = spark_configuration(Environment.from_variables().spark_jars)
        settings = {**ours, **QUIET, **shared_settings(pipeline).spark.conf}
        super().__init__(application=str(APPLICATION), conn_id=conn_id, conf=settings, durable=False, **kwargs)
        self.deployed_as = pipeline
        self.pipeline = shared_settings(pipeline)
        self.manifest_id = manifest_id
        self.ended_by_airflow = False
        self.lineage: list[Lineage] = []
        self._label: str | None = None
        self._session: InSession | None = None
        self._on_cluster: OnCluster | None = None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage. Airflow's provider for OpenLineage calls this name in the task's process, when the task
        has ended.
        """
        del task_instance
        return facets(self.lineage) if self.lineage else None

    def execute(self, context: Any) -> None:
        with airflow_verdict():
            with about(pipeline=self.pipeline.name), database_of(context) as database:
                manifests = [database.manifests.get(each) for each in flat([self.manifest_id])]
            if isinstance(self.manifest_id, list):
                with self._shared_session():
                    self._process_bundle(context, in_turn(manifests))
            else:
                self._process(context, manifests[0], replay=self._replays(context))

    def take_up(self, context: Any, event: str | None = None, **deferral: Any) -> None:
        """Take up the attempt of ``execute`` when its driver has answered, or when no answer is expected: the ``event``
        says why.
        """
        with airflow_verdict():
            with about(pipeline=self.pipeline.name), database_of(context) as database:
                [manifest] = database.manifests.find(ids=flat([self.manifest_id]))
            deferral["failed"] = {sink: failure_from(error) for sink, error in deferral["failed"].items()}
            deferral |= {"unanswered": event} if event else {}
            self._process(context, manifest, replay=self._replays(context), deferral=Deferral(**deferral))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """End the deferred attempt if Airflow does not let it be taken up: its time is over, or its trigger failed."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralError, TaskDeferralTimeout) as error:
            with suppress(Exception):  # Airflow's own error says what has happened
                self._end_abandoned(context, error)
            raise

    def _end_abandoned(self, context: Any, error: Exception) -> None:
        """End the attempt that this try has deferred, and its driver. Airflow no longer has its address."""
        with database_of(context) as database:
            [manifest] = database.manifests.find(ids=flat([self.manifest_id]))
            own = without_machine(database.actor)
            rows = database.attempts.of_manifest(manifest.id)
            attempt = max((row["attempt"] for row in rows if without_machine(row["actor"]) == own), default=0)
            failed = WorkFailed(
                f"Airflow has ended the wait for the driver: {error}",
                next_step="nothing is published; look into the log of the triggerer, or raise execution_timeout; "
                f"a retry starts a new attempt: tidemark retry {manifest.pipeline_name}",
                manifest=manifest.id,
            )
            with suppress(WorkFailed), self._watched(context, manifest):
                if end_deferred(database, manifest.id, attempt, failed):
                    raise failed
            if self.pipeline.spark.orders:
                orders = open_orders(self.pipeline.spark, airflow_lookup, database.id())
                remove_orders(orders, manifest.id, attempt)

    def _process_bundle(self, context: Any, manifests: Sequence[Manifest]) -> None:
        """Process each manifest. One that fails does not stop the others, unless they would all wait for the same
        system, or Spark has ended: the next try does those that were not begun.
        """
        all_done = all(manifest.state is ManifestState.DONE for manifest in manifests)
        replay = self._is_wished_again(context) or (all_done and self._is_cleared(context))
        errors: dict[int, TidemarkError] = {}
        for manifest in manifests:
            self._raise_if_ended_by_airflow(manifest.pipeline_name, manifest.id)
            if self._session is not None and self._session.has_died:
                what = "it was not begun, since the Spark of this task has ended"
                errors[manifest.id] = WorkFailed(what, next_step="the next try of this task does it")
                break
            try:
                self._process(context, manifest, replay=replay)
            except TidemarkError as error:
                if self.ended_by_airflow:
                    raise
                self.log.error("%s", error)
                errors[manifest.id] = error
                if isinstance(error, Unavailable) and "sink" not in error.context:
                    break
            except Exception as defect:
                self.log.exception("manifest %s of %s", manifest.id, manifest.pipeline_name)
                errors[manifest.id] = WorkFailed(reason_of(defect), next_step=f"tidemark show {manifest.id}")
        refuse_failed(self.pipeline.name, manifests, errors, may_help=any(map(may_help, errors.values())))

    def _process(self, context: Any, manifest: Manifest, *, replay: bool, deferral: Deferral | None = None) -> None:
        if deferral is None and self._was_replayed_by_another(context, manifest):
            return
        try:
            self._attempt(context, manifest, replay, deferral)
        except AttemptDeferred as deferred:
            raise self._task_deferred(manifest, deferred.deferral) from None
        except Fenced as fenced:
            if self._was_replayed_by_another(context, manifest):
                return
            fenced.next_step = (
                f"the newer attempt does the work. When tidemark show {manifest.id} says that it is "
                "published, mark this task as success and clear the task close of this run"
            )
            raise

    def _attempt(self, context: Any, manifest: Manifest, replay: bool, deferral: Deferral | None) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._watched(context, manifest))
            if deferral is not None:
                stack.enter_context(self._to_its_end(context, manifest, deferral))
            pipeline = self._own_pipeline(manifest)
            whole_context = stack.enter_context(opened(pipeline, context))
            pipeline_context = sinks_of(whole_context, context["params"])
            if deferral is None:
                stage = self._stage_of(context, pipeline_context)
            else:
                stage = partial(self._answered, pipeline_context, deferral)
            outcome = process_manifest(pipeline_context, manifest.id, stage, replay=replay, deferral=deferral)
            lineage = lineage_if_asked(pipeline_context, outcome)
            self.lineage += [lineage] if lineage else []
            page = addresses.page_address(pipeline.name, manifest.id)
            self._write_log(log_lines.ends(pipeline_context, outcome, page))
            event_log.emit(events.attempt_ends(pipeline_context.pipeline_name, outcome))

    @staticmethod
    def _watched(context: Any, manifest: Manifest) -> AbstractContextManager[None]:
        return watched_process(
            lambda: database_of(context), manifest.pipeline_name, manifest.id, next_try=next_try(context)
        )

    @contextmanager
    def _to_its_end(self, context: Any, manifest: Manifest, deferral: Deferral) -> Iterator[None]:
        """End a deferred attempt with the block, also if it cannot be taken up, and its driver."""
        try:
            yield
        except BaseException as error:
            with suppress(TidemarkError), database_of(context) as database:
                end_deferred(database, manifest.id, deferral.attempt, error)
            raise
        finally:
            with suppress(Exception):  # the next attempt removes it
                folder_of(deferral.order, deferral.connection, airflow_lookup).remove()

    def _task_deferred(self, manifest: Manifest, deferral: Deferral) -> TaskDeferred:
        from tidemark.airflow.driver_trigger import DriverAnswers  # few tasks need Airflow's core for it

        self.log.info(
            "the driver is submitted; this task waits for it in the triggerer, without a slot. %s", deferral.log
        )
        failed = {sink: failure_of(error) for sink, error in deferral.failed.items()}
        return TaskDeferred(
            trigger=DriverAnswers(
                manifest.pipeline_name, manifest.id, deferral.attempt, deferral.order, deferral.connection
            ),
            method_name="take_up",
            kwargs={**vars(deferral), "failed": failed},
            timeout=self.execution_timeout,
        )

    def _answered(self, pipeline_context: Context, deferral: Deferral, order: Order) -> Receipt:
        """Return the receipt that the driver has left beside its order; raises its error, or that it left none."""
        answer = find_answer(folder_of(deferral.order, deferral.connection, pipeline_context.lookup))
        if answer is None:
            what = f"the driver on the cluster left no receipt; {deferral.unanswered}"
            answer = without_receipt(order, what, deferral.log)
        if isinstance(answer, Receipt):
            return answer
        raise answer

    def _own_pipeline(self, manifest: Manifest) -> Pipeline:
        """Return the pipeline of the manifest; in a group, the member that it belongs to."""
        if not isinstance(self.deployed_as, Group):
            return self.deployed_as
        return member_of_file(self.deployed_as, split_name(manifest.pipeline_name)[1] or manifest.pipeline_name)

    @contextmanager
    def _shared_session(self) -> Iterator[None]:
        """Open the session of a bundle, with the options of the Spark connection and of this operator."""
        environment = Environment.from_variables()
        if engine_of(self.pipeline, environment) is not Engine.SUBMIT:
            yield
            return
        # Tasks of a local Spark have the environment of its JVM's start, so put all members' connections there.
        connections = put_in_environment(self.deployed_as, cache(airflow_lookup))
        with connections, TemporaryDirectory(prefix="tidemark-spark-") as folder:
            self.conf = {}  # the session has its own
            # A private method: the provider has no public one for the options of a connection. A test calls it.
            command = self._get_hook()._build_spark_submit_command("pyspark-shell")
            os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(command[1:])
            master = spark_master(self._conn_id)
            self._session = InSession(self.pipeline, environment, master, None, self.log.info, Path(folder))
            try:
                yield
            finally:
                self._session.close()

    def manifest_label(self) -> str:
        """Return manifest and ranges, for the square of the task. Airflow renders it when the task starts, and at its
        end.
        """
        if self._label is None:
            with ManifestDatabase(Environment.from_variables().database(), "airflow label") as database:
                self._label = log_lines.label_of(database.manifests.find(ids=flat([self.manifest_id])))
        return self._label

    def _write_log(self, lines: list[str]) -> None:
        for line in lines:
            self.log.info(line)

    def _send_to(self, master: str) -> None:
        """Prepare the application for this master. The driver runs on Airflow's own Python, executors on theirs. A
        cluster gets our package from the driver.
        """
        check_master(master)
        self.conf = {"spark.pyspark.driver.python": sys.executable, **(self.conf or {})}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not is_local(master):
            self.py_files = str(package_zip(Environment.from_variables().home))

    @property
    def _detached(self) -> bool:
        """Return whether the task waits for a driver in the triggerer; a bundle waits in its slot."""
        return self.deferrable and not isinstance(self.manifest_id, list)

    def _replays(self, context: Any) -> bool:
        return self._is_cleared(context) or self._is_wished_again(context)

    def _is_cleared(self, context: Any) -> bool:
        return bool(context["ti"].max_tries > self.retries)

    def _is_wished_again(self, context: Any) -> bool:
        return bool(context["params"].get("replay") or context["params"].get("fill"))

    def _was_replayed_by_another(self, context: Any, manifest: Manifest) -> bool:
        """Return whether another run has replayed the manifest. Runs of a backfill may share a manifest: each waits for
        the others, and only one of them replays it. Do not call this while an attempt of this task is alive.

        A cleared run begins anew, so replays before that do not count.
        """
        if not context["params"].get("replay"):
            return False
        with about(pipeline=manifest.pipeline_name), database_of(context) as database:
            wait_for_others(context, database, [manifest.id], also_replays=True)
            attempt = replayed_since(database, manifest.id, context["dag_run"].start_date)
        if attempt is not None:
            self.log.info("nothing to do: %s has done manifest %s again since this run began", attempt, manifest.id)
        return attempt is not None

    def _stage_of(self, context: Any, pipeline_context: Context) -> Stage:
        """Return a stage: in the session of a bundle, by a submitted application, whose driver runs here or on the
        cluster, or on a Spark Connect server.
        """
        environment = Environment.from_variables()
        engine = engine_of(self.pipeline, environment)
        stage: SharedStage
        if self._session is not None:
            stage = self._session
        elif engine is Engine.SUBMIT:
            self._send_to(spark_master(self._conn_id))
            return lambda order: self._submitted(order, context, pipeline_context)
        elif engine is Engine.CLUSTER:
            command = None if self.pipeline.spark.submit else self._to_cluster
            spark = self.pipeline.spark
            orders = open_orders(spark, pipeline_context.lookup, pipeline_context.database.id())
            stage = self._on_cluster = OnCluster(spark, orders, command, self.log.info, detached=self._detached)
        else:
            stage = OnServer(pipeline_context, environment, self.log.info)
        return lambda order: self._staged(order, stage, pipeline_context)

    def _to_cluster(self, name: str, arguments: list[str]) -> list[str]:
        """Return the command that starts a driver on the cluster, with the options of the Spark connection."""
        master, conf = spark_master(self._conn_id), self.conf or {}
        check_cluster(master)
        self.application_args, self.name, self._deploy_mode = arguments, name, "cluster"
        self.conf = cluster_configuration(master, Environment.from_variables(), conf)
        self.conf |= DETACHED if self._detached else {}
        try:
            # A private method, as for the session of a bundle.
            return list(self._get_hook()._build_spark_submit_command(application_for(master, conf)))
        finally:
            self.conf = conf

    def _begins(self, order: Order, pipeline_context: Context) -> None:
        names = {sink.name for sink in order.sinks}
        targets = [sink.target for sink in pipeline_context.sinks if sink.name in names]
        page = addresses.page_address(order.pipeline_name, order.manifest_id)
        self._write_log(log_lines.begins(order, targets, page))
        event_log.emit(events.attempt_begins(order))

    def _staged(self, order: Order, stage: Stage, pipeline_context: Context) -> Receipt:
        self._begins(order, pipeline_context)
        try:
            with put_in_environment(pipeline_context.pipeline, pipeline_context.lookup):
                return stage(order)
        except TidemarkError:
            self._raise_if_ended_by_airflow(order.pipeline_name, order.manifest_id)
            raise

    def _submitted(self, order: Order, context: Any, pipeline_context: Context) -> Receipt:
        self._begins(order, pipeline_context)
        environment = Environment.from_variables()
        orders = environment.home / "_orders" / pipeline_context.database.id()
        folder = write_order_here(order, orders, _own_folder(order, pipeline_context.pipeline))
        self.application_args = [folder.address]
        self.name = name_of(order)
        try:
            with put_in_environment(pipeline_context.pipeline, pipeline_context.lookup):
                self._submit(folder, order, context)
            return read_receipt(folder, order)
        finally:
            folder.remove()

    def _submit(self, folder: OrderFolder, order: Order, context: Any) -> None:
        try:
            with TemporaryDirectory(prefix="tidemark-spark-") as working:
                master, jars = spark_master(self._conn_id), Environment.from_variables().spark_jars
                self.conf = driver_configuration(master, Path(working), self.conf or {}, order.span, jars)
                super().execute(context)
        except AirflowException as failed:
            self._raise_reason(folder, order)
            raise failed  # spark-submit did not start, or failed after the job had ended
        except BaseException:  # a time limit, or a log that can no longer be written: Spark still runs
            end(started())
            raise

    def on_kill(self) -> None:
        """End Spark when Airflow calls this on SIGTERM. The provider's ``on_kill`` ends the JVM of spark-submit, but
        not its Python.
        """
        self.ended_by_airflow = True
        if self._on_cluster is not None:
            self._on_cluster.end_jobs()  # it removes its order first, and ends its command then
            return
        end_jobs_on_servers()
        processes = started()  # listed before the JVM dies: afterwards its Python is no child of this process
        if self._hook is not None:
            super().on_kill()
        end(processes)

    def _raise_reason(self, folder: OrderFolder, order: Order) -> None:
        """Raise only the reason why Spark failed, if it gives one: Airflow's exception would hide it below Spark's
        log.
        """
        self._raise_if_ended_by_airflow(order.pipeline_name, order.manifest_id)
        submitted = self._hook and self._hook._submit_sp
        if submitted:
            try:
                read_receipt(folder, order, submitted.returncode)
            except TidemarkError as reason:
                raise reason from None

    def _raise_if_ended_by_airflow(self, pipeline_name: str, manifest_id: int) -> None:
        if self.ended_by_airflow:
            raise ended_by_airflow(pipeline_name, manifest_id) from None


def _own_folder(order: Order, pipeline: Pipeline) -> str | None:
    """Return the folder of one of the order's sinks, or None. From there the order is removed with the attempt's
    staging.
    """
    names = {sink.name for sink in order.sinks}
    folders = [sink.own_folder(pipeline.name) for sink in pipeline.sinks if sink.name in names]
    return next((folder for folder in folders if folder and folder.startswith("/")), None)


def started() -> list[psutil.Process]:
    """Return every process below this one: spark-submit and its children."""
    return list(psutil.Process().children(recursive=True))


def end_jobs_on_servers() -> None:
    """End the jobs that this process has on Spark Connect servers, without importing a module for it."""
    connected = sys.modules.get("tidemark.spark.connected")
    if connected is not None:
        ending = Thread(target=connected.end_jobs)  # the process's own thread waits for the server's answer
        ending.start()
        ending.join(INTERRUPT_S)


def end(processes: list[psutil.Process]) -> None:
    """Send SIGKILL to each process that still exists. The attempt's staged output stays in its own folder."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
