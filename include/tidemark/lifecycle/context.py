"""The context of every command on a pipeline: its file, the manifest database, the source and the sinks."""

from dataclasses import dataclass
from enum import Enum, auto

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError
from tidemark.lifecycle.known_sinks import refuse_unlike, with_known_keys
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.pipeline.settings import Pipeline
from tidemark.planner import Chain
from tidemark.sinks.base import Sink
from tidemark.sinks.registry import open_sink
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source


class Renaming(Enum):
    """The kind of name that a command is changing: the database does not know the new name in the file yet."""

    SINK = auto()
    PIPELINE = auto()


@dataclass(frozen=True)
class Context:
    """One pipeline with its source, its sinks and the manifest database."""

    pipeline: Pipeline
    database: ManifestDatabase
    source: Source
    sinks: tuple[Sink, ...]
    lookup: Lookup = from_environment  # for connections that are opened later, such as a schema registry

    @property
    def pipeline_name(self) -> str:
        return self.pipeline.name

    def sinks_to_finish(self, manifest: Manifest) -> list[Sink]:
        """Return the sinks that lack the output of a manifest; if it is done, those that a replay has not reached."""
        published = {publication.sink: publication for publication in manifest.publications}
        done = manifest.state is ManifestState.DONE
        return [
            sink
            for sink in self.sinks
            if sink.name not in manifest.given_up
            and (published[sink.name].behind if sink.name in published else not done)
        ]

    def chains(self) -> list[Chain]:
        """Return the chains of the topics that the pipeline file selects."""
        chains = self.database.chains.of_pipeline(self.pipeline_name)
        return [chain for chain in chains if self.pipeline.source.reads(chain.at.topic)]

    def sink_names(self) -> list[str]:
        return [sink.name for sink in self.sinks]


def open_context(
    pipeline: Pipeline,
    database: ManifestDatabase,
    lookup: Lookup = from_environment,
    *,
    renaming: Renaming | None = None,
) -> Context:
    """Open source and sinks, without connecting to them yet; ``lookup`` finds the connections that they name.

    Raises ``ConfigurationError`` for a missing or wrong connection; also raises as ``refuse_unusable`` and
    ``with_known_keys``.
    """
    refuse_unusable(pipeline, database, renaming)
    pipeline = with_known_keys(pipeline, database, lookup)
    source = open_source(pipeline.name, pipeline.source, lookup)
    sinks = tuple(open_sink(pipeline.name, settings, lookup) for settings in pipeline.sinks)
    return Context(pipeline, database, source, sinks, lookup)


def refuse_unusable(pipeline: Pipeline, database: ManifestDatabase, renaming: Renaming | None) -> None:
    """Raise ``ConfigurationError`` for a pipeline that no command may work with. This is the whole list, in order:

    1. The name is one that a pipeline had before, or not all targets have it yet (``refuse_renamed``).
    2. The pipeline was retired (``refuse_out_of_use``).
    3. One of its sinks is being renamed (``refuse_unlike``, as all that follow).
    4. A sink with a new name writes to the target of another sink, or into it.
    5. A sink was retired.
    6. A sink has another target than before, or another order of rows.

    ``renaming`` leaves out the checks of the name that the command itself changes. Before a context is opened, the
    pipeline file (``pipeline/loader.py``), its connections and the manifest database have been checked.
    """
    if renaming is not Renaming.PIPELINE:
        refuse_out_of_use(pipeline.name, database)
    if renaming is None:
        refuse_unlike(pipeline, database.sinks.known(pipeline.name))


def refuse_out_of_use(pipeline_name: str, database: ManifestDatabase) -> None:
    """Raise ``ConfigurationError`` for a retired pipeline, for the former name of a pipeline, and while a pipeline is
    being renamed."""
    refuse_renamed(pipeline_name, database)
    since = database.pipelines.retired_at(pipeline_name)
    if since is not None:
        raise ConfigurationError(
            f"the pipeline was retired on {since:%Y-%m-%d}; it is no longer planned",
            next_step=f"to go on with it: tidemark retire pipeline {pipeline_name} --undo --why TEXT; if it is "
            "another one, give it another name",
            pipeline=pipeline_name,
        )
