"""The registry of sources: the package of each kind, with ``settings``, ``source`` and ``spark`` modules.

Standard library only: the command line, Airflow and Spark's driver all import it.
"""

from typing import Final

SOURCES: Final[dict[str, str]] = {
    "kafka": "tidemark.sources.kafka",
    "rabbitmq": "tidemark.sources.rabbitmq",
}
