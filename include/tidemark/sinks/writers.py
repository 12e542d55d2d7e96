"""The registry of sinks, seen from a Spark task: who stages the rows of each kind."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from tidemark.errors import ConfigurationError
from tidemark.order import Order, SinkOrder
from tidemark.sinks.writer import SinkWriter

# By name, and imported when the first order asks: an executor needs the driver of a database only to write to it.
WRITERS = {
    "files": ("tidemark.sinks.files.writer", "FilesWriter"),
    "postgres": ("tidemark.sinks.postgres.writer", "PostgresWriter"),
}


def open_writer(order: Order, sink: SinkOrder, task: str) -> SinkWriter:
    """The writer of one sink in one task; ``ConfigurationError`` for a kind that is not registered."""
    if sink.kind not in WRITERS:
        raise ConfigurationError(f"no sink of kind {sink.kind}", next_step=f"use one of {', '.join(WRITERS)}")
    module, name = WRITERS[sink.kind]
    make = cast("Callable[[Order, SinkOrder, str], SinkWriter]", getattr(import_module(module), name))
    return make(order, sink, task)


def has_staged(order: Order, sink: SinkOrder) -> bool:
    """Whether some task of the attempt has staged something whole, seen from outside."""
    module, _ = WRITERS[sink.kind]
    found: bool = import_module(module).has_staged(order, sink)
    return found
