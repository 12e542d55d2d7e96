"""Deletes the topics of ended tests, many at once, because for single ones the broker works five times as long."""

from sandbox.services.broker import Broker

TOGETHER = 20
_used: dict[Broker, list[str]] = {}


def delete_later(broker: Broker, *topics: str) -> None:
    """Delete topics whose names no later test has. The last ones are left to the end of the broker and its folder."""
    names = _used.setdefault(broker, [])
    names.extend(topics)
    if len(names) >= TOGETHER:
        del _used[broker]
        broker.delete_topic(*names)
