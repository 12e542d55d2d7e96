"""``airflow`` of a pipeline file: how Airflow runs its tasks, how long a run may take, and who makes its DAG."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StringConstraints

from tidemark.config.base import Duration, Section

AirflowName = Annotated[str, StringConstraints(min_length=1, max_length=250)]


class AirflowTasks(Section):
    """Pool, priority and queue of the tasks that process manifests, the pause before a further try, the deadline."""

    pool: AirflowName = Field(
        default="default_pool", description="The pool of the tasks that process manifests; it must exist."
    )
    pool_slots: StrictInt = Field(default=1, ge=1, le=10_000, description="Slots that one of these tasks takes.")
    priority_weight: StrictInt = Field(
        default=1,
        ge=-1_000_000,
        le=1_000_000,
        description="Waiting tasks with a higher number start first.",
    )
    queue: AirflowName | None = Field(
        default=None,
        description="The queue of these tasks, for executors with queues.",
    )
    max_retry_delay: Duration | None = Field(
        default=timedelta(minutes=10),
        description="Each pause is about twice the one before, at random, at most this, and never less than "
        "`retry_delay`. `null`: always `retry_delay`.",
        json_schema_extra={"default": "10m"},
    )
    deadline: Duration | None = Field(
        default=None,
        description="How long a run may take after it was queued, such as `45m`, before people are "
        "[told](operations.md#a-deadline), once.",
        examples=["45m"],
    )
    bundle: StrictInt = Field(
        default=1,
        ge=1,
        le=1_000,
        description="Of a group: small manifests that one task processes in [one Spark "
        "application](one-file-many-tables.md#in-airflow), at most.",
    )
    deferrable: StrictBool | None = Field(
        default=None,
        description="Whether a task that waits for attempts of others does so in Airflow's "
        "[triggerer](operations.md#tasks-that-wait), and frees its slot. `null`: as Airflow's "
        "`[operators] default_deferrable` says.",
    )
    own_dag: StrictBool = Field(
        default=False, description="Whether a DAG file of yours makes the DAG; see [below](#a-dag-of-your-own)."
    )

    def retries(self, number: int, delay: timedelta) -> dict[str, object]:
        """Return Airflow's arguments for a task that is tried again."""
        pauses = {"retries": number, "retry_delay": delay}
        if self.max_retry_delay is None:
            return pauses
        return {**pauses, "retry_exponential_backoff": 2, "max_retry_delay": max(self.max_retry_delay, delay)}

    def process_arguments(self) -> dict[str, object]:
        """Return Airflow's arguments for the tasks that process manifests, without those that are Airflow's
        defaults.
        """
        keys = {"pool", "pool_slots", "priority_weight", "queue", "deferrable"}
        return self.model_dump(include=keys, exclude_defaults=True)
