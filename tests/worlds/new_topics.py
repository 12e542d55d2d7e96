"""Creates topics for tests, several at once, because for single ones the broker works ten times as long."""

from collections.abc import Mapping
from uuid import uuid4

from sandbox.services.broker import Broker

TOGETHER = 8
_unused: dict[tuple[Broker, int, frozenset[tuple[str, str]]], list[str]] = {}


def new_topic(broker: Broker, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """The name of an empty topic for one test. It keeps records of any date, unless ``config`` says otherwise."""
    settings = {"retention.ms": "-1", **(config or {})}
    names = _unused.setdefault((broker, partitions, frozenset(settings.items())), [])
    if not names:
        made = [f"t{uuid4().hex[:12]}" for _ in range(TOGETHER)]
        broker.create_topics(made, partitions, settings)
        names.extend(made)
    return names.pop()
