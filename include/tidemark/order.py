"""The order: all that Spark must know to do one attempt. Frozen, plain, and readable as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.offsets import Range, range_from
from tidemark.paths import staging_folder


@dataclass(frozen=True)
class SinkOrder:
    """One sink of an order: its name, its kind and what that kind needs."""

    name: str
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Order:
    """All that Spark must know to do one attempt; it needs no database and holds no secret.

    ``kafka_connection`` is the id under which whoever carries it out finds how to be let in; None: no security.
    """

    pipeline: str
    manifest_id: int
    attempt: int
    ranges: tuple[Range, ...]
    bootstrap_servers: str
    kafka_options: dict[str, str]
    decode: dict[str, Any]
    event_time: dict[str, Any]
    on_error: str
    sinks: tuple[SinkOrder, ...]
    kafka_connection: str | None = None
    nul_allowed: bool = True  # whether text may hold the character NUL, which PostgreSQL cannot store

    @property
    def staging(self) -> str:
        """The attempt's private folder, relative to each sink's root."""
        return staging_folder(self.manifest_id, self.attempt)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Order":
        raw = json.loads(text)
        return cls(
            **{
                **raw,
                "ranges": tuple(range_from(one) for one in raw["ranges"]),
                "sinks": tuple(SinkOrder(**one) for one in raw["sinks"]),
            }
        )
