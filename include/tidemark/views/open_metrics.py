"""Prints gauges of pipelines in the text format of OpenMetrics, which Prometheus and others scrape.

Every value is the present one in the manifest database, and may go down: a replay counts its records again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from tidemark.database.client import ManifestDatabase
from tidemark.operations.lag import Lag
from tidemark.operations.status import PROBLEMS, State
from tidemark.views.pipelines import PipelineView

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
HELP = {
    "tidemark_manifests": "Manifests by state.",
    "tidemark_state": "1 for the word that the page and `tidemark status` show, 0 for the others.",
    "tidemark_problems": "Problems that you must look at, by kind.",
    "tidemark_records_read": "Records read by published manifests.",
    "tidemark_rows_written": "Rows of published manifests, in one sink of each.",
    "tidemark_records_dead_lettered": "Records that are published as dead letters.",
    "tidemark_unknown_fields": "Fields that the schema does not have, in records of the newest two manifests.",
    "tidemark_expectations_unmet": "Rows that do not meet an expectation, in the newest two manifests.",
    "tidemark_rows_stale": "Rows of the newest two manifests that had a newer row of their key in the table.",
    "tidemark_rows_late": "Published rows that came after the allowed lateness.",
    "tidemark_offsets_lost": "Offsets that were given up before they were read.",
    "tidemark_hours_incomplete": "Event hours that are open.",
    "tidemark_published_up_to_seconds": "All stamped before this Unix time is published; absent when no run says so.",
    "tidemark_max_age_seconds": "How long ago that may be, by max_age of the pipeline file; absent without it.",
    "tidemark_last_done_seconds": "The Unix time at which the last manifest was done; absent before the first.",
    "tidemark_last_attempt_seconds": "How long the newest done manifest's attempt took; absent before the first.",
    "tidemark_lag_known": "1 when the source was heard, else 0, and the two gauges of the lag are absent.",
    "tidemark_offsets_not_planned": "Offsets of a partition that no manifest covers yet.",
    "tidemark_offsets_not_published": "Offsets of a partition that are planned and not published.",
}

Sample = tuple[str, Mapping[str, str], float]


@dataclass(frozen=True)
class Measured:
    """The measured values of one pipeline; ``lag`` is None if its source did not answer."""

    view: PipelineView
    lag: Sequence[Lag] | None
    read: int
    written: int
    took_s: float | None
    late: int
    incomplete_hours: int


def measured(database: ManifestDatabase, view: PipelineView, lag: Sequence[Lag] | None) -> Measured:
    records, hours = database.publications.sums(view.pipeline_name), database.hours.sums(view.pipeline_name)
    took = database.attempts.last_took(view.pipeline_name)
    return Measured(view, lag, records["read"], records["written"], took, hours["late"], hours["incomplete"])


def text(pipelines: Sequence[Measured]) -> str:
    """Return the text of all gauges of these pipelines; the samples of a gauge stand together, as the format needs."""
    gauges = {name: [f"# TYPE {name} gauge", f"# HELP {name} {help_}"] for name, help_ in HELP.items()}
    for pipeline in pipelines:
        for name, labels, value in _samples(pipeline):
            gauges[name].append(f"{name}{{{_labels(labels)}}} {value:.15g}")
    return "\n".join([*chain.from_iterable(gauges.values()), "# EOF", ""])


def _samples(pipeline: Measured) -> Iterator[Sample]:
    view = pipeline.view
    own = {"pipeline": view.pipeline_name}
    for of_manifest, count in view.manifests.items():
        yield "tidemark_manifests", {**own, "state": of_manifest}, count
    for state in State:
        yield "tidemark_state", {**own, "state": state.value}, state is view.state
    for kind in PROBLEMS:
        count = sum(problem.kind == kind for problem in view.problems)
        yield "tidemark_problems", {**own, "kind": kind.value}, count
    yield "tidemark_records_read", own, pipeline.read
    yield "tidemark_rows_written", own, pipeline.written
    yield "tidemark_records_dead_lettered", own, view.dead_lettered
    yield "tidemark_unknown_fields", own, view.newest.unknown_fields
    yield "tidemark_expectations_unmet", own, view.newest.unmet
    yield "tidemark_rows_stale", own, view.newest.stale
    yield "tidemark_rows_late", own, pipeline.late
    yield "tidemark_offsets_lost", own, view.lost
    yield "tidemark_hours_incomplete", own, pipeline.incomplete_hours
    yield from _time("tidemark_published_up_to_seconds", own, view.published_up_to)
    if view.max_age_s is not None:
        yield "tidemark_max_age_seconds", own, view.max_age_s
    yield from _time("tidemark_last_done_seconds", own, view.last_done_at)
    if pipeline.took_s is not None:
        yield "tidemark_last_attempt_seconds", own, pipeline.took_s
    yield "tidemark_lag_known", own, 0 if pipeline.lag is None else 1
    for part in pipeline.lag or ():
        place = {**own, "topic": part.topic, "partition": str(part.partition)}
        yield "tidemark_offsets_not_planned", place, part.lag
        yield "tidemark_offsets_not_published", place, part.unpublished


def _time(name: str, labels: Mapping[str, str], moment: datetime | None) -> Iterator[Sample]:
    if moment is not None:
        yield name, labels, moment.timestamp()


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())
