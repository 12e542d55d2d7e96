"""What every command on a pipeline needs: the pipeline, the manifest database, the source and the sinks."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.connections import Lookup, from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.base import Sink
from tidemark.sinks.registry import open_sink
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source


@dataclass(frozen=True)
class Context:
    """One pipeline with its source, its sinks and the manifest database."""

    pipeline: Pipeline
    database: ManifestDatabase
    source: Source
    sinks: tuple[Sink, ...]

    @property
    def pipeline_name(self) -> str:
        return self.pipeline.name

    def unpublished_sinks(self, manifest: Manifest) -> list[Sink]:
        """The sinks that have no publication of a manifest."""
        return [sink for sink in self.sinks if manifest.published(sink.name) is None]

    def sink_names(self, sinks: Sequence[Sink] | None = None) -> list[str]:
        return [sink.name for sink in (self.sinks if sinks is None else sinks)]


def open_context(pipeline: Pipeline, database: ManifestDatabase, lookup: Lookup = from_environment) -> Context:
    """Open source and sinks; ``lookup`` finds the connections they name. Nothing is connected yet.

    Raises ``ConfigurationError`` for a missing or wrong connection.
    """
    source = open_source(pipeline.name, pipeline.source, lookup)
    sinks = tuple(open_sink(pipeline.name, settings, lookup) for settings in pipeline.sinks)
    return Context(pipeline, database, source, sinks)
