"""The registry of sinks, seen from the process that publishes."""

from typing import assert_never

from tidemark.pipeline import FilesSinkConfig, SinkConfig
from tidemark.sinks.files import FilesSink


def open_sink(pipeline: str, config: SinkConfig) -> FilesSink:
    """The publishing side of a sink of a pipeline file."""
    match config:
        case FilesSinkConfig():
            return FilesSink(pipeline, config.name, config.root)
        case other:
            assert_never(other)
