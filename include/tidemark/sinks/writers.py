"""Opens the sinks of an order in a Spark task, by the registry in ``kinds.py``.

The module ``writer`` of a kind is imported for the first order that needs it: an executor needs the driver of a
database only to write to it.
"""

from types import ModuleType

from tidemark.errors import ConfigurationError
from tidemark.extras import module_of_kind
from tidemark.order import Order, SinkOrder
from tidemark.sinks.kinds import SINKS
from tidemark.sinks.writer import SinkWriter


def open_writer(order: Order, sink: SinkOrder, task: str) -> SinkWriter:
    """The writer of one sink in one task; ``ConfigurationError`` for a kind that is not registered."""
    writer: SinkWriter = _module(sink.kind).open_writer(order, sink, task)
    return writer


def has_staged(order: Order, sink: SinkOrder) -> bool:
    """Whether a task of the attempt has completed a staged part; called outside of tasks."""
    staged: bool = _module(sink.kind).has_staged(order, sink)
    return staged


def try_connection(kind: str, conn_id: str) -> None:
    """Connect to a target as a task does, and disconnect; raises when this machine cannot."""
    _module(kind).try_connection(conn_id)


def _module(kind: str) -> ModuleType:
    if kind not in SINKS:
        raise ConfigurationError(f"no sink of kind {kind}", next_step=f"use one of {', '.join(SINKS)}")
    return module_of_kind(f"{SINKS[kind]}.writer", kind)
