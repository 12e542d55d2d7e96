"""Opens the sinks of a pipeline, by the registry in ``kinds.py``, for the process that publishes."""

from tidemark.connections import Lookup
from tidemark.sinks.base import Sink
from tidemark.sinks.kinds import SINKS
from tidemark.sinks.settings import SinkSettings


def open_sink(pipeline_name: str, settings: SinkSettings, lookup: Lookup) -> Sink:
    """The sink for the process that publishes; ``lookup`` finds the connection that its settings name."""
    sink: Sink = SINKS[settings.kind].opens(settings.kind)(pipeline_name, settings, lookup)
    return sink
