"""Finds the writers of the sinks of an order in a Spark task, by the registry in ``kinds.py``."""

from tidemark.errors import ConfigurationError
from tidemark.sinks.kinds import SINKS
from tidemark.sinks.writer import SinkWriter


def writer_of(kind: str) -> type[SinkWriter]:
    """The writer of one sink in one task; ``ConfigurationError`` for a kind that is not registered."""
    if kind not in SINKS:
        raise ConfigurationError(f"no sink of kind {kind}", next_step=f"use one of {', '.join(SINKS)}")
    writer: type[SinkWriter] = SINKS[kind].writes(kind)
    return writer
