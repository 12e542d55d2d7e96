"""Finds the writers of the sinks of an order in a Spark task, by the registry in ``kinds.py``."""

from tidemark.errors import ConfigurationError
from tidemark.model.order import Order, SinkOrder
from tidemark.sinks.kinds import SINKS
from tidemark.sinks.writer import SinkWriter


def open_writer(order: Order, sink: SinkOrder, task: str) -> SinkWriter:
    """The writer of one sink in one task; ``ConfigurationError`` for a kind that is not registered."""
    return writer_of(sink.kind)(order, sink, task)


def writer_of(kind: str) -> type[SinkWriter]:
    if kind not in SINKS:
        raise ConfigurationError(f"no sink of kind {kind}", next_step=f"use one of {', '.join(SINKS)}")
    writer: type[SinkWriter] = SINKS[kind].writes(kind)
    return writer
