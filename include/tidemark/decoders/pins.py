"""Pins the readers' schemas of a manifest, in the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import ConfigurationError


@dataclass
class Pins:
    """``stored`` is what earlier attempts at the manifest used: it is used again. ``used`` grows by what is fetched.

    ``topics`` is empty for a pattern of topics. With ``register`` schemas may be added to a registry.
    """

    topics: Sequence[str]
    stored: Mapping[str, Any] = field(default_factory=dict)
    lookup: Lookup = from_environment
    used: dict[str, Any] = field(default_factory=dict)
    register: bool = False

    def all(self) -> dict[str, Any]:
        return {**self.stored, **self.used}

    def subject(self, part: str) -> str:
        """The subject of Confluent's default strategy, ``TOPIC-value`` or ``TOPIC-key``."""
        if len(self.topics) != 1:
            raise ConfigurationError(
                f"several topics ({', '.join(self.topics) or 'those of a pattern'}) have no common subject",
                next_step=f"name the schema of the rows in the pipeline file, below decode or decode.key: "
                f"schema: {{subject: {self.topics[0] if self.topics else 'TOPIC'}-{part}}}",
            )
        return f"{self.topics[0]}-{part}"
