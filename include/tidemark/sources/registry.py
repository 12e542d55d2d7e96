"""Opens the source of a pipeline, and lists what Spark needs to read sources."""

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.kinds import SOURCES
from tidemark.sources.base import Source
from tidemark.sources.settings import Connector, SourceSettings


def open_source(pipeline_name: str, settings: SourceSettings, lookup: Lookup = from_environment) -> Source:
    """Open the source for planning; ``lookup`` finds the connection that it names. Raises ``ConfigurationError``."""
    source: Source = SOURCES.module(settings.kind, "source").open_source(pipeline_name, settings, lookup)
    return source


def connectors() -> list[Connector]:
    """Return the jars that Spark needs to read the sources of all kinds."""
    kinds: list[type[SourceSettings]] = [module.Settings for module in SOURCES.modules("settings").values()]
    return [kind.connector for kind in kinds if kind.connector is not None]
