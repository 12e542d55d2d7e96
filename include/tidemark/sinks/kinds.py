"""The registry of sinks: the package of each kind, with ``settings``, ``sink`` and ``writer`` modules.

Standard library only: executors import it too.
"""

from typing import Final

SINKS: Final[dict[str, str]] = {
    "files": "tidemark.sinks.files",
    "postgres": "tidemark.sinks.postgres",
    "iceberg": "tidemark.sinks.iceberg",
}
