"""The content of the page and its JSON, the same as that of the command line and the Python functions."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from tidemark.airflow.doctor import stored
from tidemark.airflow.page.causes import StatedCause, cause_of_problem
from tidemark.airflow.page.lanes import CELLS, Coverage, coverage
from tidemark.airflow.page.peeking import peeked
from tidemark.airflow.page.runs import (
    DrawnRun,
    LagLine,
    LagPoint,
    LagWindow,
    RunFigures,
    countable,
    drawn_runs,
    figures_of,
    lag_line,
    with_failed_plan,
)
from tidemark.airflow.page.state_words import ManifestWords
from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.model.event_hours import HourSelection
from tidemark.model.manifest import Manifest
from tidemark.model.receipt import ObjectKind
from tidemark.operations.audit import Compared, compared_and_kept
from tidemark.operations.dead_letters import DeadLetters, DeadLetterSelection, dead_letters
from tidemark.operations.hours import Hour, hours
from tidemark.operations.lags import Answer, Lags, ask_sources
from tidemark.operations.locate import ChainOffset, locate
from tidemark.operations.peek import RecordSelection
from tidemark.operations.status import NOT_ASKED, InAirflow, PipelineProblem, status
from tidemark.pipeline.deployed import Deployed, known_file, known_files, pipeline_named
from tidemark.pipeline.kept import KeptFile, kept_file
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.capabilities import ShowsHours
from tidemark.sinks.located import Located
from tidemark.views.lanes import WITH_LETTERS, lane_views
from tidemark.views.objects import ObjectView, object_view
from tidemark.views.pipelines import PipelineView, pipeline_view

NOT_OPENED = "the page opens no sink; `tidemark where` names the row"


def settings_of(name: str) -> Pipeline:
    """Return the pipeline file, or its last valid text. The API server must see the folder of pipeline files."""
    return pipeline_named(Environment.from_variables().pipelines, name)


@contextmanager
def context_of(database: ManifestDatabase, name: str) -> Iterator[Context]:
    """Open the context of the pipeline as its tasks do, with Airflow's connections; nothing is connected yet."""
    with about(pipeline=name):
        yield open_context(settings_of(name), database, stored)


def kept_text(name: str) -> KeptFile | None:
    """Return the last valid texts of the pipeline file and the files that it names, without values of variables; None
    if nothing is kept.
    """
    return kept_file(name, Environment.from_variables().pipelines, os.environ)


lags = Lags(limit=1.5)  # seconds that a page waits for sources, all together


def pipelines_of(
    database: ManifestDatabase, names: Sequence[str], in_airflow: Mapping[str, InAirflow]
) -> list[tuple[PipelineView, Answer]]:
    """Return each pipeline with its lag."""
    files = _files(names)
    answers = _lags(database, files)
    views = []
    with database.reading_ahead(names):
        for name in names:
            now = status(database, name, files[name], heard=answers[name], in_airflow=in_airflow.get(name, NOT_ASKED))
            views.append((pipeline_view(database, now, answers[name]), answers[name]))
    return views


def words_of(database: ManifestDatabase, name: str) -> ManifestWords:
    """Return the findings that decide the words for the manifests of a pipeline. Does not ask the source."""
    return ManifestWords.of_pipeline(database, status(database, name, _files([name])[name]))


def causes_of(
    database: ManifestDatabase, problems: Sequence[PipelineProblem], names: Collection[str]
) -> list[StatedCause]:
    """Return each problem as the page shows it; that of a manifest with the manifest's reason."""
    ids = {problem.manifest_id for problem in problems if problem.manifest_id is not None}
    manifests = {manifest.id: manifest for manifest in database.manifests.find(ids=sorted(ids))} if ids else {}
    return [cause_of_problem(problem, manifests.get(problem.manifest_id or 0), names) for problem in problems]


def runs_of_each(
    database: ManifestDatabase, views: Sequence[PipelineView]
) -> dict[str, tuple[list[DrawnRun], LagLine | None]]:
    """Return the newest runs of each pipeline, and the line of the lags that they found."""
    drawn = {}
    with database.reading_ahead([view.pipeline_name for view in views]):
        for view in views:
            rows, words = database.runs.recent(view.pipeline_name), ManifestWords.of_pipeline(database, view)
            drawn[view.pipeline_name] = _drawn(database, view, rows, words), lag_line(rows)
    return drawn


def runs_of(
    database: ManifestDatabase, view: PipelineView, words: ManifestWords
) -> tuple[list[DrawnRun], dict[int | None, RunFigures]]:
    """Return the newest runs, and the figures of each by its id. A failed plan has id None and no figures."""
    rows = database.runs.recent(view.pipeline_name)
    records = database.runs.records([row["id"] for row in rows])
    figures = figures_of(rows, records, database.runs.files(countable(rows)))
    return _drawn(database, view, rows, words), {None: RunFigures(None, None, None, None), **figures}


def _drawn(database: ManifestDatabase, view: PipelineView, rows: Sequence[Row], words: ManifestWords) -> list[DrawnRun]:
    return with_failed_plan(drawn_runs(rows, words), database.tasks.failed(view.pipeline_name), view.retries)


def lags_over_time(database: ManifestDatabase, view: PipelineView, window: LagWindow) -> list[LagPoint]:
    """Return the lags that plans found in a window up to now, and the present lag."""
    now = database.now()
    rows = database.runs.lags(view.pipeline_name, now - window.length, window.step.total_seconds())
    points = [LagPoint.of(row["at"], row["lag"], row["published_before"]) for row in rows]
    return [*points, LagPoint.of(now, view.lag, view.published_up_to)]


def lag_of(database: ManifestDatabase, name: str) -> Answer:
    return _lags(database, _files([name]))[name]


def coverage_of(database: ManifestDatabase, name: str, heard: Answer) -> Coverage:
    """Return what the page draws of each partition. ``heard`` is the lag, as far as the source has answered."""
    logs = {(part.topic, part.partition): part for part in heard.parts or ()}
    return coverage(lane_views(database, name, CELLS), logs)


Files = Mapping[str, Deployed | ConfigurationError | None]


def _files(names: Sequence[str]) -> Files:
    folder = Environment.from_variables().pipelines
    if len(names) == 1:
        return {names[0]: known_file(folder, names[0])}
    known = known_files(folder, names)
    return {name: known[name] for name in names}


def _lags(database: ManifestDatabase, files: Files) -> dict[str, Answer]:
    """Ask the sources in parallel for the lag of pipelines whose file can be read."""
    unasked = {name: _unasked(file) for name, file in files.items() if not isinstance(file, Deployed)}
    right = {name: file.pipeline for name, file in files.items() if isinstance(file, Deployed)}
    pipelines = {name: pipeline for name, pipeline in right.items() if isinstance(pipeline, Pipeline)}
    return unasked | ask_sources(database, pipelines, stored, lags)


def _unasked(file: ConfigurationError | None) -> Answer:
    return Answer(None, "it has no pipeline file") if file is None else Answer(None, file.what, file.next_step)


def lacking(database: ManifestDatabase, name: str) -> dict[str, int]:
    """Return how many done manifests each sink of the pipeline file lacks; empty if the file cannot be read."""
    try:
        sinks = settings_of(name).sinks
    except TidemarkError:
        return {}
    return {sink.name: database.publications.count_lacking(name, sink.name) for sink in sinks}


def hours_of(database: ManifestDatabase, name: str, selection: HourSelection) -> list[Hour]:
    return hours(database, name, settings_of(name).event_time.allowed_lateness, selection)


def files_of_hour(database: ManifestDatabase, name: str, hour: Hour) -> tuple[list[ObjectView], bool]:
    """Return the published files in the folders of an hour, and True. If no sink has such folders, return all files of
    its manifests, and False.
    """
    objects = [
        (root, published)
        for _, root, published in database.publications.objects(ids=hour.manifests)
        if published.kind is ObjectKind.DATA
    ]
    topics = database.chains.topics(name)
    with context_of(database, name) as context:
        outputs = {sink.name: sink.output for sink in context.sinks if isinstance(sink.output, ShowsHours)}
    of_hour = [
        (root, published)
        for root, published in objects
        if published.sink in outputs
        and any(outputs[published.sink].is_of_hour(published.path, topic, hour.start) for topic in topics)
    ]
    return [object_view(root, published) for root, published in of_hour or objects], bool(of_hour)


def letters_of(database: ManifestDatabase, name: str, manifest_id: int | None, limit: int) -> DeadLetters:
    """Open the sink and read the published dead letters of the newest manifests that have some."""
    selection = DeadLetterSelection(manifest_id, newest=WITH_LETTERS)
    with context_of(database, name) as context:
        return dead_letters(context, selection, limit=limit)


def peeked_of(name: str, selection: RecordSelection) -> dict[str, Any]:
    """Read records from the source and show what the pipeline makes of them."""
    with about(pipeline=name):
        return peeked(settings_of(name), selection, stored)


def compared_of(database: ManifestDatabase, manifest: Manifest) -> list[Compared]:
    """Compare a manifest with each sink, one after the other, and keep differences as the last audit."""
    with context_of(database, manifest.pipeline_name) as context:
        return compared_and_kept(context, manifest)


def receipt_of(database: ManifestDatabase, manifest_id: int, attempt: int | None) -> dict[str, Any] | None:
    """Return what an attempt measured, without its list of objects."""
    receipt = database.attempts.receipt(manifest_id, attempt or 0)
    if receipt is None:
        return None
    return {name: part for name, part in asdict(replace(receipt, objects=())).items() if name != "objects"}


def chain_offsets(
    database: ManifestDatabase, names: Sequence[str], topic: str, partition: int, offset: int
) -> list[ChainOffset]:
    """Return what the chains of these pipelines know of an offset, and which published files may hold its record."""
    chains = locate(database, topic, partition, offset, lambda _: NOT_OPENED)
    return [_add_files(database, chain) for chain in chains if chain.pipeline_name in names]


def _add_files(database: ManifestDatabase, chain: ChainOffset) -> ChainOffset:
    if chain.manifest is None or not chain.sinks:
        return chain
    files: dict[str, str] = {}
    for _, root, each in database.publications.objects(ids=[chain.manifest.id]):
        if each.may_hold(chain.at.topic, chain.at.partition, chain.offset):
            files[each.sink] = ", ".join(filter(None, [files.get(each.sink), f"{root}/{each.path}"]))
    return replace(chain, sinks=tuple(_point_to_files(sink, files.get(sink.sink)) for sink in chain.sinks))


def _point_to_files(sink: Located, files: str | None) -> Located:
    return replace(sink, message="the files that may hold it", place=files) if files else sink
