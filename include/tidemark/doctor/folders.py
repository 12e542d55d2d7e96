"""The folders of each sink: a plan refuses a pipeline that would write into the folders of another one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.folders import stored_folders
from tidemark.lifecycle.renamed import refuse_looks_renamed
from tidemark.model.findings import Finding, failed
from tidemark.pipeline.folders import Meeting, folders_read, meetings_of
from tidemark.pipeline.loader import load_each
from tidemark.pipeline.settings import Pipeline


def checks(environment: Environment, pipelines: Sequence[Pipeline]) -> list[Check]:
    """Check each pipeline against all others in the folder of pipeline files, which is read once, and in the
    database.
    """
    everybody = cache(lambda: [other for _, other in load_each(environment.pipelines) if isinstance(other, Pipeline)])
    return [
        Check(f"{each.name}: folders", partial(_findings, environment, each, everybody))
        for each in pipelines
        if any(sink.folders_of(each.name, "t") or sink.claimed_folder(each.name) for sink in each.sinks)
    ]


def _findings(
    environment: Environment, pipeline: Pipeline, everybody: Callable[[], list[Pipeline]]
) -> Iterator[Finding]:
    others = everybody()
    topics = {topic for other in (pipeline, *others) for topic in other.source.topics}
    met: list[Meeting] | None = None
    renamed = None
    with (
        suppress(TidemarkError),
        ManifestDatabase(environment.database(), "doctor") as database,
    ):  # the database has its own check
        renamed = _looks_renamed(pipeline, database)
        topics |= {chain.at.topic for chain in database.chains.of_pipeline(pipeline.name)}
        stored = stored_folders(database, sorted(topics))
        met = _met(pipeline, others, topics, stored=stored, is_published=database.publications.any_in)
    if renamed is not None:
        yield failed(f"{pipeline.name}: folders", renamed.what, renamed.next_step)
    for meeting in _met(pipeline, others, topics) if met is None else met:
        yield failed(f"{pipeline.name}: folders", meeting.what, meeting.next_step)


def _met(pipeline: Pipeline, others: Sequence[Pipeline], topics: Iterable[str], **known: Any) -> list[Meeting]:
    """Return the overlaps of folders; ``known`` are the facts from the database, as arguments of ``meetings_of``."""
    topics = sorted(topics)
    own = folders_read(pipeline, topics)
    return meetings_of(
        pipeline, others, own, [each for other in others for each in folders_read(other, topics)], **known
    )


def _looks_renamed(pipeline: Pipeline, database: ManifestDatabase) -> TidemarkError | None:
    """Return the reason why the first plan of a pipeline would be refused: it seems to be another pipeline under a new
    name.
    """
    try:
        if not database.pipelines.is_planned(pipeline.name):
            refuse_looks_renamed(pipeline, database)
    except TidemarkError as refused:
        return refused
    return None
