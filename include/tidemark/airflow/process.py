"""``process``: one manifest from attempt to publication, as one Airflow task."""

from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.airflow.lookup import in_environment, opened, spark_master
from tidemark.airflow.verdict import airflow_verdict
from tidemark.errors import TidemarkError
from tidemark.model import Order, Receipt
from tidemark.pipeline import Pipeline
from tidemark.publishing import Outcome
from tidemark.settings import Settings
from tidemark.spark.session import spark_configuration
from tidemark.spark.submitted import read_receipt, remove_order, write_order

APPLICATION = Path(__file__).resolve().parents[3] / "spark_jobs" / "process_manifest.py"


class ProcessManifestOperator(SparkSubmitOperator):
    """Starts an attempt, submits its order to the Spark connection, publishes what the receipt says.

    ``durable`` is off: the provider may else call a cleared task successful without running it. A done manifest is
    left alone, unless a person cleared the task (Airflow then raises ``max_tries``) or the trigger form asks.
    """

    template_fields = ("manifest_id", *SparkSubmitOperator.template_fields)

    def __init__(self, *, pipeline: Pipeline, manifest_id: int, conn_id: str = "spark_default", **kwargs: Any) -> None:
        settings = {**spark_configuration(Settings.from_environment().spark_jars), **pipeline.spark.conf}
        super().__init__(application=str(APPLICATION), conn_id=conn_id, conf=settings, durable=False, **kwargs)
        self.pipeline = pipeline
        self.manifest_id = manifest_id

    def execute(self, context: Any) -> None:
        with airflow_verdict(), opened(self.pipeline, context) as lifecycle:
            spark_master(self._conn_id)
            outcome = lifecycle.process(
                int(self.manifest_id),
                lambda order: self._stage(order, context),
                replay=self._asked_to_replay(context),
            )
            self.log.info(describe(self.pipeline.name, outcome))

    def _asked_to_replay(self, context: Any) -> bool:
        cleared = context["ti"].max_tries > self.retries
        return cleared or bool(context["params"].get("replay"))

    def _stage(self, order: Order, context: Any) -> Receipt:
        settings = Settings.from_environment()
        file = write_order(order, settings.home)
        self.application_args = [str(file)]
        self.name = f"tidemark {order.pipeline} manifest {order.manifest_id} attempt {order.attempt}"
        try:
            with in_environment(self.pipeline):
                super().execute(context)
            return read_receipt(file, order)
        except AirflowException as failed:
            raise self._why(file, order, failed) from failed
        finally:
            remove_order(file)

    def _why(self, file: Path, order: Order, failed: AirflowException) -> TidemarkError:
        try:
            read_receipt(file, order)
        except TidemarkError as reason:
            return reason
        raise failed


def describe(pipeline: str, outcome: Outcome) -> str:
    """One line for the log."""
    counts = outcome.counts
    return (
        f"{pipeline} manifest {outcome.manifest_id} attempt {outcome.attempt}: {outcome.ending}, read {counts.read:,}, "
        f"written {counts.written:,}, dead-lettered {counts.dead_lettered:,}"
    )
