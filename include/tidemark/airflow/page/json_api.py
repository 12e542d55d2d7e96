"""The JSON behind the page: the values that ``--json`` prints, for programs with a token of Airflow."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import AfterValidator

from tidemark.airflow.page import content
from tidemark.airflow.page.access import (
    LOGGED_IN,
    MAY_READ,
    Database,
    ListedPipelines,
    MayStart,
    OwnManifest,
    PipelineName,
    ReadablePipelines,
    StatesInAirflow,
    UnplannedPipelines,
)
from tidemark.model.event_hours import HourSelection
from tidemark.model.json_values import json_value
from tidemark.model.manifest import ManifestSelection, ManifestState
from tidemark.operations.status import worst_first
from tidemark.operations.timeline import Step
from tidemark.operations.timeline import timeline as timeline_of
from tidemark.times.moments import in_utc
from tidemark.views import open_metrics
from tidemark.views.lanes import lane_views
from tidemark.views.manifests import manifest_history_view, manifest_views

router = APIRouter(prefix="/api")
PAGE = 50  # manifests
HOURS = 1000  # six weeks

Moment = Annotated[datetime, AfterValidator(in_utc)]  # UTC when it has no zone
Limit = Annotated[int, Query(ge=1, le=1000)]
OneManifest = Annotated[int | None, Query(alias="manifest")]


def answer(value: Any) -> Response:
    """Return a value as a JSON response, with bytes as text. FastAPI's own encoder would refuse bytes that are not
    UTF-8.
    """
    return Response(json.dumps(value, default=json_value), media_type="application/json")


@router.get("/openapi.json", dependencies=[LOGGED_IN])
def openapi(request: Request) -> dict[str, Any]:
    """Return this description."""
    description: dict[str, Any] = request.app.openapi()
    return description


@router.get("/pipelines", dependencies=[LOGGED_IN])
def pipelines(database: Database, listed: ListedPipelines, in_airflow: StatesInAirflow) -> Response:
    """Return the pipelines whose DAG you may read: status, manifests by state, lag."""
    return answer(sorted((view for view, _ in content.pipelines_of(database, listed, in_airflow)), key=worst_first))


@router.get("/unplanned", dependencies=[LOGGED_IN])
def unplanned(pipelines: UnplannedPipelines) -> Response:
    """Return the pipelines whose DAG you may read and that have no successful plan: the newest try, and the address of
    its log.
    """
    return answer(pipelines)


@router.get("/pipelines/{dag_id}", dependencies=[MAY_READ])
def pipeline(database: Database, name: PipelineName, in_airflow: StatesInAirflow) -> Response:
    [(view, _)] = content.pipelines_of(database, [name], in_airflow)
    return answer(view)


@router.get("/pipelines/{dag_id}/lag", dependencies=[MAY_READ])
def lag(database: Database, name: PipelineName) -> Response:
    """Return the lag by partition; ``parts`` is null, with ``why``, if the source has not answered in time."""
    heard = content.lag_of(database, name)
    return answer({"parts": heard.parts, "why": heard.why})


@router.get("/pipelines/{dag_id}/lanes", dependencies=[MAY_READ])
def lanes(database: Database, name: PipelineName) -> Response:
    """Return the chain of each partition: all its offsets are done, except those in ``parts``."""
    return answer(lane_views(database, name))


@router.get("/pipelines/{dag_id}/coverage", dependencies=[MAY_READ])
def coverage(database: Database, name: PipelineName) -> Response:
    """Return the number of complete partitions; and of the others, at most 24, the worst first: what is done, not done,
    lost, taken by retention and not planned yet.
    """
    heard = content.lag_of(database, name)
    covered = content.coverage_of(database, name, heard)
    lanes = [
        {"topic": lane.lane.topic, "partition": lane.lane.partition, "generation": lane.lane.generation,
         "start": lane.lane.start, "end": lane.end, "offsets": lane.offsets, "parts": lane.bars,
         "dead_letters": lane.letters, "cells": lane.cells}
        for lane in covered.shown
    ]  # fmt: skip
    counts = {"partitions": covered.partitions, "complete": covered.complete, "more": covered.more}
    return answer({**counts, "lanes": lanes, "why_no_ends": heard.why})


@router.get("/pipelines/{dag_id}/timeline", dependencies=[MAY_READ])
def timeline(database: Database, name: PipelineName, by: Step | None = None, until: Moment | None = None) -> Response:
    """Return 48 hours, days or weeks up to a time, or up to now: runs, their manifests by state, records."""
    return answer(timeline_of(database, name, datetime.now(UTC), step=by, until=until))


@router.get("/pipelines/{dag_id}/manifests", dependencies=[MAY_READ])
def manifests(
    database: Database,
    name: PipelineName,
    state: ManifestState | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    topic: str | None = None,
    partition: int | None = None,
    lacks: str | None = None,
    after: int | None = None,
    limit: Limit = PAGE,
) -> Response:
    """Return manifests with their published files, newest first. For the next page, give the last id as ``after``.

    ``since`` and ``until``: of runs that read up to a time in (since, until]; ``topic`` and ``partition``: with offsets
    of them; ``lacks``: done, and not in this sink.
    """
    selection = ManifestSelection(state, since, until, topic, partition, lacks)
    return answer(manifest_views(database, database.manifests.page(name, selection, limit=limit, after=after)))


@router.get("/pipelines/{dag_id}/manifests/{manifest_id}", dependencies=[MAY_READ])
def manifest(database: Database, own: OwnManifest) -> Response:
    """Return a manifest with all its attempts and its history."""
    return answer(manifest_history_view(database, own))


@router.get("/pipelines/{dag_id}/manifests/{manifest_id}/compared", dependencies=[MAY_READ])
def compared(database: Database, own: OwnManifest) -> Response:
    """Return what each sink shows of the manifest, with verdict and next step. Needs the pipeline file, and reads the
    sinks.
    """
    return answer(content.compared_of(database, own))


@router.get("/pipelines/{dag_id}/hours", dependencies=[MAY_READ])
def hours(
    database: Database,
    name: PipelineName,
    incomplete: bool = False,
    before: Moment | None = None,
    limit: Limit = HOURS,
) -> Response:
    """Return the newest event hours, the oldest of them first. For earlier ones, give the first one as ``before``.
    Needs the pipeline file.
    """
    return answer(content.hours_of(database, name, HourSelection(incomplete, before=before, limit=limit)))


@router.get("/pipelines/{dag_id}/dead-letters", dependencies=[MAY_READ])
def dead_letters(
    database: Database,
    name: PipelineName,
    may_start: MayStart,
    manifest_id: OneManifest = None,
    limit: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> Response:
    """Return the dead letters of the newest 100 manifests that have some: in groups, and the first ``limit`` records,
    which need the right to trigger runs. Needs the pipeline file, and reads the sink."""
    if limit and not may_start:
        raise HTTPException(403, "to see records, you need the right to trigger runs of its DAG")
    return answer(content.letters_of(database, name, manifest_id, limit))


@router.get("/where", dependencies=[LOGGED_IN])
def where(database: Database, readable: ReadablePipelines, topic: str, partition: int, offset: int) -> Response:
    """Return the manifest that covers an offset, and the files that may hold its record, for pipelines that you may
    read.
    """
    return answer(content.chain_offsets(database, readable, topic, partition, offset))


@router.get("/metrics", dependencies=[LOGGED_IN])
def metrics(database: Database, listed: ListedPipelines, in_airflow: StatesInAirflow) -> Response:
    """Return gauges of the pipelines whose DAG you may read, in the text format of OpenMetrics."""
    views = content.pipelines_of(database, listed, in_airflow)
    with database.reading_ahead(listed):
        pipelines = [open_metrics.measured(database, view, lag.parts) for view, lag in views]
    return Response(open_metrics.text(pipelines), media_type=open_metrics.CONTENT_TYPE)
