"""The registry of sinks, seen from the process that publishes."""

from typing import assert_never

from tidemark.connections import Lookup
from tidemark.sinks.base import Sink
from tidemark.sinks.files.sink import FilesSink
from tidemark.sinks.postgres.sink import PostgresSink
from tidemark.sinks.settings import FilesSinkConfig, PostgresSinkConfig, SinkConfig


def open_sink(pipeline: str, config: SinkConfig, lookup: Lookup) -> Sink:
    """The publishing side of a sink of a pipeline file; ``lookup`` finds the connection it names."""
    match config:
        case FilesSinkConfig():
            return FilesSink(pipeline, config, lookup)
        case PostgresSinkConfig():
            return PostgresSink(pipeline, config, lookup)
        case other:
            assert_never(other)
