"""A pipeline that reads a stream of RabbitMQ, and what its readers see."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from sandbox.services.rabbitmq import RabbitMQ
from sandbox.services.streams import Message, Streams
from tests.worlds.world import Place, World, happened
from tidemark.providers.rabbitmq.settings import ID

CONN_ID = "rabbit"


def address(server: RabbitMQ, user: str = "", password: str = "", vhost: str = "/") -> str:
    """The connection as a URI."""
    login = f"{user or server.user}:{password or server.password}"
    return f"rabbitmq://{login}@127.0.0.1:{server.port}/{quote(vhost, safe='')}"


@dataclass
class StreamWorld:
    """A pipeline with a stream as its source. ``values`` are the places of all records that were sent, by stream."""

    server: RabbitMQ
    make_world: Callable[..., World]
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"s{uuid4().hex[:12]}")
    sent: int = 0

    def __post_init__(self) -> None:
        self.streams.create_stream(self.name)
        targets = {CONN_ID: address(self.server)}
        self.world = self.make_world(settings={"source": self.source(**self.settings)}, targets=targets)

    @property
    def streams(self) -> Streams:
        return self.server.streams()

    def source(self, **settings: Any) -> dict[str, Any]:
        """The section ``source`` of the pipeline file."""
        named = {} if "super_stream" in settings else {"streams": [self.name]}
        return {"rabbitmq": {"connection": CONN_ID, **named, **settings}}

    def write(self, **settings: Any) -> None:
        """Write the pipeline file with other settings of the source."""
        self.world.settings["source"] = self.source(**settings)
        self.world.write_pipeline()

    def produce(self, count: int, *, to: str = "", codec: str | None = None, bad_every: int = 0) -> None:
        """Send numbered records; one of ``bad_every`` is no JSON."""
        numbers = range(self.sent, self.sent + count)
        bodies: list[Message] = [
            b"{" if bad_every and number % bad_every == 0 else value_of(number) for number in numbers
        ]
        self.streams.publish(to or self.name, bodies, codec, per_entry=7)
        self.sent += count

    def stores_id(self) -> bool:
        """Whether the stream keeps the number that tells it from another."""
        return self.streams.query_offset(self.name, ID) is not None

    def read_once(self, count: int, *, stream: str = "") -> None:
        """Readers see so many records of a stream, none of them twice, and the audit is clean."""
        seen: Counter[Place] = self.world.exact()
        assert sum(seen.values()) == count, seen
        assert max(seen.values(), default=1) == 1
        assert {topic for topic, _, _ in seen} <= {stream or self.name}
        assert self.world.ok("audit", "demo", "--deep") == ""


def value_of(number: int) -> bytes:
    """The record of this number, as the schema of a world says."""
    return json.dumps({"n": number, "at": happened(number).isoformat(), "name": f"r{number}"}).encode()
