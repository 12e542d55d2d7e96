"""The registry of sinks, seen from the process that publishes."""

from typing import assert_never

from tidemark.named_connections import Lookup
from tidemark.sink_settings import FilesSinkConfig, PostgresSinkConfig, SinkConfig
from tidemark.sinks.files import FilesSink
from tidemark.sinks.postgres import PostgresSink
from tidemark.sinks.publishing import Sink


def open_sink(pipeline: str, config: SinkConfig, lookup: Lookup) -> Sink:
    """The publishing side of a sink of a pipeline file; ``lookup`` finds the connection it names."""
    match config:
        case FilesSinkConfig():
            return FilesSink(pipeline, config, lookup)
        case PostgresSinkConfig():
            return PostgresSink(pipeline, config, lookup)
        case other:
            assert_never(other)
