"""The registry of sinks: the package of each kind, with ``settings``, ``sink`` and ``writer`` modules.

Standard library only: executors import it too.
"""

from typing import Final

SINKS: Final[dict[str, str]] = {
    "dynamodb": "tidemark.sinks.dynamodb",
    "files": "tidemark.sinks.files",
    "iceberg": "tidemark.sinks.iceberg",
    "postgres": "tidemark.sinks.postgres",
    "topic": "tidemark.sinks.topic",
    "totals": "tidemark.sinks.postgres.totals",
}
