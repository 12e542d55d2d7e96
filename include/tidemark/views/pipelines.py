"""Views of pipelines, as the page lists them, and of decisions about one."""

from dataclasses import dataclass
from datetime import datetime

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import ManifestState
from tidemark.operations.lags import Answer
from tidemark.operations.status import Status


@dataclass(frozen=True)
class PipelineView(Status):
    """One pipeline as the page in Airflow lists it: its status, how many ``manifests`` are in each state, and when
    the last one was done.

    ``why_no_lag`` says why the lag is not known.
    """

    manifests: dict[str, int]
    last_done_at: datetime | None
    why_no_lag: str | None


@dataclass(frozen=True)
class DecisionView:
    """A decision about a pipeline: who, when, why, and one line for each thing that changed."""

    at: datetime
    actor: str
    decision: str
    why: str
    lines: tuple[str, ...]
    manifests: tuple[int, ...]


def pipeline_view(database: ManifestDatabase, status: Status, heard: Answer) -> PipelineView:
    states = database.manifests.states(status.pipeline_name)
    done = states.get(ManifestState.DONE)
    return PipelineView(
        **vars(status),
        manifests={state.value: states[state]["manifests"] if state in states else 0 for state in ManifestState},
        last_done_at=done["last_done"] if done else None,
        why_no_lag=heard.why,
    )


def decision_views(database: ManifestDatabase, pipeline_name: str) -> list[DecisionView]:
    """Return the decisions about a pipeline, oldest first."""
    return [
        DecisionView(row["at"], row["actor"], row["decision"], row["why"], tuple(row["lines"]), tuple(row["manifests"]))
        for row in database.decisions.of_pipeline(pipeline_name)
    ]
