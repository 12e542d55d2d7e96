"""Finds the writers of the sinks of an order in a Spark task, by their kinds."""

from tidemark.kinds import SINKS
from tidemark.sinks.writer import SinkWriter


def writer_of(kind: str) -> type[SinkWriter]:
    """The writer of one sink in one task; ``ConfigurationError`` for a kind that is not registered."""
    writer: type[SinkWriter] = SINKS.module(kind, "writer").Writer
    return writer
