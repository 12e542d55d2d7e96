"""Finds the writers of the sinks of an order in a Spark task, by kind."""

from tidemark.kinds import SINKS
from tidemark.sinks.writer import SinkWriter


def writer_of(kind: str) -> type[SinkWriter]:
    """Return the writer class of a kind; raises ``ConfigurationError`` for a kind that is not registered."""
    writer: type[SinkWriter] = SINKS.module(kind, "writer").Writer
    return writer
