"""Pins, in the driver, the schemas with which a manifest is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import ConfigurationError


@dataclass
class Pins:
    """The pinned schemas of a manifest.

    ``stored`` are those of earlier attempts at the manifest, which are used again. ``used`` collects those that are
    fetched. ``topics`` is empty for a pattern of topics. With ``register`` schemas may be added to a registry.
    """

    topics: Sequence[str]
    stored: Mapping[str, Any] = field(default_factory=dict)
    lookup: Lookup = from_environment
    used: dict[str, Any] = field(default_factory=dict)
    register: bool = False

    def all(self) -> dict[str, Any]:
        return {**self.stored, **self.used}

    def subject(self, part: str, form: str) -> str:
        """Return the subject of the one topic, such as ``{topic}-{part}``, for the part ``value`` or ``key``."""
        topic = self.topics[0] if self.topics else "TOPIC"
        if len(self.topics) != 1:
            raise ConfigurationError(
                f"several topics ({', '.join(self.topics) or 'those of a pattern'}) have no common subject",
                next_step=f"name the schema of the rows in the pipeline file, below decode or decode.key: "
                f"schema: {{subject: {form.format(topic=topic, part=part)}}}",
            )
        return form.format(topic=topic, part=part)
