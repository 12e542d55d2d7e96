"""The registry of sinks: each kind is one value, by the names of its parts.

Standard library only: executors import it too.
"""

from dataclasses import dataclass
from typing import Any, Final

from tidemark.extras import object_of_kind


@dataclass(frozen=True)
class Kind:
    """A kind of sink, each part as ``module:name``, and imported when it is needed first.

    ``settings`` is a ``SinkSettings``, ``sink`` opens a ``Sink``, ``writer`` is a ``SinkWriter``. So an executor needs
    the driver of a database only to write to it.
    """

    settings: str
    sink: str
    writer: str

    def opens(self, kind: str) -> Any:
        """What opens a sink for the process that publishes; ``kind`` is its name in messages."""
        return object_of_kind(self.sink, kind)

    def writes(self, kind: str) -> Any:
        """The writer of a Spark task."""
        return object_of_kind(self.writer, kind)


def _in(package: str, writer: str) -> Kind:
    return Kind(f"{package}.settings:Settings", f"{package}.sink:open_sink", f"{package}.writer:{writer}")


SINKS: Final[dict[str, Kind]] = {
    "delta": _in("tidemark.sinks.delta", "DeltaWriter"),
    "files": _in("tidemark.sinks.files", "FilesWriter"),
    "iceberg": _in("tidemark.sinks.iceberg", "IcebergWriter"),
    "postgres": _in("tidemark.sinks.postgres", "PostgresWriter"),
    "topic": _in("tidemark.sinks.topic", "TopicWriter"),
    "totals": _in("tidemark.sinks.postgres.totals", "TotalsWriter"),
}
