"""Opens the sinks of a pipeline for the process that publishes."""

from tidemark.connections.lookup import Lookup
from tidemark.kinds import SINKS
from tidemark.sinks.base import Sink
from tidemark.sinks.settings import SinkSettings


def open_sink(pipeline_name: str, settings: SinkSettings, lookup: Lookup) -> Sink:
    """Open a sink for the process that publishes; ``lookup`` finds the connection that its settings name."""
    sink: Sink = SINKS.module(settings.kind, "sink").open_sink(pipeline_name, settings, lookup)
    return sink
