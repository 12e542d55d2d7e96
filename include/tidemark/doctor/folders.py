"""The folders of each topic: a plan refuses a pipeline that would write into those of another one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial

from tidemark.database.client import ManifestDatabase
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.folders import stored_folders
from tidemark.lifecycle.renamed import refuse_looks_renamed
from tidemark.model.findings import Finding, failed
from tidemark.pipeline.folders import StreamFolders, folders_read, meetings, remedy, what_is_wrong
from tidemark.pipeline.loader import load_each
from tidemark.pipeline.settings import Pipeline


def checks(environment: Environment, pipelines: Sequence[Pipeline]) -> list[Check]:
    """Check each pipeline beside all others of the folder of pipeline files, read once, and of the database."""
    everybody = cache(lambda: [other for _, other in load_each(environment.pipelines) if isinstance(other, Pipeline)])
    return [
        Check(f"{each.name}: folders", partial(_findings, environment, each, everybody))
        for each in pipelines
        if any(sink.folders_of(each.name, "t") for sink in each.sinks)
    ]


def _findings(
    environment: Environment, pipeline: Pipeline, everybody: Callable[[], list[Pipeline]]
) -> Iterator[Finding]:
    others = everybody()
    topics = {topic for other in (pipeline, *others) for topic in other.source.topics}
    stored, renamed = list[StreamFolders](), None
    with suppress(TidemarkError), ManifestDatabase(environment.database(), "doctor") as database:  # has its own check
        topics |= {chain.at.topic for chain in database.chains.of_pipeline(pipeline.name)}
        stored = stored_folders(database, sorted(topics))
        renamed = _looks_renamed(pipeline, database)
    if renamed is not None:
        yield failed(f"{pipeline.name}: folders", renamed.what, renamed.next_step)
    own = folders_read(pipeline, sorted(topics))
    new = [folders for folders in own if folders not in stored]  # the first one that is planned keeps its folders
    of_files = [folders for other in others for folders in folders_read(other, sorted(topics))]
    for mine, other in dict.fromkeys([*meetings(own, stored), *meetings(new, of_files)]):
        yield failed(f"{pipeline.name}: folders", what_is_wrong(mine, other), remedy(mine, other))


def _looks_renamed(pipeline: Pipeline, database: ManifestDatabase) -> TidemarkError | None:
    """Return the reason why the first plan of a pipeline would be refused: it is another one by a new name."""
    try:
        if not database.pipelines.is_planned(pipeline.name):
            refuse_looks_renamed(pipeline, database)
    except TidemarkError as refused:
        return refused
    return None
